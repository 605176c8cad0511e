//! What a parent is told, and why something was not sent.

use crate::frame::Identity;
use crate::message::Outcome;
use crate::poison::Poisoned;
use crate::segment::SegmentError;

/// What happened to a task.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Event<'a> {
    /// The child has accepted the task and works on it. Not reported for a task that is already done.
    Accepted(Identity),
    /// The task has ended; its frame is free.
    Done {
        /// Who it was.
        identity: Identity,
        /// Whether it was accepted: always true for success, and tells a failure while working from a
        /// refusal.
        accepted: bool,
        /// How it ended.
        outcome: Outcome<'a>,
    },
}

/// Ties a control reply to its request.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct ControlId(pub(crate) u32);

/// The answer to a control request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ControlReply<'a> {
    /// The request that it answers.
    pub id: ControlId,
    /// How it ended.
    pub outcome: Outcome<'a>,
}

/// A task that lies in a frame and is not visible to the child yet.
#[derive(Debug)]
#[must_use = "a staged task keeps its frame until it is activated or discarded"]
pub struct Staged {
    /// The endpoint that it was staged at.
    pub(crate) end: u64,
    pub(crate) frame: usize,
    pub(crate) identity: Identity,
    pub(crate) kind: u8,
    pub(crate) len: usize,
}

/// Why a task or a control request was not sent. Nothing has changed.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum SubmitError {
    /// Every task frame is taken.
    #[error("submit: all {frames} frames are taken (poll until one is free)")]
    Full {
        /// Task frames that the mailbox has.
        frames: usize,
    },
    /// The control frame is taken by an earlier request, given up or not.
    #[error(
        "send a control request: the one before is unanswered (poll for its answer, also after giving it up)"
    )]
    ControlTaken,
    /// The endpoint was given up.
    #[error("submit")]
    Poisoned(#[from] Poisoned),
    /// The payload fits no place.
    #[error(
        "submit a payload of {needed} bytes: the frame holds {capacity}, and with its spill area {limit}"
    )]
    TooLarge {
        /// Bytes of the payload.
        needed: usize,
        /// Bytes that the frame holds by itself.
        capacity: usize,
        /// Bytes that it holds with its spill area.
        limit: usize,
    },
    /// The machine has no memory for a payload that must spill.
    #[error("submit a payload that must spill")]
    Spill(#[source] SegmentError),
    /// The mailbox was shut down.
    #[error("submit: the mailbox was shut down")]
    ShutDown,
}
