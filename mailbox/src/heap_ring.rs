//! The heap ring: short-lived shared memory, handed out in order and taken back in order.
//!
//! ```text
//!   0            front.start            back.end              total
//!   |   free     | live | freed | live  |   free               |
//!   |            ^ the blocker          ^ next block           |
//! ```
//!
//! Intermediate tensors live as long as the tasks around them, and tasks end nearly in the order in which
//! they began. So blocks are cut one after another from a ring and reclaimed from its other end; one that
//! is freed early waits for those before it. Both are a few instructions, there is no fragmentation to
//! search, and a refusal can say exactly what is in the way: the oldest live block.
//!
//! One process owns the ring and keeps its books, in its own memory; others map the segment and use the
//! blocks that they are told of. A ring costs address space only until its blocks are first used: pages
//! are reserved as it grows, so a full machine is an error of [`HeapRing::allocate`] and never a fault in
//! somebody's copy.

use std::collections::VecDeque;
use std::sync::Arc;

use crate::segment::{Reserve, Segment, SegmentError, SegmentOptions};
use crate::sync::unique;

/// Every block begins at a multiple of this, and takes a multiple of it.
pub const BLOCK_ALIGN: usize = 64;

/// Pages are reserved in steps of this, so that small blocks do not cost a system call each.
const RESERVE_STEP: usize = 1 << 20;

/// A ring of shared memory and the books of its owner.
#[derive(Debug)]
pub struct HeapRing {
    /// What its blocks carry, so that another ring's are not taken for them.
    id: u64,
    segment: Arc<Segment>,
    /// Blocks from the oldest to the newest; together one run of the circle.
    regions: VecDeque<Region>,
    /// Serial number of the oldest region.
    front: u64,
    /// Bytes from the start whose pages exist.
    reserved: usize,
}

/// A piece of a ring. Give it back with [`HeapRing::free`].
#[derive(Debug, PartialEq, Eq, Hash)]
#[must_use = "a block that is dropped stays allocated and holds up all that come after it"]
pub struct Block {
    ring: u64,
    serial: u64,
    offset: usize,
    bytes: usize,
}

/// What stands in the way of an allocation: the oldest live block.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Blocker {
    /// The owner that was given when it was allocated.
    pub owner: u64,
    /// Its size in bytes, as asked for.
    pub bytes: usize,
}

/// Why there is no block. Nothing has changed.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum RingError {
    /// No room now. Room comes when the blocker is freed.
    #[error("allocate {wanted} bytes from a heap ring: {free} of {total} are free, {largest} in one piece (waiting for the {} bytes of owner {})", blocker.bytes, blocker.owner)]
    Full {
        /// Bytes asked for.
        wanted: usize,
        /// Bytes that are free.
        free: usize,
        /// The largest block that would fit now.
        largest: usize,
        /// Bytes of the whole ring.
        total: usize,
        /// The oldest live block.
        blocker: Blocker,
    },
    /// No room ever: the block is larger than the ring, or empty.
    #[error(
        "allocate {wanted} bytes from a heap ring of {total}: a block has from 1 byte to the whole ring"
    )]
    Never {
        /// Bytes asked for.
        wanted: usize,
        /// Bytes of the whole ring.
        total: usize,
    },
    /// The machine has not the memory for pages that the ring has not used before.
    #[error("allocate from a heap ring that must grow")]
    Reserve(#[source] SegmentError),
}

/// A run of the circle: what was skipped at the end of the ring, if anything, then a block.
#[derive(Debug)]
struct Region {
    start: usize,
    end: usize,
    bytes: usize,
    owner: u64,
    live: bool,
}

impl Block {
    /// Where it lies in the ring's segment, in bytes.
    #[must_use]
    pub fn offset(&self) -> usize {
        self.offset
    }

    /// Its size in bytes, as asked for.
    #[must_use]
    pub fn bytes(&self) -> usize {
        self.bytes
    }
}

impl HeapRing {
    /// A ring of `bytes`, rounded up to [`BLOCK_ALIGN`], that uses no memory yet.
    ///
    /// # Errors
    ///
    /// As [`Segment::create`].
    pub fn create(name: &str, bytes: usize) -> Result<HeapRing, SegmentError> {
        let rounded = bytes.checked_next_multiple_of(BLOCK_ALIGN).unwrap_or(bytes);
        let options = SegmentOptions {
            reserve: Reserve::First(0),
            ..SegmentOptions::default()
        };
        let segment = Arc::new(Segment::create_with(name, rounded, options)?);
        Ok(HeapRing {
            id: unique(),
            segment,
            regions: VecDeque::new(),
            front: 0,
            reserved: 0,
        })
    }

    /// The memory: map its descriptor wherever blocks are used.
    #[must_use]
    pub fn segment(&self) -> &Arc<Segment> {
        &self.segment
    }

    /// Bytes of the whole ring.
    #[must_use]
    pub fn total(&self) -> usize {
        self.segment.len()
    }

    /// Bytes that are free, perhaps in two pieces. What was freed out of order is not free yet.
    #[must_use]
    pub fn free_bytes(&self) -> usize {
        let (high, low) = self.gaps();
        high + low
    }

    /// Cuts a block of `bytes` for `owner`, who is named when the block stands in another's way.
    ///
    /// A few instructions; a system call when the ring grows into pages that it has never used.
    ///
    /// # Errors
    ///
    /// [`RingError`]; nothing has changed then.
    pub fn allocate(&mut self, bytes: usize, owner: u64) -> Result<Block, RingError> {
        let total = self.total();
        if bytes == 0 || bytes > total {
            return Err(RingError::Never {
                wanted: bytes,
                total,
            });
        }
        let size = bytes.next_multiple_of(BLOCK_ALIGN);
        let (high, low) = self.gaps();
        let start = self.regions.back().map_or(0, |region| region.end);
        let offset = match size {
            _ if size <= high => start,
            _ if size <= low => 0,
            _ => return Err(self.full(bytes)),
        };
        let end = offset + size;
        self.grow_to(end)?;
        let serial = self.front + self.regions.len() as u64;
        self.regions.push_back(Region {
            start,
            end,
            bytes,
            owner,
            live: true,
        });
        Ok(Block {
            ring: self.id,
            serial,
            offset,
            bytes,
        })
    }

    /// Gives a block back. Its room is reclaimed at once if it is the oldest, else after those before it.
    ///
    /// # Panics
    ///
    /// If the block is not of this ring.
    pub fn free(&mut self, block: Block) {
        assert_eq!(
            block.ring, self.id,
            "a block is freed on the ring that it was cut from"
        );
        // Its region is there: only this call takes one away, and it has taken the block.
        let index = (block.serial - self.front) as usize;
        self.regions[index].live = false;
        while self.regions.front().is_some_and(|region| !region.live) {
            self.regions.pop_front();
            self.front += 1;
        }
    }

    /// Returns the memory of a drained ring to the machine. Does nothing while a block is live.
    ///
    /// # Errors
    ///
    /// [`SegmentError::Os`].
    pub fn trim(&mut self) -> Result<(), SegmentError> {
        if self.regions.is_empty() && self.reserved > 0 {
            self.segment.release(0, self.reserved)?;
            self.reserved = 0;
        }
        Ok(())
    }

    /// Free bytes after the newest block up to the end of the ring or the oldest block, and free bytes
    /// at the start of the ring before the oldest block if the newest has not come around yet.
    fn gaps(&self) -> (usize, usize) {
        match (self.regions.front(), self.regions.back()) {
            (Some(oldest), Some(newest)) if newest.end > oldest.start => {
                (self.total() - newest.end, oldest.start)
            }
            (Some(oldest), Some(newest)) => (oldest.start - newest.end, 0),
            _ => (self.total(), 0),
        }
    }

    fn full(&self, wanted: usize) -> RingError {
        let (high, low) = self.gaps();
        let oldest = self
            .regions
            .front()
            .expect("an empty ring serves its whole size");
        RingError::Full {
            wanted,
            free: high + low,
            largest: high.max(low),
            total: self.total(),
            blocker: Blocker {
                owner: oldest.owner,
                bytes: oldest.bytes,
            },
        }
    }

    fn grow_to(&mut self, end: usize) -> Result<(), RingError> {
        if end > self.reserved {
            let target = end.next_multiple_of(RESERVE_STEP).min(self.total());
            let missing = target - self.reserved;
            self.segment
                .reserve(self.reserved, missing)
                .map_err(RingError::Reserve)?;
            self.reserved = target;
        }
        Ok(())
    }
}

#[cfg(all(test, not(loom)))]
mod tests;
