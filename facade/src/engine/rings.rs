//! The memory behind intermediate tensors: one ring of shared memory for scopes of each depth.
//!
//! The graph keeps the books: which part of which ring is whose, and until when. Here is the memory itself. A ring is a
//! shared buffer like any other, mapped by a worker once and not for each tensor. It costs address space until it is
//! used: its segment is made with the first tensor, and its pages are reserved as far as tensors reach, before any task
//! can touch them, so that a full machine is an error of the allocation.
//!
//! In the graph every tensor is a buffer of its own, told from the last one at that place by a generation. What crosses
//! to a worker is the identity of the ring, which is the one that is mapped there (`args::Backing`).

use std::sync::Arc;
use std::sync::atomic::Ordering;

use mailbox::{Reserve, Segment, SegmentError, SegmentOptions};
use taskgraph::{BLOCK_ALIGN, BufferId, BufferKind, RINGS, RingSpec, Tensor};

use super::Engine;
use crate::buffer::BufferCore;
use crate::error::BufferError;

/// Pages are reserved in steps of this, so that small tensors do not cost a system call each.
const RESERVE_STEP: usize = 1 << 20;

/// The rings of one worker.
pub(crate) struct Rings([Ring; RINGS]);

struct Ring {
    spec: RingSpec,
    memory: Option<Memory>,
}

struct Memory {
    core: Arc<BufferCore>,
    reserved: usize,
}

impl Rings {
    /// Rings of `bytes` bytes each. Their numbers are the last ones, which no buffer will ever reach that counts up from 1.
    pub(crate) fn new(incarnation: u64, bytes: u64) -> Self {
        let bytes = bytes.next_multiple_of(BLOCK_ALIGN);
        let ring = |at: usize| {
            let buffer = BufferId::new(incarnation, u64::MAX - at as u64, 0, BufferKind::Shared);
            let spec = RingSpec { buffer, bytes };
            Ring { spec, memory: None }
        };
        Self(std::array::from_fn(ring))
    }

    /// What the graph is told of them.
    pub(crate) fn specs(&self) -> [RingSpec; RINGS] {
        self.0.each_ref().map(|ring| ring.spec)
    }
}

impl Ring {
    /// Sees to it that the ring has memory up to byte `end`.
    fn reach(
        &mut self,
        end: usize,
        adopt: impl FnOnce(BufferId, Segment) -> Arc<BufferCore>,
    ) -> Result<&Arc<BufferCore>, SegmentError> {
        let bytes = usize::try_from(self.spec.bytes).unwrap_or(usize::MAX);
        let memory = match &mut self.memory {
            Some(memory) => memory,
            none => {
                let options = SegmentOptions {
                    reserve: Reserve::First(0),
                    ..SegmentOptions::default()
                };
                let segment = Segment::create_with("heap", bytes, options)?;
                segment.keep_from_forks()?;
                let core = adopt(self.spec.buffer, segment);
                none.insert(Memory { core, reserved: 0 })
            }
        };
        if end > memory.reserved {
            let upto = end.next_multiple_of(RESERVE_STEP).min(bytes);
            let new = upto - memory.reserved;
            memory.core.segment().reserve(memory.reserved, new)?;
            memory.reserved = upto;
        }
        Ok(&memory.core)
    }
}

impl Engine {
    /// A new shared buffer of this worker.
    pub(crate) fn create_buffer(&self, bytes: usize) -> Result<Arc<BufferCore>, BufferError> {
        let refused = |error: mailbox::SegmentError| BufferError::Memory {
            bytes,
            reason: crate::control::chain(&error),
        };
        let segment = mailbox::Segment::create("buffer", bytes).map_err(refused)?;
        // A worker maps it by descriptor when a task names it, and only then.
        segment.keep_from_forks().map_err(refused)?;
        // Relaxed: only uniqueness matters.
        let id = self.next_buffer.fetch_add(1, Ordering::Relaxed);
        let id = BufferId::new(self.incarnation, id, 0, BufferKind::Shared);
        Ok(self.adopt_buffer(id, segment))
    }

    /// The buffer behind a tensor that the graph has allocated, with memory as far as the tensor reaches.
    pub(crate) fn back(&self, tensor: &Tensor) -> Result<Arc<BufferCore>, BufferError> {
        let end = usize::try_from(tensor.footprint().end).unwrap_or(usize::MAX);
        let mut rings = self.rings.lock();
        let ring = rings
            .0
            .iter_mut()
            .find(|ring| ring.spec.buffer.id == tensor.buffer().id)
            .expect("the graph was given these rings and no others");
        let adopt = |id, segment| self.adopt_buffer(id, segment);
        let core = ring
            .reach(end, adopt)
            .map_err(|error| BufferError::Memory {
                bytes: end,
                reason: crate::control::chain(&error),
            })?;
        Ok(Arc::clone(core))
    }
}
