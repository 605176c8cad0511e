//! The scheduler: a deterministic state machine over tasks, workers and runs.
//!
//! Events come in (a task is submitted, a dispatch was accepted or ended, a worker was lost, a run
//! was cancelled), decisions come out: [`Scheduler::next_dispatch`] says what to send where, until it
//! has nothing more to say, and [`Scheduler::next_effect`] says what has ended.
//!
//! ```text
//! submit ──> edges ──> Pending ──(last predecessor ended)──> Ready
//!                                                              │ run is active?  else its backlog
//!                                                              v
//!                       line of a worker │ shared line │ group lines
//!                                                              │ next_dispatch
//!                                                              v
//! completed / worker_lost ──> ended ──> edges released ──> effects
//! ```
//!
//! The laws, which `docs/design/scheduling.md` lists and the simulation checks after every event:
//! a task is dispatched only after all that it follows has ended; it ends exactly once; a task that
//! needs data of a failed one never runs; the tasks of a run start only when all earlier runs are
//! over.

mod ahead;
mod arena;
mod feed;
mod groups;
mod lines;
mod list;
mod outputs;
mod replay;
mod runs;
mod scopes;
mod spec;
mod submit;
mod workers;

use std::collections::VecDeque;

pub use scopes::{SCOPES_MAX, ScopeError};
pub use spec::{
    Depth, Dispatch, Effect, EventError, Failure, Inference, Limits, Outcome, Placement,
    RunOutcome, RunStatus, SubmitError, TaskEnd, TaskSpec, WORKERS_MAX, WorkerKind,
};

use arena::{Arena, Kind};
use groups::Groups;
use lines::Lines;
use replay::Replays;
use runs::{Runs, ShortRun};
use workers::{InFlight, WorkerSet, Workers};

use crate::graph_view::GraphView;
use crate::heap::{Heap, RINGS, RingSpec};
use crate::ids::{DispatchId, RunId, TaskId, WorkerId};
use crate::infer::{Ledger, Why};
use crate::slot::{State, Step};

/// A dependency graph that is built while it executes, and what runs next on whom.
pub struct Scheduler {
    arena: Arena,
    ledger: Ledger,
    workers: Workers,
    lines: Lines,
    groups: Groups,
    replays: Replays,
    runs: Runs,
    /// The line that all sub workers serve.
    sub_line: Option<u32>,
    limits: Limits,
    n_submitted: u64,
    /// Workers that may have something to take: all that `next_dispatch` looks at.
    hungry: WorkerSet,
    /// Dispatches that were decided together and not yet handed out.
    outbox: VecDeque<Dispatch>,
    /// Tasks that ended and whose successors were not told yet.
    ended: VecDeque<u32>,
    /// Whether a run may have ended since they were last looked at.
    runs_are_due: bool,
    effects: VecDeque<Effect>,
}

impl Default for Scheduler {
    fn default() -> Scheduler {
        Scheduler::new(Limits::default())
    }
}

impl Scheduler {
    /// A scheduler without workers, runs or tasks.
    pub fn new(limits: Limits) -> Scheduler {
        Scheduler {
            arena: Arena::new(limits.tasks_max),
            ledger: Ledger::default(),
            workers: Workers::default(),
            lines: Lines::default(),
            groups: Groups::default(),
            replays: Replays::default(),
            runs: Runs::default(),
            sub_line: None,
            limits,
            n_submitted: 0,
            hungry: WorkerSet::default(),
            outbox: VecDeque::new(),
            ended: VecDeque::new(),
            runs_are_due: false,
            effects: VecDeque::new(),
        }
    }

    /// A scheduler that gives out memory for intermediate tensors: a ring for scopes of depth 0, 1, 2,
    /// and for all deeper ones.
    pub fn with_heap(limits: Limits, rings: [RingSpec; RINGS]) -> Scheduler {
        let mut scheduler = Scheduler::new(limits);
        scheduler.ledger.heap = Heap::new(rings);
        scheduler
    }

    /// Adds a worker, which is idle. Ids count up from 0.
    ///
    /// # Errors
    /// When there are [`WORKERS_MAX`] already.
    pub fn add_worker(&mut self, kind: WorkerKind, depth: Depth) -> Result<WorkerId, EventError> {
        let worker = self
            .workers
            .add(kind, depth)
            .ok_or(EventError::TooManyWorkers)?;
        let own = WorkerSet::one(worker);
        match (kind, self.sub_line) {
            (WorkerKind::Sub, Some(line)) => self.lines.widen(line, worker, &mut self.workers),
            (WorkerKind::Sub, None) => {
                self.sub_line = Some(self.lines.of(own, &mut self.workers));
            }
            (WorkerKind::NextLevel, _) => {
                self.lines.of(own, &mut self.workers);
            }
        }
        self.hungry.insert(worker);
        Ok(worker)
    }

    /// Begins a run. It takes tasks when all earlier runs are sealed or cancelled, and they start when
    /// all earlier runs are over.
    pub fn begin_run(&mut self) -> RunId {
        self.runs.begin()
    }

    /// Declares that no further task of this run will come. Sealing twice is harmless.
    ///
    /// # Errors
    /// When there is no such run, or it is over.
    pub fn seal(&mut self, run: RunId) -> Result<(), EventError> {
        if !self.runs.seal(run) {
            return Err(EventError::UnknownRun { run });
        }
        self.leave_all_scopes(run);
        // Otherwise the end of its last task says so.
        self.runs_are_due |= self.runs.of_task(run.into()).is_exhausted();
        self.settle();
        Ok(())
    }

    /// Drops every task of the run that has not started, and takes no more. What runs finishes.
    ///
    /// A task that still waits for a running one is dropped when that ends; a graph that nobody
    /// [prepared](Scheduler::prepared) needs it no more.
    ///
    /// # Errors
    /// When there is no such run, or it is over.
    pub fn cancel(&mut self, run: RunId) -> Result<(), EventError> {
        if !self.runs.cancel(run) {
            return Err(EventError::UnknownRun { run });
        }
        self.leave_all_scopes(run);
        self.runs_are_due = true;
        self.drop_backlog(run.into());
        self.drop_unprepared_graphs(run.into());
        if self.runs.is_active(run.into()) {
            (0..self.lines.len()).for_each(|line| self.drop_line(line, TaskEnd::Cancelled));
            self.drop_groups(|_, _| true, TaskEnd::Cancelled);
            self.drop_ready_graphs();
        }
        self.settle();
        Ok(())
    }

    /// Records the graph of a run from now on, for [`graph_view`](Scheduler::graph_view). Its tasks keep
    /// their slots until it is over.
    ///
    /// # Errors
    /// When there is no such run, or it is over.
    pub fn record(&mut self, run: RunId) -> Result<(), EventError> {
        let found = self
            .runs
            .unfinished(run)
            .ok_or(EventError::UnknownRun { run })?;
        found.recording.get_or_insert_default();
        Ok(())
    }

    /// The graph of a recorded run as it is now; `None` when it is not recorded or was released.
    pub fn graph_view(&mut self, run: RunId) -> Option<GraphView> {
        Some(self.runs.get_mut(run)?.recording.as_ref()?.view())
    }

    /// Where a run is; `None` when it never was, or was released.
    pub fn run_status(&self, run: RunId) -> Option<RunStatus> {
        self.runs.status(run)
    }

    /// Lets go of a run: its status is forgotten as soon as it is over.
    ///
    /// # Errors
    /// When there is no such run.
    pub fn release_run(&mut self, run: RunId) -> Result<(), EventError> {
        self.runs
            .release(run)
            .then_some(())
            .ok_or(EventError::UnknownRun { run })
    }

    /// Where a task is; [`State::Consumed`] once its slot was given back.
    pub fn task_state(&self, task: TaskId) -> State {
        if self.arena.is_current(task) {
            return self.arena[task.slot].state();
        }
        if self.arena.is_known(task) {
            State::Consumed
        } else {
            State::Free
        }
    }

    /// Number of slots in use: tasks that have not ended, and failed ones of unfinished runs.
    pub fn n_live_tasks(&self) -> usize {
        self.arena.n_live()
    }

    /// Number of records of live accesses.
    pub fn n_records(&self) -> usize {
        self.ledger.n_records()
    }

    /// What happened since the last call, oldest first.
    #[inline]
    pub fn next_effect(&mut self) -> Option<Effect> {
        self.effects.pop_front()
    }

    /// Event: the worker said that it began this dispatch.
    ///
    /// # Errors
    /// When the dispatch is not in flight.
    pub fn accepted(&mut self, dispatch: DispatchId) -> Result<(), EventError> {
        let found = self.workers.find(dispatch);
        let (_, in_flight) = found.ok_or(EventError::StaleDispatch { dispatch })?;
        in_flight.accepted = true;
        Ok(())
    }

    /// Event: the worker said that this dispatch ended.
    ///
    /// # Errors
    /// When the dispatch is not in flight, for example because its worker was lost meanwhile.
    pub fn completed(&mut self, dispatch: DispatchId, outcome: Outcome) -> Result<(), EventError> {
        let found = self.workers.take(dispatch);
        let (worker, in_flight) = found.ok_or(EventError::StaleDispatch { dispatch })?;
        self.hungry.insert(worker);
        let member = in_flight.member;
        let failure = (outcome == Outcome::Failed).then_some(Failure::Reported { member });
        self.member_ended(in_flight, failure);
        self.settle();
        Ok(())
    }

    /// Event: the worker is gone. What was on it has failed; so does whatever only it could run.
    ///
    /// # Errors
    /// When there is no such worker.
    pub fn worker_lost(&mut self, worker: WorkerId) -> Result<(), EventError> {
        self.workers
            .get(worker)
            .ok_or(EventError::UnknownWorker { worker })?;
        self.hungry.remove(worker);
        self.outbox.retain(|dispatch| dispatch.worker != worker);
        for in_flight in self.workers.lose(worker).into_iter().flatten() {
            let InFlight {
                member, accepted, ..
            } = in_flight;
            let failure = Failure::WorkerLost {
                worker,
                member,
                accepted,
            };
            self.member_ended(in_flight, Some(failure));
        }
        self.lines.recount(worker, &self.workers);
        let no_worker = TaskEnd::Failed(Failure::NoWorker { lost: Some(worker) });
        for at in 0..self.workers[worker].lines.len() {
            let line = self.workers[worker].lines[at];
            if !self.lines.is_served(line) {
                self.drop_line(line, no_worker);
            }
            // With one worker left to serve it, that one may now stage a task.
            self.hungry.add(&self.lines.takers(line, &self.workers));
        }
        self.drop_groups(|group, workers| !group.can_run(workers), no_worker);
        self.settle();
        Ok(())
    }

    /// Event: a lost worker is available again, with nothing on it.
    ///
    /// # Errors
    /// When there is no such worker.
    pub fn worker_back(&mut self, worker: WorkerId) -> Result<(), EventError> {
        self.workers
            .get(worker)
            .ok_or(EventError::UnknownWorker { worker })?;
        if !self.workers.live().contains(worker) {
            self.workers.revive(worker);
            self.lines.recount(worker, &self.workers);
            self.hungry.insert(worker);
        }
        Ok(())
    }

    /// Counts the end of a task, or of one member of a group.
    #[inline(always)]
    fn member_ended(&mut self, in_flight: InFlight, failure: Option<Failure>) {
        let index = in_flight.slot;
        let end = match self.arena[index].place.kind() {
            Kind::Group(group) => match self.groups.member_ended(group, failure) {
                None => return,
                Some(end) => end,
            },
            _ => failure.map_or(TaskEnd::Completed, TaskEnd::Failed),
        };
        match end {
            TaskEnd::Completed => self.complete(index),
            end => self.end_badly(index, end),
        }
    }

    /// The task has ended well: its successors are released and its slot is given back.
    #[inline(always)]
    fn complete(&mut self, index: u32) {
        let slot = &mut self.arena[index];
        slot.step(Step::Complete);
        self.report(index, TaskEnd::Completed);
        self.release_successors(index);
    }

    /// The task has failed, or never ran. `settle` tells its successors, so that a long chain of
    /// skipped tasks needs no deep stack.
    #[cold]
    fn end_badly(&mut self, index: u32, end: TaskEnd) {
        let task = self.arena.id(index);
        let slot = &mut self.arena[index];
        slot.step(Step::Fail);
        slot.poison(Some(task));
        self.report(index, end);
        self.ended.push_back(index);
    }

    /// Counts the end of a task and tells the caller. In line, since nearly all ends are good ones and need little of it.
    #[inline(always)]
    fn report(&mut self, index: u32, end: TaskEnd) {
        let slot = &self.arena[index];
        let (task, run) = (slot.id(index), slot.run);
        match slot.place.kind() {
            Kind::Line(_) => {}
            Kind::Group(group) => self.groups.remove(group),
            Kind::Graph(replay) => self.replays.remove(replay),
        }
        if let Some(node) = self.arena[index].node() {
            return self.node_ended(task, node, end);
        }
        self.runs_are_due |= self.runs.of_task(run).count(task, end);
        let run = self.runs.id(run);
        self.effects
            .push_back(Effect::TaskFinished { run, task, end });
    }

    /// Follows every consequence: successors of what ended badly, then runs that are over. Mostly there is none.
    #[inline]
    fn settle(&mut self) {
        if !self.ended.is_empty() || self.runs_are_due {
            self.settle_all();
        }
    }

    #[cold]
    fn settle_all(&mut self) {
        while !self.ended.is_empty() || self.runs_are_due {
            while let Some(slot) = self.ended.pop_front() {
                self.release_successors(slot);
            }
            self.runs_are_due = self.runs_are_due && self.finish_runs();
        }
    }

    #[inline]
    fn release_successors(&mut self, index: u32) {
        let slot = &self.arena[index];
        if let Some(node) = slot.node() {
            return self.release_nodes(index, node);
        }
        let (failed, cause) = (slot.state() == State::Failed, slot.cause());
        let mut edges = self.arena.take_edges(index);
        self.let_go(index, failed);
        while let Some((successor, why)) = edges.next(&mut self.arena) {
            let slot = &mut self.arena[successor];
            if failed && why == Why::Data {
                slot.poison(cause);
            }
            slot.waits -= 1;
            if slot.waits == 0 {
                self.release(successor);
            }
        }
    }

    /// Gives back what an ended task holds. A failed one keeps its slot and its records until its run
    /// is over, so that whoever reads what it should have written learns of the failure. So does every
    /// task of a run that is recorded, so that edges from it are seen.
    #[inline]
    fn let_go(&mut self, index: u32, failed: bool) {
        let slot = &mut self.arena[index];
        let run = self.runs.of_task(slot.run);
        if failed || run.recording.is_some() {
            slot.records = self.ledger.release_blocks(slot.records);
            run.kept.push(&mut self.arena, index);
        } else {
            self.ledger.retire(slot.records);
            self.arena.give_back(index);
        }
    }

    /// A task has nothing left to wait for: it goes in line, or ends without having run.
    #[inline]
    fn release(&mut self, index: u32) {
        let slot = &mut self.arena[index];
        slot.step(Step::Release);
        let (run, cause) = (slot.run, slot.cause());
        let found = self.runs.of_task(run);
        if found.is_cancelled {
            self.end_badly(index, TaskEnd::Cancelled);
        } else if let Some(cause) = cause {
            self.end_badly(index, TaskEnd::Skipped { cause });
        } else if self.runs.is_active(run) {
            self.enqueue(index);
        } else {
            self.runs.of_task(run).backlog.push(&mut self.arena, index);
        }
    }

    /// Ends runs that are over and starts the next; says whether that may have ended another.
    fn finish_runs(&mut self) -> bool {
        while let Some(run) = self.runs.finish_next() {
            let mut kept = std::mem::take(&mut self.runs.of_task(run.into()).kept);
            while let Some(slot) = kept.pop(&self.arena) {
                self.ledger.retire(self.arena[slot].records);
                self.arena.give_back(slot);
            }
            self.effects.push_back(Effect::RunFinished { run });
        }
        if !self.runs.advance() {
            return false;
        }
        let Some((_, run)) = self.runs.active() else {
            return false;
        };
        let mut backlog = std::mem::take(&mut run.backlog);
        while let Some(slot) = backlog.pop(&self.arena) {
            self.enqueue(slot);
        }
        true
    }

    fn drop_backlog(&mut self, run: ShortRun) {
        let mut backlog = std::mem::take(&mut self.runs.of_task(run).backlog);
        while let Some(slot) = backlog.pop(&self.arena) {
            self.end_badly(slot, TaskEnd::Cancelled);
        }
    }

    fn drop_line(&mut self, line: u32, end: TaskEnd) {
        while let Some(slot) = self.lines.pop(line, &self.arena) {
            self.end_badly(slot, end);
        }
    }
}
