//! What a child is asked, and why an answer may be refused.

use crate::frame::Identity;
use crate::message::Ticket;
use crate::poison::Poisoned;
use crate::segment::SegmentError;

/// What a child has been asked to do.
#[derive(Debug)]
pub enum Request {
    /// Execute a task, then [`crate::ChildEnd::complete`] it.
    Task(Task),
    /// Serve a control request, then [`crate::ChildEnd::reply`] to it.
    Control(Control),
    /// Nothing more will come. Given again by every later [`crate::ChildEnd::next`].
    Shutdown,
}

/// A task to execute: a private copy of what the parent sent.
#[derive(Debug)]
#[must_use = "the parent waits until the task is completed"]
pub struct Task(pub(crate) Box<Ticket>);

/// A control request to serve: a private copy of what the parent sent.
#[derive(Debug)]
#[must_use = "the parent waits until the request is answered"]
pub struct Control(pub(crate) Box<Ticket>);

/// Why there is no request.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum NextError {
    /// The deadline passed; nothing has changed.
    #[error("wait for a request: the deadline passed")]
    Deadline,
    /// The endpoint was given up, for example because the parent is dead.
    #[error("wait for a request")]
    Poisoned(#[from] Poisoned),
}

/// An answer that was not sent, and the request that is still unanswered.
#[derive(Debug, thiserror::Error)]
#[error("answer a request")]
pub struct Refused<T> {
    /// The request: answer it otherwise.
    pub request: T,
    /// Why.
    #[source]
    pub error: ReplyError,
}

/// Why an answer was not sent. Nothing has changed.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ReplyError {
    /// The endpoint was given up.
    #[error("the mailbox is no longer in use")]
    Poisoned(#[from] Poisoned),
    /// The result fits no place.
    #[error(
        "the result has {needed} bytes: the frame holds {capacity}, and with its spill area {limit}"
    )]
    TooLarge {
        /// Bytes of the result.
        needed: usize,
        /// Bytes that the frame holds by itself.
        capacity: usize,
        /// Bytes that it holds with its spill area.
        limit: usize,
    },
    /// The machine has no memory for a result that must spill.
    #[error("the result must spill")]
    Spill(#[source] SegmentError),
}

impl Task {
    /// Who the task is.
    #[inline]
    #[must_use]
    pub fn identity(&self) -> Identity {
        self.0.identity
    }

    /// The kind that the parent gave it.
    #[inline]
    #[must_use]
    pub fn kind(&self) -> u8 {
        self.0.kind
    }

    /// What the parent sent: a private copy, which nobody changes any more.
    #[inline]
    #[must_use]
    pub fn payload(&self) -> &[u8] {
        self.0.payload.as_slice()
    }
}

impl Control {
    /// The kind that the parent gave it.
    #[inline]
    #[must_use]
    pub fn kind(&self) -> u8 {
        self.0.kind
    }

    /// What the parent sent: a private copy, which nobody changes any more.
    #[inline]
    #[must_use]
    pub fn payload(&self) -> &[u8] {
        self.0.payload.as_slice()
    }
}
