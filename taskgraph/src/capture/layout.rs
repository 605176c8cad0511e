//! How a definition lies in memory and in a file: a header and sections, in words of 64 bits.
//!
//! ```text
//! Header                      counts of everything below, heap need, hash
//! [BoundaryTensor]            the contract: geometry, tag, kind of memory, place
//! [u32]                       codes of the boundary scalars
//! [Overlap]                   pairs of boundary tensors that share bytes, and how far apart they begin
//! [Geometry]                  shape, strides, element type; each one once
//! [Allocation]                intermediate memory, at offsets of the heap need
//! [Node]                      callable, placement, where its members, workers and predicate stand
//! [u32; nodes + 1], [u32]     fan-in: offsets, then earlier nodes
//! [u32; nodes + 1], [u32]     fan-out: offsets, then later nodes
//! [u32]                       roots
//! [Member]                    where its arguments and scalars end
//! [Arg] [ScalarWord]          sources of tensors and scalars
//! [u32]                       workers
//! [PredicateWord]             an element that decides whether a node runs
//! [[u8; 32]]                  digests of callables
//! ```
//!
//! Every section begins on a word and is padded with zeros. An edge is the number of a node, and
//! [`DATA`] where the later node uses what the earlier one made.

use bytemuck::{Pod, Zeroable};

use crate::dtype::DType;
use crate::tensor::{RANK_MAX, Tensor};

/// Version of this layout. A definition of another version is refused.
pub const SCHEMA: u32 = 2;

/// `tgraphdf` in the bytes of a little-endian machine; on another kind of machine it differs.
pub(super) const MAGIC: u64 = u64::from_le_bytes(*b"tgraphdf");

/// Marks an edge that carries data; nodes are numbered below it.
pub(crate) const DATA: u32 = 1 << 31;

/// The alignment of intermediate memory inside of the heap need, in bytes.
pub(super) const HEAP_ALIGN: u64 = 64;

/// Something reads intermediate memory that nothing is known to have written before.
pub(super) const READS_UNWRITTEN: u32 = 1;

/// What stands in front.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Pod, Zeroable)]
#[repr(C)]
pub(super) struct Header {
    pub(super) magic: u64,
    /// Of all words, this one counted as zero.
    pub(super) content_hash: u64,
    pub(super) n_words: u64,
    pub(super) heap_bytes: u64,
    pub(super) schema: u32,
    pub(super) flags: u32,
    pub(super) counts: [u32; N_SECTIONS],
    pub(super) unused: u32,
}

/// Words of the header.
pub(super) const HEADER_WORDS: usize = size_of::<Header>() / 8;
/// The word of the header that is the hash.
pub(super) const HASH_WORD: usize = 1;

/// The sections in their order, each as a position in the counts of the header.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Section {
    Tensors,
    ScalarCodes,
    Overlaps,
    Geometries,
    Allocations,
    Nodes,
    FanInOffsets,
    FanIn,
    FanOutOffsets,
    FanOut,
    Roots,
    Members,
    Args,
    Scalars,
    Workers,
    Predicates,
    Digests,
}

/// Number of sections.
pub(super) const N_SECTIONS: usize = 17;

/// Bytes of one item of each section.
pub(super) const ITEM_BYTES: [usize; N_SECTIONS] = [
    size_of::<BoundaryTensor>(),
    4,
    size_of::<Overlap>(),
    size_of::<Geometry>(),
    size_of::<Allocation>(),
    size_of::<Node>(),
    4,
    4,
    4,
    4,
    4,
    size_of::<Member>(),
    size_of::<Arg>(),
    size_of::<ScalarWord>(),
    4,
    size_of::<PredicateWord>(),
    32,
];

/// A tensor of the boundary.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Pod, Zeroable)]
#[repr(C)]
pub(super) struct BoundaryTensor {
    pub(super) geometry: u32,
    pub(super) tag: u32,
    pub(super) kind: u32,
    /// What the caller says of where the memory is.
    pub(super) place: u32,
}

/// Two tensors of the boundary that share bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Pod, Zeroable)]
#[repr(C)]
pub(super) struct Overlap {
    pub(super) first: u32,
    pub(super) second: u32,
    /// Bytes from the first element of the first to that of the second.
    pub(super) distance: i64,
}

/// Shape, strides and element type.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Pod, Zeroable)]
#[repr(C)]
pub(super) struct Geometry {
    pub(super) shape: [u64; RANK_MAX],
    pub(super) strides: [u64; RANK_MAX],
    pub(super) rank: u8,
    pub(super) dtype: u8,
    pub(super) unused: [u8; 6],
}

impl Geometry {
    pub(super) fn of(tensor: &Tensor) -> Geometry {
        let mut geometry = Geometry::zeroed();
        let rank = tensor.rank();
        geometry.shape[..rank].copy_from_slice(tensor.shape());
        geometry.strides[..rank].copy_from_slice(tensor.strides());
        geometry.rank = rank as u8;
        geometry.dtype = tensor.dtype().code();
        geometry
    }

    pub(super) fn shape(&self) -> &[u64] {
        &self.shape[..usize::from(self.rank)]
    }

    pub(super) fn strides(&self) -> &[u64] {
        &self.strides[..usize::from(self.rank)]
    }

    /// The element type; of a geometry that was checked.
    pub(super) fn dtype(&self) -> DType {
        DType::from_code(self.dtype).expect("checked when it was decoded")
    }

    /// Whether a tensor has it.
    pub(super) fn fits(&self, tensor: &Tensor) -> bool {
        self.dtype == tensor.dtype().code()
            && tensor.is_laid_out(&self.shape, &self.strides, self.rank)
    }
}

/// Intermediate memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Pod, Zeroable)]
#[repr(C)]
pub(super) struct Allocation {
    pub(super) offset: u64,
    pub(super) bytes: u64,
}

/// A task of the graph.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Pod, Zeroable)]
#[repr(C)]
pub(super) struct Node {
    pub(super) callable: u32,
    pub(super) n_blocks: u32,
    pub(super) placement: u32,
    /// Members of a group of sub workers; else 0.
    pub(super) n_subs: u32,
    pub(super) members_end: u32,
    pub(super) workers_end: u32,
    /// One more than the number of its predicate; 0 without one.
    pub(super) predicate: u32,
    pub(super) unused: u32,
}

/// The arguments of a node, or of one member of a group.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Pod, Zeroable)]
#[repr(C)]
pub(super) struct Member {
    pub(super) args_end: u32,
    pub(super) scalars_end: u32,
}

/// A tensor argument.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Pod, Zeroable)]
#[repr(C)]
pub(super) struct Arg {
    /// Bytes behind the first element of the boundary tensor, or behind the begin of the allocation.
    pub(super) offset: u64,
    /// Of the boundary tensor or of the allocation.
    pub(super) index: u32,
    pub(super) geometry: u32,
    pub(super) source: u16,
    pub(super) tag: u16,
    pub(super) unused: u32,
}

/// Sources of a tensor argument.
pub(super) mod source {
    pub(in super::super) const BOUNDARY: u16 = 1;
    pub(in super::super) const VIEW: u16 = 2;
    pub(in super::super) const INTERNAL: u16 = 3;
    pub(in super::super) const OWN_OUTPUT: u16 = 4;
}

/// Placements of a node.
pub(super) mod placement {
    pub(in super::super) const ON: u32 = 1;
    pub(in super::super) const ANY_OF: u32 = 2;
    pub(in super::super) const GROUP: u32 = 3;
    pub(in super::super) const SUB: u32 = 4;
    pub(in super::super) const SUB_GROUP: u32 = 5;
}

/// A scalar argument.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Pod, Zeroable)]
#[repr(C)]
pub(super) struct ScalarWord {
    /// The value, or the number of the boundary scalar.
    pub(super) bits: u64,
    pub(super) code: u32,
    /// 1 for a scalar of the boundary, else 0.
    pub(super) is_boundary: u32,
}

/// An element that decides whether a node runs.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Pod, Zeroable)]
#[repr(C)]
pub(super) struct PredicateWord {
    pub(super) element: Arg,
    /// The caller's code of what the element has to be.
    pub(super) condition: u32,
    pub(super) unused: u32,
}

// Definitions are kept in files: a change here is a new schema.
const _: () = {
    assert!(size_of::<Header>() == 112);
    assert!(size_of::<BoundaryTensor>() == 16);
    assert!(size_of::<Overlap>() == 16);
    assert!(size_of::<Geometry>() == 88);
    assert!(size_of::<Allocation>() == 16);
    assert!(size_of::<Node>() == 32);
    assert!(size_of::<Member>() == 8);
    assert!(size_of::<Arg>() == 24);
    assert!(size_of::<ScalarWord>() == 16);
    assert!(size_of::<PredicateWord>() == 32);
};
