//! What can go wrong, by operation. Every error is cheap to clone, since all waiters of a run get the same one.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use lifecycle::State;
use procfork::{ExitCause, ThreadName};

use crate::control::RemoteError;
use crate::progress::StartProgress;

mod callable;
mod domain;
mod graph;
mod memory;
mod task;

pub use callable::{AgreeCause, CallableError};
pub use domain::DomainError;
pub use graph::GraphFileError;
pub use memory::{BufferError, MemoryError};
#[cfg(feature = "ndarray")]
pub use task::ArrayError;
pub use task::{ArgError, RunError, SubmitError, TaskCause};

/// A name in a message; cheap to clone.
pub type Name = Arc<str>;

/// Any failure of this crate.
///
/// Printed for debugging it reads as its text with all causes behind it, so that a `main` which returns it tells its user
/// what happened; the alternate form, `{:#?}`, has the fields.
#[derive(Clone, thiserror::Error)]
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
    /// A domain or a collective over it was refused.
    #[error(transparent)]
    Domain(#[from] DomainError),
    /// A file of recorded graphs was not written or not read.
    #[error(transparent)]
    GraphFile(#[from] GraphFileError),
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
    /// What waits for the end of orchestrations was asked for from inside one of the same worker.
    #[error(
        "{operation} on worker `{worker}` from inside of its own orchestration, which would wait for itself: {}",
        instead(operation)
    )]
    Reentrant {
        /// What was asked.
        operation: &'static str,
        /// The worker.
        worker: String,
    },
    /// A fork has copied a worker, and not its tree.
    #[error(
        "{operation} on worker `{worker}` in a forked copy of the process that started it: only that process reaches the tree; call it there, or build another worker here"
    )]
    Copied {
        /// What was asked.
        operation: &'static str,
        /// The worker.
        worker: String,
    },
    /// Only a dead worker is started again.
    #[error("start worker `{worker}` again: no dead worker has this path; dead are {dead:?}")]
    Alive {
        /// Asked for.
        worker: String,
        /// Paths of the dead.
        dead: Vec<String>,
    },
    /// The thread that advances runs while nobody waits could not be started.
    #[error(
        "start the background driver of worker `{worker}`: {reason}; it needs a thread and two descriptors: raise their limits, or use `run`, which needs neither"
    )]
    Driver {
        /// The worker.
        worker: String,
        /// What the system said.
        reason: String,
    },
    /// An orchestration gave an error of its own.
    #[error("run orchestration: {}", crate::control::chain(&**.0))]
    Orchestration(Arc<dyn std::error::Error + Send + Sync>),
}

impl fmt::Debug for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if !f.alternate() {
            return write!(f, "failed to {}", crate::control::chain(self));
        }
        let fields: &dyn fmt::Debug = match self {
            Error::Config(error) => error,
            Error::State(error) => error,
            Error::Start(error) => error,
            Error::Callable(error) => error,
            Error::Buffer(error) => error,
            Error::Submit(error) => error,
            Error::Run(error) => error,
            Error::Memory(error) => error,
            Error::Domain(error) => error,
            Error::GraphFile(error) => error,
            Error::Close(error) => error,
            Error::Orchestration(error) => error,
            // What these have is in their text.
            Error::Teardown { .. }
            | Error::Reentrant { .. }
            | Error::Copied { .. }
            | Error::Alive { .. }
            | Error::Driver { .. } => return write!(f, "{self}"),
        };
        fields.fmt(f)
    }
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
            | Error::Submit(SubmitError::WorkerDied { died, .. })
            | Error::Memory(MemoryError::WorkerDied { died, .. }) => Some(died),
            Error::Callable(CallableError::NotAgreed { cause, .. }) => match &**cause {
                AgreeCause::Died(died) => Some(died),
                _ => None,
            },
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
            Error::Callable(CallableError::NotAgreed { cause, .. }) => match &**cause {
                AgreeCause::Remote(remote) => Some(remote),
                _ => None,
            },
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
    /// A fault of a chip that this worker does not have.
    #[error(
        "build worker `{name}`: device {device} is to have a fault, and the devices of this worker are {devices:?}"
    )]
    FaultElsewhere {
        /// The worker.
        name: String,
        /// The logical device id.
        device: u32,
        /// The devices that it has.
        devices: Vec<u32>,
    },
    /// Only the simulator has faults on request.
    #[error(
        "build worker `{name}`: device {device} of platform {platform} cannot be told to have a fault; a simulated one can"
    )]
    FaultOnHardware {
        /// The worker.
        name: String,
        /// The logical device id.
        device: u32,
        /// The platform.
        platform: String,
    },
    /// The root is the caller's own process.
    #[error(
        "build worker `{name}`: settings of the root would change this process; apply them with `Settings::apply`, or give them to the workers below"
    )]
    RootSettings {
        /// The worker.
        name: String,
    },
    /// Settings that no process can have.
    #[error("build worker `{name}`, settings of {of}: {reason}")]
    BadSetting {
        /// The worker.
        name: String,
        /// Whose settings: `worker`, `chip`, `chip 1`, `sub worker`.
        of: String,
        /// The setting, and what is allowed.
        reason: String,
    },
    /// Settings for a child that is not there.
    #[error(
        "build worker `{name}`: settings for {kind} {index}, but it has {n_children} of them, counted from 0"
    )]
    NoSuchChild {
        /// The worker.
        name: String,
        /// `chip` or `sub worker`.
        kind: &'static str,
        /// Asked for.
        index: u32,
        /// How many there are.
        n_children: u32,
    },
    /// A budget that holds nothing.
    #[error(
        "build worker `{name}`: its chips may use 0 bytes of device memory; leave the budget away for all of it"
    )]
    NoDeviceMemory {
        /// The worker.
        name: String,
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
    /// A capacity that no graph can have.
    #[error("build worker `{name}`: {option} is {value}; it must be from 1 to {max}")]
    BadCapacity {
        /// The worker.
        name: String,
        /// The builder's method.
        option: &'static str,
        /// What was given.
        value: u64,
        /// The most that it may be.
        max: u64,
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

fn instead(operation: &str) -> &'static str {
    match operation {
        "run" | "submit" => "submit the tasks there",
        _ => "do it when the run has ended",
    }
}

fn advice(state: State, operation: &str) -> &'static str {
    match (state, operation) {
        (State::New, _) => "call `init` first",
        (State::Initializing, "init") => {
            "this thread is starting it and would wait for itself; return to that start first"
        }
        (State::Initializing, _) => "wait until `init` has returned",
        (State::Ready, _) => "do this before `init`",
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
#[error("start worker `{worker}`: {}", told(cause, worker))]
#[non_exhaustive]
pub struct StartError {
    /// Path of the worker whose start failed first.
    pub worker: String,
    /// Why.
    pub cause: StartCause,
}

/// A cause without the place that the message in front of it has said already.
fn told(cause: &StartCause, worker: &str) -> String {
    match cause {
        StartCause::Remote(remote) if remote.path == worker => {
            format!("{}: {}", remote.operation, remote.told())
        }
        cause => cause.to_string(),
    }
}

/// Who the start waited for: a few of them, in words.
fn standing(waiting: &[StartProgress]) -> String {
    let one =
        |who: &StartProgress| format!("`{}` {} after {:.1?}", who.path, who.phase, who.elapsed);
    let mut shown: Vec<String> = waiting.iter().take(4).map(one).collect();
    if waiting.len() > shown.len() {
        shown.push(format!("{} more", waiting.len() - shown.len()));
    }
    match shown.is_empty() {
        true => String::new(),
        false => format!("; last reached: {}", shown.join(", ")),
    }
}

/// Why there is no way to start a child with these callables.
fn of_captured(callables: &[String], threads: &[ThreadName]) -> String {
    if threads.is_empty() {
        return format!(
            "start this program again for it: the callables {callables:?} captured something, which only a fork copies; let them capture nothing, or start while the process has one thread"
        );
    }
    let threads: Vec<String> = threads.iter().map(ToString::to_string).collect();
    format!(
        "neither fork it nor start this program again for it: the process has other threads ({}), and the callables {callables:?} captured something, which only a fork copies; start before the threads, or let the callables capture nothing",
        threads.join(", ")
    )
}

/// Why a worker did not start.
#[derive(Debug, Clone, thiserror::Error)]
#[non_exhaustive]
pub enum StartCause {
    /// The one deadline of the whole start passed.
    #[error(
        "not ready within the start limit of {limit:?}; raise `start_timeout`, or look what it waits for{}",
        standing(waiting)
    )]
    Deadline {
        /// The limit of the whole tree.
        limit: Duration,
        /// Who was not ready, with the last phase that each had reached and when.
        waiting: Vec<StartProgress>,
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
    /// A spawned child cannot have what a callable captured, and a process with several threads cannot fork.
    #[error("{}", of_captured(callables, threads))]
    Captured {
        /// Their names.
        callables: Vec<String>,
        /// The threads that kept the process from forking, where it was to do that or to spawn.
        threads: Vec<ThreadName>,
    },
    /// It could not be forked or spawned.
    #[error("{}", crate::control::chain(.0.as_ref()))]
    Fork(Arc<procfork::StartError>),
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
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error, serde::Serialize, serde::Deserialize)]
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

impl CloseError {
    /// Whether it was not finished because operations of the worker had not ended.
    #[must_use]
    pub fn is_incomplete(&self) -> bool {
        matches!(*self.reason, lifecycle::CloseError::Incomplete { .. })
    }
}

/// What a close could not do, each step with its cause.
fn unfinished(reason: &lifecycle::CloseError<Error>) -> String {
    let lifecycle::CloseError::Teardown { failures, .. } = reason else {
        return reason.to_string();
    };
    let failures: Vec<String> = failures.iter().map(|f| crate::control::chain(f)).collect();
    format!("{}; close again to try again", failures.join("; "))
}

fn said(last_words: Option<&String>) -> String {
    last_words
        .map(|words| format!(", last words: {words}"))
        .unwrap_or_default()
}

/// A close has not finished.
#[derive(Debug, Clone, thiserror::Error)]
#[error("close worker `{worker}`: {}", unfinished(reason))]
#[non_exhaustive]
pub struct CloseError {
    /// The worker.
    pub worker: String,
    /// What is left, and why; another close drives on.
    pub reason: Arc<lifecycle::CloseError<Error>>,
}

#[cfg(test)]
mod tests;
