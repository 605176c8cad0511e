//! Numbers that are different in each life of each worker, on this machine.

use std::hash::{BuildHasher, Hasher};
use std::sync::atomic::{AtomicU64, Ordering};

/// A number that no other worker, earlier life, or tree on this machine has, as far as 64 random bits can promise.
pub(crate) fn draw() -> u64 {
    static DRAWN: AtomicU64 = AtomicU64::new(0);
    // The hasher's keys are random per process, but forked processes share them: the pid and a counter tell draws apart.
    let mut hash = std::collections::hash_map::RandomState::new().build_hasher();
    hash.write_u32(std::process::id());
    // Relaxed: only uniqueness matters.
    hash.write_u64(DRAWN.fetch_add(1, Ordering::Relaxed));
    hash.finish()
}
