//! Capture and replay: a body that submits tasks becomes a definition, which is submitted as one task.
//!
//! A [`Recorder`] takes the submits of a body instead of a scheduler and infers the same edges. What it
//! yields, a [`Definition`], is plain data without an address in it: every argument is a boundary
//! tensor, a view of one, or intermediate memory at an offset. [`Definition::bind`] compares new
//! arguments with the boundary contract; what it returns is submitted by
//! [`Scheduler::submit_graph`](crate::Scheduler::submit_graph) for the cost of its boundary.
//!
//! ```
//! use std::num::NonZeroU32;
//! use std::sync::Arc;
//! use taskgraph::capture::{NodeSpec, Recorder};
//! use taskgraph::*;
//!
//! let tensor = |id| {
//!     let buffer = BufferId::new(1, id, 0, BufferKind::Shared);
//!     Tensor::contiguous(buffer, DType::F32, &[64], 256).unwrap()
//! };
//! let boundary = |x, y| {
//!     let mut args = TaskArgs::new();
//!     args.tensor(tensor(x), Tag::Input).unwrap().tensor(tensor(y), Tag::Output).unwrap();
//!     args
//! };
//! let mut graph = Scheduler::default();
//! let chip = graph.add_worker(WorkerKind::NextLevel, Depth::One)?;
//!
//! // y = g(f(x)), recorded once.
//! let first = boundary(0, 1);
//! let mut recorder = Recorder::new(NonZeroU32::MIN, &first, &[])?;
//! let between = recorder.alloc(DType::F32, &[64])?;
//! let (mut f, mut g) = (TaskArgs::new(), TaskArgs::new());
//! f.tensor(tensor(0), Tag::Input)?.tensor(between, Tag::Output)?;
//! g.tensor(between, Tag::Input)?.tensor(tensor(1), Tag::Output)?;
//! for (callable, args) in [(0, &f), (1, &g)] {
//!     recorder.submit(&NodeSpec::new(callable, Placement::On(chip), &[args]))?;
//! }
//! let definition = Arc::new(recorder.finish()?);
//!
//! // Replayed with other buffers: one task for the graph, two for the worker.
//! let second = boundary(7, 8);
//! let memory = Tensor::contiguous(BufferId::new(1, 99, 0, BufferKind::Shared), DType::U8, &[256], 256)?;
//! let run = graph.begin_run();
//! let outer = graph.submit_graph(run, &definition.bind(&second, &[])?.heap(&memory)?)?;
//! graph.seal(run)?;
//! let dispatch = graph.next_dispatch().unwrap();
//! assert_eq!(graph.node_of(dispatch.task), Some((outer, 0)));
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```

mod args;
mod boundary;
mod cache;
mod check;
mod definition;
mod file;
#[cfg(any(test, fuzzing))]
pub mod fuzzing;
mod hash;
mod layout;
mod record;
mod refusal;
pub(crate) mod scalar;
mod sources;

pub use args::{ArgSource, Bindings, NodeArg, ResolveError, ScalarSource};
pub use boundary::{BindError, Binding, Mismatch, MismatchKind};
pub use cache::{Cache, CacheCounters, CacheLimits, Cached, Lookup};
pub use check::DecodeError;
pub(crate) use definition::Targets;
pub use definition::{Definition, NodeRef, Predicate};
pub use file::{FileError, decode_file, encode_file};
pub(crate) use layout::DATA;
pub use layout::SCHEMA;
pub use record::{NodeSpec, Recorder};
pub use refusal::NotRecordable;
pub use scalar::{BoundaryScalar, IntoScalar};

#[cfg(test)]
mod tests;
