//! What the tests share.

use std::time::{Duration, Instant};

use procfork::{Child, ChildContext, Ending, ExitCause, ForkOptions, fork};

/// A deadline that only a hanging test reaches.
pub(crate) fn soon() -> Instant {
    Instant::now() + Duration::from_secs(10)
}

/// Forks with the defaults.
#[track_caller]
pub(crate) fn child<R: Ending>(name: &str, f: impl FnOnce(ChildContext) -> R) -> Child {
    fork(ForkOptions::new(name), f).unwrap()
}

/// How a child of this function ends.
#[track_caller]
pub(crate) fn cause_of<R: Ending>(f: impl FnOnce(ChildContext) -> R) -> ExitCause {
    child("child", f).wait(soon()).unwrap()
}
