//! Whether there are more peers than cores: what spins then must make room.
//!
//! A spinning process holds a core that the very process which it waits for may need. With a core for everybody
//! that cannot happen, and looking without a pause is the fastest. With fewer cores than peers the scheduler
//! would let three spinners take turns of milliseconds; so a crowded waiter gives its turn away after each
//! look, and whoever has work runs at once.
//!
//! Nobody counts spinners: a count in shared memory would be wrong for ever when one of them is killed. The
//! parent writes down how many peers it has, in the segment of its doorbell, and everybody compares.

#[cfg(not(loom))]
use std::sync::Arc;

#[cfg(not(loom))]
use crate::segment::{Segment, SegmentError};
use crate::spin::n_cores;
use crate::sync::Ordering;
use crate::words::Words;

/// How many processes wait for each other over one doorbell.
#[derive(Clone, Debug)]
pub(crate) struct Crowd(Words);

impl Crowd {
    /// The count at byte `offset` of a segment.
    #[cfg(not(loom))]
    pub(crate) fn new(segment: &Arc<Segment>, offset: usize) -> Result<Crowd, SegmentError> {
        Ok(Crowd(Words::new(segment, offset, 1)?))
    }

    #[cfg(loom)]
    pub(crate) fn modelled() -> Crowd {
        Crowd(Words::modelled(1))
    }

    /// Writes down how many peers there are, parent included.
    pub(crate) fn set_peers(&self, n_peers: usize) {
        // Relaxed: a hint about speed, which orders nothing.
        self.0.as_slice()[0].store(n_peers as u64, Ordering::Relaxed);
    }

    /// Whether a spinner may stand in a peer's way. One load, and only after a wait has lasted a while.
    pub(crate) fn is_crowded(&self) -> bool {
        self.0.as_slice()[0].load(Ordering::Relaxed) > n_cores()
    }
}
