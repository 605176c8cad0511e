//! Memory of intermediate tensors: who holds which part of which ring. Offsets only, no memory.
//!
//! There is a ring per scope depth, the last one for all deeper scopes. Blocks are given out one
//! behind the other and come back in the same order: a block that nobody holds is reclaimed when all
//! older blocks of its ring are, or all newer ones. It is held by the scope that it was allocated in,
//! until that ends, and by every task that names it, until that ends. The second way is for scopes
//! that share a ring: an inner scope does not keep its memory because an outer one keeps older.
//!
//! ```text
//!        oldest block (tail)           newest block    head
//!             v                              v          v
//! |  free     [ held ][ free ][ held ][ held ]    free      |
//! ```
//!
//! Each block is a buffer of its own: the ring's identity with a generation that counts the blocks.
//! So bytes that are given out again never conflict with what they were before, and a tensor of a
//! block that was reclaimed is told from one that is alive.
//!
//! **Running out.** What only tasks hold, whose scopes have ended, comes back by itself. If the request
//! fits then, it is [`AllocError::Full`]: try again when tasks have ended. If not, blocks of open scopes
//! are in the way, nothing but the end of those scopes brings them back, and whoever allocates is
//! inside of them: [`AllocError::Exhausted`]. A request that is larger than its ring never fits:
//! [`AllocError::TooLarge`], at once.

use std::collections::VecDeque;

use smallvec::SmallVec;

use crate::buffer::BufferId;
use crate::ids::TaskId;
use crate::schedule::SubmitError;
use crate::tensor::TensorError;

/// Number of rings: for scopes of depth 0, 1, 2, and all deeper ones.
pub const RINGS: usize = 4;

/// Every block starts on a multiple of this, in bytes.
pub const BLOCK_ALIGN: u64 = 64;

/// The backing of one ring.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RingSpec {
    /// Identity of the backing; its generation is replaced by that of a block.
    pub buffer: BufferId,
    /// Size in bytes; what is left over of a multiple of [`BLOCK_ALIGN`] is not used.
    pub bytes: u64,
}

/// Why a tensor was not allocated. Nothing has changed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum AllocError {
    /// The ring is too small for this, whatever is freed.
    #[error(
        "cannot allocate {requested} bytes in scopes of depth {depth}: the ring there has {total} \
         bytes; give it more, or cut the tensor into pieces"
    )]
    TooLarge {
        /// Bytes that were asked for.
        requested: u64,
        /// Bytes of the ring.
        total: u64,
        /// Depth of the scope.
        depth: usize,
    },
    /// The memory comes back when tasks end: wait for one, then try again.
    #[error(
        "cannot allocate {requested} bytes now: {free} of {total} are free at depth {depth}, \
         {blocker} still uses what is in the way; retry when it has ended"
    )]
    Full {
        /// Bytes that were asked for.
        requested: u64,
        /// Bytes that no block has, in however many pieces.
        free: u64,
        /// Bytes of the ring.
        total: u64,
        /// Depth of the scope.
        depth: usize,
        /// A task that holds a block in the way.
        blocker: TaskId,
    },
    /// The memory comes back only when a scope ends that is open now.
    #[error(
        "cannot allocate {requested} bytes: {free} of {total} are free at depth {depth}, and the \
         oldest block in the way belongs to {}, or give the ring more bytes", holder(*scope)
    )]
    Exhausted {
        /// Bytes that were asked for.
        requested: u64,
        /// Bytes that no block has, in however many pieces.
        free: u64,
        /// Bytes of the ring.
        total: u64,
        /// Depth of the scope.
        depth: usize,
        /// Depth of the open scope that holds the oldest block in the way.
        scope: usize,
        /// A task that names that block, if one is live.
        task: Option<TaskId>,
    },
    /// The scheduler was given no rings.
    #[error("cannot allocate intermediate tensors: the scheduler was given no heap")]
    NoHeap,
    /// The run takes nothing, or nothing yet.
    #[error(transparent)]
    Refused(#[from] SubmitError),
    /// The shape is no tensor.
    #[error("cannot allocate such a tensor")]
    Shape(#[from] TensorError),
}

/// The open scope that holds a block, and what to do about it.
fn holder(scope: usize) -> String {
    match scope {
        0 => "the run itself; allocate in scopes that end".to_owned(),
        depth => format!("the scope of depth {depth}, which is still open; end it earlier"),
    }
}

/// One block, by ring and generation.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct BlockId {
    pub(crate) ring: u32,
    pub(crate) generation: u32,
}

/// A block that was just given out.
pub(crate) struct Allocation {
    pub(crate) id: BlockId,
    pub(crate) buffer: BufferId,
    pub(crate) offset: u64,
    pub(crate) ring_bytes: u64,
}

/// Why there is no block, and which one is in the way, where one is.
pub(crate) type Refusal = (AllocError, Option<BlockId>);

/// A part of a ring.
#[derive(Clone, Copy)]
struct Block {
    generation: u32,
    start: u64,
    end: u64,
    /// Depth of the scope that holds it, until that ends.
    scope: Option<usize>,
    /// The block that its scope allocated before it.
    previous: Option<BlockId>,
    n_users: u32,
    /// One of the tasks that use it, the last one that came.
    user: Option<TaskId>,
}

struct Ring {
    spec: RingSpec,
    /// Oldest first, all that were not reclaimed. Generations ascend, with gaps where newer blocks went first.
    blocks: VecDeque<Block>,
    /// Generation of the next block.
    next: u32,
}

/// All rings; none when intermediate tensors are not wanted.
#[derive(Default)]
pub(crate) struct Heap {
    rings: SmallVec<[Ring; RINGS]>,
}

impl Heap {
    pub(crate) fn new(specs: [RingSpec; RINGS]) -> Heap {
        let ring = |spec: RingSpec| {
            let bytes = spec.bytes - spec.bytes % BLOCK_ALIGN;
            Ring {
                spec: RingSpec { bytes, ..spec },
                blocks: VecDeque::new(),
                next: 1,
            }
        };
        Heap {
            rings: specs.into_iter().map(ring).collect(),
        }
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.rings.is_empty()
    }

    /// A block of at least `bytes` bytes for a scope that has allocated `previous` last.
    pub(crate) fn alloc(
        &mut self,
        bytes: u64,
        depth: usize,
        previous: Option<BlockId>,
    ) -> Result<Allocation, Refusal> {
        let index = depth.min(RINGS - 1);
        let none = (AllocError::NoHeap, None);
        let ring = self.rings.get_mut(index).ok_or(none)?;
        let offset = ring.place(bytes).ok_or_else(|| ring.refuse(bytes, depth))?;
        let generation = ring.next;
        ring.next = ring.next.wrapping_add(1);
        ring.blocks.push_back(Block {
            generation,
            start: offset,
            end: offset + aligned(bytes),
            scope: Some(depth),
            previous,
            n_users: 0,
            user: None,
        });
        let id = BlockId {
            ring: index as u32,
            generation,
        };
        let buffer = BufferId {
            generation,
            ..ring.spec.buffer
        };
        Ok(Allocation {
            id,
            buffer,
            offset,
            ring_bytes: ring.spec.bytes,
        })
    }

    /// The block that a buffer is: `None` for a buffer of somebody else, an error for a block whose
    /// scope has ended.
    pub(crate) fn block(&self, buffer: &BufferId) -> Result<Option<BlockId>, BufferId> {
        let is_ring = |ring: &Ring| {
            BufferId {
                generation: buffer.generation,
                ..ring.spec.buffer
            } == *buffer
        };
        let Some(index) = self.rings.iter().position(is_ring) else {
            return Ok(None);
        };
        let block = BlockId {
            ring: index as u32,
            generation: buffer.generation,
        };
        let ring = &self.rings[index];
        match ring.position(block.generation).map(|at| &ring.blocks[at]) {
            Some(Block { scope: Some(_), .. }) => Ok(Some(block)),
            _ => Err(*buffer),
        }
    }

    /// A task begins to use a block.
    pub(crate) fn hold(&mut self, block: BlockId, task: TaskId) {
        if let Some(found) = self.get_mut(block) {
            found.n_users += 1;
            found.user = Some(task);
        }
    }

    /// A task that used a block has ended.
    pub(crate) fn release(&mut self, block: BlockId) {
        if let Some(found) = self.get_mut(block) {
            found.n_users -= 1;
        }
        self.rings[block.ring as usize].reclaim();
    }

    /// A scope has ended that has allocated `newest` last.
    pub(crate) fn leave_scope(&mut self, mut newest: Option<BlockId>) {
        while let Some(block) = newest {
            newest = self.leave_block(block);
        }
    }

    /// A scope does not want a block any more; the one that it allocated before it.
    pub(crate) fn leave_block(&mut self, block: BlockId) -> Option<BlockId> {
        let previous = self.get_mut(block).and_then(|found| {
            found.scope = None;
            found.previous
        });
        self.rings[block.ring as usize].reclaim();
        previous
    }

    /// Whether a task uses a block.
    pub(crate) fn is_used(&self, block: BlockId) -> bool {
        let ring = &self.rings[block.ring as usize];
        let found = ring.position(block.generation);
        found.is_some_and(|at| ring.blocks[at].n_users > 0)
    }

    /// Says which task uses a block, after it turned out that the last one that came has ended.
    pub(crate) fn set_user(&mut self, block: BlockId, user: TaskId) {
        if let Some(found) = self.get_mut(block) {
            found.user = Some(user);
        }
    }

    fn get_mut(&mut self, block: BlockId) -> Option<&mut Block> {
        let ring = &mut self.rings[block.ring as usize];
        let at = ring.position(block.generation)?;
        ring.blocks.get_mut(at)
    }
}

impl Ring {
    /// Where the block of a generation stands, if it was not reclaimed.
    fn position(&self, generation: u32) -> Option<usize> {
        let first = self.blocks.front()?.generation;
        let age = |generation: u32| generation.wrapping_sub(first);
        let found = self
            .blocks
            .binary_search_by_key(&age(generation), |block| age(block.generation));
        found.ok()
    }

    /// Whether so many bytes fit in an empty ring.
    fn can_hold(&self, bytes: u64) -> bool {
        bytes <= self.spec.bytes && aligned(bytes) <= self.spec.bytes
    }

    /// Where a block of so many bytes fits now.
    fn place(&self, bytes: u64) -> Option<u64> {
        self.place_beside(bytes, self.blocks.front().zip(self.blocks.back()))
    }

    /// Where a block of so many bytes fits when these are the oldest and the newest one: behind the newest one, else at
    /// the start of the ring.
    fn place_beside(&self, bytes: u64, ends: Option<(&Block, &Block)>) -> Option<u64> {
        if !self.can_hold(bytes) {
            return None;
        }
        let size = aligned(bytes);
        let Some((oldest, newest)) = ends else {
            return Some(0);
        };
        let (tail, head) = (oldest.start, newest.end);
        if newest.start < tail {
            return (size <= tail - head).then_some(head);
        }
        if size <= self.spec.bytes - head {
            return Some(head);
        }
        (size <= tail).then_some(0)
    }

    /// Why there is no place, and which block is in the way.
    fn refuse(&self, requested: u64, depth: usize) -> Refusal {
        let total = self.spec.bytes;
        let used: u64 = self
            .blocks
            .iter()
            .map(|block| block.end - block.start)
            .sum();
        let free = total - used;
        if !self.can_hold(requested) {
            let error = AllocError::TooLarge {
                requested,
                total,
                depth,
            };
            return (error, None);
        }
        let (scope, block) = self.obstacle(requested);
        let error = match (scope, block.user) {
            (None, Some(blocker)) => AllocError::Full {
                requested,
                free,
                total,
                depth,
                blocker,
            },
            (scope, user) => AllocError::Exhausted {
                requested,
                free,
                total,
                depth,
                scope: scope.unwrap_or(0),
                task: user.filter(|_| block.n_users > 0),
            },
        };
        let ring = depth.min(RINGS - 1) as u32;
        let generation = block.generation;
        (error, Some(BlockId { ring, generation }))
    }

    /// What is in the way of so many bytes: a block that only tasks hold, where the bytes fit once all such have come
    /// back; else the oldest block of an open scope, and which scope that is. There is no place now, so there is a block.
    fn obstacle(&self, bytes: u64) -> (Option<usize>, Block) {
        let is_open = |block: &&Block| block.scope.is_some();
        let oldest = self.blocks.iter().find(is_open);
        let newest = self.blocks.iter().rev().find(is_open);
        match oldest {
            Some(open) if self.place_beside(bytes, oldest.zip(newest)).is_none() => {
                (open.scope, *open)
            }
            _ => {
                let (front, back) = (self.blocks[0], self.blocks[self.blocks.len() - 1]);
                (None, if front.scope.is_none() { front } else { back })
            }
        }
    }

    /// Takes back what nobody holds at either end.
    fn reclaim(&mut self) {
        let is_free = |block: &Block| block.scope.is_none() && block.n_users == 0;
        while self.blocks.front().is_some_and(is_free) {
            self.blocks.pop_front();
        }
        while self.blocks.back().is_some_and(is_free) {
            self.blocks.pop_back();
        }
    }
}

/// The bytes that a block of this size takes; an empty one takes some, to have a place.
fn aligned(bytes: u64) -> u64 {
    bytes.max(1).next_multiple_of(BLOCK_ALIGN)
}

#[cfg(test)]
mod tests;
