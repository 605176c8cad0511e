//! Memory of intermediate tensors: who holds which part of which ring. Offsets only, no memory.
//!
//! There is a ring per scope depth, the last one for all deeper scopes. Blocks are given out one
//! behind the other and come back in the same order: a block is reclaimed when nobody holds it and
//! neither it nor any older block of its ring is held. It is held by the scope that it was
//! allocated in, until that ends, and by every task that names it, until that ends.
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
//! **Running out.** Only the oldest block stands in the way. If a task holds it and its scope has
//! ended, it will come back by itself: [`AllocError::Full`], try again when tasks have ended. If its
//! scope is still open, nothing but the end of that scope brings it back, and whoever allocates is
//! inside of it: [`AllocError::Exhausted`]. A request that is larger than its ring never fits:
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
         {blocker} still uses the oldest block; retry when it has ended"
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
        /// A task that holds the oldest block.
        blocker: TaskId,
    },
    /// The memory comes back only when a scope ends that is open now.
    #[error(
        "cannot allocate {requested} bytes: {free} of {total} are free at depth {depth}, and the \
         oldest block belongs to {}, or give the ring more bytes", holder(*scope)
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
        /// Depth of the open scope that holds the oldest block.
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

/// A part of a ring.
struct Block {
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
    /// Oldest first, all that were not reclaimed.
    blocks: VecDeque<Block>,
    /// Generation of the oldest block, or of the next one when there is none.
    first: u32,
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
                first: 1,
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
    ) -> Result<Allocation, AllocError> {
        let index = depth.min(RINGS - 1);
        let ring = self.rings.get_mut(index).ok_or(AllocError::NoHeap)?;
        let offset = ring.place(bytes).ok_or_else(|| ring.refuse(bytes, depth))?;
        let end = offset + aligned(bytes);
        let (scope, n_users, user) = (Some(depth), 0, None);
        ring.blocks.push_back(Block {
            start: offset,
            end,
            scope,
            previous,
            n_users,
            user,
        });
        let generation = ring.first.wrapping_add(ring.blocks.len() as u32 - 1);
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
        match self.rings[index].get(block) {
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
            newest = self.get_mut(block).and_then(|found| {
                found.scope = None;
                found.previous
            });
            self.rings[block.ring as usize].reclaim();
        }
    }

    /// The oldest block of the ring of a depth, which is in the way of all others there.
    pub(crate) fn oldest(&self, depth: usize) -> Option<BlockId> {
        let index = depth.min(RINGS - 1);
        let ring = self
            .rings
            .get(index)
            .filter(|ring| !ring.blocks.is_empty())?;
        Some(BlockId {
            ring: index as u32,
            generation: ring.first,
        })
    }

    /// Says which task uses a block, after it turned out that the last one that came has ended.
    pub(crate) fn set_user(&mut self, block: BlockId, user: TaskId) {
        if let Some(found) = self.get_mut(block) {
            found.user = Some(user);
        }
    }

    fn get_mut(&mut self, block: BlockId) -> Option<&mut Block> {
        let ring = &mut self.rings[block.ring as usize];
        let index = block.generation.wrapping_sub(ring.first);
        ring.blocks.get_mut(index as usize)
    }
}

impl Ring {
    fn get(&self, block: BlockId) -> Option<&Block> {
        self.blocks
            .get(block.generation.wrapping_sub(self.first) as usize)
    }

    /// Whether so many bytes fit in an empty ring.
    fn can_hold(&self, bytes: u64) -> bool {
        bytes <= self.spec.bytes && aligned(bytes) <= self.spec.bytes
    }

    /// Where a block of so many bytes fits: behind the newest one, else at the start of the ring.
    fn place(&self, bytes: u64) -> Option<u64> {
        if !self.can_hold(bytes) {
            return None;
        }
        let size = aligned(bytes);
        let (Some(oldest), Some(newest)) = (self.blocks.front(), self.blocks.back()) else {
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

    /// Why there is no place.
    fn refuse(&self, requested: u64, depth: usize) -> AllocError {
        let total = self.spec.bytes;
        let used: u64 = self
            .blocks
            .iter()
            .map(|block| block.end - block.start)
            .sum();
        let free = total - used;
        match self.blocks.front().filter(|_| self.can_hold(requested)) {
            Some(&Block {
                scope: Some(scope),
                n_users,
                user,
                ..
            }) => {
                let task = user.filter(|_| n_users > 0);
                AllocError::Exhausted {
                    requested,
                    free,
                    total,
                    depth,
                    scope,
                    task,
                }
            }
            Some(&Block {
                user: Some(blocker),
                ..
            }) => AllocError::Full {
                requested,
                free,
                total,
                depth,
                blocker,
            },
            _ => AllocError::TooLarge {
                requested,
                total,
                depth,
            },
        }
    }

    /// Takes back the oldest blocks, as many as nobody holds.
    fn reclaim(&mut self) {
        let is_free = |block: &Block| block.scope.is_none() && block.n_users == 0;
        while self.blocks.front().is_some_and(is_free) {
            self.blocks.pop_front();
            self.first = self.first.wrapping_add(1);
        }
    }
}

/// The bytes that a block of this size takes; an empty one takes some, to have a place.
fn aligned(bytes: u64) -> u64 {
    bytes.max(1).next_multiple_of(BLOCK_ALIGN)
}

#[cfg(test)]
mod tests;
