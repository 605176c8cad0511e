//! Deliberate faults, one at a time, each behind `--cfg weaken="name"`: what the loom models must find.
//!
//! Every constant is `false` (or the sound ordering) in a normal build, and the compiler removes its branch.
//! `loom_models/README.md` says which model shows which fault, and how to run it.

use crate::sync::Ordering;

#[cfg(all(test, not(loom)))]
mod tests;

/// A lease is admitted without synchronising with the commit that published Ready.
pub(crate) const ADMIT: Ordering = if cfg!(weaken = "admit_relaxed") {
    Ordering::Relaxed
} else {
    Ordering::Acquire
};

/// A lease ends without publishing what was done under it.
pub(crate) const RELEASE: Ordering = if cfg!(weaken = "release_relaxed") {
    Ordering::Relaxed
} else {
    Ordering::Release
};

/// Ready is published without what the start has built.
pub(crate) const COMMIT: Ordering = if cfg!(weaken = "commit_relaxed") {
    Ordering::Relaxed
} else {
    Ordering::AcqRel
};

/// Teardown begins without having seen what the last lease did.
pub(crate) const TEARDOWN: Ordering = if cfg!(weaken = "teardown_relaxed") {
    Ordering::Relaxed
} else {
    Ordering::AcqRel
};

/// Admission checks the state first and counts the lease afterwards, in two instructions.
pub(crate) const ADMIT_IN_TWO_STEPS: bool = cfg!(weaken = "admit_in_two_steps");

/// The last release notifies without taking the lock that the drain checks under.
pub(crate) const WAKE_WITHOUT_LOCK: bool = cfg!(weaken = "wake_without_lock");

/// Commit publishes Ready without looking whether a close was claimed meanwhile.
pub(crate) const COMMIT_BLINDLY: bool = cfg!(weaken = "commit_blindly");

/// A commit does not wake those who wait for the outcome of the start.
pub(crate) const COMMIT_SILENTLY: bool = cfg!(weaken = "commit_silently");

/// A close does not wait for the start that it has cancelled.
pub(crate) const LEAVE_STARTER: bool = cfg!(weaken = "leave_starter");

/// A close that finds another one at work drives as well instead of joining it.
pub(crate) const CLAIM_TWICE: bool = cfg!(weaken = "claim_twice");

/// A joiner looks up the current attempt each time it wakes, instead of the one that it saw.
pub(crate) const JOIN_LATEST: bool = cfg!(weaken = "join_latest");

/// Cancelling wakes the starter without taking the lock that it checks under.
pub(crate) const CANCEL_WITHOUT_LOCK: bool = cfg!(weaken = "cancel_without_lock");

/// A step leaves the journal when it begins, not when it has succeeded.
pub(crate) const FORGET_EARLY: bool = cfg!(weaken = "forget_early");

/// An attempt that unwinds leaves no verdict behind.
pub(crate) const NO_VERDICT_ON_UNWIND: bool = cfg!(weaken = "no_verdict_on_unwind");
