//! How cases end, and what a whole session comes to.

use std::collections::BTreeMap;
use std::fmt;
use std::time::Duration;

use serde::Serialize;

use crate::compare::Comparison;
use crate::exit;
use crate::record::RoundTime;

/// How a case ended. A selected case has exactly one.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(tag = "kind", rename_all = "snake_case")]
#[non_exhaustive]
pub enum Outcome {
    /// Its process said so, and ended well.
    Passed,
    /// Its process said so, or said nothing and ended.
    Failed {
        /// Why.
        reason: String,
    },
    /// It was ended because its time was over.
    TimedOut {
        /// Which limit it was.
        limit: String,
    },
    /// Its process was ended by a signal or an abort, whatever it had said before.
    Crashed {
        /// How it ended.
        cause: String,
    },
    /// It ran to its end, and its golden file was rewritten, as was asked for: what changed is to be
    /// looked at, and nothing was proven.
    Rewritten {
        /// What changed.
        changes: String,
    },
    /// It cannot run here, or was not asked for.
    Skipped {
        /// Why.
        reason: String,
    },
    /// It was selected and had no chance to run.
    NotRun {
        /// Why.
        reason: String,
    },
}

impl Outcome {
    /// Every kind in the order of a summary, with what reports call it.
    const KINDS: [&'static str; 7] = [
        "passed",
        "failed",
        "timed out",
        "crashed",
        "rewritten",
        "skipped",
        "not run",
    ];

    /// What reports call it.
    pub fn kind(&self) -> &'static str {
        match self {
            Self::Passed => "passed",
            Self::Failed { .. } => "failed",
            Self::TimedOut { .. } => "timed out",
            Self::Crashed { .. } => "crashed",
            Self::Rewritten { .. } => "rewritten",
            Self::Skipped { .. } => "skipped",
            Self::NotRun { .. } => "not run",
        }
    }

    /// The reason, limit or cause; empty for a pass.
    pub fn why(&self) -> &str {
        match self {
            Self::Passed => "",
            Self::Failed { reason } | Self::Skipped { reason } | Self::NotRun { reason } => reason,
            Self::TimedOut { limit } => limit,
            Self::Crashed { cause } => cause,
            Self::Rewritten { changes } => changes,
        }
    }

    /// Whether the session can still end with code 0.
    pub fn is_good(&self) -> bool {
        matches!(self, Self::Passed | Self::Skipped { .. })
    }
}

/// Everything that is known of a selected case at the end.
#[derive(Clone, Debug, Serialize)]
#[non_exhaustive]
pub struct CaseReport {
    /// `scene::case`.
    pub name: String,
    /// How it ended.
    pub outcome: Outcome,
    /// Processes that it left behind, each as `name (pid), ...`. They are gone now.
    pub leaked: Vec<String>,
    /// The devices that it had.
    pub devices: Vec<u32>,
    /// How often it was started: 0 if it was not, 2 if a device broke under it.
    pub attempts: u32,
    /// From the start of the session to that of its process.
    pub began: Duration,
    /// From the start of its process to the end.
    pub elapsed: Duration,
    /// Nanoseconds of each round.
    pub rounds_ns: Vec<u64>,
    /// When each round began, in nanoseconds from the start of its process.
    pub rounds_begin_ns: Vec<u64>,
    /// Minimum, median and 95th percentile of the rounds, if there was more than one.
    pub rounds_table: Option<RoundsTable>,
    /// The comparisons of the last round.
    pub comparisons: Vec<Comparison>,
    /// What it printed, bounded.
    pub output: String,
    /// Messages to the runner that did not arrive whole.
    pub torn: u64,
    /// Where everything stood when its time was over.
    pub hung: Option<String>,
    /// The stacks of its processes that crashed.
    pub crash: Option<String>,
}

/// How long rounds took, in nanoseconds.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[non_exhaustive]
pub struct RoundsTable {
    /// How many there were.
    pub rounds: usize,
    /// The shortest.
    pub min_ns: u64,
    /// Half of them took no longer.
    pub median_ns: u64,
    /// 95 of 100 took no longer.
    pub p95_ns: u64,
}

impl RoundsTable {
    /// `None` for less than two rounds, which say nothing about a distribution.
    pub(crate) fn of(ns: &[u64]) -> Option<Self> {
        let mut sorted = ns.to_vec();
        sorted.sort_unstable();
        // The smallest one that so many percent do not exceed.
        let at = |percent: usize| sorted[(sorted.len() * percent).div_ceil(100).max(1) - 1];
        (ns.len() > 1).then(|| Self {
            rounds: ns.len(),
            min_ns: sorted[0],
            median_ns: at(50),
            p95_ns: at(95),
        })
    }
}

impl CaseReport {
    /// A case that was not started.
    pub(crate) fn unstarted(name: String, outcome: Outcome) -> Self {
        Self {
            name,
            outcome,
            leaked: Vec::new(),
            devices: Vec::new(),
            attempts: 0,
            began: Duration::ZERO,
            elapsed: Duration::ZERO,
            rounds_ns: Vec::new(),
            rounds_begin_ns: Vec::new(),
            rounds_table: None,
            comparisons: Vec::new(),
            output: String::new(),
            torn: 0,
            hung: None,
            crash: None,
        }
    }

    /// When each round began and how long it took.
    pub(crate) fn rounds(&self) -> impl Iterator<Item = RoundTime> {
        let times = self.rounds_begin_ns.iter().zip(&self.rounds_ns);
        times.map(|(&begin_ns, &ns)| RoundTime { begin_ns, ns })
    }
}

/// A whole session.
#[derive(Clone, Debug, Serialize)]
#[non_exhaustive]
pub struct SessionReport {
    /// Every selected case, in the order of the scenes.
    pub cases: Vec<CaseReport>,
    /// When it began, on the monotonic clock of the machine.
    #[serde(skip)]
    pub(crate) began_ns: u64,
    /// How long it took.
    pub elapsed: Duration,
    /// Devices that broke and were taken out of the pool.
    pub broken_devices: Vec<u32>,
    /// The signal that ended it early.
    pub interrupted: Option<String>,
}

impl SessionReport {
    /// How many cases ended in each way. The counts add up to the number of cases.
    pub fn counts(&self) -> BTreeMap<&'static str, usize> {
        let mut counts = BTreeMap::new();
        for case in &self.cases {
            *counts.entry(case.outcome.kind()).or_default() += 1;
        }
        counts
    }

    /// The exit code of the runner. See [`exit`].
    pub fn exit_code(&self) -> u8 {
        let any = |kind: &str| self.counts().contains_key(kind);
        if self.interrupted.is_some() {
            exit::INTERRUPTED
        } else if any("timed out") {
            exit::TIMED_OUT
        } else if any("failed") || any("crashed") {
            exit::FAILED
        } else if any("not run") {
            exit::NOT_RUN
        } else if any("rewritten") {
            exit::REWRITTEN
        } else {
            exit::OK
        }
    }
}

/// `3 selected: 1 passed, 2 failed; 1 left processes behind`.
impl fmt::Display for SessionReport {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let counts = self.counts();
        let counted = Outcome::KINDS
            .iter()
            .filter_map(|kind| Some((kind, counts.get(kind)?)));
        let parts: Vec<String> = counted
            .map(|(kind, count)| format!("{count} {kind}"))
            .collect();
        write!(f, "{} selected: {}", self.cases.len(), parts.join(", "))?;
        match self
            .cases
            .iter()
            .filter(|case| !case.leaked.is_empty())
            .count()
        {
            0 => Ok(()),
            leaky => write!(f, "; {leaky} left processes behind"),
        }
    }
}

#[cfg(test)]
mod tests;
