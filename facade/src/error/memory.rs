//! Why shared buffers and device memory were refused.

use std::sync::Arc;

use taskgraph::{AllocError, BufferId, TensorError};

use super::{Name, WorkerDied};
use crate::control::RemoteError;
use crate::memory_report::DeviceUsage;

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
    /// The tensor was allocated while a graph was recorded.
    #[error(
        "use intermediate memory of a recorded graph outside of it: it exists in replays only; allocate it where it is used"
    )]
    Recorded,
    /// No task was submitted yet that brings the tensor into being.
    #[error(
        "use a fresh tensor: it has no memory yet; submit the task first that names it as its output"
    )]
    Unbacked,
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
    /// A view of it cannot be had as such an array.
    #[cfg(feature = "ndarray")]
    #[error("look at {buffer} as an array: {reason}")]
    Array {
        /// The buffer.
        buffer: BufferId,
        /// Why not.
        reason: super::ArrayError,
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
    /// There is no room for an intermediate tensor, and no end of a task would make any.
    #[error("make an intermediate tensor on worker `{worker}`: {reason} (`WorkerBuilder::heap`){}", named(blocker.as_ref()))]
    Intermediate {
        /// The worker whose graph it is.
        worker: String,
        /// What was wanted, what is free, and which scope is in the way.
        reason: AllocError,
        /// The task in the way, as its callable is called.
        blocker: Option<String>,
    },
    /// A worker was given it to read, and a task below would write it.
    #[error(
        "submit a task that writes {buffer}: this worker was given it for reading; name it as an output of this worker's own task"
    )]
    ReadOnly {
        /// The buffer.
        buffer: BufferId,
    },
    /// A function of a worker captured the handle of another process.
    #[error(
        "use {buffer} in a worker that captured it: only the process that created it can; name it as an argument of the task"
    )]
    Captured {
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

fn named(blocker: Option<&String>) -> String {
    blocker.map_or_else(String::new, |blocker| {
        format!("; {blocker} uses that block")
    })
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
    /// A window lives as long as its domain.
    #[error("free {ptr}: it is a window of a domain; release the domain")]
    Window {
        /// The pointer.
        ptr: provenance::DevicePtr,
    },
    /// The host would copy what an unfinished task reads or writes, in no order.
    #[error("{operation} {ptr}: the unfinished task `{task}` {how} it; wait for its run first")]
    InUse {
        /// `copy to` or `copy from`.
        operation: &'static str,
        /// The pointer.
        ptr: provenance::DevicePtr,
        /// Name of the task's callable.
        task: Name,
        /// `reads` or `writes`.
        how: &'static str,
    },
    /// Two copies of the host at once, of which one writes.
    #[error(
        "{operation} {ptr}: another thread does a {other} the same bytes just now; let one follow the other"
    )]
    CopyUnderWay {
        /// `copy to` or `copy from`.
        operation: &'static str,
        /// The pointer.
        ptr: provenance::DevicePtr,
        /// What the other does, likewise.
        other: &'static str,
    },
    /// The chip has not so much memory left.
    #[error(
        "allocate {wanted} bytes on `{worker}`: {free} of {total} bytes are free, the largest block has {largest}",
        free = usage.free_bytes,
        total = usage.total_bytes,
        largest = usage.largest_block_bytes
    )]
    OutOfMemory {
        /// The chip worker.
        worker: String,
        /// Bytes asked for.
        wanted: u64,
        /// How its memory is used.
        usage: Box<DeviceUsage>,
    },
    /// The view does not fit.
    #[error(transparent)]
    View(TensorError),
    /// The chip worker said no; its device may be broken.
    #[error("{0}")]
    Remote(RemoteError),
    /// The chip worker died.
    #[error("{operation}: {died}")]
    WorkerDied {
        /// What was attempted.
        operation: &'static str,
        /// How it ended.
        died: WorkerDied,
    },
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
