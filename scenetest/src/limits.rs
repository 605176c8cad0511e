//! Time limits, which form a ladder: device < case < session.
//!
//! An inner limit that is not smaller than the outer one can never be the one that reports: the
//! outer one fires first and hides where the time went. So the order is checked before anything
//! runs, and a wrong one is refused with the whole ladder.

use std::fmt;
use std::time::{Duration, Instant};

/// How long the parts of a case may take.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Limits {
    /// One operation of a device or a worker; a scene hands it down, see
    /// [`SceneContext::limits`](crate::SceneContext::limits).
    pub device: Duration,
    /// The whole case, from the start of its process to its verdict.
    pub case: Duration,
}

impl Default for Limits {
    /// 10 s and 60 s.
    fn default() -> Self {
        Self {
            device: Duration::from_secs(10),
            case: Duration::from_secs(60),
        }
    }
}

/// What the runner itself takes at the end of a case that does not end.
pub(crate) const DUMP: Duration = Duration::from_secs(5);
/// Between asking the process of such a case to end and killing it.
pub(crate) const GRACE: Duration = Duration::from_secs(2);
/// For killing and sweeping.
pub(crate) const SWEEP: Duration = Duration::from_secs(1);

/// When a case is over its time, and whose time that is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Deadline {
    pub(crate) at: Instant,
    pub(crate) whose: &'static str,
}

impl Deadline {
    /// The first of the two.
    pub(crate) fn of(case: Instant, session: Instant) -> Self {
        let (at, whose) = match case <= session {
            true => (case, "its time is over"),
            false => (session, "the session's time is over"),
        };
        Self { at, whose }
    }
}

/// The limits of one case, and the session's.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Ladder {
    pub(crate) limits: Limits,
    pub(crate) session: Duration,
}

impl Ladder {
    /// Whether each rung is above the one below it.
    pub(crate) fn holds(&self) -> bool {
        let Limits { device, case } = self.limits;
        let ended = case.saturating_add(DUMP + GRACE + SWEEP);
        !device.is_zero() && device < case && ended < self.session
    }
}

impl fmt::Display for Ladder {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Limits { device, case } = self.limits;
        let after = DUMP + GRACE + SWEEP;
        write!(
            f,
            "0 < device {device:?} < case {case:?}, and case + {after:?} for its end < session {:?}",
            self.session
        )
    }
}

#[cfg(test)]
mod tests;
