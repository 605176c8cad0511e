//! Recording: the submits of a body, taken down instead of scheduled.
//!
//! Edges come from the same ledger that a scheduler uses, with every node live to the end, so a replay
//! orders its nodes exactly as an eager run would whose tasks are all submitted before any has ended.
//! Nothing outside is changed while a body is recorded: it can fail, panic or turn out not to be
//! recordable at any node, and then be run eagerly from its start.

use std::num::NonZeroU32;

use bytemuck::cast_slice;
use hashbrown::HashMap;

use super::check::{fits_members, is_placement};
use super::definition::Definition;
use super::layout::{
    Allocation, Arg, DATA, HEAP_ALIGN, Member, N_SECTIONS, Node, PredicateWord, READS_UNWRITTEN,
    ScalarWord, placement, source,
};
use super::refusal::NotRecordable;
use super::scalar::{BoundaryScalar, Origin};
use super::sources::{Boundary, Geometries, Intermediate, is_output};
use crate::args::{Access, ScalarArg, Tag, TaskArgs};
use crate::buffer::{BufferId, BufferKind};
use crate::dtype::DType;
use crate::infer::{Ledger, NONE, Why};
use crate::schedule::{Inference, Placement};
use crate::tensor::{Tensor, TensorError};

/// Owner of the buffers that stand for intermediate memory while a body is recorded.
const RECORDED: u64 = u64::MAX;

/// One task, as a body submits it to a recorder.
#[derive(Clone, Copy, Debug)]
pub struct NodeSpec<'a> {
    /// What it executes: a number of the caller's, or one that [`Recorder::callable`] gave.
    pub callable: u32,
    /// Over how many blocks a kernel runs.
    pub n_blocks: u32,
    /// Where it runs.
    pub placement: Placement<'a>,
    /// Its arguments; those of each member, for a group.
    pub members: &'a [&'a TaskArgs],
    /// Earlier nodes that it follows in any case.
    pub after: &'a [u32],
    /// The element that decides whether it runs, and the caller's code of what that has to be.
    pub predicate: Option<(&'a Tensor, u32)>,
    /// Whether edges come from the arguments.
    pub inference: Inference,
}

impl<'a> NodeSpec<'a> {
    /// A node over one block, with inferred edges.
    pub const fn new(
        callable: u32,
        placement: Placement<'a>,
        members: &'a [&'a TaskArgs],
    ) -> NodeSpec<'a> {
        NodeSpec {
            callable,
            n_blocks: 1,
            placement,
            members,
            after: &[],
            predicate: None,
            inference: Inference::Automatic,
        }
    }
}

/// Takes down the tasks of a body.
///
/// Costs about as much per node as a submit; memory in proportion to what is recorded, which it keeps for the
/// next recording that it [begins](Recorder::begin).
pub struct Recorder {
    recording: NonZeroU32,
    boundary: Boundary,
    ledger: Ledger,
    allocations: Vec<Intermediate>,
    heap_bytes: u64,
    flags: u32,
    geometries: Geometries,
    nodes: Vec<Node>,
    members: Vec<Member>,
    args: Vec<Arg>,
    scalars: Vec<ScalarWord>,
    workers: Vec<u32>,
    predicates: Vec<PredicateWord>,
    fan_in_offsets: Vec<u32>,
    fan_in: Vec<u32>,
    /// For each node where in `fan_in` the last edge out of it stands.
    last_edge: Vec<u32>,
    digests: Vec<[u8; 32]>,
    by_digest: HashMap<[u8; 32], u32>,
}

impl std::fmt::Debug for Recorder {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Recorder")
            .field("recording", &self.recording)
            .field("nodes", &self.nodes.len())
            .finish_non_exhaustive()
    }
}

impl Recorder {
    /// Begins to record a call with this boundary. `recording` tells its scalars from those of others;
    /// `places` is as in [`Definition::bind`].
    ///
    /// # Errors
    /// When the boundary has more tensors than the format can number.
    pub fn new(
        recording: NonZeroU32,
        boundary: &TaskArgs,
        places: &[u32],
    ) -> Result<Recorder, NotRecordable> {
        let mut recorder = Recorder {
            recording,
            boundary: Boundary::default(),
            ledger: Ledger::default(),
            allocations: Vec::new(),
            heap_bytes: 0,
            flags: 0,
            geometries: Geometries::default(),
            nodes: Vec::new(),
            members: Vec::new(),
            args: Vec::new(),
            scalars: Vec::new(),
            workers: Vec::new(),
            predicates: Vec::new(),
            fan_in_offsets: Vec::new(),
            fan_in: Vec::new(),
            last_edge: Vec::new(),
            digests: Vec::new(),
            by_digest: HashMap::new(),
        };
        recorder.begin(recording, boundary, places)?;
        Ok(recorder)
    }

    /// Begins another recording in the memory of the last one, of which nothing is left.
    ///
    /// # Errors
    /// As [`new`](Recorder::new); nothing can be recorded then before another one has begun.
    pub fn begin(
        &mut self,
        recording: NonZeroU32,
        boundary: &TaskArgs,
        places: &[u32],
    ) -> Result<(), NotRecordable> {
        self.recording = recording;
        self.clear();
        if boundary.tensors().len() >= usize::from(u16::MAX) {
            let what = "tensors of the boundary";
            return Err(NotRecordable::TooLarge { node: 0, what });
        }
        self.boundary.begin(boundary, places, &mut self.geometries);
        Ok(())
    }

    /// Bytes of memory that the next recording finds, about.
    pub fn kept_bytes(&self) -> usize {
        self.args.capacity() * size_of::<Arg>()
            + self.nodes.capacity() * size_of::<Node>()
            + self.fan_in.capacity() * 4
            + self.workers.capacity() * 4
    }

    fn clear(&mut self) {
        self.boundary.clear();
        self.ledger.clear();
        self.allocations.clear();
        (self.heap_bytes, self.flags) = (0, 0);
        self.geometries.clear();
        self.nodes.clear();
        self.members.clear();
        self.args.clear();
        self.scalars.clear();
        self.workers.clear();
        self.predicates.clear();
        self.fan_in_offsets.clear();
        self.fan_in_offsets.push(0);
        self.fan_in.clear();
        self.last_edge.clear();
        self.digests.clear();
        self.by_digest.clear();
    }

    /// A scalar of the boundary, to be forwarded; `None` when there is none at this position.
    pub fn scalar(&self, index: usize) -> Option<BoundaryScalar> {
        let value = self.boundary.args.scalars().get(index)?.value;
        Some(BoundaryScalar::recorded(
            value,
            self.recording,
            index as u32,
        ))
    }

    /// The number of a callable that is named by a digest. Not to be mixed with numbers of one's own.
    pub fn callable(&mut self, digest: &[u8; 32]) -> u32 {
        let next = self.digests.len() as u32;
        let number = *self.by_digest.entry(*digest).or_insert(next);
        if number == next {
            self.digests.push(*digest);
        }
        number
    }

    /// A row-major tensor in intermediate memory, which every replay has for itself.
    ///
    /// # Errors
    /// When there is no such tensor, or the memory of all does not fit in a backing.
    pub fn alloc(&mut self, dtype: DType, shape: &[u64]) -> Result<Tensor, TensorError> {
        let buffer = BufferId::new(
            RECORDED,
            self.allocations.len() as u64,
            self.recording.get(),
            BufferKind::Shared,
        );
        let limit = crate::tensor::BACKING_BYTES_MAX;
        let bytes = Tensor::contiguous(buffer, dtype, shape, limit)?
            .footprint()
            .end;
        let tensor = Tensor::contiguous(buffer, dtype, shape, bytes)?;
        let offset = self.heap_bytes;
        let end = offset.saturating_add(bytes.next_multiple_of(HEAP_ALIGN));
        if end > limit {
            return Err(TensorError::BackingTooLarge { backing_bytes: end });
        }
        self.heap_bytes = end;
        self.allocations.push(Intermediate::new(offset, bytes));
        Ok(tensor)
    }

    /// Number of nodes so far.
    pub fn n_nodes(&self) -> u32 {
        self.nodes.len() as u32
    }

    /// Takes down a task and returns its number.
    ///
    /// # Errors
    /// When no replay could do the same. The recording is then of no more use; the body can be run
    /// eagerly.
    pub fn submit(&mut self, spec: &NodeSpec<'_>) -> Result<u32, NotRecordable> {
        let number = self.nodes.len() as u32;
        if number >= DATA || self.args.len() >= (DATA / 2) as usize {
            return Err(NotRecordable::TooLarge {
                node: number,
                what: "nodes",
            });
        }
        let predicate = spec
            .predicate
            .map(|(element, _)| Access::new(element, Tag::Input));
        self.infer(number, spec, predicate.as_ref());
        self.follow(number, spec.after)?;
        self.fan_in_offsets.push(self.fan_in.len() as u32);
        let mut at = 0;
        for args in spec.members {
            self.take_args(number, args, &mut at)?;
            self.take_scalars(number, args.scalars())?;
            self.members.push(Member {
                args_end: self.args.len() as u32,
                scalars_end: self.scalars.len() as u32,
            });
        }
        // After all were looked at: what a task writes is not there yet when it, or another member, reads.
        let accesses = spec.members.iter().flat_map(|args| args.accesses());
        let written = accesses.filter(|access| access.tag.writes());
        written.for_each(|access| self.note_write(access));
        let (placement, n_subs) = self.take_placement(number, spec)?;
        let predicate = match (predicate, spec.predicate) {
            (Some(access), Some((element, condition))) => {
                self.take_predicate(number, element, &access, at, condition)?
            }
            _ => 0,
        };
        self.nodes.push(Node {
            callable: spec.callable,
            n_blocks: spec.n_blocks,
            placement,
            n_subs,
            members_end: self.members.len() as u32,
            workers_end: self.workers.len() as u32,
            predicate,
            unused: 0,
        });
        Ok(number)
    }

    /// The definition of what was submitted.
    ///
    /// # Errors
    /// When nodes leave a part of an output as it was: whoever reads that would not learn that its earlier
    /// writer has failed.
    pub fn finish(&mut self) -> Result<Definition, NotRecordable> {
        if let Some(tensor) = self.boundary.unwritten() {
            return Err(NotRecordable::PartialOutput { tensor });
        }
        let (out_offsets, out, roots) = turn_round(&self.fan_in_offsets, &self.fan_in);
        let codes: Vec<u32> = scalar_codes(self.boundary.args.scalars());
        let allocations: Vec<Allocation> = self.allocations.iter().map(|it| it.place).collect();
        // In the order of `Section`.
        let sections: [&[u8]; N_SECTIONS] = [
            cast_slice(&self.boundary.raw),
            cast_slice(&codes),
            cast_slice(&self.boundary.overlaps),
            cast_slice(&self.geometries.all),
            cast_slice(&allocations),
            cast_slice(&self.nodes),
            cast_slice(&self.fan_in_offsets),
            cast_slice(&self.fan_in),
            cast_slice(&out_offsets),
            cast_slice(&out),
            cast_slice(&roots),
            cast_slice(&self.members),
            cast_slice(&self.args),
            cast_slice(&self.scalars),
            cast_slice(&self.workers),
            cast_slice(&self.predicates),
            cast_slice(&self.digests),
        ];
        Ok(Definition::write(&sections, self.heap_bytes, self.flags))
    }

    /// Finds the edges into a node.
    fn infer(&mut self, number: u32, spec: &NodeSpec<'_>, predicate: Option<&Access>) {
        self.last_edge.push(NONE);
        match (spec.members, predicate) {
            _ if spec.inference == Inference::Manual => {}
            ([args], None) => self.infer_from(number, args.accesses().iter()),
            (members, _) => {
                let all = members.iter().flat_map(|args| args.accesses());
                self.infer_from(number, all.chain(predicate));
            }
        }
    }

    fn infer_from<'a>(&mut self, number: u32, accesses: impl Iterator<Item = &'a Access> + Clone) {
        let (fan_in, last_edge) = (&mut self.fan_in, &mut self.last_edge);
        let start = fan_in.len() as u32;
        let found = |_, earlier, why| add_edge(fan_in, last_edge, start, earlier, why);
        // Nobody retires the records of a node: it is live to the end.
        self.ledger
            .access_all(number, &mut NONE.clone(), accesses, found);
    }

    /// The edges of `after`.
    fn follow(&mut self, number: u32, after: &[u32]) -> Result<(), NotRecordable> {
        let start = self.fan_in_offsets[number as usize];
        for &earlier in after {
            if earlier >= number {
                return Err(NotRecordable::OutsideTask { node: number });
            }
            add_edge(
                &mut self.fan_in,
                &mut self.last_edge,
                start,
                earlier,
                Why::Data,
            );
        }
        Ok(())
    }

    fn take_args(
        &mut self,
        node: u32,
        args: &TaskArgs,
        at: &mut usize,
    ) -> Result<(), NotRecordable> {
        for (arg, access) in args.tensors().iter().zip(args.accesses()) {
            let arg = self.resolve(node, *at, &arg.tensor, access)?;
            self.args.push(arg);
            *at += 1;
        }
        Ok(())
    }

    fn take_scalars(&mut self, node: u32, scalars: &[ScalarArg]) -> Result<(), NotRecordable> {
        for (scalar, arg) in scalars.iter().enumerate() {
            let code = arg.value.code();
            let (bits, is_boundary) = match arg.origin {
                Origin::Value | Origin::Eager => (arg.value.bits(), 0),
                Origin::Recorded { recording, index } if recording == self.recording => {
                    (u64::from(index), 1)
                }
                Origin::Recorded { .. } => {
                    return Err(NotRecordable::ForeignScalar { node, scalar });
                }
            };
            self.scalars.push(ScalarWord {
                bits,
                code,
                is_boundary,
            });
        }
        Ok(())
    }

    fn take_placement(
        &mut self,
        node: u32,
        spec: &NodeSpec<'_>,
    ) -> Result<(u32, u32), NotRecordable> {
        let (code, workers, n_subs) = match &spec.placement {
            Placement::On(worker) => (placement::ON, std::slice::from_ref(worker), 0),
            Placement::AnyOf(workers) => (placement::ANY_OF, *workers, 0),
            Placement::Group(workers) => (placement::GROUP, *workers, 0),
            Placement::Sub => (placement::SUB, &[][..], 0),
            Placement::SubGroup(n) => (placement::SUB_GROUP, &[][..], *n),
        };
        let named = cast_slice(workers);
        if !is_placement(code, named, n_subs) {
            return Err(NotRecordable::Placement { node });
        }
        let n_members = spec.members.len();
        let fits = u32::try_from(n_members).is_ok_and(|n| fits_members(code, named, n_subs, n));
        if !fits || spec.n_blocks == 0 {
            return Err(NotRecordable::Members { node, n_members });
        }
        self.workers.extend(workers.iter().map(|worker| worker.0));
        Ok((code, n_subs))
    }

    fn take_predicate(
        &mut self,
        node: u32,
        element: &Tensor,
        access: &Access,
        at: usize,
        condition: u32,
    ) -> Result<u32, NotRecordable> {
        let element = self.resolve(node, at, element, access)?;
        self.predicates.push(PredicateWord {
            element,
            condition,
            unused: 0,
        });
        Ok(self.predicates.len() as u32)
    }

    /// Where a tensor argument comes from.
    fn resolve(
        &mut self,
        node: u32,
        argument: usize,
        tensor: &Tensor,
        access: &Access,
    ) -> Result<Arg, NotRecordable> {
        if access.buffer.owner == RECORDED {
            return self.resolve_internal(node, argument, tensor, access);
        }
        let whole = self.boundary.find_whole(tensor, access);
        let index = match whole {
            Some(index) => index as usize,
            None => self.boundary.find(node, argument, tensor, access)?,
        };
        let outer = &self.boundary.args.tensors()[index];
        let reads_output = is_output(outer.tag) && access.tag.reads();
        if reads_output && !self.boundary.has_written(index, &access.view) {
            return Err(NotRecordable::UnwrittenOutput {
                node,
                argument,
                tensor: index,
            });
        }
        if whole.is_some() || outer.tensor == *tensor {
            let geometry = self.boundary.raw[index].geometry;
            return Ok(arg(source::BOUNDARY, index as u32, 0, geometry, access.tag));
        }
        let offset = tensor.byte_offset() - outer.tensor.byte_offset();
        let geometry = self.geometries.number(tensor);
        Ok(arg(
            source::VIEW,
            index as u32,
            offset,
            geometry,
            access.tag,
        ))
    }

    fn resolve_internal(
        &mut self,
        node: u32,
        argument: usize,
        tensor: &Tensor,
        access: &Access,
    ) -> Result<Arg, NotRecordable> {
        let BufferId { id, generation, .. } = access.buffer;
        let is_own = generation == self.recording.get();
        let found = self.allocations.get_mut(id as usize).filter(|_| is_own);
        let found = found.ok_or(NotRecordable::Outside {
            node,
            argument,
            buffer: access.buffer,
        })?;
        let is_first = !std::mem::replace(&mut found.is_used, true);
        let geometry = self.geometries.number(tensor);
        let (offset, allocation) = (tensor.byte_offset(), id as u32);
        let is_whole = access.view.is_dense() && access.view.hi() == found.place.bytes;
        if access.tag == Tag::Output && is_first && offset == 0 && is_whole {
            return Ok(arg(source::OWN_OUTPUT, allocation, 0, geometry, access.tag));
        }
        let keeps = access.tag.reads() || access.tag == Tag::NoDep;
        if keeps && !found.written.covers(&access.view) {
            self.flags |= READS_UNWRITTEN;
        }
        Ok(arg(
            source::INTERNAL,
            allocation,
            offset,
            geometry,
            access.tag,
        ))
    }

    /// Notes what a node overwrites. Nobody can say whether one writes that the graph shall not order.
    fn note_write(&mut self, access: &Access) {
        if access.buffer.owner != RECORDED {
            return self.boundary.note_write(access);
        }
        let found = self.allocations.get_mut(access.buffer.id as usize);
        found
            .into_iter()
            .for_each(|it| it.written.note(&access.view));
    }
}

fn arg(source: u16, index: u32, offset: u64, geometry: u32, tag: Tag) -> Arg {
    Arg {
        offset,
        index,
        geometry,
        source,
        tag: tag.code() as u16,
        unused: 0,
    }
}

fn scalar_codes(scalars: &[ScalarArg]) -> Vec<u32> {
    scalars.iter().map(|arg| arg.value.code()).collect()
}

/// An edge into the node whose edges begin at `start`, once for each earlier node.
fn add_edge(fan_in: &mut Vec<u32>, last_edge: &mut [u32], start: u32, earlier: u32, why: Why) {
    let data = if why == Why::Data { DATA } else { 0 };
    let last = &mut last_edge[earlier as usize];
    if *last != NONE && *last >= start {
        fan_in[*last as usize] |= data;
        return;
    }
    *last = fan_in.len() as u32;
    fan_in.push(earlier | data);
}

/// The edges seen from the other end: offsets, edges, and the nodes that no edge leads to.
pub(super) fn turn_round(offsets: &[u32], fan_in: &[u32]) -> (Vec<u32>, Vec<u32>, Vec<u32>) {
    let mut out_offsets = vec![0; offsets.len()];
    for edge in fan_in {
        out_offsets[(edge & !DATA) as usize + 1] += 1;
    }
    for at in 1..out_offsets.len() {
        out_offsets[at] += out_offsets[at - 1];
    }
    let (mut next, mut out) = (out_offsets.clone(), vec![0; fan_in.len()]);
    let mut roots = Vec::new();
    for (to, pair) in (0..).zip(offsets.windows(2)) {
        if pair[0] == pair[1] {
            roots.push(to);
        }
        for edge in &fan_in[pair[0] as usize..pair[1] as usize] {
            let place = &mut next[(edge & !DATA) as usize];
            out[*place as usize] = to | edge & DATA;
            *place += 1;
        }
    }
    (out_offsets, out, roots)
}
