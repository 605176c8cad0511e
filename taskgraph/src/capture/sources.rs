//! What the arguments of recorded tasks are parts of: the boundary, and intermediate memory.

use hashbrown::HashTable;
use smallvec::SmallVec;

use super::boundary::each_overlap;
use super::hash::mix;
use super::layout::{Allocation, BoundaryTensor, Geometry, Overlap};
use super::refusal::NotRecordable;
use crate::args::{Access, Tag, TaskArgs};
use crate::infer::NONE;
use crate::tensor::Tensor;
use crate::view::View;

/// Short hashes of buffers.
const LIKELY: usize = 128;

/// The boundary of a call that is recorded.
#[derive(Default)]
pub(super) struct Boundary {
    pub(super) args: TaskArgs,
    pub(super) raw: Vec<BoundaryTensor>,
    pub(super) overlaps: Vec<Overlap>,
    /// The newest tensor in each buffer, by hash.
    by_buffer: HashTable<u32>,
    /// One of the tensors whose buffers have this hash, in short: nearly always the right one.
    likely: Vec<u16>,
    /// For each tensor an older one in the same buffer.
    older: Vec<u32>,
    /// The tensors that are outputs, in order, each with what nodes have written of it.
    outputs: Vec<(u32, Written)>,
}

/// Intermediate memory while it is recorded.
pub(super) struct Intermediate {
    pub(super) place: Allocation,
    pub(super) is_used: bool,
    pub(super) written: Written,
}

/// Which bytes nodes have overwritten: views, of which runs are joined.
#[derive(Default)]
pub(super) struct Written(SmallVec<[View; 2]>);

/// How many views are looked at together. Of more, each counts for itself.
const TOGETHER_MAX: usize = 256;

impl Boundary {
    /// Takes the boundary of another call, in the memory of the last one, which was cleared.
    pub(super) fn begin(&mut self, args: &TaskArgs, places: &[u32], geometries: &mut Geometries) {
        each_overlap(args, |overlap| self.overlaps.push(overlap));
        self.overlaps.sort_unstable();
        let raw = |(index, arg): (usize, &crate::args::TensorArg)| {
            let place = places.get(index).copied().unwrap_or(0);
            BoundaryTensor::of(arg, geometries.number(&arg.tensor), place)
        };
        self.raw.extend(args.tensors().iter().enumerate().map(raw));
        self.args.clone_from(args);
        self.likely.resize(LIKELY, 0);
        (0..args.accesses().len()).for_each(|index| self.add(index));
    }

    pub(super) fn clear(&mut self) {
        self.args = TaskArgs::new();
        self.raw.clear();
        self.overlaps.clear();
        self.by_buffer.clear();
        self.likely.clear();
        self.older.clear();
        self.outputs.clear();
    }

    fn add(&mut self, index: usize) {
        let accesses = self.args.accesses();
        if is_output(accesses[index].tag) {
            self.outputs.push((index as u32, Written::default()));
        }
        let buffer = accesses[index].buffer;
        self.likely[buffer.hash() as usize % LIKELY] = index as u16;
        let is_same = |&other: &u32| accesses[other as usize].buffer == buffer;
        match self.by_buffer.find_mut(buffer.hash(), is_same) {
            Some(newest) => self.older.push(std::mem::replace(newest, index as u32)),
            None => {
                self.older.push(NONE);
                let hash = |&other: &u32| accesses[other as usize].buffer.hash();
                self.by_buffer
                    .insert_unique(buffer.hash(), index as u32, hash);
            }
        }
    }

    /// The tensor of the boundary that an access is, whole, where that is quickly seen.
    pub(super) fn find_whole(&self, tensor: &Tensor, access: &Access) -> Option<u32> {
        let index = self.likely[access.buffer.hash() as usize % LIKELY];
        let outer = self.args.tensors().get(usize::from(index))?;
        let is_whole = outer.tensor == *tensor && suits(outer.tag, access.tag);
        is_whole.then_some(u32::from(index))
    }

    /// The tensor of the boundary that an access is a part of: the very tensor if there is one, else one
    /// that covers it and allows what is done. What reads is a part of an output only if of nothing else.
    pub(super) fn find(
        &self,
        node: u32,
        argument: usize,
        tensor: &Tensor,
        access: &Access,
    ) -> Result<usize, NotRecordable> {
        let accesses = self.args.accesses();
        let buffer = access.buffer;
        let is_same = |&other: &u32| accesses[other as usize].buffer == buffer;
        let mut next = self.by_buffer.find(buffer.hash(), is_same).copied();
        let (mut covering, mut output, mut refused) = (None, None, None);
        while let Some(index) = next.filter(|&index| index != NONE) {
            let index = index as usize;
            next = Some(self.older[index]);
            let outer = &self.args.tensors()[index];
            if outer.tensor == *tensor && suits(outer.tag, access.tag) {
                return Ok(index);
            }
            if !covers(&outer.tensor, &accesses[index].view, tensor, &access.view) {
                continue;
            }
            if !allows(outer.tag, access.tag) {
                refused = Some((index, outer.tag));
            } else if suits(outer.tag, access.tag) {
                covering = Some(index);
            } else {
                output = Some(index);
            }
        }
        let tag = access.tag;
        covering.or(output).ok_or(match refused {
            Some((tensor, boundary)) => NotRecordable::Direction {
                node,
                argument,
                tag,
                tensor,
                boundary,
            },
            None => NotRecordable::Outside {
                node,
                argument,
                buffer,
            },
        })
    }

    /// Notes what a node overwrites of outputs.
    pub(super) fn note_write(&mut self, access: &Access) {
        let accesses = self.args.accesses();
        let is_met = |index: u32| {
            let output = &accesses[index as usize];
            output.buffer == access.buffer && output.view.overlaps(&access.view)
        };
        let met = self.outputs.iter_mut().filter(|it| is_met(it.0));
        met.for_each(|(_, written)| written.note(&access.view));
    }

    /// Whether nodes have written all of a view of output `index`.
    pub(super) fn has_written(&self, index: usize, view: &View) -> bool {
        let found = self
            .outputs
            .binary_search_by_key(&index, |it| it.0 as usize);
        found.is_ok_and(|at| self.outputs[at].1.covers(view))
    }

    /// The first output that no nodes have written all of.
    pub(super) fn unwritten(&self) -> Option<usize> {
        let view = |index: u32| &self.args.accesses()[index as usize].view;
        let mut outputs = self.outputs.iter();
        outputs
            .find(|(index, written)| !written.covers(view(*index)))
            .map(|(index, _)| *index as usize)
    }
}

/// Whether a tensor is a part of another wherever that lies: its bytes are, and it stays aligned.
pub(super) fn covers(outer: &Tensor, outer_view: &View, inner: &Tensor, view: &View) -> bool {
    outer.dtype().align() >= inner.dtype().align()
        && inner.byte_offset() >= outer.byte_offset()
        && (outer_view == view || outer_view.covers(view))
        // A view of nothing may lie anywhere, but not where a later boundary has no memory.
        && inner.byte_offset() <= outer_view.hi()
}

/// Whether the graph overwrites a tensor of the boundary without reading it.
pub(super) fn is_output(boundary: Tag) -> bool {
    matches!(boundary, Tag::Output | Tag::OutputExisting)
}

/// Whether a tensor that the boundary names like that is the one to be a part of: another is better to read from
/// than an output, which has its value only once it is written.
fn suits(boundary: Tag, inner: Tag) -> bool {
    allows(boundary, inner) && !(inner.reads() && is_output(boundary))
}

/// Whether a task may do this to a part of a tensor that the boundary names like that.
pub(super) fn allows(boundary: Tag, inner: Tag) -> bool {
    match boundary {
        Tag::NoDep | Tag::InOut => true,
        Tag::Input => !inner.writes(),
        // Reading is allowed once it is written.
        Tag::Output | Tag::OutputExisting => true,
    }
}

impl Intermediate {
    pub(super) fn new(offset: u64, bytes: u64) -> Intermediate {
        Intermediate {
            place: Allocation { offset, bytes },
            is_used: false,
            written: Written::default(),
        }
    }
}

impl Written {
    /// Whether every byte of a view is known to have been written.
    pub(super) fn covers(&self, view: &View) -> bool {
        view.is_empty() || self.one_covers(view) || self.together_cover(view)
    }

    fn one_covers(&self, view: &View) -> bool {
        self.0.iter().any(|written| written.covers(view))
    }

    /// Whether parts of the view that do not meet have as many bytes as it has.
    fn together_cover(&self, view: &View) -> bool {
        if self.0.len() > TOGETHER_MAX {
            return false;
        }
        let mut parts: SmallVec<[&View; 8]> = SmallVec::new();
        for part in self.0.iter().filter(|part| view.covers(part)) {
            if parts.iter().all(|other| !other.overlaps(part)) {
                parts.push(part);
            }
        }
        let bytes: Option<u64> = parts.iter().map(|part| part.bytes()).sum();
        bytes.is_some() && bytes == view.bytes()
    }

    pub(super) fn note(&mut self, view: &View) {
        if self.one_covers(view) {
            return;
        }
        let (mut lo, mut hi) = (view.lo(), view.hi());
        if !view.is_dense() {
            return self.0.push(*view);
        }
        self.0.retain(|other| {
            let touches = other.is_dense() && other.lo() <= hi && lo <= other.hi();
            if touches {
                (lo, hi) = (lo.min(other.lo()), hi.max(other.hi()));
            }
            !touches
        });
        self.0.push(View::dense(lo, hi));
    }
}

/// Every geometry once.
#[derive(Default)]
pub(super) struct Geometries {
    pub(super) all: Vec<Geometry>,
    by_contents: HashTable<u32>,
}

impl Geometries {
    pub(super) fn clear(&mut self) {
        self.all.clear();
        self.by_contents.clear();
    }

    pub(super) fn number(&mut self, tensor: &Tensor) -> u32 {
        // The hash of the first dimensions tells nearly all geometries apart, the comparison the rest.
        let strides = tensor
            .strides()
            .iter()
            .fold(u64::from(tensor.dtype().code()), |a, &b| mix(a, b));
        let hash = tensor.shape().iter().fold(strides, |a, &b| mix(a, b));
        let all = &self.all;
        let known = self
            .by_contents
            .find(hash, |&at| all[at as usize].fits(tensor));
        if let Some(&known) = known {
            return known;
        }
        let number = self.all.len() as u32;
        self.all.push(Geometry::of(tensor));
        let all = &self.all;
        self.by_contents
            .insert_unique(hash, number, |&at| hash_of(&all[at as usize]));
        number
    }
}

fn hash_of(geometry: &Geometry) -> u64 {
    let strides = geometry
        .strides()
        .iter()
        .fold(u64::from(geometry.dtype), |a, &b| mix(a, b));
    geometry.shape().iter().fold(strides, |a, &b| mix(a, b))
}
