//! What goes into the scheduler and what comes out: tasks, dispatches, effects, refusals.

use crate::args::{Access, TaskArgs};
use crate::buffer::BufferId;
use crate::ids::{DispatchId, RunId, TaskId, WorkerId};

/// The largest number of workers of one scheduler.
pub const WORKERS_MAX: usize = 128;

/// What a worker executes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum WorkerKind {
    /// A child that is itself a chip worker or a worker; tasks name it.
    NextLevel,
    /// A leaf that runs host functions; all of them share one queue.
    Sub,
}

/// How many dispatches a worker may hold at once.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Depth {
    /// One: the next task is sent when the last one is done.
    One,
    /// Two: the next task may wait on the worker while the last one runs, where no other worker
    /// could have taken it.
    Two,
}

/// Where a task runs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Placement<'a> {
    /// On exactly this next-level worker.
    On(WorkerId),
    /// On the first of these next-level workers that is idle.
    AnyOf(&'a [WorkerId]),
    /// On all of these distinct next-level workers at once; member `i` runs on the `i`-th.
    Group(&'a [WorkerId]),
    /// On any sub worker.
    Sub,
    /// On this many distinct sub workers at once.
    SubGroup(u32),
}

/// Whether the graph finds the edges of a task itself.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum Inference {
    /// From its accesses.
    #[default]
    Automatic,
    /// Not at all: only `after` counts, and later tasks do not see its accesses either.
    Manual,
}

/// One task, as it is submitted. Nothing of it is kept by reference.
#[derive(Clone, Copy, Debug)]
pub struct TaskSpec<'a> {
    /// Where it runs.
    pub placement: Placement<'a>,
    /// What it touches.
    pub accesses: &'a [Access],
    /// Whether an output waits for memory, which only [`Scheduler::submit_outputs`](crate::Scheduler::submit_outputs)
    /// can submit.
    pub is_unbacked: bool,
    /// Tasks that it follows in any case; one that has ended well counts as done.
    pub after: &'a [TaskId],
    /// Whether edges come from the accesses.
    pub inference: Inference,
}

impl<'a> TaskSpec<'a> {
    /// A task without arguments.
    pub const fn new(placement: Placement<'a>) -> TaskSpec<'a> {
        TaskSpec {
            placement,
            accesses: &[],
            is_unbacked: false,
            after: &[],
            inference: Inference::Automatic,
        }
    }

    /// With these arguments.
    #[inline]
    pub fn args(self, args: &'a TaskArgs) -> TaskSpec<'a> {
        TaskSpec {
            accesses: args.accesses(),
            is_unbacked: args.is_unbacked(),
            ..self
        }
    }

    /// After these tasks.
    pub const fn after(self, after: &'a [TaskId]) -> TaskSpec<'a> {
        TaskSpec { after, ..self }
    }

    /// With inference switched off.
    pub const fn manual(self) -> TaskSpec<'a> {
        TaskSpec {
            inference: Inference::Manual,
            ..self
        }
    }
}

/// Limits of one scheduler.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Limits {
    /// Tasks that may be live at once; at most 2^31 - 1. Memory is taken as it is needed.
    pub tasks_max: u32,
}

impl Default for Limits {
    fn default() -> Limits {
        Limits { tasks_max: 1 << 20 }
    }
}

impl Limits {
    /// At most this many live tasks.
    pub fn tasks_max(self, tasks_max: u32) -> Limits {
        Limits {
            tasks_max: tasks_max.min(i32::MAX as u32),
        }
    }
}

/// An order to send one task, or one member of a group, to a worker.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Dispatch {
    /// The run of the task.
    pub run: RunId,
    /// The task.
    pub task: TaskId,
    /// Where it goes.
    pub worker: WorkerId,
    /// Which member of its group it is; 0 for a task that is no group.
    pub member: u32,
    /// Names this very dispatch in the events that answer it.
    pub dispatch: DispatchId,
    /// Whether another dispatch is still on that worker, in front of this one.
    pub staged: bool,
}

/// How the worker says that a dispatch ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Outcome {
    /// Well.
    Ok,
    /// With an error, which the caller keeps under the task's handle.
    Failed,
}

/// Why a task failed that was not skipped.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Failure {
    /// Its worker said so; the first member that did, for a group.
    Reported {
        /// Which member.
        member: u32,
    },
    /// Its worker was lost while it was there.
    WorkerLost {
        /// The worker.
        worker: WorkerId,
        /// Which member was there.
        member: u32,
        /// Whether the worker had said that it began.
        accepted: bool,
    },
    /// No worker that could run it is left, or too few for a group.
    NoWorker {
        /// The first lost one of those that could have run it.
        lost: Option<WorkerId>,
    },
}

/// How a task ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum TaskEnd {
    /// Well.
    Completed,
    /// On its own; it is the root cause of whatever is skipped because of it.
    Failed(Failure),
    /// It never ran, because it depends on data of a task that failed.
    Skipped {
        /// The task that failed first, however many tasks lie between.
        cause: TaskId,
    },
    /// It never ran, because its run was cancelled.
    Cancelled,
}

/// What the caller has to know, in the order it happened.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Effect {
    /// A task ended. Reported exactly once for every submitted task.
    TaskFinished {
        /// Its run.
        run: RunId,
        /// The task.
        task: TaskId,
        /// How it ended.
        end: TaskEnd,
    },
    /// A node of a graph task failed on its own. Reported before the end of the graph task, which is as
    /// that of the first such node.
    NodeFailed {
        /// The run.
        run: RunId,
        /// The graph task.
        graph: TaskId,
        /// Which of its nodes.
        node: u32,
        /// The task that the node was.
        task: TaskId,
        /// Why it failed.
        failure: Failure,
    },
    /// All tasks of a sealed run ended. Reported exactly once for every run.
    RunFinished {
        /// The run; its outcome stands in [`Scheduler::run_status`](crate::Scheduler::run_status).
        run: RunId,
    },
    /// A group holds a worker idle that has other work in its queue. Reported once per group; who
    /// is in the way is told by [`Scheduler::blockers`](crate::Scheduler::blockers).
    GroupStalled {
        /// The group.
        group: TaskId,
        /// A worker that waits for the others.
        idle: WorkerId,
    },
}

/// What became of the tasks of a run.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct RunOutcome {
    /// The first task that failed, which may belong to an earlier run; `None` when all is well.
    pub cause: Option<TaskId>,
    /// Tasks that ended well.
    pub completed: u64,
    /// Tasks that failed on their own.
    pub failed: u64,
    /// Tasks that were skipped because of a failure.
    pub skipped: u64,
    /// Tasks that were dropped because the run was cancelled.
    pub cancelled: u64,
    /// Whether it was cancelled before it was sealed: more tasks might have come.
    pub cut_short: bool,
}

impl RunOutcome {
    /// Whether every task ended well, and none was kept from coming.
    pub fn is_ok(&self) -> bool {
        self.failed + self.skipped + self.cancelled == 0 && !self.cut_short
    }
}

/// Where a run is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RunStatus {
    /// Tasks may be submitted.
    Building,
    /// Sealed or cancelled, and tasks are left, or an earlier run is.
    Running,
    /// Over.
    Done(RunOutcome),
}

/// Why a task was not submitted. The graph is as it was before.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum SubmitError {
    /// The run does not exist, is sealed, was cancelled, or is over.
    #[error("{run} takes no more tasks: it was sealed, cancelled, or never begun")]
    RunClosed {
        /// The run.
        run: RunId,
    },
    /// An earlier run still takes tasks. Its tasks come first, all of them, so that those of this run
    /// can be ordered after them: wait until it is sealed or cancelled.
    #[error("{run} takes no tasks yet: {earlier} is still being built; seal it, then retry")]
    EarlierRunOpen {
        /// The run.
        run: RunId,
        /// The run that is in front.
        earlier: RunId,
    },
    /// As many tasks are live as the limits allow; wait until one ends, then retry.
    #[error(
        "all {tasks_max} task slots are in use, the oldest by {oldest}; retry when a task ends"
    )]
    SlotsFull {
        /// The limit.
        tasks_max: u32,
        /// The task that was submitted first among those that are live.
        oldest: TaskId,
    },
    /// Every slot is held by a task that has ended, but failed or is recorded, until its run is over:
    /// waiting does not help.
    #[error(
        "all {tasks_max} task slots are held by ended tasks that are kept, failed or recorded ones, the \
         oldest by {oldest}; seal or cancel their run"
    )]
    SlotsHeld {
        /// The limit.
        tasks_max: u32,
        /// The task that was submitted first among them.
        oldest: TaskId,
    },
    /// A tensor lies in intermediate memory whose scope has ended.
    #[error(
        "{buffer} is intermediate memory of a scope that has ended; allocate it further outside"
    )]
    MemoryReclaimed {
        /// The block.
        buffer: BufferId,
    },
    /// An output waits for memory, which this submit does not give.
    #[error(
        "an output of the task has no memory yet; submit it with its outputs, or allocate it before"
    )]
    Unbacked,
    /// No such worker, or it is not of the kind that the placement names.
    #[error("{worker} is not a next-level worker of this scheduler")]
    NotNextLevel {
        /// The worker.
        worker: WorkerId,
    },
    /// The worker that the task needs is lost.
    #[error("{worker} is lost and cannot take the task")]
    WorkerLost {
        /// The worker.
        worker: WorkerId,
    },
    /// A group names a worker twice.
    #[error("the group names {worker} twice, its members must be distinct")]
    DuplicateMember {
        /// The worker.
        worker: WorkerId,
    },
    /// A placement that names no worker.
    #[error("the placement names no worker")]
    NoTargets,
    /// More sub workers are needed at once than are alive.
    #[error("the task needs {wanted} sub workers at once, {live} are alive")]
    TooFewSubWorkers {
        /// How many it needs.
        wanted: u32,
        /// How many there are.
        live: u32,
    },
    /// `after` names a task that was never submitted.
    #[error("cannot run after {task}, which was never submitted")]
    UnknownTask {
        /// The handle.
        task: TaskId,
    },
}

/// An event that does not fit what the scheduler knows. Nothing was changed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum EventError {
    /// The dispatch was answered before, or its worker was declared lost meanwhile, or it never was.
    #[error("{dispatch} is not in flight: it was answered before or its worker was lost")]
    StaleDispatch {
        /// The dispatch.
        dispatch: DispatchId,
    },
    /// No such run, or it is over.
    #[error("{run} does not exist or is over")]
    UnknownRun {
        /// The run.
        run: RunId,
    },
    /// No such worker.
    #[error("{worker} does not exist")]
    UnknownWorker {
        /// The worker.
        worker: WorkerId,
    },
    /// The task is no graph task that waits to be prepared.
    #[error("{task} is not a graph task that waits to be prepared")]
    NotAwaited {
        /// The handle.
        task: TaskId,
    },
    /// The table of workers is full.
    #[error("cannot add a worker: all {WORKERS_MAX} are in use")]
    TooManyWorkers,
}
