//! The host runtime for accelerator nodes.
//!
//! A program describes work as a graph of tasks over tensors; this crate keeps a tree of worker processes (one per chip,
//! and host-side helpers), infers the order from what each task reads and writes, sends each task to its worker through
//! shared memory, and takes the whole tree down cleanly, whatever dies first.
//!
//! ```standalone_crate
//! use facade::{Worker, args};
//!
//! fn main() -> Result<(), facade::Error> {
//!     let node = Worker::node().sub_workers(1).build()?;
//!     let double = node.register_fn("double", |args| {
//!         args.output::<u32>(0)?.iter_mut().for_each(|x| *x *= 2);
//!         Ok(())
//!     })?;
//!     node.init()?; // forks: the process must have one thread
//!     let x = node.buffer_from(&[1_u32, 2, 3])?;
//!     node.run(|orch| orch.submit_sub(&double, args().inout(&x)))?;
//!     assert_eq!(x.to_vec()?, [2, 4, 6]);
//!     node.close()
//! }
//! ```
//!
//! The examples show chips: `readme` in twenty lines, `vector_add` from end to end.
//!
//! # The parts
//!
//! - **A worker and its tree**: [`Worker`], [`WorkerBuilder`], [`StartMode`], [`Platform`], [`Level`], [`State`], [`TreeNode`].
//! - **What workers run**: [`ChipCallable`] with its [`Kernel`]s, host functions over [`Args`], orchestrations; each
//!   registered once and named by a [`Handle`].
//! - **Runs**: [`Orchestrator`] submits tasks with [`args`] to a [`Target`] ([`on`], [`any`]); [`RunHandle`] waits and
//!   cancels; [`RunGraph`] shows what followed what, and what took the time.
//! - **Graphs**: [`Orchestrator::graph`] records a body once and submits it as one task; [`GraphArgs`], [`GraphStats`].
//! - **What it does**: [`Worker::stats`], [`Worker::observe`] and [`Worker::take_trace`]; what workers log reaches your
//!   own `tracing` subscriber.
//! - **Data**: [`Buffer`] and its [`View`]s are shared by every process (arrays of any strides with the feature `ndarray`), a
//!   [`Fresh`] tensor comes with its task, [`DeviceBuffer`] lives on one chip over any number of runs, a [`Domain`] is shared
//!   by several chips; [`MemoryReport`] says how much there is.
//! - **What goes wrong**: [`Error`], with the first cause, the worker's path, and the exact end of a process.
//!
//! # What it promises
//!
//! - [`Worker::init`]: the whole tree is ready, or an error comes back and nothing is left.
//! - Whatever is killed, at any instant: no process of the tree and no shared memory stays behind.
//! - A failed or panicking task is a typed error that names task, worker and message; the worker goes on.
//! - Tasks that conflict run in the order of their submission; tasks that provably do not, at once.
//! - A device pointer that is stale or foreign is refused before any device call.
//!
//! # What it refuses to do
//!
//! It does not fork a process with several threads, and does not carry captured values into a spawned one. It moves
//! no data between machines. It never touches a device in the process that calls it.
#![deny(unsafe_code)]

#[cfg(doctest)]
#[doc = include_str!("../README.md")]
struct Readme;

mod config;
mod ending;
mod outfit;
mod progress;
mod start;
mod started;
mod tree;
mod tree_plan;
mod worker;

mod agreement;
mod callable;
mod graph;
mod orchestrator;
mod run_graph;
mod run_handle;

mod args;
mod buffer;
mod collectives;
mod desk;
mod device_memory;
mod domain;
mod element;
mod fresh;
mod memory_report;
mod view;

mod child;
mod clock;
mod control;
mod engine;
mod incarnation;
mod logs;
mod observe;
mod remake;
mod wire;

pub mod activity;
pub mod cause;
mod error;
#[cfg(any(test, fuzzing))]
pub mod fuzzing;

pub use args::{ARGS_MAX, ArgList, ArgTensor, Args, AsTensor, Precedes, args};
pub use buffer::{Buffer, View};
pub use callable::{
    ChipHandle, FunctionHandle, Handle, NextLevel, OrchestrationHandle, TaskResult, kind,
};
pub use collectives::{AllReduce, Collectives, Reduce};
pub use config::{CHILDREN_MAX, Config, Level, StartMode, WorkerBuilder};
pub use control::{FaultKind, RemoteError};
pub use device_memory::DeviceBuffer;
pub use domain::{Domain, NamedBuffer, Symmetric, named};
pub use element::Element;
pub use error::{
    AgreeCause, ArgError, BufferError, CallableError, CloseError, ConfigError, DomainError, Error,
    GraphFileError, MemoryError, Name, RunError, StartCause, StartError, StateError, SubmitError,
    TaskCause, WorkerDied,
};
pub use fresh::{Fresh, fresh};
pub use graph::{GraphArgs, GraphHandle, GraphStats, How};
pub use memory_report::{ChipMemory, DeviceUsage, MemoryReport};
pub use observe::{Histogram, Observe, Stats, TaskTrace, Trace, WorkerLoad};
pub use orchestrator::{Orchestrator, Target, TaskHandle, any, on};
pub use progress::{StartPhase, StartProgress};
pub use run_graph::{KeptGraph, RunGraph};
pub use run_handle::{RunCanceller, RunHandle};
pub use tree::{Role, TreeNode};
#[cfg(feature = "ndarray")]
pub use view::array::{ArrayError, HostArray, HostArrayMut};
pub use view::{HostView, HostViewMut};
pub use worker::{Health, Worker};

pub use device::{
    AddressReuse, Arch, ChipArgs, ChipCallable, ChipGraphArgs, ChipOrchestrator, Condition,
    CoreArgs, CoreTaskId, CoreType, DeviceTensor, Digest, GraphBody, GraphCounts, Kernel,
    KernelBody, KernelContext, KernelError, KernelSource, Lane, OrchestrationError, Platform,
    ScalarValue, SimFault, TaskFault, core_args,
};
pub use device::{Artefact, CompileError, CompileOptions, KernelCompiler, Origin};
pub use half::{bf16, f16};
pub use lifecycle::State;
pub use procfork::{ExitCause, Resource, Settings};
pub use provenance::DevicePtr;
pub use taskgraph::capture::{
    BoundaryScalar, DecodeError, FileError, IntoScalar, Mismatch, MismatchKind, NotRecordable,
};
pub use taskgraph::{
    CriticalPath, DType, Failure, GraphEdge, GraphNode, GraphTarget, GraphView, Profile, Scalar,
    Tag, TaskEnd, TaskId, Tensor, WorkerId,
};
