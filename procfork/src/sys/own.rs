//! What only the process that made it may use and drop.
//!
//! A forked process has a copy of every value of its parent, but not of all that is behind them: descriptors that it was
//! not given are closed, and their numbers soon name others; pages that are hidden from children are not mapped, and
//! their addresses soon hold others. A copy that is dropped would close and unmap what is not its own.
//!
//! The copy is told from the original by a count of forks, which the C library keeps right: whoever forks, by this crate
//! or by other means, runs the handler that is registered here. The question is one load.
#![expect(unsafe_code, reason = "system calls; see the Safety section of `sys`")]

use std::fmt;
use std::sync::Once;

use super::checked_number;
use crate::sync::{AtomicU32, Ordering};

/// How many forks lie between the first process that asked and this one.
static FORKS: AtomicU32 = AtomicU32::new(0);

static REGISTERED: Once = Once::new();

/// A process, told from the copies of it that forks make, by this crate or by other means.
///
/// For what a process has and its copies have not: keep one beside it, and ask before each use.
///
/// ```
/// use procfork::{ForkOptions, Origin};
///
/// # fn main() -> Result<(), Box<dyn std::error::Error>> {
/// let origin = Origin::here();
/// assert!(origin.is_here());
/// # if procfork::is_single_threaded() {
/// procfork::fork(ForkOptions::new("copy"), move |_| assert!(!origin.is_here()))?;
/// # }
/// # Ok(())
/// # }
/// ```
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Origin {
    /// What [`FORKS`] was there.
    forks: u32,
}

impl Origin {
    /// The calling process.
    #[must_use]
    pub fn here() -> Self {
        REGISTERED.call_once(count_forks);
        Self {
            forks: FORKS.load(Ordering::Relaxed),
        }
    }

    /// Whether the calling process is this one, and no copy of it. One relaxed load.
    #[must_use]
    #[inline]
    pub fn is_here(self) -> bool {
        // Relaxed: it changes in a new process only, before anything else runs there.
        self.forks == FORKS.load(Ordering::Relaxed)
    }
}

/// A value that is there in the process that made it, and in no copy of that process.
pub(crate) struct Own<T> {
    /// Taken out by `drop` only.
    value: Option<T>,
    origin: Origin,
}

impl<T> Own<T> {
    /// Of the calling process.
    pub(crate) fn new(value: T) -> Self {
        Self {
            value: Some(value),
            origin: Origin::here(),
        }
    }

    /// The value, in its own process.
    #[inline]
    pub(crate) fn get(&self) -> Option<&T> {
        self.value.as_ref().filter(|_| self.is_own())
    }

    /// The value, or in a copy what is left of it: a number without anything behind it.
    pub(crate) fn anywhere(&self) -> &T {
        self.value.as_ref().expect("taken out by drop only")
    }

    /// Whether this is the original. One relaxed load.
    #[inline]
    pub(crate) fn is_own(&self) -> bool {
        self.origin.is_here()
    }
}

impl<T> Drop for Own<T> {
    fn drop(&mut self) {
        if !self.is_own() {
            std::mem::forget(self.value.take());
        }
    }
}

impl<T: fmt::Debug> fmt::Debug for Own<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.value.fmt(f)
    }
}

/// `pthread_atfork()`: from now on each forked process counts itself.
fn count_forks() {
    // SAFETY: the handler only adds to an atomic, which is allowed at any time.
    let registered = unsafe { libc::pthread_atfork(None, None, Some(one_more)) };
    // ENOMEM, which ends a Rust program everywhere else too.
    checked_number(registered).expect("memory for one handler");
}

extern "C" fn one_more() {
    FORKS.fetch_add(1, Ordering::Relaxed);
}
