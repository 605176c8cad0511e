//! A simulated chip as the orchestration of one run sees it.

use smallvec::SmallVec;
use taskgraph::{DType, TaskArgs, TaskId};

use super::engine::Engine;
use super::graphs::{Graphs, Known};
use super::memory::DeviceMemory;
use crate::args::{CoreArgs, DeviceTensor};
use crate::chip::DeviceAddress;
use crate::error::{DeviceError, OrchestrationError};
use crate::graph::GraphCall;
use crate::orchestrator::{CoreTaskId, Numbered, RunBuilder, Submitted};

/// Builds a run.
pub(crate) struct Builder<'run> {
    pub(crate) engine: &'run mut Engine,
    pub(crate) memory: &'run mut DeviceMemory,
    pub(crate) graphs: &'run mut Graphs,
    /// What the run allocated, to be freed with it.
    pub(crate) allocated: &'run mut Vec<DeviceAddress>,
    /// The failure of a task that was executed to make room; the run's first cause.
    pub(crate) failure: Option<DeviceError>,
}

impl RunBuilder for Builder<'_> {
    fn submit(
        &mut self,
        kernel_idx: usize,
        args: &CoreArgs<'_>,
    ) -> Result<CoreTaskId, OrchestrationError> {
        self.refuse_after_failure()?;
        let after = tasks(&args.after)?;
        let submitted = self.engine.submit(kernel_idx, args, &after, self.memory);
        let task = self.noted(submitted)?;
        Ok(CoreTaskId(Numbered::Task(task)))
    }

    fn alloc(&mut self, dtype: DType, shape: &[u64]) -> Result<DeviceTensor, OrchestrationError> {
        let bytes = DeviceTensor::contiguous(DeviceAddress(0), dtype, shape)?
            .view
            .backing_bytes();
        let address = self.memory.malloc(bytes)?;
        self.allocated.push(address);
        DeviceTensor::contiguous(address, dtype, shape)
    }

    fn graph(
        &mut self,
        call: &GraphCall<'_>,
        args: &CoreArgs<'_>,
    ) -> Result<Submitted, OrchestrationError> {
        self.refuse_after_failure()?;
        let after = tasks(&args.after)?;
        let began = self.engine.tracer().now();
        let Some(boundary) = boundary(args, self.memory)? else {
            self.engine.graph_counts().refused += 1;
            return Ok(Submitted::No);
        };
        let pools = self.engine.pools();
        let known = self
            .graphs
            .find(call, args, &boundary, pools, self.memory)?;
        let (definition, is_new) = match known {
            Known::Definition { definition, is_new } => (definition, is_new),
            Known::Refused => {
                self.engine.graph_counts().refused += 1;
                return Ok(Submitted::No);
            }
        };
        let submitted =
            self.engine
                .submit_graph(&definition, boundary, &after, self.memory, self.allocated);
        if let Err(mismatch) = self.noted(submitted)? {
            self.engine.graph_counts().mismatched += 1;
            self.graphs.log_mismatch(call, &mismatch);
            return Ok(Submitted::No);
        }
        let counts = self.engine.graph_counts();
        let count = if is_new {
            &mut counts.recorded
        } else {
            &mut counts.replayed
        };
        *count += 1;
        self.engine.trace_graph_submit(began);
        Ok(Submitted::Yes)
    }
}

impl Builder<'_> {
    /// A run of which a task has failed takes no more.
    fn refuse_after_failure(&self) -> Result<(), OrchestrationError> {
        match self.failure {
            Some(_) => Err(OrchestrationError::RunFailed),
            None => Ok(()),
        }
    }

    /// Keeps the failure of a task that was executed meanwhile.
    fn noted<R>(&mut self, result: Result<R, OrchestrationError>) -> Result<R, OrchestrationError> {
        match result {
            Err(OrchestrationError::Memory(failure)) if failure.is_of_a_task() => {
                self.failure = Some(*failure);
                Err(OrchestrationError::RunFailed)
            }
            result => result,
        }
    }
}

/// The tasks of a run that these numbers name.
fn tasks(ids: &[CoreTaskId]) -> Result<SmallVec<[TaskId; 2]>, OrchestrationError> {
    let task = |id: &CoreTaskId| match id.0 {
        Numbered::Task(task) => Ok(task),
        Numbered::Node { .. } => {
            let problem = "submit after a task that is inside of a graph: the graph is one task; \
                           name a tensor that it writes";
            Err(OrchestrationError::refuse(problem))
        }
    };
    ids.iter().map(task).collect()
}

/// The arguments of a graph as the graph task names them: by allocation. `None` if a tensor is not
/// aligned in its allocation, so that a recording could not name it.
fn boundary(
    args: &CoreArgs<'_>,
    memory: &DeviceMemory,
) -> Result<Option<TaskArgs>, OrchestrationError> {
    let mut boundary = TaskArgs::new();
    for (idx, (tensor, tag)) in args.tensors.iter().enumerate() {
        let Some(tensor) = memory.allocations().tensor(tensor)? else {
            return Ok(None);
        };
        boundary.tensor(tensor, *tag).map_err(|error| {
            OrchestrationError::refuse(format!("submit a graph, tensor {idx}: {error}"))
        })?;
    }
    for scalar in &args.scalars {
        boundary.scalar(*scalar);
    }
    Ok(Some(boundary))
}
