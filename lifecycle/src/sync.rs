//! The one place that names atomics, locks and thread-local storage: std's, or loom's under `cfg(loom)`.
//!
//! [`unmodelled`] holds std's types in both builds.
//! Only bookkeeping that decides nothing about admission uses them: see `held` and `operation`.

use std::sync::PoisonError;
use std::time::Instant;

#[cfg(loom)]
pub(crate) use loom::{
    sync::{
        Condvar, Mutex, MutexGuard,
        atomic::{AtomicBool, AtomicU64, Ordering},
    },
    thread_local,
};
#[cfg(not(loom))]
pub(crate) use std::{
    sync::{
        Condvar, Mutex, MutexGuard,
        atomic::{AtomicBool, AtomicU64, Ordering},
    },
    thread_local,
};

/// Types that loom does not see: process-wide statics, which must survive from one modelled execution to the next.
pub(crate) mod unmodelled {
    pub(crate) use std::sync::{Mutex, OnceLock, atomic::AtomicU64};
}

/// Takes a lock whatever happened to its earlier holders.
///
/// No lock of this crate guards an invariant that a panic could leave half done: each critical section ends
/// with its last assignment, and the only foreign code in one is `Clone` and `Drop` of a cause.
pub(crate) fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Waits for one notification, at the latest until `deadline`; `Err` gives the guard back when that has passed.
///
/// Callers check their condition before each call, so a spurious wake-up costs a turn of their loop.
/// Loom's condition variable never times out: a modelled deadline is either absent or already past.
pub(crate) fn wait<'g, T>(
    changed: &Condvar,
    guard: MutexGuard<'g, T>,
    deadline: Option<Instant>,
) -> Result<MutexGuard<'g, T>, MutexGuard<'g, T>> {
    let Some(deadline) = deadline else {
        return Ok(changed.wait(guard).unwrap_or_else(PoisonError::into_inner));
    };
    let left = deadline.saturating_duration_since(Instant::now());
    if left.is_zero() {
        return Err(guard);
    }
    let (guard, _) = changed
        .wait_timeout(guard, left)
        .unwrap_or_else(PoisonError::into_inner);
    Ok(guard)
}
