//! The monotonic clock, which is one for all processes of a machine: how an instant crosses to another process.

use std::time::{Duration, Instant};

use nix::time::{ClockId, clock_gettime};
use serde::{Deserialize, Serialize};

/// An instant as every process of this machine understands it: nanoseconds of the monotonic clock.
#[derive(
    Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default, Serialize, Deserialize,
)]
pub(crate) struct WireInstant(pub(crate) u64);

impl WireInstant {
    pub(crate) fn now() -> Self {
        let now = clock_gettime(ClockId::CLOCK_MONOTONIC).expect("every Linux has this clock");
        Self(now.tv_sec().unsigned_abs() * 1_000_000_000 + now.tv_nsec().unsigned_abs())
    }

    /// `instant`, for another process; the present where it has passed.
    pub(crate) fn of(instant: Instant) -> Self {
        let left = instant.saturating_duration_since(Instant::now());
        let left = u64::try_from(left.as_nanos()).unwrap_or(u64::MAX);
        Self(Self::now().0.saturating_add(left))
    }

    /// The same instant in this process; the present where it has passed.
    pub(crate) fn here(self) -> Instant {
        let left = self.since(Self::now());
        let now = Instant::now();
        now.checked_add(left).unwrap_or(now)
    }

    /// The time from `earlier` until this; zero where it was before.
    pub(crate) fn since(self, earlier: Self) -> Duration {
        Duration::from_nanos(self.0.saturating_sub(earlier.0))
    }
}
