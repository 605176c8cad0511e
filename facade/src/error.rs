//! What can go wrong, by operation. Every error is cheap to clone, since all waiters of a run get the same one.

use std::sync::Arc;
use std::time::Duration;

use lifecycle::State;
use procfork::ExitCause;
use taskgraph::{ArgsError, BufferId, DType, Scalar, Tag, TensorError};

use crate::control::RemoteError;

/// A name in a message; cheap to clone.
pub type Name = Arc<str>;

/// Any failure of this crate.
#[derive(Debug, Clone, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// The specification of a worker is wrong; nothing was started.
    #[error(transparent)]
    Config(#[from] ConfigError),
    /// The worker is not in a state that allows the operation.
    #[error(transparent)]
    State(#[from] StateError),
    /// The tree did not start; nothing of it is left.
    #[error(transparent)]
    Start(#[from] StartError),
    /// A callable was refused.
    #[error(transparent)]
    Callable(#[from] CallableError),
    /// A shared buffer was refused.
    #[error(transparent)]
    Buffer(#[from] BufferError),
    /// A task was refused; nothing of it was submitted.
    #[error(transparent)]
    Submit(#[from] SubmitError),
    /// A run failed.
    #[error(transparent)]
    Run(#[from] RunError),
    /// An operation on device memory failed.
    #[error(transparent)]
    Memory(#[from] MemoryError),
    /// A close has not finished.
    #[error(transparent)]
    Close(#[from] CloseError),
    /// A child did not leave, or a resource could not be given back.
    #[error("give back {what}: {reason}")]
    Teardown {
        /// What is left.
        what: &'static str,
        /// Why.
        reason: String,
    },
    /// An orchestration gave an error of its own.
    #[error("run orchestration: {0}")]
    Orchestration(#[source] Arc<dyn std::error::Error + Send + Sync>),
}

impl Error {
    /// Wraps an error of an orchestration's own.
    pub fn orchestration(error: impl Into<Box<dyn std::error::Error + Send + Sync>>) -> Self {
        Self::Orchestration(Arc::from(error.into()))
    }

    /// The process that died, if that is the cause.
    #[must_use]
    pub fn worker_died(&self) -> Option<&WorkerDied> {
        match self {
            Error::Run(RunError {
                cause: TaskCause::WorkerDied(died),
                ..
            }) => Some(died),
            Error::Start(StartError {
                cause: StartCause::Died(died),
                ..
            })
            | Error::Memory(MemoryError::WorkerDied(died)) => Some(died),
            _ => None,
        }
    }

    /// The failure in another process, if that is the cause.
    #[must_use]
    pub fn remote(&self) -> Option<&RemoteError> {
        match self {
            Error::Run(RunError {
                cause: TaskCause::Remote(remote),
                ..
            }) => Some(remote),
            Error::Start(StartError {
                cause: StartCause::Remote(remote),
                ..
            })
            | Error::Memory(MemoryError::Remote(remote)) => Some(remote),
            _ => None,
        }
    }
}

impl From<ArgError> for Error {
    fn from(error: ArgError) -> Self {
        Error::orchestration(error)
    }
}

/// Why a specification was refused.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum ConfigError {
    /// Nothing could ever run.
    #[error(
        "start worker `{name}`: it has no children; give it chips, sub workers, or workers below it"
    )]
    NoChildren {
        /// The worker.
        name: String,
    },
    /// More children than one worker can have.
    #[error(
        "build worker `{name}`: {children} children, at most {max} are possible; add a level of workers between"
    )]
    TooManyChildren {
        /// The worker.
        name: String,
        /// Asked for (counted up to one more than the limit per kind).
        children: usize,
        /// The limit.
        max: usize,
    },
    /// A device cannot have two owners.
    #[error(
        "build worker `{name}`: device {device} is given twice; each chip worker owns a device of its own"
    )]
    DeviceTwice {
        /// The worker.
        name: String,
        /// The logical device id.
        device: u32,
    },
    /// Levels end at L6.
    #[error("build worker `{name}`: it would be above level L6, the highest there is")]
    TooDeep {
        /// The worker.
        name: String,
    },
    /// A name that cannot stand in a path.
    #[error(
        "build worker `{name}`: a name must not be empty nor contain `/`, since it is a part of paths"
    )]
    BadName {
        /// The name.
        name: String,
    },
    /// Two siblings of one name.
    #[error(
        "build worker `{name}`: two of its workers are named `{child}`; paths must tell them apart"
    )]
    NameTwice {
        /// The parent.
        name: String,
        /// The name of both.
        child: String,
    },
    /// A time limit that cannot be kept.
    #[error(
        "build worker `{name}`: {option} is {value:?}; it must be above zero and at most a year"
    )]
    BadLimit {
        /// The worker.
        name: String,
        /// The builder's method.
        option: &'static str,
        /// What was given.
        value: Duration,
    },
}

/// An operation came in the wrong state.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{operation} on worker `{worker}`: it is {state:?}; {}", advice(*state, operation))]
#[non_exhaustive]
pub struct StateError {
    /// What was asked.
    pub operation: &'static str,
    /// The worker.
    pub worker: String,
    /// The state that refused it.
    pub state: State,
}

fn advice(state: State, operation: &str) -> &'static str {
    match (state, operation) {
        (State::New, _) => "call `init` first",
        (State::Initializing, _) => "wait until `init` has returned",
        (State::Ready, _) => "do this before `init`; doing it afterwards is not built yet",
        (State::Failed, _) => "its start failed, build a new worker",
        (State::Closed, _) => "build a new worker",
    }
}

impl StateError {
    pub(crate) fn new(operation: &'static str, worker: &str, state: State) -> Self {
        Self {
            operation,
            worker: worker.to_owned(),
            state,
        }
    }
}

/// The tree did not start.
#[derive(Debug, Clone, thiserror::Error)]
#[error("start worker `{worker}`: {cause}")]
#[non_exhaustive]
pub struct StartError {
    /// Path of the worker whose start failed first.
    pub worker: String,
    /// Why.
    pub cause: StartCause,
}

/// Why a worker did not start.
#[derive(Debug, Clone, thiserror::Error)]
#[non_exhaustive]
pub enum StartCause {
    /// The one deadline of the whole start passed.
    #[error(
        "not ready within the start limit of {limit:?}; raise `start_timeout`, or look what it waits for"
    )]
    Deadline {
        /// The limit of the whole tree.
        limit: Duration,
    },
    /// A close was called meanwhile.
    #[error("cancelled, because the worker was closed during its start")]
    Cancelled,
    /// The starting thread left without an outcome.
    #[error("abandoned, because the thread that started it panicked")]
    Abandoned,
    /// A process of the tree died.
    #[error("{0}")]
    Died(WorkerDied),
    /// The worker said why.
    #[error("{0}")]
    Remote(RemoteError),
    /// It could not be forked.
    #[error("{}", crate::control::chain(.0.as_ref()))]
    Fork(Arc<procfork::ForkError>),
    /// Memory, descriptors or another thing of the system could not be had.
    #[error("{}", crate::control::chain(.0.as_ref()))]
    System(Arc<dyn std::error::Error + Send + Sync>),
}

impl StartCause {
    pub(crate) fn system(error: impl std::error::Error + Send + Sync + 'static) -> Self {
        Self::System(Arc::new(error))
    }
}

/// A process of the tree is dead.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("worker `{worker}` (pid {pid}) {cause}{}", said(last_words.as_ref()))]
#[non_exhaustive]
pub struct WorkerDied {
    /// Its path.
    pub worker: String,
    /// Its process id.
    pub pid: u32,
    /// How it ended, exactly.
    pub cause: ExitCause,
    /// What it left to say, such as the message of a panic.
    pub last_words: Option<String>,
}

fn said(last_words: Option<&String>) -> String {
    last_words
        .map(|words| format!(", last words: {words}"))
        .unwrap_or_default()
}

/// Why a callable was refused.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum CallableError {
    /// Two callables of one kind with one name.
    #[error(
        "register {kind} `{name}`: another {kind} has this name; names tell callables apart in every process"
    )]
    NameTwice {
        /// `chip callable`, `function` or `orchestration`.
        kind: &'static str,
        /// The name.
        name: String,
    },
    /// A callable without a name.
    #[error("register {kind}: its name is empty")]
    NoName {
        /// `chip callable`, `function` or `orchestration`.
        kind: &'static str,
    },
    /// No worker of the tree could ever run it.
    #[error("register {kind} `{name}`: no worker of the tree could run it; add {missing}")]
    NoWorker {
        /// `chip callable`, `function` or `orchestration`.
        kind: &'static str,
        /// The name.
        name: String,
        /// What would be needed.
        missing: &'static str,
    },
    /// The handle was made by another tree.
    #[error(
        "use callable `{name}`: its handle belongs to another worker; register it with this one"
    )]
    Foreign {
        /// The name.
        name: Name,
    },
}

/// Why a buffer or a view was refused.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum BufferError {
    /// No elements, or more than an address space holds.
    #[error(
        "create a buffer of {n_elements} elements of {element_bytes} bytes: the size must be above zero and fit an address space"
    )]
    Size {
        /// Elements asked for.
        n_elements: usize,
        /// Bytes of one element.
        element_bytes: usize,
    },
    /// The memory could not be had.
    #[error("create a buffer of {bytes} bytes: {reason}")]
    Memory {
        /// Bytes asked for.
        bytes: usize,
        /// What the system said.
        reason: String,
    },
    /// The view does not fit its buffer.
    #[error("make a view of a buffer: {0}")]
    View(TensorError),
    /// The lengths differ.
    #[error("write {buffer}: it has {expected} elements, {found} were given")]
    Length {
        /// The buffer.
        buffer: BufferId,
        /// Its elements.
        expected: usize,
        /// Elements given.
        found: usize,
    },
    /// Somebody uses it.
    #[error(
        "{operation} {buffer}: it is in use by {reading} tasks that read it, {writing} that write it and {views} host views; wait for the run, or drop the view"
    )]
    InUse {
        /// `read`, `write` or `release`.
        operation: &'static str,
        /// The buffer.
        buffer: BufferId,
        /// Unfinished tasks that read it.
        reading: u32,
        /// Unfinished tasks that write it.
        writing: u32,
        /// Views of the host.
        views: u32,
    },
    /// A task was submitted while the host looks at the buffer.
    #[error(
        "submit a task on {buffer}: the host holds a conflicting view of it; drop the view first"
    )]
    HostView {
        /// The buffer.
        buffer: BufferId,
    },
    /// It was given back.
    #[error("use {buffer}: it was released")]
    Released {
        /// The buffer.
        buffer: BufferId,
    },
}

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
    /// A group needs members.
    #[error("submit group `{callable}`: {reason}")]
    Group {
        /// The callable.
        callable: Name,
        /// What is wrong with the members.
        reason: &'static str,
    },
    /// The graph refused it.
    #[error("submit `{callable}`: {source}")]
    Graph {
        /// The callable.
        callable: Name,
        /// Why.
        source: taskgraph::SubmitError,
    },
    /// The tree it was submitted to is gone.
    #[error("submit `{callable}`: the run has been cancelled")]
    Cancelled {
        /// The callable.
        callable: Name,
    },
}

/// A run failed. The first root cause, and what followed from it.
#[derive(Debug, Clone, thiserror::Error)]
#[error("run task `{task}` on `{worker}`: {}{}", told(cause, worker), followed(*failed, *skipped))]
#[non_exhaustive]
pub struct RunError {
    /// The callable of the task that failed first.
    pub task: String,
    /// Path of the worker that it ran on.
    pub worker: String,
    /// Why it failed.
    pub cause: TaskCause,
    /// Tasks that failed by themselves, this one included.
    pub failed: u64,
    /// Tasks that were skipped, because they depended on a failed one or the run was cancelled.
    pub skipped: u64,
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
    /// The orchestration panicked in the submitting process.
    #[error("panicked: {0}")]
    Panicked(String),
    /// The run was cancelled, because the worker above is closing or gone.
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
}

/// Why an operation on device memory failed.
#[derive(Debug, Clone, thiserror::Error)]
#[non_exhaustive]
pub enum MemoryError {
    /// There is no such chip worker.
    #[error(
        "{operation} on next-level worker {index}: worker `{worker}` has {found} chip workers, numbered from 0"
    )]
    NoSuchChip {
        /// What was attempted.
        operation: &'static str,
        /// The worker that was asked.
        worker: String,
        /// Asked for.
        index: u32,
        /// How many chips there are.
        found: u32,
    },
    /// The pointer is stale, foreign, interior, or in use. No device call was made.
    #[error(transparent)]
    Refused(Arc<provenance::Refused>),
    /// The lengths do not fit.
    #[error("{operation} {elements} elements: the tensor has {found}")]
    Length {
        /// What was attempted.
        operation: &'static str,
        /// Elements given.
        elements: usize,
        /// Elements of the tensor.
        found: usize,
    },
    /// The size overflows.
    #[error(
        "allocate {n_elements} elements of {element_bytes} bytes: the size must be above zero and fit 64 bits"
    )]
    Size {
        /// Elements asked for.
        n_elements: usize,
        /// Bytes of one element.
        element_bytes: usize,
    },
    /// A copy needs elements side by side.
    #[error("copy device memory: the view is not contiguous; copy its rows one by one")]
    NotContiguous,
    /// A part of an allocation cannot be freed.
    #[error(
        "free {ptr}: the handle is a part of its allocation; free the handle that `malloc` gave"
    )]
    NotBase {
        /// The pointer.
        ptr: provenance::DevicePtr,
    },
    /// The view does not fit.
    #[error(transparent)]
    View(TensorError),
    /// The chip worker said no; its device may be out of memory, or broken.
    #[error("{0}")]
    Remote(RemoteError),
    /// The chip worker died.
    #[error("{0}")]
    WorkerDied(WorkerDied),
    /// The device memory is gone for good: the native free failed.
    #[error(
        "free {ptr}: the device refused, so that the memory is leaked and the pointer is dead: {reason}"
    )]
    Leaked {
        /// The pointer.
        ptr: provenance::DevicePtr,
        /// What the device said.
        reason: String,
    },
    /// The answer did not come in time, or made no sense.
    #[error("{operation} on `{worker}`: {reason}")]
    Protocol {
        /// What was attempted.
        operation: &'static str,
        /// The chip worker.
        worker: String,
        /// What was wrong.
        reason: String,
    },
}

/// A close has not finished.
#[derive(Debug, Clone, thiserror::Error)]
#[error("close worker `{worker}`: {reason}")]
#[non_exhaustive]
pub struct CloseError {
    /// The worker.
    pub worker: String,
    /// What is left, and why; another close drives on.
    pub reason: Arc<lifecycle::CloseError<Error>>,
}
