//! The errors of this crate: one type for chips, one for orchestrations, one for kernels.
//!
//! They read after "failed to …", name the chip, the object, what was expected and found, and what
//! to do. The cause of an error is its `source()` and is not repeated in its text.

use std::fmt;
use std::io;
use std::time::Duration;

use taskgraph::Scalar;
use thiserror::Error;

use crate::chip::{CallableSlot, DeviceAddress, MemoryReport, RunId};
use crate::compile::CompileError;
use crate::kernel::{CoreType, Lane};
use crate::library::LibraryError;
use crate::platform::Platform;
use crate::vendor::{MissingLibrary, VendorError, VisibleError};
use crate::window::WindowProblem;

/// What can go wrong with a chip.
#[derive(Debug, Error)]
#[non_exhaustive]
pub enum DeviceError {
    /// The host refused to reserve address space for a simulated chip.
    #[error(
        "reserve {bytes} bytes of address space for simulated chip {chip}; choose a smaller memory"
    )]
    Reserve {
        /// The chip's number.
        chip: u32,
        /// How much was asked for.
        bytes: u64,
        /// The host's answer.
        source: io::Error,
    },
    /// An allocation does not fit.
    #[error(
        "allocate {wanted_bytes} bytes on chip {chip}: {free} of {total} bytes are free, the largest block has {largest}",
        free = report.free_bytes,
        total = report.total_bytes,
        largest = report.largest_block_bytes
    )]
    OutOfMemory {
        /// The chip's number.
        chip: u32,
        /// How much was asked for.
        wanted_bytes: u64,
        /// How the memory is used.
        report: MemoryReport,
    },
    /// An address or range that is not what the operation needs. Nothing was done.
    #[error("{operation} {bytes} bytes at {address} on chip {chip}: {problem}")]
    Address {
        /// The operation that was refused.
        operation: &'static str,
        /// The chip's number.
        chip: u32,
        /// The address as given.
        address: DeviceAddress,
        /// Length of the range in bytes; 0 for a free.
        bytes: u64,
        /// What is wrong with it.
        problem: AddressProblem,
    },
    /// A tensor's address and offset do not fit in 64 bits.
    #[error("use a tensor of {bytes} bytes at {address}: it overflows the address space")]
    AddressOverflow {
        /// Address of the buffer.
        address: DeviceAddress,
        /// End of the view within the buffer.
        bytes: u64,
    },
    /// A window cannot be mapped. Nothing was done.
    #[error("map a window of {bytes} bytes on chip {chip}")]
    Window {
        /// The chip's number.
        chip: u32,
        /// Length of the window.
        bytes: u64,
        /// What is in the way.
        source: WindowProblem,
    },
    /// A chip was used in another process than the one that opened it.
    #[error(
        "use chip {chip} in process {here}: it was opened in process {opened_in}; open it after the fork"
    )]
    Forked {
        /// The chip's number.
        chip: u32,
        /// Process that opened the chip.
        opened_in: u32,
        /// Process that called.
        here: u32,
    },
    /// A parent touched a device before it forked this process.
    #[error(
        "open a chip in process {here}: process {touched_in} touched a device before it forked; open chips in children only"
    )]
    TouchedBeforeFork {
        /// Process of the first touch.
        touched_in: u32,
        /// Process that called.
        here: u32,
    },
    /// The callable cannot be registered.
    #[error("register callable `{callable}`: {problem}")]
    Callable {
        /// Name of the callable.
        callable: &'static str,
        /// What is wrong with it.
        problem: String,
    },
    /// A kernel of the callable cannot be compiled.
    #[error("register callable `{callable}`")]
    Compile {
        /// Name of the callable.
        callable: &'static str,
        /// What the compiler said.
        source: CompileError,
    },
    /// A library of the vendor is nowhere to be found.
    #[error(transparent)]
    Missing(Box<MissingLibrary>),
    /// The list of visible devices cannot be used, or does not have the device.
    #[error(transparent)]
    Visible(#[from] VisibleError),
    /// A call into the vendor's library was refused.
    #[error(transparent)]
    Vendor(#[from] VendorError),
    /// The machine does not have so many devices.
    #[error(
        "open device {device_id} of {platform}: this process sees {count} devices, numbered from 0"
    )]
    NoSuchDevice {
        /// The platform.
        platform: Platform,
        /// The number asked for.
        device_id: u32,
        /// How many there are.
        count: u32,
    },
    /// A run took too long. The chip is unusable until a probe passes.
    #[error(
        "execute `{callable}` on chip {chip}: no end after {limit:?}; the chip is unusable until a probe passes"
    )]
    RunTimeout {
        /// The chip's number.
        chip: u32,
        /// Name of the callable.
        callable: &'static str,
        /// The time limit.
        limit: Duration,
    },
    /// A library cannot be used.
    #[error(transparent)]
    Library(#[from] LibraryError),
    /// A slot that this chip did not hand out.
    #[error("find callable slot {slot} on chip {chip}, which has {known} callables")]
    UnknownCallable {
        /// The chip's number.
        chip: u32,
        /// The slot as given.
        slot: CallableSlot,
        /// How many callables are registered.
        known: usize,
    },
    /// A run id that this chip did not hand out, or that was finalized.
    #[error("{operation} run {run} on chip {chip}: no such run, or it was finalized")]
    UnknownRun {
        /// The operation that was refused.
        operation: &'static str,
        /// The chip's number.
        chip: u32,
        /// The run as given.
        run: RunId,
    },
    /// The run exists, in another state than the operation needs.
    #[error("{operation} run {run} on chip {chip}: it is {state}")]
    RunState {
        /// The operation that was refused.
        operation: &'static str,
        /// The chip's number.
        chip: u32,
        /// The run.
        run: RunId,
        /// Its state.
        state: &'static str,
    },
    /// No place for another prepared run.
    #[error(
        "prepare a run on chip {chip}: {max} runs are prepared already; launch or finalize one"
    )]
    TooManyPrepared {
        /// The chip's number.
        chip: u32,
        /// How many may be prepared.
        max: usize,
    },
    /// The orchestration of a run failed; no task of it was left running.
    #[error("orchestrate `{callable}` on chip {chip}")]
    Orchestration {
        /// The chip's number.
        chip: u32,
        /// Name of the callable.
        callable: &'static str,
        /// What it reported.
        source: OrchestrationError,
    },
    /// A core task failed. The chip stays usable.
    #[error("execute {task} of `{callable}` on chip {chip}")]
    Kernel {
        /// The chip's number.
        chip: u32,
        /// Name of the callable.
        callable: &'static str,
        /// The task and the core it ran on.
        task: TaskPlace,
        /// What the kernel reported.
        source: KernelError,
    },
    /// The hardware reported a fault in a core task. The chip is unusable until a probe passes.
    #[error(
        "execute {task} of `{callable}` on chip {chip}: hardware fault; the chip is unusable until a probe passes"
    )]
    Fault {
        /// The chip's number.
        chip: u32,
        /// Name of the callable.
        callable: &'static str,
        /// The task and the core it ran on.
        task: TaskPlace,
    },
    /// A core task did not end in time. The chip is unusable until a probe passes.
    #[error(
        "execute {task} of `{callable}` on chip {chip}: no end after {limit:?}; the chip is unusable until a probe passes"
    )]
    Timeout {
        /// The chip's number.
        chip: u32,
        /// Name of the callable.
        callable: &'static str,
        /// The task and the core it ran on.
        task: TaskPlace,
        /// The operation time limit.
        limit: Duration,
    },
    /// Tasks of a run are left that can never begin: a fault of the simulated chip, not of the run. What
    /// the run should have written is not there.
    #[error(
        "execute `{callable}` on chip {chip}: {tasks} tasks are left that wait for nothing that could end; please report this"
    )]
    Stalled {
        /// The chip's number.
        chip: u32,
        /// Name of the callable.
        callable: &'static str,
        /// How many tasks are left.
        tasks: usize,
    },
    /// The chip refuses work because of an earlier fault.
    #[error(
        "{operation} on chip {chip}: it is unusable since an earlier fault ({cause}); probe it, or use another chip"
    )]
    Unusable {
        /// The operation that was refused.
        operation: &'static str,
        /// The chip's number.
        chip: u32,
        /// The fault that made it so.
        cause: String,
    },
    /// The chip was reset because of a fault, and what was on it is gone, the run too.
    #[error(
        "finish run {run} on chip {chip}: the chip was reset after a fault ({cause}), and the run is gone with what was on it; prepare it again"
    )]
    Reset {
        /// The chip's number.
        chip: u32,
        /// The run.
        run: RunId,
        /// The fault.
        cause: String,
    },
    /// A run on the device names the memory. Nothing was freed.
    #[error("free {address} on chip {chip}: run {run} uses it; finalize the run first")]
    InUse {
        /// The chip's number.
        chip: u32,
        /// The allocation.
        address: DeviceAddress,
        /// The run.
        run: RunId,
    },
    /// The device refused to free; the memory is lost until the chip is closed.
    #[error(
        "free {address} on chip {chip}: the device refused; the memory is leaked until the chip is closed"
    )]
    FreeFailed {
        /// The chip's number.
        chip: u32,
        /// The allocation.
        address: DeviceAddress,
    },
    /// The memory test found other bytes than it wrote.
    #[error("probe chip {chip}: the memory at {address} does not hold what was written")]
    ProbeMismatch {
        /// The chip's number.
        chip: u32,
        /// Where.
        address: DeviceAddress,
    },
    /// The chip was closed.
    #[error("{operation} on chip {chip}: it is closed")]
    Closed {
        /// The operation that was refused.
        operation: &'static str,
        /// The chip's number.
        chip: u32,
    },
}

impl DeviceError {
    /// Whether the chip is not to be used after it, until a probe passes or at all: a fault of the hardware, a task or a
    /// run that did not end in time, memory that does not hold what was written, or the refusal that follows on one of
    /// these. Other chips are not affected.
    #[must_use]
    pub fn is_device_fault(&self) -> bool {
        match self {
            Self::Fault { .. }
            | Self::Timeout { .. }
            | Self::RunTimeout { .. }
            | Self::Unusable { .. }
            | Self::ProbeMismatch { .. } => true,
            Self::Vendor(refused) => refused.is_device_fault(),
            _ => false,
        }
    }

    /// Whether it is the failure of what was submitted, as opposed to a refusal of what was asked.
    pub(crate) fn is_of_a_task(&self) -> bool {
        matches!(
            self,
            Self::Kernel { .. } | Self::Fault { .. } | Self::Timeout { .. } | Self::Stalled { .. }
        )
    }
}

/// What is wrong with a device address.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
#[non_exhaustive]
pub enum AddressProblem {
    /// No live allocation there.
    #[error("no live allocation there (freed, or of another chip?)")]
    NotAllocated,
    /// Inside an allocation where its base is needed.
    #[error(
        "it lies inside the allocation {base:#x} of {bytes} bytes, and only a base can be freed"
    )]
    NotBase {
        /// Base of the allocation.
        base: u64,
        /// Its size.
        bytes: u64,
    },
    /// The range runs over the end.
    #[error("it runs past the end of the allocation {base:#x} of {bytes} bytes")]
    PastEnd {
        /// Base of the allocation.
        base: u64,
        /// Its size.
        bytes: u64,
    },
    /// A window, where an allocation is needed.
    #[error("it is a window, which is unmapped, not freed")]
    Window,
    /// No window begins there.
    #[error("no window begins there")]
    NotWindow,
    /// The range wraps round the address space.
    #[error("the range overflows the address space")]
    Overflow,
}

/// Names a core task: the kernel, its number in the run, the block and the core.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TaskPlace {
    /// Name of the kernel.
    pub kernel: &'static str,
    /// Position of the task in the order of submission, from 0.
    pub task: u64,
    /// Block of the task, from 0.
    pub block: u32,
    /// Type of the core it ran on.
    pub core: CoreType,
    /// Number of the core among those of its type.
    pub core_idx: u16,
}

impl fmt::Display for TaskPlace {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self {
            kernel,
            task,
            block,
            core,
            core_idx,
        } = self;
        write!(
            f,
            "task {task} (kernel `{kernel}`, block {block}, {core} core {core_idx})"
        )
    }
}

/// Why an orchestration could not build its tasks.
#[derive(Debug, Error)]
#[non_exhaustive]
pub enum OrchestrationError {
    /// No argument of this kind at this position.
    #[error("use {kind} argument {idx} of {count}")]
    NoArgument {
        /// `tensor` or `scalar`.
        kind: &'static str,
        /// Position asked for.
        idx: usize,
        /// How many there are.
        count: usize,
    },
    /// The callable has no such kernel.
    #[error("submit kernel `{kernel}`: the callable has {known:?}")]
    UnknownKernel {
        /// Name asked for.
        kernel: String,
        /// The names it has.
        known: Vec<&'static str>,
    },
    /// The task itself is not acceptable.
    #[error("submit kernel `{kernel}`: {problem}")]
    Task {
        /// Name of the kernel.
        kernel: &'static str,
        /// What is wrong.
        problem: String,
    },
    /// The task would write what the run was given for reading.
    #[error(
        "submit `{task}`: it writes its tensor {idx}, which lies in an argument that the run names as an input; name that as an output or as in-out"
    )]
    ReadOnly {
        /// Name of the kernel, or of the callable of a graph.
        task: &'static str,
        /// Position among the tensors of the task.
        idx: usize,
    },
    /// A view could not be made, or the graph refused the task.
    #[error("use a tensor")]
    Tensor(#[from] taskgraph::TensorError),
    /// Device memory is missing.
    #[error("use device memory")]
    Memory(#[source] Box<DeviceError>),
    /// The orchestration's own words.
    #[error("{0}")]
    Refused(String),
    /// A task of the run failed already, so that it takes no more. The task's failure is the
    /// outcome of the run.
    #[error("submit to a run of which a task failed")]
    RunFailed,
    /// It panicked.
    #[error("finish: it panicked: {message}")]
    Panicked {
        /// The panic's message.
        message: String,
    },
}

impl OrchestrationError {
    /// An error in the orchestration's own words.
    #[must_use]
    pub fn refuse(message: impl Into<String>) -> Self {
        Self::Refused(message.into())
    }
}

impl From<DeviceError> for OrchestrationError {
    fn from(error: DeviceError) -> Self {
        Self::Memory(Box::new(error))
    }
}

/// Why a kernel failed.
#[derive(Debug, Error)]
#[non_exhaustive]
pub enum KernelError {
    /// No argument of this kind at this position.
    #[error("use {kind} argument {idx} of {count}")]
    NoArgument {
        /// `tensor` or `scalar`.
        kind: &'static str,
        /// Position asked for.
        idx: usize,
        /// How many there are.
        count: usize,
    },
    /// The argument exists and cannot be used so.
    #[error("use tensor argument {idx} as {wanted}: {problem}")]
    Argument {
        /// Position of the argument.
        idx: usize,
        /// How the kernel wanted it.
        wanted: &'static str,
        /// What stands in the way.
        problem: String,
    },
    /// The scalar was given as another type.
    #[error("use scalar argument {idx} as {wanted}: it is {found:?}")]
    Scalar {
        /// Position of the argument.
        idx: usize,
        /// The type that the kernel wanted.
        wanted: &'static str,
        /// The scalar as it was given.
        found: Scalar,
    },
    /// Bytes behind an output were overwritten.
    ///
    /// The simulator looks at the 64 bytes behind the allocation of each output of a compiled kernel. A write
    /// that jumps over them, or lands in front of the allocation or elsewhere in it, is not seen.
    #[error("stay inside tensor argument {idx}: bytes behind its allocation were overwritten")]
    StrayWrite {
        /// Position of the argument.
        idx: usize,
    },
    /// A core of the block waits for one that has ended.
    #[error("synchronize core {lane}: core {ended} of the block has ended")]
    Gang {
        /// The core that waited.
        lane: Lane,
        /// The core that ended first.
        ended: Lane,
    },
    /// The kernel's own words.
    #[error("{0}")]
    Failed(String),
    /// It panicked.
    #[error("finish: it panicked: {message}")]
    Panicked {
        /// The panic's message.
        message: String,
    },
    /// A compiled kernel returned a code other than 0.
    #[error("finish: it returned {code}")]
    Code {
        /// The code.
        code: i32,
    },
}

impl KernelError {
    /// An error in the kernel's own words.
    #[must_use]
    pub fn fail(message: impl Into<String>) -> Self {
        Self::Failed(message.into())
    }
}

/// The text of a panic's payload.
pub(crate) fn panic_message(payload: &(dyn std::any::Any + Send)) -> String {
    let text = payload
        .downcast_ref::<&str>()
        .map(|text| (*text).to_owned());
    text.or_else(|| payload.downcast_ref::<String>().cloned())
        .unwrap_or_else(|| "a value that is no text".to_owned())
}

#[cfg(test)]
mod tests;
