//! What is kept of runs whose graphs somebody wants to see: names and times, which the graph itself does not know.

use hashbrown::HashMap;
use taskgraph::{Dispatch, DispatchId, RunId, TaskId};

use crate::error::Name;

/// All runs of which it is kept; mostly none.
#[derive(Default)]
pub(crate) struct Kept {
    runs: HashMap<RunId, KeptRun>,
    /// Dispatches of theirs whose end was not seen.
    flights: HashMap<DispatchId, Flight>,
    /// When the last one on each line ended: the one behind it began no earlier.
    free_from: HashMap<usize, u64>,
}

/// One run.
#[derive(Default)]
pub(crate) struct KeptRun {
    pub(crate) names: HashMap<TaskId, Name>,
    /// When each task began and ended, over all of its members and nodes.
    pub(crate) times: HashMap<TaskId, (u64, u64)>,
}

struct Flight {
    run: RunId,
    task: TaskId,
    line: usize,
    begin_ns: u64,
}

impl Kept {
    /// Whether anything is kept at all.
    pub(super) fn is_on(&self) -> bool {
        !self.runs.is_empty()
    }

    pub(super) fn keeps(&self, run: RunId) -> bool {
        self.is_on() && self.runs.contains_key(&run)
    }

    pub(super) fn begin(&mut self, run: RunId) {
        self.runs.entry(run).or_default();
    }

    /// What was kept of a run that is over.
    pub(super) fn end(&mut self, run: RunId) -> Option<KeptRun> {
        let kept = self.runs.remove(&run)?;
        if self.runs.is_empty() {
            self.flights.clear();
            self.free_from.clear();
        }
        Some(kept)
    }

    pub(super) fn submitted(&mut self, run: RunId, task: TaskId, callable: &Name) {
        if self.is_on()
            && let Some(kept) = self.runs.get_mut(&run)
        {
            kept.names.insert(task, Name::clone(callable));
        }
    }

    /// A member of `task`, or of a node of it, was sent.
    pub(super) fn sent(&mut self, dispatch: &Dispatch, task: TaskId, begin_ns: u64) {
        let (run, line) = (dispatch.run, dispatch.worker.0 as usize);
        let flight = Flight {
            run,
            task,
            line,
            begin_ns,
        };
        self.flights.insert(dispatch.dispatch, flight);
    }

    pub(super) fn accepted(&mut self, dispatch: DispatchId, now: u64) {
        if let Some(flight) = self.flights.get_mut(&dispatch) {
            flight.begin_ns = now;
        }
    }

    pub(super) fn done(&mut self, dispatch: DispatchId, now: u64) {
        if let Some(flight) = self.flights.remove(&dispatch) {
            self.landed(&flight, now);
        }
    }

    /// The child on this line answers no more.
    pub(super) fn lost(&mut self, line: usize, now: u64) {
        let on_line = |_: &DispatchId, flight: &mut Flight| flight.line == line;
        let lost: Vec<_> = self.flights.extract_if(on_line).collect();
        lost.iter().for_each(|(_, flight)| self.landed(flight, now));
    }

    fn landed(&mut self, flight: &Flight, end_ns: u64) {
        let free_from = self.free_from.insert(flight.line, end_ns);
        let begin_ns = flight.begin_ns.max(free_from.unwrap_or(0)).min(end_ns);
        if let Some(run) = self.runs.get_mut(&flight.run) {
            let times = run.times.entry(flight.task).or_insert((begin_ns, end_ns));
            *times = (times.0.min(begin_ns), times.1.max(end_ns));
        }
    }
}
