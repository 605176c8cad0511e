//! The body of a kernel as a simulated core executes it: a Rust function, or a function of a compiled library.
//!
//! # Safety
//!
//! A compiled function is called through its address. That it has the signature of the header is what including the
//! header means; the version that the library reports is compared before the first call. Nothing can check what C code
//! does to memory: its task declares what it touches, and a kernel that writes elsewhere corrupts the process, as it
//! would corrupt a chip.

#![expect(
    unsafe_code,
    reason = "calls into compiled kernels, see the Safety section"
)]

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::ptr::NonNull;

use taskgraph::Scalar;

use crate::abi::{KERNEL_ABI, TaskBlock};
use crate::callable::ChipCallable;
use crate::compile::KernelCompiler;
use crate::context::{CoreTensor, KernelContext};
use crate::error::{DeviceError, KernelError, panic_message};
use crate::kernel::{Kernel, KernelBody, KernelFn};
use crate::library::{LibraryError, Loaded};

/// A callable with bodies that can be executed.
#[derive(Debug)]
pub(crate) struct SimCallable {
    pub(crate) callable: &'static ChipCallable,
    bodies: Vec<Body>,
}

#[derive(Clone, Copy, Debug)]
enum Body {
    Rust(KernelFn),
    Compiled(CompiledFn),
}

/// `int32_t kernel(const device_task *)`.
type CompiledFn = unsafe extern "C" fn(*const u64) -> i32;

impl SimCallable {
    /// Compiles what has to be compiled, and loads it.
    pub(crate) fn load(
        callable: &'static ChipCallable,
        compiler: &KernelCompiler,
    ) -> Result<Self, DeviceError> {
        let load = |kernel| Body::load(callable, kernel, compiler);
        let bodies = callable
            .kernels
            .iter()
            .map(load)
            .collect::<Result<_, _>>()?;
        Ok(Self { callable, bodies })
    }

    /// Executes one block of a kernel.
    pub(crate) fn execute(
        &self,
        kernel_idx: usize,
        tensors: &[CoreTensor],
        scalars: &[Scalar],
        (block, n_blocks): (u32, u32),
    ) -> Result<(), KernelError> {
        match self.bodies[kernel_idx] {
            Body::Rust(body) => {
                let mut context = KernelContext::new(tensors, scalars, block, n_blocks);
                let ended = catch_unwind(AssertUnwindSafe(|| body(&mut context)));
                ended.unwrap_or_else(|payload| {
                    Err(KernelError::Panicked {
                        message: panic_message(&*payload),
                    })
                })
            }
            Body::Compiled(body) => {
                let mut task = TaskBlock::default();
                let tensors = tensors
                    .iter()
                    .map(|it| (it.start.expose_provenance() as u64, it.view));
                task.fill(tensors, scalars, n_blocks);
                task.set_block(block);
                // SAFETY: the function has this signature (see the module's Safety section); `task` lives
                // through the call; the engine keeps the tensors' memory live and unshared while it runs.
                match unsafe { body(task.words().as_ptr()) } {
                    0 => Ok(()),
                    code => Err(KernelError::Code { code }),
                }
            }
        }
    }
}

impl Body {
    fn load(
        callable: &'static ChipCallable,
        kernel: &'static Kernel,
        compiler: &KernelCompiler,
    ) -> Result<Self, DeviceError> {
        if let KernelBody::Rust(body) = kernel.body {
            return Ok(Body::Rust(body));
        }
        let artefact = compiler
            .compile(kernel)
            .map_err(|source| DeviceError::Compile {
                callable: callable.name,
                source,
            })?;
        let library = Loaded::open(&artefact.path).map_err(DeviceError::Library)?;
        check_version(&library)?;
        let entry = library.symbol(kernel.name).map_err(DeviceError::Library)?;
        // SAFETY: the kernel of this name has this signature, see the module's Safety section.
        let entry = unsafe { std::mem::transmute::<NonNull<()>, CompiledFn>(entry) };
        Ok(Body::Compiled(entry))
    }
}

/// Compares the version of the header that the library was compiled with.
fn check_version(library: &Loaded) -> Result<(), DeviceError> {
    let version = library
        .symbol("device_kernel_abi")
        .map_err(DeviceError::Library)?;
    // SAFETY: the header defines this symbol as a function without arguments that returns a u32.
    let version =
        unsafe { std::mem::transmute::<NonNull<()>, unsafe extern "C" fn() -> u32>(version) };
    // SAFETY: the function only returns a constant.
    let found = unsafe { version() };
    if found == KERNEL_ABI {
        return Ok(());
    }
    let path = library.path().to_owned();
    let wanted = KERNEL_ABI.to_string();
    Err(LibraryError::Version {
        path,
        wanted,
        found: found.to_string(),
    }
    .into())
}
