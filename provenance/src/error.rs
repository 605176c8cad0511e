//! Why the table refused: who asked for what, on which range, and what stood against it.

use std::fmt;

use crate::ptr::{DevicePtr, Span, WorkerRef};

/// What a caller wants to do with a range.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Operation {
    /// Name it as an argument of a task.
    Argument,
    /// Copy from it to the host or to another device.
    CopyFrom,
    /// Copy to it.
    CopyTo,
    /// Give the allocation back.
    Free,
    /// Release a window.
    Release,
    /// Show it as a window on some worker.
    Show,
}

impl fmt::Display for Operation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Argument => "pass to a task",
            Self::CopyFrom => "copy from",
            Self::CopyTo => "copy to",
            Self::Free => "free",
            Self::Release => "release",
            Self::Show => "show in a window",
        })
    }
}

/// A question to the table: which operation, and which worker is to do it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Ask {
    /// What is to be done.
    pub operation: Operation,
    /// The worker that is to do it; `None` is whichever owns the memory.
    pub worker: Option<u32>,
}

impl Ask {
    /// The worker with this number is to do it.
    pub fn on(operation: Operation, worker: u32) -> Self {
        Self {
            operation,
            worker: Some(worker),
        }
    }

    /// The owner of the memory is to do it.
    pub fn owner(operation: Operation) -> Self {
        Self {
            operation,
            worker: None,
        }
    }
}

/// A use of device memory that was refused before any device call.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{operation} {span}{on}: {cause}", operation = ask.operation, on = On(ask.worker))]
#[non_exhaustive]
pub struct Refused {
    /// What was asked, and of whom.
    pub ask: Ask,
    /// Of which range.
    pub span: Span,
    /// What stood against it.
    pub cause: Cause,
}

struct On(Option<u32>);

impl fmt::Display for On {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0
            .map_or(Ok(()), |worker| write!(f, " on worker {worker}"))
    }
}

/// What stands against a use of device memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum Cause {
    /// The handle is for another allocation than the entry, which is alive: it comes from another
    /// tree of workers, or its bytes are damaged.
    #[error(
        "the entry belongs to {owner} at {base:#x}; the handle was not made here, or is damaged"
    )]
    Foreign {
        /// To whom the entry belongs.
        owner: WorkerRef,
        /// Where its memory begins.
        base: u64,
    },
    /// A use of it is queued or running.
    #[error("{uses} queued or running uses; wait for them, or let the release wait")]
    InUse {
        /// How many.
        uses: u32,
    },
    /// A native free of it failed or was interrupted. It is never usable again.
    #[error("a free of it failed earlier; the memory is lost until its worker ends")]
    Leaked,
    /// Only the base of an allocation can be freed or released.
    #[error("the handle points into the allocation; take its base")]
    NotBase,
    /// It is the wrong role for the operation.
    #[error("it is an allocation, not a window; free it")]
    NotWindow,
    /// It is the wrong role for the operation.
    #[error("it is a window; release it, and free the allocation behind it")]
    NotAllocation,
    /// It belongs to another worker than the one that was asked.
    #[error("it belongs to worker {owner}; ask that one, or copy the data over")]
    OtherWorker {
        /// To whom it belongs.
        owner: u32,
    },
    /// The range leaves the allocation or window.
    #[error("outside of its {extent} bytes")]
    OutOfRange {
        /// How many bytes there are from the base on.
        extent: u64,
    },
    /// It was released; earlier uses are still going on.
    #[error("it was released, and {uses} earlier uses are still going on")]
    Retired {
        /// How many.
        uses: u32,
    },
    /// It was freed or released, or what it showed was lost. The address may be in use again, by
    /// somebody else.
    #[error("it is gone; allocate anew")]
    Stale,
    /// There are as many uses as can be counted.
    #[error("it has {uses} uses already, and no more can be counted")]
    TooManyUses {
        /// How many.
        uses: u32,
    },
    /// No such entry was ever recorded.
    #[error("no such memory was ever recorded here")]
    Unknown,
    /// Windows on it are not released yet.
    #[error("{windows} windows show it; release them first")]
    Windows {
        /// How many.
        windows: usize,
    },
    /// Its worker ended, and its memory with it.
    #[error("{worker} ended, and its memory with it; allocate anew")]
    WorkerLost {
        /// Whose it was.
        worker: WorkerRef,
    },
}

/// Memory that could not be recorded. The native allocation exists and is the caller's to free.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("record {bytes} bytes at {address:#x} of {worker}: {cause}")]
#[non_exhaustive]
pub struct NotRecorded {
    /// Whose memory.
    pub worker: WorkerRef,
    /// Where it begins.
    pub address: u64,
    /// How long it is.
    pub bytes: u64,
    /// What stood against it.
    pub cause: RecordCause,
}

/// What stands against recording memory.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum RecordCause {
    /// The memory behind a window cannot be shown.
    #[error(transparent)]
    Backing(#[from] Box<Refused>),
    /// It has no bytes, so no address of it means anything.
    #[error("it is empty")]
    Empty,
    /// All entry numbers are in use.
    #[error("all {entries} entries are in use")]
    Full {
        /// How many there are.
        entries: u32,
    },
    /// A live allocation of the same worker covers some of it: one of the two records is wrong.
    #[error("{bytes} bytes at {held} are recorded as live there; a free was not reported")]
    Overlap {
        /// The other allocation.
        held: DevicePtr,
        /// How long that is.
        bytes: u64,
    },
    /// The ticket was used, dropped, or is older than what the entry holds.
    #[error("the ticket is spent: entry {entry} is past generation {generation}")]
    Spent {
        /// The entry.
        entry: u32,
        /// The generation that the ticket is for.
        generation: u32,
    },
    /// Its end is outside of the 64-bit address space.
    #[error("it ends outside of any address space")]
    Overflow,
    /// That life of the worker is over.
    #[error("that worker ended, and its memory with it")]
    WorkerLost,
}

/// A free that did not happen.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum FreeError<E: std::error::Error + 'static> {
    /// The native free failed after the memory was revoked: a leak for as long as the worker lives.
    #[error("free {bytes} bytes at {ptr}: the device refused, so they stay allocated and unusable")]
    Leaked {
        /// What was to be freed.
        ptr: DevicePtr,
        /// How much it was.
        bytes: u64,
        /// What the device said.
        #[source]
        source: E,
    },
    /// Nothing happened.
    #[error(transparent)]
    Refused(#[from] Refused),
}
