//! What the process of a case tells the runner: through a descriptor of its own, never through
//! what it prints.
//!
//! The only proof that a case passed is a [`Verdict::Passed`] that arrived here. What the scene prints,
//! closes or redirects does not matter, and a process that ends without a verdict has failed.

use std::os::fd::OwnedFd;

use serde::{Deserialize, Serialize};

use crate::case_process::code;
use crate::channel::Sender;
use crate::compare::Comparison;

/// Something that happened in a case.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub(crate) enum Event {
    /// A round has ended. Its begin counts from the start of the case.
    Round(RoundTime),
    /// Its outputs were compared.
    Compared { comparisons: Vec<Comparison> },
    /// What its golden file says after it, if it passes.
    GoldenStaged { changes: String },
    /// The scene found by itself that it is stuck.
    TimeIsOver,
    /// The last event of a case.
    Verdict { verdict: Verdict },
}

/// When a round began, and how long it took.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct RoundTime {
    pub(crate) begin_ns: u64,
    pub(crate) ns: u64,
}

/// How a case ended, as its own process sees it.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub(crate) enum Verdict {
    Passed,
    Failed {
        reason: String,
    },
    Skipped {
        reason: String,
    },
    Panicked {
        message: String,
    },
    /// The body returned without an error, and no element was compared.
    ComparedNothing,
    DeviceUnusable {
        devices: Vec<u32>,
        reason: String,
        before_first_round: bool,
    },
}

impl Verdict {
    /// The code with which the process then exits.
    pub(crate) fn exit_code(&self) -> u8 {
        match self {
            Self::Passed => code::PASSED,
            _ => code::NOT_PASSED,
        }
    }

    /// What the case did, and why.
    pub(crate) fn in_words(&self) -> String {
        match self {
            Self::Passed => "passed".to_owned(),
            Self::Failed { reason } | Self::DeviceUnusable { reason, .. } => {
                format!("failed ({reason})")
            }
            Self::Skipped { reason } => format!("was skipped ({reason})"),
            Self::Panicked { message } => format!("panicked {message}"),
            Self::ComparedNothing => "compared nothing with its reference".to_owned(),
        }
    }
}

/// The case's end.
#[derive(Debug)]
pub(crate) struct Reporter(Sender);

impl Reporter {
    pub(crate) fn new(fd: OwnedFd) -> Self {
        Self(Sender::new(fd))
    }

    /// Tells the runner. When the runner is gone there is nobody to tell that it failed, and this
    /// process ends soon as well.
    pub(crate) fn send(&self, event: &Event) {
        if let Ok(bytes) = serde_json::to_vec(event) {
            let _ = self.0.send(&bytes);
        }
    }
}

/// Reads an event; `None` for bytes that are none.
pub(crate) fn decode(bytes: &[u8]) -> Option<Event> {
    serde_json::from_slice(bytes).ok()
}
