//! Every atomic and every ordering of the crate.
//!
//! Code outside this file names no `std::sync::atomic` type, so that the models under `cfg(loom)` run
//! the very code that ships. The orderings have names here, because each of them has a partner:
//!
//! | name | where | partner |
//! | --- | --- | --- |
//! | [`PUBLISH`] | the store of a stamp, after the body it covers | [`OBSERVE`] by the other side |
//! | [`OBSERVE`] | the load of a stamp, before its body is read | [`PUBLISH`] |
//! | [`ringer_fence`] | between a store that the peer waits for and the look at its parked flag | [`parker_fence`] |
//! | [`parker_fence`] | between raising the parked flag and the last look at what is awaited | [`ringer_fence`] |
//!
//! `--cfg weaken="publish"` (or another of these names) takes one of them away: the models must then find
//! a fault. That is how we know that they would. `cargo xtask loom mailbox --weaken` tries each.

pub(crate) use crate::futex;
#[cfg(not(loom))]
pub(crate) use std::sync::atomic::{AtomicU32, AtomicU64, Ordering, fence};

#[cfg(loom)]
pub(crate) use loom::sync::atomic::{AtomicU32, AtomicU64, Ordering, fence};

/// Orders everything written before a stamp before the stamp itself. Partner: [`OBSERVE`].
pub(crate) const PUBLISH: Ordering = if cfg!(weaken = "publish") {
    Ordering::Relaxed
} else {
    Ordering::Release
};

/// Orders the load of a stamp before every look at what it covers. Partner: [`PUBLISH`].
pub(crate) const OBSERVE: Ordering = if cfg!(weaken = "observe") {
    Ordering::Relaxed
} else {
    Ordering::Acquire
};

/// The body of a frame needs no order of its own: its stamp orders it.
pub(crate) const BODY: Ordering = Ordering::Relaxed;

/// A number that nobody else in this process has been given.
pub(crate) fn unique() -> u64 {
    // Of the standard library in models too: it tells things apart and is no part of a protocol.
    static NEXT: std::sync::atomic::AtomicU64 = std::sync::atomic::AtomicU64::new(0);
    NEXT.fetch_add(1, std::sync::atomic::Ordering::Relaxed)
}

/// Stands between publishing and looking at the peer's parked flag. Partner: [`parker_fence`].
#[inline(always)]
pub(crate) fn ringer_fence() {
    if !cfg!(weaken = "ringer_fence") {
        // Store-buffer race: publish; fence; load flag || raise flag; fence; load stamp. With both
        // fences in the single order of fences, at least one side sees the other's store.
        fence(Ordering::SeqCst);
    }
}

/// Stands between raising the parked flag and the last look. Partner: [`ringer_fence`].
#[inline(always)]
pub(crate) fn parker_fence() {
    if !cfg!(weaken = "parker_fence") {
        // The other half of the race that `ringer_fence` tells.
        fence(Ordering::SeqCst);
    }
}
