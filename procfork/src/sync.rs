//! The atomics of this crate, in one place.
//!
//! All of them live in memory that other processes and the kernel change too, which no model
//! checker of threads can follow; the protocols are therefore tested with real processes.

pub(crate) use std::sync::atomic::{AtomicBool, AtomicU8, AtomicU32, Ordering};
#[cfg(feature = "dump")]
pub(crate) use std::sync::atomic::{AtomicI32, AtomicPtr, AtomicU64};
pub(crate) use std::sync::{Arc, Mutex, MutexGuard};

/// Locks, also after another holder has panicked: every critical section of this crate leaves its
/// data whole.
pub(crate) fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex
        .lock()
        .unwrap_or_else(std::sync::PoisonError::into_inner)
}
