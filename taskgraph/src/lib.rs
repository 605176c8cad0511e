//! What depends on what, and what runs next: a task graph as a pure state machine.
//!
//! A program describes work as tasks over [`Tensor`]s. The [`Scheduler`] infers from what each task
//! reads and writes which tasks it must follow, and decides which ready task goes to which worker.
//! It owns no thread, clock or file: events go in, decisions come out, and equal events give equal
//! decisions.
//!
//! ```
//! use taskgraph::*;
//!
//! // a = f(); b = g(); c = a + b, on two workers.
//! let buffer = |id| BufferId::new(1, id, 0, BufferKind::Shared);
//! let tensor = |id| Tensor::contiguous(buffer(id), DType::F32, &[64], 256).unwrap();
//! let mut make_a = TaskArgs::new();
//! make_a.tensor(tensor(0), Tag::Output)?;
//! let mut make_b = TaskArgs::new();
//! make_b.tensor(tensor(1), Tag::Output)?;
//! let mut add = TaskArgs::new();
//! add.tensor(tensor(0), Tag::Input)?.tensor(tensor(1), Tag::Input)?.tensor(tensor(2), Tag::Output)?;
//!
//! let mut graph = Scheduler::default();
//! let w0 = graph.add_worker(WorkerKind::NextLevel, Depth::One)?;
//! let w1 = graph.add_worker(WorkerKind::NextLevel, Depth::One)?;
//! let run = graph.begin_run();
//! let a = graph.submit(run, &TaskSpec::new(Placement::On(w0)).args(&make_a))?;
//! let b = graph.submit(run, &TaskSpec::new(Placement::On(w1)).args(&make_b))?;
//! let c = graph.submit(run, &TaskSpec::new(Placement::On(w0)).args(&add))?;
//! graph.seal(run)?;
//!
//! let (first, second) = (graph.next_dispatch().unwrap(), graph.next_dispatch().unwrap());
//! assert_eq!((first.task, second.task), (a, b));
//! assert!(graph.next_dispatch().is_none()); // c follows both
//! graph.completed(first.dispatch, Outcome::Ok)?;
//! graph.completed(second.dispatch, Outcome::Ok)?;
//! let third = graph.next_dispatch().unwrap();
//! assert_eq!((third.task, third.worker), (c, w0));
//! graph.completed(third.dispatch, Outcome::Ok)?;
//! assert!(matches!(graph.run_status(run), Some(RunStatus::Done(outcome)) if outcome.is_ok()));
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```
//!
//! ```text
//! Tensor ──view──> Access ──┐
//!        TaskSpec ──────────┴─> Scheduler ──> Dispatch ──> (a worker executes)
//!                                  ^  │                          │
//!                                  │  └──> Effect                │
//!                                  └──────── completed ──────────┘
//! ```
//!
//! Guaranteed:
//! * no missing edge: two tasks that touch a common byte, one of them writing, run in the order of
//!   submission;
//! * no needless one: views that are provably disjoint get no edge, whatever their layout;
//! * every submitted task ends exactly once, and is reported exactly once;
//! * a task that needs what a failed task should have produced never runs, and names the root cause;
//! * memory is bounded by the live tasks, and a steady stream of tasks allocates nothing.
//!
//! Refused:
//! * views outside their backing, whatever wraps round;
//! * two arguments of one task that write the same byte;
//! * knowledge of addresses, payloads, errors, time: the caller keeps those under the handles.

#![forbid(unsafe_code)]

#[cfg(doctest)]
#[doc = include_str!("../README.md")]
struct Readme;

mod ids;

mod buffer;
mod dtype;

mod tensor;
mod view;

mod args;

mod heap;
mod infer;
mod slot;

mod schedule;

pub mod capture;

mod graph_view;

pub use args::{Access, ArgsError, Name, Scalar, ScalarArg, Tag, TaskArgs, TensorArg};
pub use buffer::{BufferId, BufferKind};
pub use dtype::{DType, Element};
pub use graph_view::{CriticalPath, GraphEdge, GraphNode, GraphTarget, GraphView, Profile};
pub use heap::{AllocError, BLOCK_ALIGN, RINGS, RingSpec};
pub use ids::{DispatchId, RunId, TaskId, WorkerId};
pub use schedule::{
    Depth, Dispatch, Effect, EventError, Failure, Inference, Limits, Outcome, Placement,
    RunOutcome, RunStatus, SCOPES_MAX, Scheduler, ScopeError, SubmitError, TaskEnd, TaskSpec,
    WORKERS_MAX, WorkerKind,
};
pub use slot::State;
pub use tensor::{BACKING_BYTES_MAX, RANK_MAX, RawTensor, Tensor, TensorError};
pub use view::{STEPS_MAX, View};
