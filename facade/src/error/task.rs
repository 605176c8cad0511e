//! Why tasks were refused, failed, or could not have an argument.

use taskgraph::capture::NotRecordable;
use taskgraph::{ArgsError, DType, Scalar, Tag, TensorError};

use super::{Name, WorkerDied};
use crate::control::RemoteError;

/// Why a task was refused.
#[derive(Debug, Clone, thiserror::Error)]
#[non_exhaustive]
pub enum SubmitError {
    /// An argument does not fit.
    #[error("submit a task: {0}")]
    Args(ArgsError),
    /// Too many arguments.
    #[error("submit a task: more than {max} tensors or scalars")]
    TooManyArgs {
        /// The limit of each.
        max: usize,
    },
    /// The target does not exist.
    #[error(
        "submit `{callable}` on next-level worker {index}: worker `{worker}` has {found} of them, numbered from 0"
    )]
    NoSuchWorker {
        /// The callable.
        callable: Name,
        /// The submitting worker.
        worker: String,
        /// Asked for.
        index: u32,
        /// How many there are.
        found: u32,
    },
    /// The target cannot run this kind of callable.
    #[error("submit {kind} `{callable}` on `{target}`: {wanted}")]
    WrongKind {
        /// `chip callable` or `orchestration`.
        kind: &'static str,
        /// The callable.
        callable: Name,
        /// The target.
        target: String,
        /// What that worker runs instead.
        wanted: &'static str,
    },
    /// No worker of the wanted kind is there, or all of them are dead.
    #[error("submit `{callable}`: worker `{worker}` has no living {wanted}")]
    NoWorker {
        /// The callable.
        callable: Name,
        /// The submitting worker.
        worker: String,
        /// `sub worker`, `chip worker` or `worker below`.
        wanted: &'static str,
    },
    /// The target is dead.
    #[error("submit `{callable}`: {died}")]
    WorkerDied {
        /// The callable.
        callable: Name,
        /// Who died, and how.
        died: WorkerDied,
    },
    /// The encoded arguments do not fit a frame.
    #[error(
        "submit `{callable}`: its arguments take {bytes} bytes, a frame holds {limit}; pass fewer tensors"
    )]
    TooLarge {
        /// The callable.
        callable: Name,
        /// Encoded size.
        bytes: usize,
        /// The limit.
        limit: usize,
    },
    /// Each buffer that a worker has not seen is announced to it before the task, and the channel holds so many.
    #[error(
        "submit `{callable}`: it names {found} different buffers, one task can name {max}; pass views of fewer buffers"
    )]
    TooManyBuffers {
        /// The callable.
        callable: Name,
        /// Different buffers of its arguments; one that is both read and written counts twice.
        found: usize,
        /// The limit.
        max: usize,
    },
    /// Device memory of the wrong worker, or stale.
    #[error("submit `{callable}`: {reason}")]
    Device {
        /// The callable.
        callable: Name,
        /// Both sides, named.
        reason: String,
    },
    /// Device memory cannot be an argument of this kind of task.
    #[error(
        "submit `{callable}`: device memory can be an argument of a chip callable only, since no other worker reaches it"
    )]
    DeviceArgument {
        /// The callable.
        callable: Name,
    },
    /// The host copies what the task would use, in no order with it.
    #[error(
        "submit `{callable}`: the host does a {how} {buffer} just now; submit it after the copy"
    )]
    HostCopy {
        /// The callable.
        callable: Name,
        /// The device memory.
        buffer: taskgraph::BufferId,
        /// `copy to` or `copy from`.
        how: &'static str,
    },
    /// The members make no group.
    #[error("submit group `{callable}`: {reason}")]
    Group {
        /// The callable.
        callable: Name,
        /// What is wrong with the members.
        reason: &'static str,
    },
    /// The graph refused it.
    #[error("submit `{callable}`: {reason}")]
    Graph {
        /// The callable.
        callable: Name,
        /// Why.
        reason: taskgraph::SubmitError,
    },
    /// A scope was not begun.
    #[error("submit a scope of tasks: {reason}")]
    Scope {
        /// Why.
        reason: taskgraph::ScopeError,
    },
    /// The body of a graph that is being recorded does what no replay could do. The graph runs eagerly instead; the
    /// body may return this or go on.
    #[error("record `{callable}`: {reason}")]
    NotRecordable {
        /// The callable.
        callable: Name,
        /// Why.
        reason: NotRecordable,
    },
    /// It is to come after a task of a graph that was recorded, which exists in replays only.
    #[error(
        "submit `{callable}`: it comes after a task inside of a recorded graph; let it come after the graph"
    )]
    OutsideGraph {
        /// The callable.
        callable: Name,
    },
    /// It is to come after a task of another worker, which only that knows.
    #[error(
        "submit `{callable}` on worker `{worker}`: it comes after a task of another worker; tasks are ordered within one worker only, let the other's run end first"
    )]
    OtherWorker {
        /// The callable.
        callable: Name,
        /// The worker to which it was submitted.
        worker: Name,
    },
    /// The run was cancelled, by its owner or because its tree is gone.
    #[error("submit `{callable}`: the run has been cancelled")]
    Cancelled {
        /// The callable.
        callable: Name,
    },
}

/// A run failed, or was cancelled. The first root cause, and what followed from it.
#[derive(Debug, Clone, thiserror::Error)]
#[error("{}", run_text(task, worker, cause, &[*completed, *failed, *skipped, *cancelled]))]
#[non_exhaustive]
pub struct RunError {
    /// The callable of the task that failed first; `run` where none has.
    pub task: String,
    /// Path of the worker that it ran on.
    pub worker: String,
    /// Why it failed: [`TaskCause::Cancelled`] where no task has, and the run was cancelled.
    pub cause: TaskCause,
    /// Tasks that ended well.
    pub completed: u64,
    /// Tasks that failed by themselves, this one included.
    pub failed: u64,
    /// Tasks that were skipped, because they depended on a failed one.
    pub skipped: u64,
    /// Tasks that never started, because the run was cancelled.
    pub cancelled: u64,
}

fn run_text(task: &str, worker: &str, cause: &TaskCause, counts: &[u64; 4]) -> String {
    let &[completed, failed, skipped, cancelled] = counts;
    if matches!(cause, TaskCause::Cancelled) && failed == 0 {
        return format!(
            "run on `{worker}`: cancelled; {completed} tasks had completed, {cancelled} never started"
        );
    }
    let dropped = match cancelled {
        0 => String::new(),
        cancelled => format!("; the run was cancelled, {cancelled} tasks never started"),
    };
    let (told, followed) = (told(cause, worker), followed(failed, skipped));
    format!("run task `{task}` on `{worker}`: {told}{followed}{dropped}")
}

/// A cause without what the message in front of it has said already.
fn told(cause: &TaskCause, worker: &str) -> String {
    match cause {
        TaskCause::Remote(remote) if remote.path == worker => remote.told(),
        cause => cause.to_string(),
    }
}

fn followed(failed: u64, skipped: u64) -> String {
    match (failed, skipped) {
        (0 | 1, 0) => String::new(),
        (0 | 1, skipped) => format!(" ({skipped} dependent tasks were skipped)"),
        (failed, skipped) => format!(
            " ({} other tasks failed, {skipped} were skipped)",
            failed - 1
        ),
    }
}

/// Why a task failed.
#[derive(Debug, Clone, thiserror::Error)]
#[non_exhaustive]
pub enum TaskCause {
    /// It failed in its worker.
    #[error("{0}")]
    Remote(Box<RemoteError>),
    /// Its worker died.
    #[error("{0}")]
    WorkerDied(Box<WorkerDied>),
    /// Its worker broke the protocol and is not used any more.
    #[error("the worker's mailbox is unusable: {0}")]
    Poisoned(String),
    /// It could not be sent to its worker, which is well: most likely no descriptor was left for a buffer that it names. A
    /// later task may fare better.
    #[error("it could not be sent: {0}")]
    NotSent(String),
    /// The orchestration panicked in the submitting process.
    #[error("panicked: {0}")]
    Panicked(String),
    /// The run was cancelled before all of its tasks had started.
    #[error("cancelled")]
    Cancelled,
}

/// Why an argument could not be had as asked.
#[derive(Debug, Clone, PartialEq, thiserror::Error)]
#[non_exhaustive]
pub enum ArgError {
    /// There is no such argument.
    #[error("take {what} argument {index}: the task has {found} of them, numbered from 0")]
    Missing {
        /// `tensor` or `scalar`.
        what: &'static str,
        /// Asked for.
        index: usize,
        /// How many there are.
        found: usize,
    },
    /// The element type differs.
    #[error("take tensor argument {index} as {asked}: it holds {found}")]
    DType {
        /// Position.
        index: usize,
        /// The type asked for.
        asked: DType,
        /// The type of the tensor.
        found: DType,
    },
    /// The tag does not allow it.
    #[error("{asked} tensor argument {index}: the task named it as {tag:?}")]
    Tag {
        /// Position.
        index: usize,
        /// `read` or `write`.
        asked: &'static str,
        /// The tag it was named with.
        tag: Tag,
    },
    /// It is in device memory.
    #[error(
        "take tensor argument {index} on the host: it is in device memory, which only a chip callable reaches"
    )]
    OnDevice {
        /// Position.
        index: usize,
    },
    /// The elements do not lie side by side.
    #[error("take tensor argument {index} as a slice: its view is not contiguous")]
    NotContiguous {
        /// Position.
        index: usize,
    },
    /// Another argument writes the same bytes.
    #[error(
        "take tensor argument {index} as a slice: the task writes the same bytes through another argument; name it once, as in-out"
    )]
    Aliased {
        /// Position.
        index: usize,
    },
    /// It was taken before.
    #[error(
        "take tensor argument {index} for writing: it was taken before, and two writers must not exist"
    )]
    Taken {
        /// Position.
        index: usize,
    },
    /// The scalar has another type.
    #[error("take scalar argument {index} as {asked}: it is {found:?}")]
    Scalar {
        /// Position.
        index: usize,
        /// The type asked for.
        asked: &'static str,
        /// The value.
        found: Scalar,
    },
    /// The view does not fit.
    #[error(transparent)]
    View(TensorError),
    /// It cannot be had as such an array.
    #[cfg(feature = "ndarray")]
    #[error("take tensor argument {index} as an array: {reason}")]
    Array {
        /// Position.
        index: usize,
        /// Why not.
        reason: ArrayError,
    },
}

/// Why a view cannot be had as such an array of `ndarray`.
#[cfg(feature = "ndarray")]
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum ArrayError {
    /// The number of dimensions differs.
    #[error("asked for {asked} dimensions, the view has {found}")]
    Rank {
        /// Dimensions asked for.
        asked: usize,
        /// Dimensions of the view.
        found: usize,
    },
    /// Two elements of the view share bytes, so that it cannot be written through one array.
    #[error("elements of the view share bytes, which an array for writing cannot")]
    Overlap,
    /// The view has more elements than an address space has bytes, because they share them.
    #[error("the view has more elements than an array can count")]
    TooLarge,
}

#[cfg(feature = "ndarray")]
impl ArrayError {
    pub(crate) fn of_arg(self, index: usize) -> ArgError {
        ArgError::Array {
            index,
            reason: self,
        }
    }
}
