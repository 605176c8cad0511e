//! Exit codes of a scene program. When several apply, the first of this list that does.

/// A signal ended the session early.
pub const INTERRUPTED: u8 = 130;
/// The command line, a time limit, or a scene is wrong; nothing was run.
pub const USAGE: u8 = 2;
/// A filter, a case or a line of a list matches nothing; nothing was run.
pub const NO_MATCH: u8 = 3;
/// The runner itself failed.
pub const INTERNAL: u8 = 6;
/// A case was ended because its time was over.
pub const TIMED_OUT: u8 = 4;
/// A case failed or crashed.
pub const FAILED: u8 = 1;
/// A selected case could not be run.
pub const NOT_RUN: u8 = 5;
/// A golden file was rewritten: look at what changed, then run again.
pub const REWRITTEN: u8 = 7;
/// Every selected case passed or was skipped.
pub const OK: u8 = 0;
