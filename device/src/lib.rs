//! Chips behind one trait: a simulator, vendor libraries by dlopen, and a kernel compiler.
//!
//! A [`Chip`] has memory of its own, runs [`ChipCallable`]s, and belongs to the thread that opened
//! it. A callable is an *orchestration*, which submits core tasks over tensors, and the *kernels*
//! that run on the chip's cores. Which tasks wait for which is inferred from what they read and
//! write.
//!
//! ```
//! use device::{
//!     Arch, ChipArgs, ChipCallable, ChipOrchestrator, DeviceTensor, Kernel, KernelContext,
//!     KernelError, OpenOptions, OrchestrationError, Platform, core_args,
//! };
//! use taskgraph::DType;
//!
//! static ADD_ONE: ChipCallable =
//!     ChipCallable { name: "add_one", orchestration, kernels: &[Kernel::vector("add", add)] };
//!
//! fn orchestration(
//!     orch: &mut ChipOrchestrator<'_>,
//!     args: &ChipArgs,
//! ) -> Result<(), OrchestrationError> {
//!     let x = args.tensor(0)?;
//!     orch.submit("add", core_args().inout(x).scalar(1.0_f32))?;
//!     Ok(())
//! }
//!
//! fn add(cx: &mut KernelContext<'_>) -> Result<(), KernelError> {
//!     let by: f32 = cx.scalar(0)?;
//!     cx.output::<f32>(0)?.iter_mut().for_each(|x| *x += by);
//!     Ok(())
//! }
//!
//! # fn main() -> Result<(), Box<dyn std::error::Error>> {
//! let mut chip = device::open(Platform::Sim(Arch::A2a3), 0, &OpenOptions::default())?;
//! let slot = chip.register(&ADD_ONE)?;
//! let address = chip.malloc(16)?;
//! chip.copy_to(address, bytemuck::bytes_of(&[1.0_f32, 2.0, 3.0, 4.0]))?;
//!
//! let x = DeviceTensor::contiguous(address, DType::F32, &[4])?;
//! device::run(&mut *chip, slot, ChipArgs::new().with_tensor(x))?;
//!
//! let mut result = [0.0_f32; 4];
//! chip.copy_from(bytemuck::bytes_of_mut(&mut result), address)?;
//! assert_eq!(result, [2.0, 3.0, 4.0, 5.0]);
//! # Ok(())
//! # }
//! ```
//!
//! # The layers
//!
//! ```text
//!   open(platform, id) ---> Box<dyn Chip>            chip.rs      the trait, and who checks what
//!                             |        |
//!                        sim/ |        | vendor/     the simulator; a2a3 and a5 by dlopen
//!                             |        |
//!   ChipCallable -- orchestration --> core tasks     orchestrator.rs; edges and order: taskgraph
//!                -- graphs ---------> one task each  graph.rs; recorded once, replayed: taskgraph
//!                -- kernels --------> cores          kernel.rs, context.rs, compile/
//! ```
//!
//! # Guarantees
//!
//! - No address, range, slot or run id reaches a device unchecked; a wrong one is an error and
//!   changes nothing.
//! - A kernel that fails or panics gives an error that names task, kernel and core; the chip goes
//!   on.
//! - After a hardware fault or a timeout the chip refuses work until [`Chip::probe`] passes.
//! - A graph that is replayed leaves the same memory behind as its tasks one by one.
//! - An idle simulated chip has no thread and uses no processor time.
//!
//! # What it refuses to do
//!
//! - It never guesses whose pointer an address is: two chips hand out equal ones. That is
//!   `provenance`'s work.
//! - It never lets a chip leave its thread, or its process over a fork.
//! - It does not interrupt a Rust kernel that never returns; end the process from outside.

#![deny(unsafe_code)]

mod abi;
mod allocations;
mod args;
mod callable;
mod chip;
mod compile;
mod context;
mod error;
mod gang;
mod gate;
mod graph;
mod kernel;
mod library;
mod open;
mod orchestrator;
mod parallel;
mod platform;
mod predicate;
mod process;
mod runs;
mod sim;
mod strided;
mod trace;
mod vendor;
mod window;

pub use args::{ChipArgs, CoreArgs, DeviceTensor, ScalarValue, core_args};
pub use callable::{ChipCallable, Digest, Orchestration};
pub use chip::{
    CallableSlot, Chip, ChipInfo, DeviceAddress, MemoryReport, Progress, RunId, RunReport, run,
};
pub use compile::{Artefact, CompileError, CompileOptions, KernelCompiler, Origin};
pub use context::KernelContext;
pub use error::{AddressProblem, DeviceError, KernelError, OrchestrationError, TaskPlace};
pub use graph::{ChipGraphArgs, GraphBody, GraphCounts};
pub use kernel::{CoreType, Kernel, KernelBody, KernelFn, KernelSource, Lane};
pub use library::LibraryError;
pub use open::{OpenOptions, open};
pub use orchestrator::{ChipOrchestrator, CoreTaskId};
pub use platform::{Arch, CoreCounts, Platform, UnknownPlatform};
pub use predicate::Condition;
pub use process::touched_in;
pub use sim::{AddressReuse, SimFault, SimOptions, TaskFault};
pub use trace::{TraceEvent, TraceLane, trace_json};
pub use vendor::{MissingLibrary, VendorError, VendorOptions, VisibleError};
pub use window::{WINDOW_ALIGNMENT, Window, WindowProblem, WindowSide, window_stride};
