//! What an orchestration function builds a run with: core tasks over tensors, graphs of them, and
//! intermediate device memory.

use std::fmt;
use std::num::NonZeroU32;
use std::panic::Location;

use taskgraph::{DType, TaskId};

use crate::args::{CoreArgs, DeviceTensor};
use crate::callable::ChipCallable;
use crate::error::OrchestrationError;
use crate::graph::{ChipGraphArgs, GraphBody, GraphCall};

/// What a backend does for an orchestration that runs on it.
pub(crate) trait RunBuilder {
    /// Adds a task; `kernel_idx` is one of the callable's.
    fn submit(
        &mut self,
        kernel_idx: usize,
        args: &CoreArgs<'_>,
    ) -> Result<CoreTaskId, OrchestrationError>;

    /// Allocates memory for a contiguous tensor that is freed when the run is finalized.
    fn alloc(&mut self, dtype: DType, shape: &[u64]) -> Result<DeviceTensor, OrchestrationError>;

    /// Submits a graph as one task, or says that its body has to be called instead.
    fn graph(
        &mut self,
        _call: &GraphCall<'_>,
        _args: &CoreArgs<'_>,
    ) -> Result<Submitted, OrchestrationError> {
        Ok(Submitted::No)
    }
}

/// Whether a graph was submitted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[must_use]
pub(crate) enum Submitted {
    Yes,
    No,
}

/// A core task of the run being built, for explicit ordering.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct CoreTaskId(pub(crate) Numbered);

/// What a task is known by.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Numbered {
    /// A task of a run.
    Task(TaskId),
    /// A node of a recording, by the number of both.
    Node { recording: NonZeroU32, node: u32 },
}

/// Builds the core tasks of one run, in program order; edges are inferred from what they read and
/// write.
///
/// Tasks may begin while the orchestration function still submits. After its error no further task
/// begins.
pub struct ChipOrchestrator<'run> {
    callable: &'static ChipCallable,
    builder: &'run mut dyn RunBuilder,
}

impl<'run> ChipOrchestrator<'run> {
    pub(crate) fn new(callable: &'static ChipCallable, builder: &'run mut dyn RunBuilder) -> Self {
        Self { callable, builder }
    }

    /// Submits a kernel of the callable by name.
    ///
    /// # Errors
    /// [`OrchestrationError::UnknownKernel`]; [`OrchestrationError::Memory`] if a tensor does not
    /// lie inside live memory of this chip; [`OrchestrationError::Task`] if the graph refuses the
    /// task. Nothing is submitted then.
    pub fn submit(
        &mut self,
        kernel: &str,
        args: CoreArgs<'_>,
    ) -> Result<CoreTaskId, OrchestrationError> {
        let kernel_idx = self.callable.kernel_idx(kernel).ok_or_else(|| {
            let known = self
                .callable
                .kernels
                .iter()
                .map(|kernel| kernel.name)
                .collect();
            OrchestrationError::UnknownKernel {
                kernel: kernel.to_owned(),
                known,
            }
        })?;
        self.submit_idx(kernel_idx, args)
    }

    /// Submits a kernel by its position in [`ChipCallable::kernels`]; saves the look-up by name.
    ///
    /// # Errors
    /// Those of [`ChipOrchestrator::submit`].
    pub fn submit_idx(
        &mut self,
        kernel_idx: usize,
        args: CoreArgs<'_>,
    ) -> Result<CoreTaskId, OrchestrationError> {
        if kernel_idx >= self.callable.kernels.len() {
            return Err(self.unknown(format!("number {kernel_idx}")));
        }
        check_writes(self.callable.kernels[kernel_idx].name, &args)?;
        self.builder.submit(kernel_idx, &args)
    }

    /// Device memory for a contiguous tensor with unspecified contents, freed after the run.
    ///
    /// # Errors
    /// [`OrchestrationError::Tensor`] for a shape that is no tensor, [`OrchestrationError::Memory`]
    /// if it does not fit.
    pub fn alloc(
        &mut self,
        dtype: DType,
        shape: &[u64],
    ) -> Result<DeviceTensor, OrchestrationError> {
        self.builder.alloc(dtype, shape)
    }

    /// Device memory for a contiguous tensor of the same shape and element type.
    ///
    /// # Errors
    /// Those of [`ChipOrchestrator::alloc`].
    pub fn alloc_like(
        &mut self,
        tensor: &DeviceTensor,
    ) -> Result<DeviceTensor, OrchestrationError> {
        self.alloc(tensor.view.dtype(), tensor.view.shape())
    }

    /// Submits what `body` submits: recorded at the first call, and from then on as *one* task, which
    /// costs its arguments and not its nodes.
    ///
    /// The key of a recording is `body` together with `params`: numbers that shape the graph, and that
    /// `body` reads with [`ChipGraphArgs::param`]. `body` is a function, so nothing can be captured in it and
    /// frozen; whatever else it needs are tensors and scalars of `args`. Addresses and values of scalars
    /// may differ from call to call. Number, shapes, strides, types and tags of the tensors, which bytes
    /// they share, and the types of the scalars may not: a call that differs there is built task by task,
    /// as is a body that cannot be recorded. [`RunReport::graphs`](crate::RunReport::graphs) counts how
    /// often each was the case.
    ///
    /// To the rest of the run the graph is a task that reads and writes its tensors as they are tagged.
    /// What is tagged as output is written whole by the tasks of `body`; what is not, is an inout.
    /// A graph inside of a graph becomes part of it.
    ///
    /// ```
    /// use device::{ChipArgs, ChipOrchestrator, ChipGraphArgs, OrchestrationError, core_args};
    ///
    /// fn orchestration(orch: &mut ChipOrchestrator<'_>, args: &ChipArgs) -> Result<(), OrchestrationError> {
    ///     let x = args.tensor(0)?;
    ///     for layer in 1..41 {
    ///         let weights = args.tensor(layer)?;
    ///         orch.graph(layer_body, &[], core_args().inout(x).input(weights))?;
    ///     }
    ///     Ok(())
    /// }
    ///
    /// fn layer_body(orch: &mut ChipOrchestrator<'_>, args: &ChipGraphArgs) -> Result<(), OrchestrationError> {
    ///     let (x, weights) = (args.tensor(0)?, args.tensor(1)?);
    ///     let y = orch.alloc_like(x)?;
    ///     orch.submit("multiply", core_args().input(x).input(weights).output(&y))?;
    ///     orch.submit("add", core_args().input(&y).inout(x))?;
    ///     Ok(())
    /// }
    /// ```
    ///
    /// # Errors
    /// What `body` returned; nothing was submitted then, if it was being recorded.
    /// [`OrchestrationError::Refused`] if `args` has blocks or a predicate;
    /// [`OrchestrationError::Memory`] if a tensor is not in live memory of this chip or the intermediate
    /// memory does not fit.
    #[track_caller]
    pub fn graph(
        &mut self,
        body: GraphBody,
        params: &[u64],
        args: CoreArgs<'_>,
    ) -> Result<(), OrchestrationError> {
        args.refuse_for_graph()?;
        let callable = self.callable;
        check_writes(callable.name, &args)?;
        let call = GraphCall {
            callable,
            body,
            params,
            place: Location::caller(),
        };
        match self.builder.graph(&call, &args)? {
            Submitted::Yes => Ok(()),
            Submitted::No => body(self, &ChipGraphArgs::eager(params, &args)),
        }
    }

    /// Submits what `body` submits, task by task: what [`ChipOrchestrator::graph`] does where it cannot
    /// replay. The result is the same, for the cost of all tasks.
    ///
    /// # Errors
    /// What `body` returned; [`OrchestrationError::Refused`] if `args` has blocks or a predicate.
    pub fn call(
        &mut self,
        body: GraphBody,
        params: &[u64],
        args: CoreArgs<'_>,
    ) -> Result<(), OrchestrationError> {
        args.refuse_for_graph()?;
        body(self, &ChipGraphArgs::eager(params, &args))
    }

    fn unknown(&self, kernel: String) -> OrchestrationError {
        let known = self
            .callable
            .kernels
            .iter()
            .map(|kernel| kernel.name)
            .collect();
        OrchestrationError::UnknownKernel { kernel, known }
    }
}

/// Refuses a task that would write what the run may only read: nobody ordered it after the other readers, and where the
/// tensor is a copy, the result would go nowhere.
fn check_writes(task: &'static str, args: &CoreArgs<'_>) -> Result<(), OrchestrationError> {
    let mut tensors = args.tensors.iter();
    match tensors.position(|(tensor, tag)| tensor.is_read_only && tag.writes()) {
        None => Ok(()),
        Some(idx) => Err(OrchestrationError::ReadOnly { task, idx }),
    }
}

impl fmt::Debug for ChipOrchestrator<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ChipOrchestrator")
            .field("callable", &self.callable.name)
            .finish_non_exhaustive()
    }
}
