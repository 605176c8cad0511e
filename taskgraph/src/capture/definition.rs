//! A definition: a recorded graph, as one block of words that names nothing by address.

use std::ops::Range;

use bytemuck::{Pod, Zeroable};
use smallvec::SmallVec;

use super::args::{ArgSource, NodeArg, ScalarSource};
use super::check::{self, DecodeError};
use super::hash;
use super::layout::{
    Allocation, Arg, BoundaryTensor, Geometry, HASH_WORD, HEADER_WORDS, Header, ITEM_BYTES, Member,
    N_SECTIONS, Node, Overlap, PredicateWord, READS_UNWRITTEN, ScalarWord, Section, placement,
    source,
};
use crate::args::{Scalar, Tag};
use crate::ids::WorkerId;
use crate::schedule::Placement;

/// A recorded graph. Built by a [`Recorder`](super::Recorder) or read by [`Definition::decode`]; one
/// that exists is consistent.
///
/// Position-independent and immutable: shared by its cache and by every replay under way.
#[derive(Debug)]
pub struct Definition {
    words: Box<[u64]>,
    header: Header,
    starts: [usize; N_SECTIONS],
    targets: Targets,
}

/// Which workers a definition names.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Targets {
    /// A bit for each next-level worker that a node needs, alone or in a group.
    pub(crate) needed: u128,
    /// Each set of next-level workers of which a node needs one, once.
    pub(crate) any_of: SmallVec<[u128; 1]>,
    /// Sub workers that a node needs at once.
    pub(crate) n_subs: u32,
}

/// Equal contents; the hash only says "different" sooner.
impl PartialEq for Definition {
    fn eq(&self, other: &Definition) -> bool {
        self.words == other.words
    }
}

impl Eq for Definition {}

impl Definition {
    /// Reads a definition that [`to_bytes`](Definition::to_bytes) wrote, and checks all of it.
    ///
    /// # Errors
    /// Every [`DecodeError`]. Never panics, whatever the bytes.
    pub fn decode(bytes: &[u8]) -> Result<Definition, DecodeError> {
        if !bytes.len().is_multiple_of(8) {
            return Err(DecodeError::Length {
                found: bytes.len() as u64,
                wanted: bytes.len().next_multiple_of(8) as u64,
            });
        }
        let mut words = vec![0u64; bytes.len() / 8];
        bytemuck::cast_slice_mut(&mut words).copy_from_slice(bytes);
        let header = check::header(&words)?;
        let definition = Definition::assemble(words.into_boxed_slice(), header);
        check::contents(&definition)?;
        Ok(definition)
    }

    /// The definition as it is kept in a file: native endianness.
    pub fn to_bytes(&self) -> &[u8] {
        bytemuck::cast_slice(&self.words)
    }

    /// The hash of all contents.
    pub fn content_hash(&self) -> u64 {
        self.header.content_hash
    }

    /// Size in bytes.
    pub fn bytes(&self) -> usize {
        size_of_val(&*self.words)
    }

    /// Number of tasks.
    pub fn n_nodes(&self) -> u32 {
        self.header.counts[Section::Nodes as usize]
    }

    /// Number of edges.
    pub fn n_edges(&self) -> u32 {
        self.header.counts[Section::FanIn as usize]
    }

    /// Number of tensors of the boundary.
    pub fn n_tensors(&self) -> u32 {
        self.header.counts[Section::Tensors as usize]
    }

    /// Number of scalars of the boundary.
    pub fn n_scalars(&self) -> u32 {
        self.header.counts[Section::ScalarCodes as usize]
    }

    /// Intermediate memory that a replay needs, in bytes.
    pub fn heap_bytes(&self) -> u64 {
        self.header.heap_bytes
    }

    /// Whether some node reads intermediate memory that no node is known to have written before: who
    /// promises that fresh memory is zero must make it so for every replay.
    pub fn reads_unwritten(&self) -> bool {
        self.header.flags & READS_UNWRITTEN != 0
    }

    /// The nodes that follow no other one, in order.
    pub fn roots(&self) -> &[u32] {
        self.section(Section::Roots)
    }

    /// A node by its number, which counts the submits of the body.
    ///
    /// # Panics
    /// When there is no such node.
    pub fn node(&self, number: u32) -> NodeRef<'_> {
        let nodes: &[Node] = self.section(Section::Nodes);
        NodeRef {
            definition: self,
            number,
            node: &nodes[number as usize],
            members_start: ends_before(nodes, number, |node| node.members_end),
        }
    }

    /// All nodes, in the order of their submission.
    pub fn nodes(&self) -> impl ExactSizeIterator<Item = NodeRef<'_>> {
        (0..self.n_nodes()).map(|number| self.node(number))
    }

    /// The digest of a callable; `None` when callables were numbered by the caller.
    pub fn digest(&self, callable: u32) -> Option<&[u8; 32]> {
        let digests: &[[u8; 32]] = self.section(Section::Digests);
        digests.get(callable as usize)
    }

    /// Where an allocation lies inside the heap need.
    pub fn allocation(&self, number: u32) -> Option<Range<u64>> {
        let all: &[Allocation] = self.section(Section::Allocations);
        let found = all.get(number as usize)?;
        Some(found.offset..found.offset + found.bytes)
    }

    pub(crate) fn targets(&self) -> &Targets {
        &self.targets
    }

    /// For each node how many it follows: what an instance counts down.
    pub(crate) fn fan_in_counts(&self) -> impl Iterator<Item = u32> {
        let offsets: &[u32] = self.section(Section::FanInOffsets);
        offsets.windows(2).map(|pair| pair[1] - pair[0])
    }

    /// The edges out of a node, [`DATA`](super::layout::DATA) on those with data.
    pub(crate) fn raw_fan_out(&self, number: u32) -> &[u32] {
        self.edges(Section::FanOutOffsets, Section::FanOut, number)
    }

    pub(super) fn edges(&self, offsets: Section, edges: Section, number: u32) -> &[u32] {
        let offsets: &[u32] = self.section(offsets);
        let (at, edges): (_, &[u32]) = (number as usize, self.section(edges));
        &edges[offsets[at] as usize..offsets[at + 1] as usize]
    }

    pub(super) fn words(&self) -> &[u64] {
        &self.words
    }

    pub(super) fn geometry(&self, number: u32) -> &Geometry {
        let all: &[Geometry] = self.section(Section::Geometries);
        &all[number as usize]
    }

    pub(super) fn section<T: Pod>(&self, section: Section) -> &[T] {
        let at = section as usize;
        let n_items = self.header.counts[at] as usize;
        debug_assert_eq!(ITEM_BYTES[at], size_of::<T>(), "{section:?}");
        let end = self.starts[at] + (n_items * size_of::<T>()).div_ceil(8);
        &bytemuck::cast_slice(&self.words[self.starts[at]..end])[..n_items]
    }

    /// Puts sections together, each whole items of its kind, and the header in front of them.
    pub(super) fn write(sections: &[&[u8]; N_SECTIONS], heap_bytes: u64, flags: u32) -> Definition {
        let n_words = |section: &&[u8]| section.len().div_ceil(8);
        let mut words = vec![0; HEADER_WORDS + sections.iter().map(n_words).sum::<usize>()];
        let mut header = Header {
            magic: super::layout::MAGIC,
            schema: super::layout::SCHEMA,
            n_words: words.len() as u64,
            heap_bytes,
            flags,
            ..Header::zeroed()
        };
        let mut rest = &mut words[HEADER_WORDS..];
        for (at, section) in sections.iter().enumerate() {
            let place;
            (place, rest) = rest.split_at_mut(n_words(section));
            let place: &mut [u8] = bytemuck::cast_slice_mut(place);
            place[..section.len()].copy_from_slice(section);
            header.counts[at] = (section.len() / ITEM_BYTES[at]) as u32;
        }
        words[..HEADER_WORDS].copy_from_slice(bytemuck::cast_slice(&[header]));
        header.content_hash = hash::of_words(&words);
        words[HASH_WORD] = header.content_hash;
        let definition = Definition::assemble(words.into_boxed_slice(), header);
        debug_assert_eq!(check::contents(&definition), Ok(()), "what was recorded");
        definition
    }

    /// Puts words and a header together whose sections fill them exactly.
    fn assemble(words: Box<[u64]>, header: Header) -> Definition {
        let mut starts = [0; N_SECTIONS];
        let mut next = HEADER_WORDS;
        for (at, start) in starts.iter_mut().enumerate() {
            *start = next;
            next += (header.counts[at] as usize * ITEM_BYTES[at]).div_ceil(8);
        }
        let mut definition = Definition {
            words,
            header,
            starts,
            targets: Targets::default(),
        };
        definition.targets = definition.find_targets();
        definition
    }

    fn find_targets(&self) -> Targets {
        let mut targets = Targets::default();
        let workers: &[u32] = self.section(Section::Workers);
        let mut start = 0;
        for node in self.section::<Node>(Section::Nodes) {
            let named = workers.get(start..node.workers_end as usize).unwrap_or(&[]);
            start = node.workers_end as usize;
            let set = named.iter().fold(0, |set, &worker| {
                set | 1u128.checked_shl(worker).unwrap_or(0)
            });
            match node.placement {
                placement::ANY_OF if targets.any_of.last() == Some(&set) => {}
                placement::ANY_OF => targets.any_of.push(set),
                _ => targets.needed |= set,
            }
            let n_subs = node.n_subs.max(u32::from(node.placement == placement::SUB));
            targets.n_subs = targets.n_subs.max(n_subs);
        }
        targets.any_of.sort_unstable();
        targets.any_of.dedup();
        targets
    }
}

/// Where the items of a node begin: behind those of the one before.
fn ends_before(nodes: &[Node], number: u32, end: impl Fn(&Node) -> u32) -> u32 {
    let before = (number as usize).checked_sub(1);
    before.map_or(0, |before| end(&nodes[before]))
}

/// One node of a definition.
#[derive(Clone, Copy, Debug)]
pub struct NodeRef<'a> {
    definition: &'a Definition,
    number: u32,
    node: &'a Node,
    members_start: u32,
}

/// An element of a tensor that decides whether a node runs.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Predicate {
    /// The element, as a tensor that the node reads.
    pub element: NodeArg,
    /// What it has to be, in the code of whoever recorded it.
    pub condition: u32,
}

impl<'a> NodeRef<'a> {
    /// Its number among the nodes.
    pub fn number(&self) -> u32 {
        self.number
    }

    /// What it executes: a number of the caller's, or that of a [digest](Definition::digest).
    pub fn callable(&self) -> u32 {
        self.node.callable
    }

    /// Over how many blocks a kernel runs.
    pub fn n_blocks(&self) -> u32 {
        self.node.n_blocks
    }

    /// Where it runs.
    pub fn placement(&self) -> Placement<'a> {
        let nodes: &[Node] = self.definition.section(Section::Nodes);
        let start = ends_before(nodes, self.number, |node| node.workers_end) as usize;
        let all: &[u32] = self.definition.section(Section::Workers);
        let workers: &[WorkerId] =
            bytemuck::cast_slice(&all[start..self.node.workers_end as usize]);
        match self.node.placement {
            placement::ON => Placement::On(workers[0]),
            placement::ANY_OF => Placement::AnyOf(workers),
            placement::GROUP => Placement::Group(workers),
            placement::SUB => Placement::Sub,
            _ => Placement::SubGroup(self.node.n_subs),
        }
    }

    /// Number of argument lists: one, or one for each member of a group.
    pub fn n_members(&self) -> u32 {
        self.node.members_end - self.members_start
    }

    /// The tensors of a member; of a task that is no group, those of member 0.
    ///
    /// # Panics
    /// When there is no such member.
    pub fn args(&self, member: u32) -> impl ExactSizeIterator<Item = NodeArg> + use<'a> {
        let range = self.items(member, |member| member.args_end);
        let args: &'a [Arg] = self.definition.section(Section::Args);
        args[range].iter().map(NodeArg::of)
    }

    /// The scalars of a member.
    ///
    /// # Panics
    /// When there is no such member.
    pub fn scalars(&self, member: u32) -> impl ExactSizeIterator<Item = ScalarSource> + use<'a> {
        let range = self.items(member, |member| member.scalars_end);
        let scalars: &'a [ScalarWord] = self.definition.section(Section::Scalars);
        scalars[range].iter().map(ScalarSource::of)
    }

    /// The element that decides whether it runs.
    pub fn predicate(&self) -> Option<Predicate> {
        let at = self.node.predicate.checked_sub(1)?;
        let all: &[PredicateWord] = self.definition.section(Section::Predicates);
        let PredicateWord {
            element, condition, ..
        } = &all[at as usize];
        Some(Predicate {
            element: NodeArg::of(element),
            condition: *condition,
        })
    }

    /// The nodes that it follows, each with whether it uses what that one makes.
    pub fn fan_in(&self) -> impl ExactSizeIterator<Item = (u32, bool)> + use<'a> {
        let (offsets, edges) = (Section::FanInOffsets, Section::FanIn);
        self.definition
            .edges(offsets, edges, self.number)
            .iter()
            .map(edge)
    }

    /// The nodes that follow it, each with whether it uses what this one makes.
    pub fn fan_out(&self) -> impl ExactSizeIterator<Item = (u32, bool)> + use<'a> {
        self.definition.raw_fan_out(self.number).iter().map(edge)
    }

    fn items(&self, member: u32, end: impl Fn(&Member) -> u32) -> Range<usize> {
        assert!(member < self.n_members(), "no member {member}");
        let members: &[Member] = self.definition.section(Section::Members);
        let at = (self.members_start + member) as usize;
        let start = at.checked_sub(1).map_or(0, |before| end(&members[before]));
        start as usize..end(&members[at]) as usize
    }
}

fn edge(edge: &u32) -> (u32, bool) {
    use super::layout::DATA;
    (edge & !DATA, edge & DATA != 0)
}

/// What a tensor of the boundary is, for the contract.
pub(super) struct Expected<'a> {
    pub(super) geometry: &'a Geometry,
    pub(super) raw: &'a BoundaryTensor,
}

impl Definition {
    /// The tensors of the boundary, in order.
    pub(super) fn boundary(&self) -> impl ExactSizeIterator<Item = Expected<'_>> {
        let tensors: &[BoundaryTensor] = self.section(Section::Tensors);
        let geometries: &[Geometry] = self.section(Section::Geometries);
        tensors.iter().map(move |raw| Expected {
            geometry: &geometries[raw.geometry as usize],
            raw,
        })
    }

    /// Pairs of boundary tensors that share bytes, sorted.
    pub(super) fn overlaps(&self) -> &[Overlap] {
        self.section(Section::Overlaps)
    }

    /// Whether no byte of the boundary is read as a part of one tensor and written as a part of another.
    pub(crate) fn is_apart(&self) -> bool {
        let tensors: &[BoundaryTensor] = self.section(Section::Tensors);
        let writes = |at: u32| Tag::from_code(tensors[at as usize].tag).is_none_or(Tag::writes);
        let mut overlaps = self.overlaps().iter();
        overlaps.all(|overlap| writes(overlap.first) == writes(overlap.second))
    }

    /// Codes of the boundary scalars.
    pub(super) fn scalar_codes(&self) -> &[u32] {
        self.section(Section::ScalarCodes)
    }

    /// The tag of a boundary tensor.
    pub fn tag(&self, tensor: u32) -> Option<Tag> {
        let tensors: &[BoundaryTensor] = self.section(Section::Tensors);
        Tag::from_code(tensors.get(tensor as usize)?.tag)
    }
}

impl NodeArg {
    fn of(arg: &Arg) -> NodeArg {
        let (index, offset) = (arg.index, arg.offset);
        let source = match arg.source {
            source::BOUNDARY => ArgSource::Boundary { index },
            source::VIEW => ArgSource::View { index, offset },
            source::INTERNAL => ArgSource::Internal {
                allocation: index,
                offset,
            },
            _ => ArgSource::OwnOutput { allocation: index },
        };
        let tag = Tag::from_code(u32::from(arg.tag)).expect("checked when it was decoded");
        NodeArg {
            source,
            tag,
            geometry: arg.geometry,
        }
    }
}

impl ScalarSource {
    fn of(word: &ScalarWord) -> ScalarSource {
        if word.is_boundary != 0 {
            return ScalarSource::Boundary(word.bits as u32);
        }
        let value = Scalar::from_wire(word.code, word.bits);
        ScalarSource::Constant(value.expect("checked when it was decoded"))
    }
}
