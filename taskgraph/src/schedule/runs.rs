//! Runs: admitted first-in-first-out, each with its own counts and first cause.

use std::cmp::Ordering;

use super::list::List;
use super::scopes::Scopes;
use super::spec::{RunOutcome, RunStatus, SubmitError, TaskEnd};
use crate::graph_view::Recording;
use crate::ids::{RunId, TaskId};

/// A run in a slot: the low half of its number, which tells the runs that are kept apart.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct ShortRun(u32);

impl From<RunId> for ShortRun {
    fn from(run: RunId) -> ShortRun {
        ShortRun(run.0 as u32)
    }
}

/// One run.
#[derive(Default)]
pub(super) struct Run {
    is_sealed: bool,
    pub(super) is_cancelled: bool,
    is_done: bool,
    is_released: bool,
    pub(super) n_live: u64,
    pub(super) scopes: Scopes,
    /// What is kept of a run that is recorded.
    pub(super) recording: Option<Box<Recording>>,
    outcome: RunOutcome,
    /// Ready tasks of a run that is not the active one.
    pub(super) backlog: List,
    /// Tasks that ended and are kept until the run is over: failed ones, and all when it is recorded.
    pub(super) kept: List,
}

impl Run {
    pub(super) fn is_open(&self) -> bool {
        !self.is_sealed && !self.is_cancelled
    }

    fn cancel(&mut self) {
        self.outcome.cut_short |= self.is_open();
        self.is_cancelled = true;
    }

    /// Whether no task is left and none can come.
    pub(super) fn is_exhausted(&self) -> bool {
        !self.is_open() && self.n_live == 0
    }

    /// Counts the end of one of its tasks; says whether it was the last one.
    #[inline]
    pub(super) fn count(&mut self, task: TaskId, end: TaskEnd) -> bool {
        self.n_live -= 1;
        let (counter, cause) = match end {
            TaskEnd::Completed => (&mut self.outcome.completed, None),
            TaskEnd::Failed(_) => (&mut self.outcome.failed, Some(task)),
            TaskEnd::Skipped { cause } => (&mut self.outcome.skipped, Some(cause)),
            TaskEnd::Cancelled => (&mut self.outcome.cancelled, None),
        };
        *counter += 1;
        if let Some(recording) = &mut self.recording {
            recording.end_task(task, end);
        }
        self.outcome.cause = self.outcome.cause.or(cause);
        self.is_exhausted()
    }
}

/// All runs whose owner still asks for them, in the order of admission.
#[derive(Default)]
pub(super) struct Runs {
    /// The first few may be forgotten ones, so that none of the others has to move for each that is forgotten.
    all: Vec<Run>,
    /// Number of the first run in `all`.
    base: u64,
    /// How many of `all` are forgotten.
    n_forgotten: usize,
    /// The run whose tasks are dispatched: the first that is not over.
    active: u64,
    /// The run that takes tasks: the first that is open.
    building: u64,
}

impl Runs {
    pub(super) fn begin(&mut self) -> RunId {
        self.all.push(Run::default());
        RunId(self.base + self.all.len() as u64 - 1)
    }

    pub(super) fn get_mut(&mut self, run: RunId) -> Option<&mut Run> {
        let index = self.index(run)?;
        self.all.get_mut(index)
    }

    /// Where a run stands that is not forgotten, if it was begun.
    fn index(&self, run: RunId) -> Option<usize> {
        let index = run.0.checked_sub(self.base)? as usize;
        (index >= self.n_forgotten).then_some(index)
    }

    /// Checks that the run takes tasks.
    #[inline]
    pub(super) fn check_building(&self, run: RunId) -> Result<(), SubmitError> {
        let end = self.base + self.all.len() as u64;
        match run.0.cmp(&self.building) {
            _ if run.0 >= end => Err(SubmitError::RunClosed { run }),
            Ordering::Equal => Ok(()),
            Ordering::Less => Err(SubmitError::RunClosed { run }),
            Ordering::Greater if !self.is_open(run) => Err(SubmitError::RunClosed { run }),
            Ordering::Greater => {
                let earlier = RunId(self.building);
                Err(SubmitError::EarlierRunOpen { run, earlier })
            }
        }
    }

    fn is_open(&self, run: RunId) -> bool {
        let found = self.index(run).and_then(|index| self.all.get(index));
        found.is_some_and(Run::is_open)
    }

    /// A run that is not over.
    pub(super) fn unfinished(&mut self, run: RunId) -> Option<&mut Run> {
        self.get_mut(run).filter(|run| !run.is_done)
    }

    /// The number of the run of a live task.
    #[inline]
    pub(super) fn id(&self, run: ShortRun) -> RunId {
        RunId(self.base + u64::from(run.0.wrapping_sub(self.base as u32)))
    }

    /// The run of a live task, which is kept for as long.
    #[inline]
    pub(super) fn of_task(&mut self, run: ShortRun) -> &mut Run {
        let index = run.0.wrapping_sub(self.base as u32);
        &mut self.all[index as usize]
    }

    #[inline]
    pub(super) fn is_active(&self, run: ShortRun) -> bool {
        run.0 == self.active as u32
    }

    pub(super) fn seal(&mut self, run: RunId) -> bool {
        let found = self
            .unfinished(run)
            .map(|run| run.is_sealed = true)
            .is_some();
        self.close_built();
        found
    }

    pub(super) fn cancel(&mut self, run: RunId) -> bool {
        let found = self.unfinished(run).map(Run::cancel).is_some();
        self.close_built();
        found
    }

    /// Moves on to the first run that is open.
    fn close_built(&mut self) {
        let end = self.base + self.all.len() as u64;
        while self.building < end && !self.is_open(RunId(self.building)) {
            self.building += 1;
        }
    }

    pub(super) fn status(&self, run: RunId) -> Option<RunStatus> {
        let run = self.all.get(self.index(run)?)?;
        Some(match run {
            Run { is_done: true, .. } => RunStatus::Done(run.outcome),
            _ if run.is_open() => RunStatus::Building,
            _ => RunStatus::Running,
        })
    }

    /// Ends the next run that has nothing left and is due: the active one, or a cancelled one.
    pub(super) fn finish_next(&mut self) -> Option<RunId> {
        let first = self.active.saturating_sub(self.base) as usize;
        let first = first.min(self.all.len());
        for (id, run) in (self.active..).zip(&mut self.all[first..]) {
            let is_due = id == self.active || run.is_cancelled;
            if is_due && !run.is_done && run.is_exhausted() {
                run.is_done = true;
                return Some(RunId(id));
            }
        }
        None
    }

    /// Moves on to the first run that is not over, when the active one is; says whether it moved.
    pub(super) fn advance(&mut self) -> bool {
        let before = self.active;
        while self
            .get_mut(RunId(self.active))
            .is_some_and(|run| run.is_done)
        {
            self.active += 1;
        }
        self.forget();
        self.active != before
    }

    /// Whether some task will still end.
    pub(super) fn has_unended_tasks(&self) -> bool {
        self.all.iter().any(|run| run.n_live > 0)
    }

    /// Whether there is a run after the active one.
    #[inline]
    pub(super) fn has_next(&self) -> bool {
        self.base + self.all.len() as u64 > self.active + 1
    }

    /// The first ready task of the run after the active one.
    pub(super) fn next_backlog(&self) -> Option<u32> {
        let after = (self.active + 1).checked_sub(self.base)?;
        let mut later = self.all.iter().skip(after as usize);
        later.find(|run| !run.is_done)?.backlog.head()
    }

    pub(super) fn active(&mut self) -> Option<(RunId, &mut Run)> {
        let active = RunId(self.active);
        Some((active, self.get_mut(active)?))
    }

    /// The owner will not ask for this run again.
    pub(super) fn release(&mut self, run: RunId) -> bool {
        let found = self
            .get_mut(run)
            .map(|run| run.is_released = true)
            .is_some();
        self.forget();
        found
    }

    /// Forgets the first runs as far as nobody will ask for them, and moves the others when those are no more than
    /// what is forgotten.
    fn forget(&mut self) {
        let is_forgettable = |run: &Run| run.is_released && run.is_done;
        while self.base + (self.n_forgotten as u64) < self.active
            && let Some(run) = self.all.get_mut(self.n_forgotten)
            && is_forgettable(run)
        {
            run.recording = None;
            self.n_forgotten += 1;
        }
        if self.n_forgotten > 0 && 2 * self.n_forgotten >= self.all.len() {
            self.all.drain(..self.n_forgotten);
            self.base += self.n_forgotten as u64;
            self.n_forgotten = 0;
        }
    }
}
