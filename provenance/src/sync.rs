//! The only door to atomics and locks: `std`, or loom's models of them under `cfg(loom)`.

#[cfg(loom)]
pub(crate) use loom::sync::{
    Mutex, MutexGuard,
    atomic::{AtomicU32, AtomicU64, Ordering},
};
#[cfg(not(loom))]
pub(crate) use std::sync::{
    Mutex, MutexGuard,
    atomic::{AtomicU32, AtomicU64, Ordering},
};

/// A number that no other table of this process has, and never 0.
///
/// Not modelled: no table learns from the number of another.
///
/// # Panics
/// When four billion tables were made.
pub(crate) fn table_number() -> u32 {
    use std::sync::atomic::{AtomicU32, Ordering};
    static NEXT: AtomicU32 = AtomicU32::new(1);
    // Relaxed: only the count matters.
    NEXT.fetch_update(Ordering::Relaxed, Ordering::Relaxed, |next| {
        next.checked_add(1)
    })
    .expect("fewer than four billion tables in a process")
}

/// Locks, and takes the data of a holder that panicked as it stands.
///
/// No code of a user runs under the table's lock, and each change under it is complete before
/// the next call that could panic, so a poisoned lock holds nothing half-done.
pub(crate) fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex
        .lock()
        .unwrap_or_else(std::sync::PoisonError::into_inner)
}
