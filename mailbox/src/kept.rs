//! What a forked process must not drop, because only its copy came with the fork.

use std::fmt;
use std::ops::Deref;

use crate::sync::{AtomicU32, Ordering};

/// A value that may be kept from forks: then a copy of it in a forked process is forgotten instead of dropped, since the
/// numbers and addresses in it have come to name other things there.
pub(crate) struct Kept<T> {
    /// Taken out by `drop` only.
    value: Option<T>,
    /// The process that keeps it to itself; 0 while forks may share it.
    by: AtomicU32,
}

impl<T> Kept<T> {
    /// Shared with forks, for now.
    pub(crate) fn shared(value: T) -> Self {
        Self {
            value: Some(value),
            by: AtomicU32::new(0),
        }
    }

    /// From now on it is this process's alone.
    pub(crate) fn keep(&self) {
        // Relaxed: a fork, which is all that can see an old value, is ordered with what its thread did before.
        self.by.store(std::process::id(), Ordering::Relaxed);
    }

    /// Forked processes inherit it again.
    pub(crate) fn share(&self) {
        // Relaxed: as above.
        self.by.store(0, Ordering::Relaxed);
    }

    fn is_foreign(&self) -> bool {
        let by = self.by.load(Ordering::Relaxed);
        by != 0 && by != std::process::id()
    }
}

impl<T> Deref for Kept<T> {
    type Target = T;

    fn deref(&self) -> &T {
        self.value.as_ref().expect("taken out by drop only")
    }
}

impl<T> Drop for Kept<T> {
    fn drop(&mut self) {
        if self.is_foreign() {
            std::mem::forget(self.value.take());
        }
    }
}

impl<T: fmt::Debug> fmt::Debug for Kept<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.value.fmt(f)
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;

    /// Whether the value behind `kept` is dropped with it.
    #[track_caller]
    fn check(by: u32, dropped: bool) {
        let seen = std::sync::Arc::new(());
        let kept = Kept::shared(std::sync::Arc::clone(&seen));
        kept.by.store(by, Ordering::Relaxed);
        drop(kept);
        assert_eq!(
            std::sync::Arc::strong_count(&seen) == 1,
            dropped,
            "kept by {by}"
        );
    }

    #[test]
    fn only_what_another_process_keeps_is_not_dropped_here() {
        check(0, true);
        check(std::process::id(), true);
        check(std::process::id() + 1, false);
    }
}
