//! What an orchestration function builds a run with: core tasks over tensors, and intermediate
//! device memory.

use std::fmt;

use taskgraph::{DType, TaskId};

use crate::args::{CoreArgs, DeviceTensor};
use crate::callable::ChipCallable;
use crate::chip::DeviceAddress;
use crate::error::{DeviceError, OrchestrationError};

/// What a backend does for an orchestration that runs on it.
pub(crate) trait RunBuilder {
    /// Adds a task; `kernel_idx` is one of the callable's.
    fn submit(
        &mut self,
        kernel_idx: usize,
        args: &CoreArgs<'_>,
    ) -> Result<TaskId, OrchestrationError>;

    /// Allocates memory that is freed when the run is finalized.
    fn alloc(&mut self, bytes: u64) -> Result<DeviceAddress, DeviceError>;
}

/// A core task of the run being built, for explicit ordering.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct CoreTaskId(pub(crate) TaskId);

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
        self.builder.submit(kernel_idx, &args).map(CoreTaskId)
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
        let bytes = DeviceTensor::contiguous(DeviceAddress(0), dtype, shape)?
            .view
            .backing_bytes();
        let address = self.builder.alloc(bytes)?;
        DeviceTensor::contiguous(address, dtype, shape)
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

impl fmt::Debug for ChipOrchestrator<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ChipOrchestrator")
            .field("callable", &self.callable.name)
            .finish_non_exhaustive()
    }
}
