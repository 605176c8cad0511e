//! How a process ended.

use std::fmt;

use crate::signal::Signal;

/// The exact way in which a process ended. It never changes once known.
///
/// There is no "success" here: whether an exit with code 0 is good news depends on what the child
/// was supposed to be doing, and only its parent knows that.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
#[non_exhaustive]
pub enum ExitCause {
    /// It left by itself with this code. See [`exit_code`] for the codes that procfork uses.
    Exited(u8),
    /// A signal ended it.
    Signaled {
        /// The signal.
        signal: Signal,
        /// Whether the kernel wrote a core file.
        core_dumped: bool,
    },
    /// It has ended, but somebody else in this process took its exit status (a `wait` for any
    /// child, or `SIGCHLD` set to ignore), so that nobody can know how.
    Lost,
}

impl ExitCause {
    /// The exit code, if it left by itself.
    pub fn code(self) -> Option<u8> {
        match self {
            Self::Exited(code) => Some(code),
            _ => None,
        }
    }

    /// The signal that ended it, if one did.
    pub fn signal(self) -> Option<Signal> {
        match self {
            Self::Signaled { signal, .. } => Some(signal),
            _ => None,
        }
    }
}

impl fmt::Display for ExitCause {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Exited(code) => write!(f, "exited with code {code}"),
            Self::Signaled {
                signal,
                core_dumped: false,
            } => write!(f, "killed by signal {signal}"),
            Self::Signaled {
                signal,
                core_dumped: true,
            } => {
                write!(f, "killed by signal {signal}, core dumped")
            }
            Self::Lost => write!(f, "ended, and its exit status was taken by somebody else"),
        }
    }
}

/// Exit codes of children that did not end by their own function's result.
///
/// A function may return these numbers too; [`Child::last_words`](crate::Child::last_words) tells
/// the cases apart for a reader.
pub mod exit_code {
    /// The function panicked. The message is in the last words.
    pub const PANICKED: u8 = 101;
    /// The child could not be set up; its function never ran. The step is in the last words.
    pub const SETUP_FAILED: u8 = 120;
    /// The child found that its parent or the root of its tree was gone.
    pub const ORPHANED: u8 = 121;
}
