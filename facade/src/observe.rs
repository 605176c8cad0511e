//! What an engine has done: counters that are always kept, latencies and a trace that are kept when asked for.
//!
//! Counters are additions under a lock that is held anyway. [`Observe::Latencies`] reads the clock three times per task,
//! [`Observe::Trace`] also keeps what it read.

pub(crate) mod file;
mod histogram;
mod trace;

use std::fmt;

pub use self::histogram::Histogram;
pub use self::trace::{TaskTrace, Trace};

/// How closely a worker watches its tasks. See [`Worker::observe`](crate::Worker::observe).
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, PartialOrd, Ord)]
#[non_exhaustive]
pub enum Observe {
    /// Counters only, which cost nothing that can be measured.
    #[default]
    Counters,
    /// Also how long tasks queued and ran.
    Latencies,
    /// Also when each task did what, for [`Worker::take_trace`](crate::Worker::take_trace). Memory grows with the number
    /// of tasks.
    Trace,
}

/// What a worker's engine has done since it was made, and what it has to do now. See
/// [`Worker::stats`](crate::Worker::stats).
///
/// Counts tasks of this worker's own graph; a worker below counts its own.
#[derive(Debug, Clone, Default, PartialEq)]
#[non_exhaustive]
pub struct Stats {
    /// Runs that were begun.
    pub runs_begun: u64,
    /// Runs that are over, failed ones included.
    pub runs_ended: u64,
    /// Runs that ended with an error of their tasks.
    pub runs_failed: u64,
    /// Tasks that were submitted; a group counts once.
    pub tasks_submitted: u64,
    /// Tasks that ended well.
    pub tasks_completed: u64,
    /// Tasks that failed by themselves, or with their worker.
    pub tasks_failed: u64,
    /// Tasks that never ran, because what they depend on failed or their run was cancelled.
    pub tasks_skipped: u64,
    /// Members of tasks that were sent to a worker; a group of three counts three times.
    pub sent: u64,
    /// Times that a task was written into a worker's mailbox while an earlier run still executed, to begin as soon as that
    /// has ended.
    pub staged_ahead: u64,
    /// Tasks that were submitted and have not ended: in a queue, waiting for others, or on a worker.
    pub tasks_live: u64,
    /// Control requests that wait for their turn.
    pub requests_queued: u64,
    /// The children, in the order of [`Worker::tree`](crate::Worker::tree).
    pub workers: Vec<WorkerLoad>,
    /// From submit to dispatch, by task; empty unless [`Observe::Latencies`] was asked for.
    pub queued: Histogram,
    /// From dispatch until the end was seen, by member; empty unless [`Observe::Latencies`] was asked for.
    pub ran: Histogram,
}

/// What one child has to do.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct WorkerLoad {
    /// Its path.
    pub path: String,
    /// Tasks that lie in its mailbox and have not ended: at most two.
    pub in_flight: u32,
    /// Tasks that it was sent in all.
    pub sent: u64,
}

impl WorkerLoad {
    pub(crate) fn new(path: &str, in_flight: u32, sent: u64) -> Self {
        let path = path.to_owned();
        Self {
            path,
            in_flight,
            sent,
        }
    }
}

impl fmt::Display for Stats {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(
            f,
            "runs    {} begun, {} ended, {} of them failed",
            self.runs_begun, self.runs_ended, self.runs_failed
        )?;
        writeln!(
            f,
            "tasks   {} submitted, {} completed, {} failed, {} skipped, {} live",
            self.tasks_submitted,
            self.tasks_completed,
            self.tasks_failed,
            self.tasks_skipped,
            self.tasks_live
        )?;
        for worker in &self.workers {
            writeln!(
                f,
                "worker  {}: {} sent, {} in flight",
                worker.path, worker.sent, worker.in_flight
            )?;
        }
        writeln!(f, "queued  {}", self.queued)?;
        writeln!(f, "ran     {}", self.ran)
    }
}

#[cfg(test)]
mod tests;
