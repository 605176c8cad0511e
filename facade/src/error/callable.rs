//! Why a callable was refused, or a change of the callables of a started tree.

use std::time::Duration;

use super::{Name, WorkerDied};
use crate::control::RemoteError;

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
    /// No callable of this kind has this name.
    #[error("find {kind} `{name}`: none was registered under this name")]
    Unknown {
        /// `chip callable`, `function` or `orchestration`.
        kind: &'static str,
        /// The name.
        name: String,
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
    /// It cannot be made in processes that run already.
    #[error(
        "register {kind} `{name}` after `init`: it captured something, or lies outside of this program, so that only a fork could copy it; register it before `init`, or let it capture nothing"
    )]
    Captured {
        /// `chip callable`, `function` or `orchestration`.
        kind: &'static str,
        /// The name.
        name: String,
    },
    /// A worker of the started tree could not follow; nothing has changed.
    #[error("{operation} {kind} `{name}`: {cause}; nothing has changed")]
    NotAgreed {
        /// `register` or `unregister`.
        operation: &'static str,
        /// `chip callable`, `function` or `orchestration`.
        kind: &'static str,
        /// The name.
        name: String,
        /// Why, and which worker.
        cause: Box<AgreeCause>,
    },
    /// Tasks that have not ended name it, or may.
    #[error(
        "unregister {kind} `{name}`: {n_tasks} unfinished tasks name it or may submit it; wait for their runs first"
    )]
    InUse {
        /// `chip callable`, `function` or `orchestration`.
        kind: &'static str,
        /// The name.
        name: String,
        /// How many tasks.
        n_tasks: usize,
    },
    /// What a process was told of it does not fit the program that it runs.
    #[error("make callable `{name}`: a function of it lies outside of this program")]
    Unmade {
        /// The name.
        name: String,
    },
    /// It was unregistered.
    #[error("use callable `{name}`: it was unregistered; register it again")]
    Gone {
        /// The name.
        name: Name,
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

/// Why the workers of a started tree did not agree on a change of its callables.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum AgreeCause {
    /// A worker could not prepare it, and said why.
    #[error("{0}")]
    Remote(RemoteError),
    /// A worker died meanwhile.
    #[error("{0}")]
    Died(WorkerDied),
    /// A worker did not answer in time.
    #[error(
        "worker `{worker}` has not answered within the limit of {limit:?}; it may be in a long task"
    )]
    Deadline {
        /// Its path.
        worker: String,
        /// The start limit, which holds for this too.
        limit: Duration,
    },
    /// A worker answered something else, or its mailbox is unusable.
    #[error("worker `{worker}` broke the protocol: {reason}")]
    Protocol {
        /// Its path.
        worker: String,
        /// What it did.
        reason: String,
    },
}
