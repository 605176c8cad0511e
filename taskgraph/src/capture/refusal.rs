//! Why a body cannot be replayed.

use crate::args::Tag;
use crate::buffer::BufferId;

/// Why a body cannot be replayed. It can still be run eagerly.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum NotRecordable {
    /// A task touches bytes that no tensor of the boundary has.
    #[error(
        "argument {argument} of node {node} touches bytes of {buffer} that no tensor of the boundary \
         covers; add the tensor to the arguments of the graph"
    )]
    Outside {
        /// Which submit of the body.
        node: u32,
        /// Position among its tensors.
        argument: usize,
        /// The buffer.
        buffer: BufferId,
    },
    /// A task does to a tensor of the boundary what that was not given for.
    #[error(
        "argument {argument} of node {node} is tagged {tag:?}, and tensor {tensor} of the boundary, \
         which it is a part of, {boundary:?}; tag that so that it allows both"
    )]
    Direction {
        /// Which submit of the body.
        node: u32,
        /// Position among its tensors.
        argument: usize,
        /// How the task names it.
        tag: Tag,
        /// Position in the boundary.
        tensor: usize,
        /// How the boundary names it.
        boundary: Tag,
    },
    /// A task reads a tensor that the boundary says is overwritten, where earlier nodes have not written
    /// all that it reads.
    #[error(
        "argument {argument} of node {node} reads tensor {tensor} of the boundary, an output of which \
         earlier nodes have not written all that is read; tag it as inout"
    )]
    UnwrittenOutput {
        /// Which submit of the body.
        node: u32,
        /// Position among its tensors.
        argument: usize,
        /// Position in the boundary.
        tensor: usize,
    },
    /// The boundary says that a tensor is overwritten, and the nodes leave some of it as it was.
    #[error(
        "tensor {tensor} of the boundary is an output, and the nodes do not write all of it; tag it as \
         inout"
    )]
    PartialOutput {
        /// Position in the boundary.
        tensor: usize,
    },
    /// A scalar belongs to another recording.
    #[error("scalar {scalar} of node {node} is one of another call, which has ended")]
    ForeignScalar {
        /// Which submit of the body.
        node: u32,
        /// Position among its scalars.
        scalar: usize,
    },
    /// `after` names something that is no earlier node of this body.
    #[error(
        "node {node} comes after a task outside of the graph; express that by a tensor of the \
         boundary, or put the graph itself after it"
    )]
    OutsideTask {
        /// Which submit of the body.
        node: u32,
    },
    /// The graph is too large for the format.
    #[error("node {node} is one too many: {what} do not fit in a definition")]
    TooLarge {
        /// Which submit of the body.
        node: u32,
        /// What there is too much of.
        what: &'static str,
    },
    /// No such placement: no worker, one twice, or one beyond the limit.
    #[error("the placement of node {node} names no worker, one twice, or one that cannot exist")]
    Placement {
        /// Which submit of the body.
        node: u32,
    },
    /// A task has no members, more than its placement has workers, or no blocks.
    #[error(
        "node {node} has {n_members} members; it needs one at least, no more than it has workers, and a \
         block"
    )]
    Members {
        /// Which submit of the body.
        node: u32,
        /// Its members.
        n_members: usize,
    },
}
