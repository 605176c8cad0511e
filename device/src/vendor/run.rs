//! What a run on a card consists of: a callable with its kernels there, and the tasks that its
//! orchestration puts on the stream.

use std::path::PathBuf;

use taskgraph::{DType, TaskId};

use super::acl::{Acl, Handle, VendorError};
use crate::abi::TaskBlock;
use crate::allocations::Allocations;
use crate::args::{CoreArgs, DeviceTensor};
use crate::callable::ChipCallable;
use crate::chip::{DeviceAddress, RunReport};
use crate::compile::KernelCompiler;
use crate::error::{DeviceError, OrchestrationError};
use crate::kernel::{Kernel, KernelBody};
use crate::orchestrator::{CoreTaskId, Numbered, RunBuilder};
use crate::platform::Platform;

/// A callable with its kernels on the card.
pub(super) struct VendorCallable {
    pub(super) callable: &'static ChipCallable,
    pub(super) artefacts: Vec<PathBuf>,
    pub(super) functions: Vec<Handle>,
}

impl VendorCallable {
    pub(super) fn load(
        acl: Acl,
        callable: &'static ChipCallable,
        artefacts: Vec<PathBuf>,
    ) -> Result<Self, VendorError> {
        let kernels = artefacts.iter().zip(callable.kernels);
        let load = kernels.map(|(path, kernel)| acl.load_kernel(path, kernel.name));
        let functions = load.collect::<Result<_, _>>()?;
        Ok(Self {
            callable,
            artefacts,
            functions,
        })
    }
}

/// The compiled kernels of a callable, in their order.
pub(super) fn compile(
    callable: &'static ChipCallable,
    compiler: &KernelCompiler,
    platform: Platform,
) -> Result<Vec<PathBuf>, DeviceError> {
    let name = callable.name;
    let compile = |kernel: &'static Kernel| {
        if matches!(kernel.body, KernelBody::Rust(_)) {
            let kernel = kernel.name;
            let problem = format!(
                "kernel `{kernel}` is a Rust function, which runs on simulated cores only; \
                 {platform} needs sources"
            );
            return Err(DeviceError::Callable {
                callable: name,
                problem,
            });
        }
        let artefact = compiler.compile(kernel);
        let artefact = artefact.map_err(|source| DeviceError::Compile {
            callable: name,
            source,
        })?;
        Ok(artefact.path)
    };
    callable.kernels.iter().map(compile).collect()
}

/// The card as the orchestration of one run sees it.
pub(super) struct Builder<'run> {
    pub(super) acl: Acl,
    pub(super) stream: Handle,
    pub(super) loaded: &'run VendorCallable,
    pub(super) memory: &'run mut Allocations,
    pub(super) allocated: &'run mut Vec<DeviceAddress>,
    pub(super) report: RunReport,
    /// The first refusal of the card; the run's first cause.
    pub(super) fault: Option<VendorError>,
    pub(super) task: TaskBlock,
}

impl RunBuilder for Builder<'_> {
    fn submit(
        &mut self,
        kernel_idx: usize,
        args: &CoreArgs<'_>,
    ) -> Result<CoreTaskId, OrchestrationError> {
        if self.fault.is_some() {
            return Err(OrchestrationError::RunFailed);
        }
        let kernel = self.loaded.callable.kernels[kernel_idx].name;
        let n_blocks = args.block_count(kernel)?;
        if args.predicate.is_some() {
            let problem =
                "predicates are not built for this backend; branch in the kernel".to_owned();
            return Err(OrchestrationError::Task { kernel, problem });
        }
        let mut found = Vec::new();
        self.memory.find_all(kernel, args, &mut found)?;
        let tensors = found
            .iter()
            .zip(&args.tensors)
            .map(|(it, (tensor, _))| (it.first.0, tensor.view));
        self.task.fill(tensors, &args.scalars, n_blocks);
        // The first word receives the device address of the rest.
        let mut words = vec![0];
        words.extend_from_slice(self.task.words());
        let function = self.loaded.functions[kernel_idx];
        if let Err(fault) = self.acl.launch(function, n_blocks, self.stream, &mut words) {
            self.fault = Some(fault);
            return Err(OrchestrationError::RunFailed);
        }
        let slot = self.report.tasks as u32;
        self.report.tasks += 1;
        self.report.blocks += u64::from(n_blocks);
        Ok(CoreTaskId(Numbered::Task(TaskId {
            slot,
            generation: 0,
        })))
    }

    fn alloc(&mut self, dtype: DType, shape: &[u64]) -> Result<DeviceTensor, OrchestrationError> {
        let bytes = DeviceTensor::contiguous(DeviceAddress(0), dtype, shape)?
            .view
            .backing_bytes();
        let address = self.acl.malloc(bytes.max(1)).map_err(DeviceError::from)?;
        self.memory.record(address, bytes.max(1));
        self.allocated.push(DeviceAddress(address));
        DeviceTensor::contiguous(DeviceAddress(address), dtype, shape)
    }
}
