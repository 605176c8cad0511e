//! What the engine counts, and what it keeps of each task when somebody wants to know.

use std::time::Instant;

use smallvec::SmallVec;
use taskgraph::{Dispatch, DispatchId, TaskEnd, TaskId};

use super::kept::Kept;
use crate::clock::WireInstant;
use crate::error::Name;
use crate::observe::{Observe, Stats, TaskTrace};

/// The counters of one engine, its clock readings, and its trace. Guarded by `core`.
pub(crate) struct Observer {
    level: Observe,
    began: Instant,
    stats: Stats,
    lines: Vec<LineCount>,
    trace: Vec<TaskTrace>,
    /// The runs whose graphs are kept.
    pub(crate) kept: Kept,
}

/// What one child has to do.
#[derive(Default, Clone)]
struct LineCount {
    sent: u64,
    in_flight: u32,
    /// Watched dispatches whose end was not seen: as many as there are frames, or none.
    flights: SmallVec<[Flight; 2]>,
}

#[derive(Clone)]
struct Flight {
    dispatch: DispatchId,
    callable: Name,
    run: u64,
    member: u32,
    submitted_ns: u64,
    dispatched_ns: u64,
    accepted_ns: Option<u64>,
}

impl Observer {
    pub(super) fn new() -> Self {
        Self {
            level: Observe::Counters,
            began: Instant::now(),
            stats: Stats::default(),
            lines: Vec::new(),
            trace: Vec::new(),
            kept: Kept::default(),
        }
    }

    /// From now on watches tasks this closely. Begins a new trace.
    pub(crate) fn watch(&mut self, level: Observe) {
        self.level = level;
        self.trace.clear();
    }

    /// The instant from which the times of tasks count.
    pub(crate) fn began(&self) -> WireInstant {
        WireInstant(WireInstant::now().0.saturating_sub(self.now()))
    }

    /// The tasks that ended since the trace began, which begins anew.
    pub(crate) fn take_trace(&mut self) -> Vec<TaskTrace> {
        std::mem::take(&mut self.trace)
    }

    /// The counters. `name` says what the child on a line is called.
    pub(crate) fn stats(&self, paths: &[Name]) -> Stats {
        let mut stats = self.stats.clone();
        let ended = stats.tasks_completed + stats.tasks_failed + stats.tasks_skipped;
        stats.tasks_live = stats.tasks_submitted - ended;
        stats.workers = paths
            .iter()
            .enumerate()
            .map(|(line, path)| {
                let count = self.lines.get(line).cloned().unwrap_or_default();
                crate::observe::WorkerLoad::new(path, count.in_flight, count.sent)
            })
            .collect();
        stats
    }

    pub(super) fn run_begun(&mut self) {
        self.stats.runs_begun += 1;
    }

    pub(super) fn run_ended(&mut self, is_ok: bool) {
        self.stats.runs_ended += 1;
        self.stats.runs_failed += u64::from(!is_ok);
    }

    /// Counts a task in; the time, where tasks are watched.
    pub(super) fn submitted(&mut self) -> Option<u64> {
        self.stats.tasks_submitted += 1;
        (self.level > Observe::Counters).then(|| self.now())
    }

    pub(super) fn ended(&mut self, end: TaskEnd) {
        let counter = match end {
            TaskEnd::Completed => &mut self.stats.tasks_completed,
            TaskEnd::Failed(_) => &mut self.stats.tasks_failed,
            TaskEnd::Skipped { .. } | TaskEnd::Cancelled => &mut self.stats.tasks_skipped,
        };
        *counter += 1;
    }

    /// A member of a task, or of a node of a graph task, lies in its worker's mailbox. `submitted_ns` is what
    /// [`Observer::submitted`] gave.
    pub(super) fn sent(
        &mut self,
        dispatch: &Dispatch,
        task: TaskId,
        callable: impl FnOnce() -> Name,
        submitted_ns: Option<u64>,
    ) {
        self.stats.sent += 1;
        if self.kept.keeps(dispatch.run) {
            let now = self.now();
            self.kept.sent(dispatch, task, now);
        }
        let now = submitted_ns.map(|at| (at, self.now()));
        let line = dispatch.worker.0 as usize;
        if self.lines.len() <= line {
            self.lines.resize(line + 1, LineCount::default());
        }
        let count = &mut self.lines[line];
        count.sent += 1;
        count.in_flight += 1;
        let Some((submitted_ns, dispatched_ns)) = now else {
            return;
        };
        self.stats.queued.add(dispatched_ns - submitted_ns);
        count.flights.push(Flight {
            dispatch: dispatch.dispatch,
            callable: callable(),
            run: dispatch.run.0,
            member: dispatch.member,
            submitted_ns,
            dispatched_ns,
            accepted_ns: None,
        });
    }

    /// A task lies in its worker's mailbox before its run has begun.
    pub(super) fn staged_ahead(&mut self) {
        self.stats.staged_ahead += 1;
    }

    pub(super) fn accepted(&mut self, line: usize, dispatch: DispatchId) {
        if self.kept.is_on() {
            let now = self.now();
            self.kept.accepted(dispatch, now);
        }
        if self.level > Observe::Counters {
            let now = self.now();
            let flights = self.lines.get_mut(line).map(|count| &mut count.flights);
            let mut flights = flights.into_iter().flatten();
            if let Some(flight) = flights.find(|flight| flight.dispatch == dispatch) {
                flight.accepted_ns = Some(now);
            }
        }
    }

    pub(super) fn done(&mut self, line: usize, dispatch: DispatchId, is_ok: bool) {
        if self.kept.is_on() {
            let now = self.now();
            self.kept.done(dispatch, now);
        }
        let Some(count) = self.lines.get_mut(line) else {
            return;
        };
        count.in_flight = count.in_flight.saturating_sub(1);
        if count.flights.is_empty() {
            return;
        }
        let ours = |flight: &Flight| flight.dispatch == dispatch;
        if let Some(position) = count.flights.iter().position(ours) {
            let flight = count.flights.remove(position);
            self.keep(line, flight, is_ok);
        }
    }

    fn keep(&mut self, worker: usize, flight: Flight, is_ok: bool) {
        let done_ns = self.now();
        self.stats.ran.add(done_ns - flight.dispatched_ns);
        if self.level == Observe::Trace {
            self.trace.push(TaskTrace {
                callable: flight.callable.to_string(),
                worker,
                run: flight.run,
                member: flight.member,
                submitted_ns: flight.submitted_ns,
                dispatched_ns: flight.dispatched_ns,
                accepted_ns: flight.accepted_ns,
                done_ns,
                is_ok,
            });
        }
    }

    /// The child on this line answers no more.
    pub(super) fn lost(&mut self, line: usize) {
        if self.kept.is_on() {
            let now = self.now();
            self.kept.lost(line, now);
        }
        if let Some(count) = self.lines.get_mut(line) {
            count.in_flight = 0;
            for flight in std::mem::take(&mut count.flights) {
                self.keep(line, flight, false);
            }
        }
    }

    /// Nanoseconds since the engine was made.
    fn now(&self) -> u64 {
        u64::try_from(self.began.elapsed().as_nanos()).unwrap_or(u64::MAX)
    }
}
