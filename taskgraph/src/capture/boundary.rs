//! The boundary contract: what may differ between the call that was recorded and one that is replayed.
//!
//! Buffers, offsets and the values of scalars may. Number, shape, strides (and with them contiguity),
//! element type, direction and kind of memory of the tensors may not, nor the kinds of the scalars, nor
//! the place that the caller gives for a tensor. Two tensors that shared bytes must share the same ones
//! again, and two that shared none must share none: the edges between the nodes follow from that. The
//! workers that the nodes were recorded for must be there. Contents are compared, never hashes.

use std::sync::Arc;

use super::definition::{Definition, Expected};
use super::layout::{BoundaryTensor, Geometry, HEAP_ALIGN, Overlap};
use crate::args::{Access, TaskArgs, TensorArg};
use crate::buffer::BufferKind;
use crate::ids::TaskId;
use crate::schedule::Inference;
use crate::tensor::Tensor;

/// How a call differs from the one that was recorded.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{kind} differs from the recorded call: recorded {recorded}, found {found}{}", self.place())]
pub struct Mismatch {
    /// What differs.
    pub kind: MismatchKind,
    /// Which tensor or scalar; `None` when their number differs.
    pub index: Option<usize>,
    /// The recorded number, rank, code or distance, or the first dimension or stride that differs.
    pub recorded: i64,
    /// The same of this call.
    pub found: i64,
}

impl Mismatch {
    fn place(&self) -> String {
        self.index
            .map_or(String::new(), |index| format!(", at argument {index}"))
    }
}

/// What can differ.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
#[non_exhaustive]
pub enum MismatchKind {
    /// How many tensors there are.
    Tensors,
    /// How many scalars there are.
    Scalars,
    /// Shape of a tensor.
    Shape,
    /// Strides of a tensor.
    Strides,
    /// Element type of a tensor.
    DType,
    /// What is done to a tensor.
    Direction,
    /// The kind of memory that a tensor lies in.
    Memory,
    /// Where that memory is, as the caller numbers places.
    Place,
    /// Which bytes two tensors share.
    Overlap,
    /// The type of a scalar.
    ScalarType,
    /// Which workers there are: one that a task was recorded for is missing or lost. A binding does not
    /// know of workers; [`Scheduler::submit_graph`](crate::Scheduler::submit_graph) finds this.
    Target,
}

impl std::fmt::Display for MismatchKind {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(match self {
            MismatchKind::Tensors => "the number of tensors",
            MismatchKind::Scalars => "the number of scalars",
            MismatchKind::Shape => "the shape of a tensor",
            MismatchKind::Strides => "the strides of a tensor",
            MismatchKind::DType => "the element type of a tensor",
            MismatchKind::Direction => "the direction of a tensor",
            MismatchKind::Memory => "the kind of memory of a tensor",
            MismatchKind::Place => "the place of a tensor",
            MismatchKind::Overlap => "which bytes two tensors share",
            MismatchKind::ScalarType => "the type of a scalar",
            MismatchKind::Target => "the workers that there are",
        })
    }
}

/// Why a call that fits cannot be submitted all the same.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum BindError {
    /// The intermediate memory is too small or not aligned.
    #[error(
        "the graph needs {wanted} bytes of intermediate memory at a multiple of {HEAP_ALIGN}, found \
         {found} bytes at {byte_offset}"
    )]
    Heap {
        /// Bytes that are needed.
        wanted: u64,
        /// Bytes that were given.
        found: u64,
        /// Where they begin in their backing.
        byte_offset: u64,
    },
}

/// A definition with a boundary that fits: what [`Scheduler::submit_graph`] takes.
///
/// [`Scheduler::submit_graph`]: crate::Scheduler::submit_graph
#[derive(Clone, Debug)]
pub struct Binding<'a> {
    pub(crate) definition: &'a Arc<Definition>,
    pub(crate) boundary: &'a TaskArgs,
    pub(crate) heap: Option<Access>,
    pub(crate) after: &'a [TaskId],
    pub(crate) inference: Inference,
    pub(crate) is_prepared: bool,
}

impl<'a> Binding<'a> {
    /// With intermediate memory, which the graph task overwrites as far as other tasks are concerned: two
    /// replays that are given the same run one after the other, also where inference is switched off.
    ///
    /// # Errors
    /// When it is smaller than the definition's [need](Definition::heap_bytes), or not aligned.
    pub fn heap(self, memory: &Tensor) -> Result<Binding<'a>, BindError> {
        let (wanted, range) = (self.definition.heap_bytes(), memory.footprint());
        let (found, byte_offset) = (range.end - range.start, memory.byte_offset());
        if found < wanted || !memory.is_contiguous() || !byte_offset.is_multiple_of(HEAP_ALIGN) {
            return Err(BindError::Heap {
                wanted,
                found,
                byte_offset,
            });
        }
        let heap = Some(Access::new(memory, crate::args::Tag::OutputExisting));
        Ok(Binding { heap, ..self })
    }

    /// After these tasks, whatever the boundary says.
    pub fn after(self, after: &'a [TaskId]) -> Binding<'a> {
        Binding { after, ..self }
    }

    /// With inference switched off: only `after` counts, and who else uses the intermediate memory.
    pub fn manual(self) -> Binding<'a> {
        let inference = Inference::Manual;
        Binding { inference, ..self }
    }

    /// Not before [`Scheduler::prepared`](crate::Scheduler::prepared) was called for the task, either.
    pub fn prepared_later(self) -> Binding<'a> {
        let is_prepared = false;
        Binding {
            is_prepared,
            ..self
        }
    }
}

impl Definition {
    /// Compares a call with the recorded one. `places` says for each tensor where its memory is, in
    /// numbers of the caller; none is 0 for all.
    ///
    /// Costs the boundary: a comparison per tensor, and per pair of tensors in one buffer.
    ///
    /// # Errors
    /// The first difference.
    pub fn bind<'a>(
        self: &'a Arc<Self>,
        boundary: &'a TaskArgs,
        places: &[u32],
    ) -> Result<Binding<'a>, Mismatch> {
        let (tensors, scalars) = (boundary.tensors(), boundary.scalars());
        check_count(MismatchKind::Tensors, self.n_tensors(), tensors.len())?;
        check_count(MismatchKind::Scalars, self.n_scalars(), scalars.len())?;
        for (index, (expected, arg)) in self.boundary().zip(tensors).enumerate() {
            let place = places.get(index).copied().unwrap_or(0);
            if !expected.fits(arg, place) {
                return Err(expected.difference(index, arg, place));
            }
        }
        for (index, (&code, arg)) in self.scalar_codes().iter().zip(scalars).enumerate() {
            if code != arg.value.code() {
                let (recorded, found) = (i64::from(code), i64::from(arg.value.code()));
                return Err(mismatch(MismatchKind::ScalarType, index, recorded, found));
            }
        }
        self.check_overlaps(boundary)?;
        Ok(Binding {
            definition: self,
            boundary,
            heap: None,
            after: &[],
            inference: Inference::Automatic,
            is_prepared: true,
        })
    }

    fn check_overlaps(&self, boundary: &TaskArgs) -> Result<(), Mismatch> {
        let recorded = self.overlaps();
        let (mut n_found, mut extra) = (0, None);
        each_overlap(boundary, |found| {
            let is_known = recorded.binary_search(&found).is_ok();
            n_found += usize::from(is_known);
            if !is_known {
                extra = extra.or(Some(found));
            }
        });
        if extra.is_none() && n_found == recorded.len() {
            return Ok(());
        }
        // Without an overlap that is new, one of the recorded is missing.
        let missing = || {
            let mut all = Vec::new();
            each_overlap(boundary, |found| all.push(found));
            recorded
                .iter()
                .copied()
                .find(|overlap| !all.contains(overlap))
        };
        let of = |overlap: Option<Overlap>| overlap.map_or(-1, |overlap| i64::from(overlap.first));
        let missing = missing().filter(|missing| {
            extra.is_none_or(|extra| (missing.first, missing.second) == (extra.first, extra.second))
        });
        let second = extra
            .or(missing)
            .map_or(0, |overlap| overlap.second as usize);
        Err(mismatch(
            MismatchKind::Overlap,
            second,
            of(missing),
            of(extra),
        ))
    }
}

fn mismatch(kind: MismatchKind, index: usize, recorded: i64, found: i64) -> Mismatch {
    let index = Some(index);
    Mismatch {
        kind,
        index,
        recorded,
        found,
    }
}

fn check_count(kind: MismatchKind, recorded: u32, found: usize) -> Result<(), Mismatch> {
    if recorded as usize == found {
        return Ok(());
    }
    Err(Mismatch {
        kind,
        index: None,
        recorded: i64::from(recorded),
        found: found as i64,
    })
}

impl Expected<'_> {
    fn fits(&self, arg: &TensorArg, place: u32) -> bool {
        let raw = self.raw;
        self.geometry.fits(&arg.tensor)
            && raw.tag == arg.tag.code()
            && raw.kind == arg.tensor.buffer().kind.code()
            && raw.place == place
    }

    /// What it is that does not fit.
    #[cold]
    fn difference(&self, index: usize, arg: &TensorArg, place: u32) -> Mismatch {
        let (mine, theirs) = (self.geometry, Geometry::of(&arg.tensor));
        let dims = |mine: &[u64], theirs: &[u64]| {
            let pair = mine
                .iter()
                .zip(theirs)
                .find(|(mine, theirs)| mine != theirs);
            pair.map_or(
                (mine.len() as i64, theirs.len() as i64),
                |(&mine, &theirs)| (mine as i64, theirs as i64),
            )
        };
        let (kind, (recorded, found)) = if mine.shape() != theirs.shape() {
            (MismatchKind::Shape, dims(mine.shape(), theirs.shape()))
        } else if mine.strides() != theirs.strides() {
            (
                MismatchKind::Strides,
                dims(mine.strides(), theirs.strides()),
            )
        } else {
            let (raw, kind) = (self.raw, arg.tensor.buffer().kind.code());
            let codes = |mine: u32, theirs: u32| (i64::from(mine), i64::from(theirs));
            if mine.dtype != theirs.dtype {
                let pair = codes(u32::from(mine.dtype), u32::from(theirs.dtype));
                (MismatchKind::DType, pair)
            } else if raw.tag != arg.tag.code() {
                (MismatchKind::Direction, codes(raw.tag, arg.tag.code()))
            } else if raw.kind != kind {
                (MismatchKind::Memory, codes(raw.kind, kind))
            } else {
                (MismatchKind::Place, codes(raw.place, place))
            }
        };
        mismatch(kind, index, recorded, found)
    }
}

impl BoundaryTensor {
    pub(super) fn of(arg: &TensorArg, geometry: u32, place: u32) -> BoundaryTensor {
        let kind: BufferKind = arg.tensor.buffer().kind;
        BoundaryTensor {
            geometry,
            tag: arg.tag.code(),
            kind: kind.code(),
            place,
        }
    }
}

/// Behind the last tensor of a chain.
const END: u16 = u16::MAX;

/// Calls `found` for every pair of boundary tensors that share bytes.
///
/// Tensors whose buffers hash alike are a chain. A tensor is compared with those of its chain only where it lies among
/// them: slices of one buffer that are given in order, upwards or downwards, are compared with none.
pub(super) fn each_overlap(boundary: &TaskArgs, found: impl FnMut(Overlap)) {
    match boundary.accesses().len() {
        0..=1 => {}
        2..=4 => overlaps_in::<1>(boundary, &mut [Link::END; 4], found),
        5..=32 => overlaps_in::<128>(boundary, &mut [Link::END; 32], found),
        33..=64 => overlaps_in::<128>(boundary, &mut [Link::END; 64], found),
        n => overlaps_in::<256>(boundary, &mut vec![Link::END; n], found),
    }
}

/// A tensor on its chain.
#[derive(Clone, Copy)]
struct Link {
    /// The bytes between which it and the older ones lie.
    lo: u64,
    hi: u64,
    older: u16,
}

impl Link {
    const END: Link = Link {
        lo: 0,
        hi: 0,
        older: END,
    };
}

fn overlaps_in<const CHAINS: usize>(
    boundary: &TaskArgs,
    links: &mut [Link],
    mut found: impl FnMut(Overlap),
) {
    let accesses = boundary.accesses();
    let mut newest = [END; CHAINS];
    for (second, later) in accesses.iter().enumerate() {
        let (lo, hi) = (later.view.lo(), later.view.hi());
        let newest = &mut newest[later.buffer.hash() as usize % CHAINS];
        let older = std::mem::replace(newest, second as u16);
        links[second] = Link { lo, hi, older };
        if older != END {
            let chain = links[usize::from(older)];
            (links[second].lo, links[second].hi) = (lo.min(chain.lo), hi.max(chain.hi));
            if lo < chain.hi && chain.lo < hi {
                overlaps_with(accesses, links, second, |first| {
                    found(overlap(boundary, u32::from(first), second as u32));
                });
            }
        }
    }
}

/// Calls `found` for every older tensor of the chain of `second` that shares bytes with it.
fn overlaps_with(accesses: &[Access], links: &[Link], second: usize, mut found: impl FnMut(u16)) {
    let later = &accesses[second];
    let mut first = links[second].older;
    while first != END {
        let earlier = &accesses[usize::from(first)];
        if earlier.buffer == later.buffer && earlier.view.overlaps(&later.view) {
            found(first);
        }
        first = links[usize::from(first)].older;
    }
}

fn overlap(boundary: &TaskArgs, first: u32, second: u32) -> Overlap {
    let offset = |index: u32| boundary.tensors()[index as usize].tensor.byte_offset() as i64;
    Overlap {
        first,
        second,
        distance: offset(second) - offset(first),
    }
}
