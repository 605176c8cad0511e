//! What the lock `core` guards: the graph, what it knows nothing of (payloads, buffers, errors), and control jobs.

mod failures;
mod outcomes;

use std::ops::Range;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};

use device::Digest;
use hashbrown::HashMap;
use provenance::{Table, WorkerRef};
use smallvec::SmallVec;
use taskgraph::{
    BufferId, Dispatch, Effect, RunId, Scheduler, TaskEnd, TaskId, TaskSpec, WorkerId,
};
use tracing::Span;

use crate::buffer::{BufferCore, Use};
use crate::error::{Name, TaskCause, WorkerDied};
use crate::wire::{self, Payload};

use super::background::Nudge;
use super::copies::{Copies, NotSubmitted};
use super::job::Job;
use super::later::Laters;
use super::observer::Observer;
use super::reclaim::Reclaim;
use super::replay::GraphRecord;
use super::run::RunCell;

/// A task to be submitted: what the graph is told, and what it is not.
pub(crate) struct NewTask<'a> {
    pub(crate) spec: TaskSpec<'a>,
    pub(crate) callable: Name,
    /// One payload per member; one for a task that is no group.
    pub(crate) payloads: SmallVec<[Payload; 1]>,
    pub(crate) holds: Holds,
    /// Open until the task has ended.
    pub(crate) span: Span,
}

/// Who is going to wait for a run.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Waiting {
    /// The thread that submits it.
    Attended,
    /// Perhaps nobody.
    Detached,
}

/// What a task keeps from being released until it has ended.
pub(crate) type Holds = SmallVec<[Hold; 3]>;

/// One resource that an unfinished task uses.
#[derive(Debug)]
pub(crate) enum Hold {
    Buffer(Arc<BufferCore>, Use),
    /// Apart, so that the records of tasks without device memory stay small.
    Device(Box<DeviceHold>),
}

/// The device memory that a task uses.
#[derive(Debug)]
pub(crate) struct DeviceHold {
    #[expect(dead_code, reason = "held, never looked at: dropping it ends the use")]
    pub(crate) held: provenance::Hold,
    pub(crate) uses: SmallVec<[DeviceUse; 3]>,
}

/// What a task does to which bytes of device memory.
#[derive(Debug, Clone)]
pub(crate) struct DeviceUse {
    pub(crate) buffer: BufferId,
    pub(crate) bytes: Range<u64>,
    pub(crate) how: Use,
}

impl Hold {
    /// Counts a task in at the buffer.
    pub(crate) fn buffer(
        core: &Arc<BufferCore>,
        how: Use,
    ) -> Result<Self, crate::error::BufferError> {
        core.begin_task(how)?;
        Ok(Hold::Buffer(Arc::clone(core), how))
    }
}

impl Drop for Hold {
    fn drop(&mut self) {
        if let Hold::Buffer(core, how) = self {
            core.end_task(*how);
        }
    }
}

/// A submitted task that has not ended.
pub(crate) struct TaskRecord {
    run: RunId,
    pub(crate) callable: Name,
    pub(crate) payloads: SmallVec<[Payload; 1]>,
    pub(crate) holds: Holds,
    /// What its nodes are made of, for a graph task.
    pub(super) graph: Option<Arc<GraphRecord>>,
    /// When it was submitted, where tasks are watched.
    pub(super) submitted_ns: Option<u64>,
    /// Open from the submit to the end.
    span: Span,
}

impl TaskRecord {
    /// The shared buffers that it names, and for what.
    pub(super) fn buffers(&self) -> impl Iterator<Item = (&BufferCore, Use)> {
        self.holds.iter().filter_map(|hold| match hold {
            Hold::Buffer(buffer, how) => Some((&**buffer, *how)),
            Hold::Device(..) => None,
        })
    }
}

/// A failure for as long as a run may name it as its cause.
struct KeptFailure {
    failure: TaskFailure,
    /// The run of the task.
    run: RunId,
    /// The newest run when that one had ended: later ones do not depend on it.
    until: Option<RunId>,
}

/// Why a task failed, and where.
#[derive(Debug, Clone)]
pub(crate) struct TaskFailure {
    pub(crate) callable: Name,
    pub(crate) worker: Name,
    pub(crate) cause: TaskCause,
}

/// State that changes for a moment at a time.
pub(crate) struct Core {
    pub(crate) graph: Scheduler,
    path: Name,
    /// Unfinished runs that nobody may be waiting for, also for who does not hold core.
    detached: Arc<AtomicU32>,
    /// Tasks that have ended so far, also for who does not hold core.
    ended: Arc<AtomicU64>,
    /// Records of live tasks, by slot of the graph.
    tasks: Vec<Option<TaskRecord>>,
    runs: HashMap<RunId, (Arc<RunCell>, Waiting)>,
    /// Why tasks failed; kept while any run lives that may name them as its cause.
    failures: HashMap<TaskId, KeptFailure>,
    newest_run: RunId,
    /// Who owns which device pointer.
    table: Table,
    /// Device memory that was released and goes back after its last use.
    pub(super) reclaim: Reclaim,
    /// Copies of the host that are under way.
    pub(super) copies: Copies,
    /// The present life of each worker, by line.
    lives: Vec<u64>,
    /// Why workers are lost.
    losses: HashMap<WorkerId, (Name, TaskCause)>,
    /// How their processes ended, which may be later than and for another reason than the loss.
    deaths: HashMap<WorkerId, WorkerDied>,
    /// Control requests that no line has sent yet.
    pub(crate) jobs: Vec<Arc<Job>>,
    /// Threads that sleep on `wake`.
    pub(crate) sleepers: u32,
    /// Threads that wait for some task to end, whichever.
    pub(crate) starving: u32,
    /// Something that somebody may wait for has happened.
    progress: bool,
    /// The background driver, while it sleeps.
    pub(super) background: Option<Arc<Nudge>>,
    /// What is done when core is free again.
    pub(super) later: Laters,
    pub(crate) observer: Observer,
}

impl Core {
    pub(crate) fn new(
        path: Name,
        graph: Scheduler,
        detached: Arc<AtomicU32>,
        ended: Arc<AtomicU64>,
    ) -> Self {
        Self {
            graph,
            path,
            detached,
            ended,
            tasks: Vec::new(),
            runs: HashMap::new(),
            failures: HashMap::new(),
            newest_run: RunId(0),
            table: Table::new(),
            reclaim: Reclaim::default(),
            copies: Copies::default(),
            lives: Vec::new(),
            losses: HashMap::new(),
            deaths: HashMap::new(),
            jobs: Vec::new(),
            sleepers: 0,
            starving: 0,
            progress: false,
            background: None,
            later: Laters::default(),
            observer: Observer::new(),
        }
    }

    /// The callables of all tasks that have not ended, by digest.
    pub(crate) fn unfinished(&self) -> impl Iterator<Item = Digest> + '_ {
        let records = self.records();
        let digest = |record: &TaskRecord| wire::digest_of(record.payloads.first()?);
        let single = self.records().filter_map(digest);
        let graphs = records.filter_map(|record| record.graph.as_ref());
        single.chain(graphs.flat_map(|graph| graph.digests()))
    }

    pub(super) fn begin_run(&mut self, waiting: Waiting, cell: &Arc<RunCell>) -> RunId {
        let run = self.graph.begin_run();
        self.newest_run = run;
        self.observer.run_begun();
        self.runs.insert(run, (Arc::clone(cell), waiting));
        self.count_detached(waiting, 1);
        run
    }

    fn count_detached(&self, waiting: Waiting, change: i32) {
        if waiting == Waiting::Detached {
            // Relaxed: changed under core only; who acts on it without core is told of changes otherwise.
            self.detached
                .fetch_add(change.cast_unsigned(), Ordering::Relaxed);
        }
    }

    /// Submits a task. On an error nothing has changed, and the task still has what it holds.
    pub(crate) fn submit(
        &mut self,
        run: RunId,
        task: &mut NewTask<'_>,
    ) -> Result<TaskId, NotSubmitted> {
        self.copies.permit(&task.holds)?;
        let id = self.graph.submit(run, &task.spec)?;
        let callable = Arc::clone(&task.callable);
        let payloads = std::mem::take(&mut task.payloads);
        let holds = std::mem::take(&mut task.holds);
        let span = std::mem::replace(&mut task.span, Span::none());
        self.keep((run, id), (callable, span), payloads, holds, None);
        self.settle();
        Ok(id)
    }

    /// Keeps what the graph is not told of a task that was submitted.
    pub(super) fn keep(
        &mut self,
        (run, id): (RunId, TaskId),
        (callable, span): (Name, Span),
        payloads: SmallVec<[Payload; 1]>,
        holds: Holds,
        graph: Option<Arc<GraphRecord>>,
    ) {
        let slot = id.slot as usize;
        if self.tasks.len() <= slot {
            self.tasks.resize_with(slot + 1, || None);
        }
        self.observer.kept.submitted(run, id, &callable);
        self.tasks[slot] = Some(TaskRecord {
            run,
            callable,
            payloads,
            holds,
            graph,
            submitted_ns: self.observer.submitted(),
            span,
        });
    }

    /// No more tasks will come; the run ends when its tasks have.
    pub(crate) fn seal(&mut self, run: RunId) {
        // An error says that the run is over or cancelled, which needs no seal.
        let _ = self.graph.seal(run);
        self.settle();
    }

    /// Drops what has not started; false when the run is over already.
    pub(crate) fn cancel(&mut self, run: RunId) -> bool {
        let found = self.graph.cancel(run).is_ok();
        self.settle();
        found
    }

    pub(crate) fn has_detached_runs(&self) -> bool {
        self.detached.load(Ordering::Relaxed) > 0
    }

    /// The record of a live task that was submitted.
    pub(crate) fn task(&self, task: TaskId) -> Option<&TaskRecord> {
        self.tasks.get(task.slot as usize)?.as_ref()
    }

    /// A task lies in its worker's mailbox.
    pub(super) fn note_sent(&mut self, dispatch: &Dispatch, worker: &Name) {
        let found = match self.graph.node_of(dispatch.task) {
            Some((graph, node)) => (graph, Some(node)),
            None => (dispatch.task, None),
        };
        let record = self.tasks.get(found.0.slot as usize);
        let Some(Some(record)) = record else {
            return;
        };
        if !record.span.is_disabled() {
            let (span, worker) = (record.span.clone(), Name::clone(worker));
            self.later.tell(move || {
                span.record("worker", &*worker);
            });
        }
        let callable = || record.callable_of(found.1);
        self.observer
            .sent(dispatch, found.0, callable, record.submitted_ns);
    }

    /// Who owns which device pointer.
    pub(crate) fn table(&self) -> &Table {
        &self.table
    }

    /// The tasks that have not ended.
    pub(super) fn records(&self) -> impl Iterator<Item = &TaskRecord> {
        self.tasks.iter().flatten()
    }

    /// A worker begins a life. Its device memory is that of this life only.
    pub(crate) fn begin_life(&mut self, line: usize) -> u64 {
        let life = crate::incarnation::draw();
        if self.lives.len() <= line {
            self.lives.resize(line + 1, 0);
        }
        self.lives[line] = life;
        life
    }

    /// The present life of the worker on a line.
    pub(crate) fn life(&self, line: usize) -> WorkerRef {
        WorkerRef {
            id: line as u32,
            incarnation: self.lives.get(line).copied().unwrap_or(0),
        }
    }

    pub(super) fn n_lives(&self) -> usize {
        self.lives.len()
    }

    /// The process is gone, and no other takes its place.
    pub(super) fn end_life(&mut self, line: usize) {
        self.lives[line] = 0;
    }

    /// A lost worker is there again.
    pub(crate) fn worker_back(&mut self, worker: WorkerId) {
        self.losses.remove(&worker);
        self.deaths.remove(&worker);
        // An error says that it was never lost.
        let _ = self.graph.worker_back(worker);
        self.settle();
    }

    /// A worker's process is dead: what was on it fails with that cause, and its device memory is gone.
    pub(crate) fn worker_died(&mut self, worker: WorkerId, died: WorkerDied) {
        let life = self.life(worker.0 as usize);
        self.table.worker_lost(life);
        self.memory_lost(life);
        let path = Name::from(died.worker.as_str());
        self.deaths.insert(worker, died.clone());
        self.lose(worker, path, TaskCause::WorkerDied(Box::new(died)));
    }

    /// A worker cannot be talked to any more.
    pub(crate) fn worker_unusable(&mut self, worker: WorkerId, path: &Name, reason: &str) {
        self.lose(
            worker,
            Arc::clone(path),
            TaskCause::Poisoned(reason.to_owned()),
        );
    }

    fn lose(&mut self, worker: WorkerId, path: Name, cause: TaskCause) {
        self.losses.entry(worker).or_insert((path, cause));
        self.observer.lost(worker.0 as usize);
        // An error says that it was lost before.
        let _ = self.graph.worker_lost(worker);
        self.settle();
    }

    /// Every worker whose process is dead.
    pub(crate) fn dead(&self) -> Vec<WorkerDied> {
        let deaths = self.deaths.iter();
        let mut dead: Vec<(u32, WorkerDied)> = deaths
            .map(|(worker, died)| (worker.0, died.clone()))
            .collect();
        dead.sort_by_key(|(worker, _)| *worker);
        dead.into_iter().map(|(_, died)| died).collect()
    }

    /// The death of the first dead worker from this id on.
    pub(crate) fn first_death(&self, from: u32) -> Option<WorkerDied> {
        let deaths = self.deaths.iter().filter(|(worker, _)| worker.0 >= from);
        deaths
            .min_by_key(|(worker, _)| worker.0)
            .map(|(_, died)| died.clone())
    }

    /// How a lost worker was lost.
    pub(crate) fn loss(&self, worker: WorkerId) -> Option<&TaskCause> {
        self.losses.get(&worker).map(|(_, cause)| cause)
    }

    /// Takes in what the graph decided since the last call.
    pub(crate) fn settle(&mut self) {
        while let Some(effect) = self.graph.next_effect() {
            match effect {
                Effect::TaskFinished { task, end, .. } => self.task_finished(task, end),
                Effect::NodeFailed {
                    graph,
                    node,
                    failure,
                    ..
                } => self.note_loss(graph, Some(node), failure),
                Effect::RunFinished { run } => self.run_finished(run),
                Effect::GroupStalled { group, idle } => self.group_stalled(group, idle),
                _ => {}
            }
        }
    }

    /// Whether something happened since the last call that somebody may wait for.
    pub(crate) fn take_progress(&mut self) -> bool {
        std::mem::take(&mut self.progress)
    }

    pub(crate) fn note_progress(&mut self) {
        self.progress = true;
    }

    fn task_finished(&mut self, task: TaskId, end: TaskEnd) {
        if let TaskEnd::Failed(failure) = end {
            self.note_loss(task, None, failure);
        }
        self.observer.ended(end);
        // What the task held is given back before anybody can see that its run is over.
        if let Some(record) = self.tasks[task.slot as usize].take() {
            self.later.end(record.span);
        }
        // Release: partner of the acquire in `Engine::n_ended`. Changed under core only, so a load and a store will do.
        let ended = self.ended.load(Ordering::Relaxed);
        self.ended.store(ended + 1, Ordering::Release);
        self.progress |= self.starving > 0;
    }

    /// Forgets the failures that no run can name as its cause any more: a run that was begun later than a failed one has
    /// ended may not depend on it.
    fn forget_failures(&mut self, ended: RunId) {
        if self.failures.is_empty() {
            return;
        }
        let newest = self.newest_run;
        let of_run = self.failures.values_mut().filter(|kept| kept.run == ended);
        of_run.for_each(|kept| kept.until = Some(newest));
        let oldest = self.runs.keys().min().copied();
        self.failures.retain(|_, kept| {
            kept.until
                .is_none_or(|until| oldest.is_some_and(|oldest| oldest <= until))
        });
    }
}
