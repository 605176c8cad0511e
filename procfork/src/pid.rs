//! Numbers of processes, groups and threads.

use std::fmt;
use std::num::NonZero;

use crate::sys::process;

/// The number of a process, of a process group (its leader's number) or of a thread.
///
/// A number is not a handle: once the process has been reaped the kernel may give its number to
/// any other. A [`Child`](crate::Child) holds a descriptor instead, and its `pid()` stays reserved
/// until the child is terminated or dropped.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Pid(NonZero<i32>);

impl Pid {
    /// A number that came from the kernel; `None` for zero and negative ones, which never name a
    /// single process.
    pub fn new(raw: i32) -> Option<Self> {
        NonZero::new(raw).filter(|raw| raw.is_positive()).map(Self)
    }

    /// The calling process. One system call.
    pub fn this() -> Self {
        process::this_pid()
    }

    /// The number, always positive.
    pub fn raw(self) -> i32 {
        self.0.get()
    }
}

impl fmt::Display for Pid {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

impl fmt::Debug for Pid {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Pid({})", self.0)
    }
}
