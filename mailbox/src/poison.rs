//! Poison: the first cause for which an endpoint was given up, kept for ever.

use std::sync::Arc;

use crate::frame::{FrameError, Identity, Stamp, TooLong};
use crate::layout::Side;

/// An endpoint that was given up. Every later operation answers with the same first cause.
///
/// One word: a clone shares the cause.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("use a mailbox that was given up: {0}")]
pub struct Poisoned(Arc<Cause>);

impl Poisoned {
    pub(crate) fn new(cause: Cause) -> Poisoned {
        Poisoned(Arc::new(cause))
    }

    /// The first cause.
    #[must_use]
    pub fn cause(&self) -> &Cause {
        &self.0
    }
}

/// Why an endpoint was given up.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum Cause {
    /// An answer carries another identity than the task that was sent in its frame.
    #[error("the answer in task frame {frame} is for {found:?}, the task there is {expected:?}")]
    StaleIdentity {
        /// The frame.
        frame: usize,
        /// What was sent.
        expected: Identity,
        /// What came back.
        found: Identity,
    },
    /// A stamp that no correct peer can write in the present state.
    #[error("{frame} has the impossible stamp {stamp:#018x} (sequence number {expected} was due)")]
    ImpossibleStamp {
        /// The frame.
        frame: FrameName,
        /// The stamp.
        stamp: u64,
        /// The sequence number that was due.
        expected: u32,
    },
    /// A payload that claims to be longer than any place for it.
    #[error("{frame} claims a payload of {claimed} bytes, there is room for {limit}")]
    ImpossibleLength {
        /// The frame.
        frame: FrameName,
        /// Bytes claimed.
        claimed: usize,
        /// Bytes of the largest place.
        limit: usize,
    },
    /// A spilled payload could not be read, because the machine has no memory for it.
    #[error("{frame} has a spilled payload that this machine has no memory to read: {reason}")]
    Unreadable {
        /// The frame.
        frame: FrameName,
        /// What the kernel answered.
        reason: String,
    },
    /// The peer is dead.
    #[error("{side} died")]
    PeerDied {
        /// Who.
        side: Side,
    },
    /// The peer gave the mailbox up.
    #[error("{side} gave the mailbox up")]
    PeerGaveUp {
        /// Who.
        side: Side,
    },
    /// The owner of this endpoint said so.
    #[error("{0}")]
    Told(String),
}

/// The poison for a stamp that was not due.
pub(crate) fn impossible(frame: FrameName, stamp: Stamp, expected: u32) -> Cause {
    Cause::ImpossibleStamp {
        frame,
        stamp: stamp.to_bits(),
        expected,
    }
}

/// The poison for a payload that cannot be read.
pub(crate) fn unreadable(frame: FrameName, error: FrameError) -> Cause {
    match error {
        FrameError::TooLong(TooLong { len, limit }) => Cause::ImpossibleLength {
            frame,
            claimed: len,
            limit,
        },
        FrameError::Spill(source) => Cause::Unreadable {
            frame,
            reason: source.to_string(),
        },
    }
}

/// A frame, for messages.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FrameName {
    /// The control frame.
    Control,
    /// A task frame.
    Task(usize),
}

impl std::fmt::Display for FrameName {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            FrameName::Control => f.write_str("the control frame"),
            FrameName::Task(i) => write!(f, "task frame {i}"),
        }
    }
}
