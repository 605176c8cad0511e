//! Graphs as an orchestration sees them: a body, its arguments, and how often it was replayed.

use std::panic::Location;

use smallvec::SmallVec;
use taskgraph::capture::BoundaryScalar;

use crate::args::{CoreArgs, DeviceTensor};
use crate::callable::ChipCallable;
use crate::error::OrchestrationError;
use crate::orchestrator::ChipOrchestrator;

/// Builds the tasks of a graph. What it is given by `ChipGraphArgs`, and nothing else, may differ from call
/// to call.
pub type GraphBody =
    fn(&mut ChipOrchestrator<'_>, &ChipGraphArgs) -> Result<(), OrchestrationError>;

/// The arguments of a graph, as its body is given them.
///
/// While a body is recorded, its tensors are those of that call. A body names them and passes them on;
/// what it reads from their addresses would be true for that call only.
#[derive(Clone, Debug)]
pub struct ChipGraphArgs {
    tensors: SmallVec<[DeviceTensor; 8]>,
    scalars: SmallVec<[BoundaryScalar; 4]>,
    params: SmallVec<[u64; 4]>,
}

impl ChipGraphArgs {
    /// The arguments of a body whose tasks are submitted one by one, or become part of another graph.
    pub(crate) fn eager(params: &[u64], args: &CoreArgs<'_>) -> Self {
        let scalar = |at| args.boundary_scalar(at);
        Self::new(params, args, (0..args.scalars.len()).map(scalar).collect())
    }

    pub(crate) fn new(
        params: &[u64],
        args: &CoreArgs<'_>,
        scalars: SmallVec<[BoundaryScalar; 4]>,
    ) -> Self {
        Self {
            tensors: args.tensors.iter().map(|(tensor, _)| **tensor).collect(),
            scalars,
            params: SmallVec::from_slice(params),
        }
    }

    /// The tensor at a position.
    ///
    /// # Errors
    /// [`OrchestrationError::NoArgument`].
    pub fn tensor(&self, idx: usize) -> Result<&DeviceTensor, OrchestrationError> {
        nth("tensor", &self.tensors, idx)
    }

    /// The scalar at a position: to be given to a task, and nothing else. Its value differs from call to
    /// call, so there is no way to it; what is computed from it is one more scalar, or work for a kernel.
    ///
    /// ```compile_fail
    /// # use device::{ChipGraphArgs, OrchestrationError};
    /// # fn body(args: &ChipGraphArgs) -> Result<(), OrchestrationError> {
    /// if args.scalar(0)? > 2 {} // would be decided once and for all
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    /// [`OrchestrationError::NoArgument`].
    pub fn scalar(&self, idx: usize) -> Result<BoundaryScalar, OrchestrationError> {
        nth("scalar", &self.scalars, idx).copied()
    }

    /// The construction parameter at a position: part of the key, so a body may compute with it and branch
    /// on it.
    ///
    /// # Errors
    /// [`OrchestrationError::NoArgument`].
    pub fn param(&self, idx: usize) -> Result<u64, OrchestrationError> {
        nth("construction parameter", &self.params, idx).copied()
    }
}

fn nth<'a, T>(kind: &'static str, all: &'a [T], idx: usize) -> Result<&'a T, OrchestrationError> {
    let count = all.len();
    let missing = OrchestrationError::NoArgument { kind, idx, count };
    all.get(idx).ok_or(missing)
}

/// What names a recording.
#[derive(Clone, Copy, Debug)]
pub(crate) struct GraphCall<'a> {
    pub(crate) callable: &'static ChipCallable,
    pub(crate) body: GraphBody,
    pub(crate) params: &'a [u64],
    /// Where it is called.
    pub(crate) place: &'static Location<'static>,
}

/// How the graphs of a run were submitted.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct GraphCounts {
    /// As one task, from a recording of an earlier call.
    pub replayed: u64,
    /// As one task, recorded by this call.
    pub recorded: u64,
    /// Task by task, because the call differs from the recorded one where it may not.
    pub mismatched: u64,
    /// Task by task, because the body cannot be recorded.
    pub refused: u64,
}
