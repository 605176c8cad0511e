//! The body of a kernel as a simulated core executes it: a Rust function, or a function of a
//! compiled library.
//!
//! # Safety
//!
//! A compiled function is called through its address. That it has the signature of the header is
//! what including the header means; the version that the library reports is compared before the
//! first call. Nothing can check what C code does to memory: its task declares what it touches, and
//! a kernel that writes elsewhere corrupts the process, as it would corrupt a chip.

#![expect(
    unsafe_code,
    reason = "calls into compiled kernels, see the Safety section"
)]

use std::cell::Cell;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::ptr::NonNull;

use crate::abi::{KERNEL_ABI, TaskBlock};
use crate::callable::ChipCallable;
use crate::compile::KernelCompiler;
use crate::context::{KernelContext, Place};
use crate::error::{DeviceError, KernelError, panic_message};
use crate::gang::Gang;
use crate::kernel::{CoreType, Kernel, KernelBody, KernelFn, Lane};
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

    /// Whether a kernel can write where its task did not say: the compiler keeps Rust bodies from
    /// that.
    pub(crate) fn can_stray(&self, kernel_idx: usize) -> bool {
        matches!(self.bodies[kernel_idx], Body::Compiled(_))
    }

    /// Executes one block of a kernel, on all cores that it needs.
    pub(crate) fn execute(&self, kernel_idx: usize, place: Place<'_>) -> Result<(), KernelError> {
        let core = self.callable.kernels[kernel_idx].core;
        match (self.bodies[kernel_idx], core) {
            (Body::Rust(body), CoreType::Mix) => run_gang(|lane, gang| {
                let mut context = KernelContext::of_gang(place, lane, gang);
                caught(body, &mut context)
            }),
            (Body::Rust(body), _) => {
                let mut context = KernelContext::alone(place, Lane::single(core));
                caught(body, &mut context)
            }
            (Body::Compiled(body), CoreType::Mix) => {
                run_gang(|lane, gang| run_compiled(body, place, lane, Some(gang)))
            }
            (Body::Compiled(body), _) => run_compiled(body, place, Lane::single(core), None),
        }
    }
}

/// Calls a Rust body; a panic becomes an error.
fn caught(body: KernelFn, context: &mut KernelContext<'_>) -> Result<(), KernelError> {
    catch_unwind(AssertUnwindSafe(|| body(context))).unwrap_or_else(|payload| {
        Err(KernelError::Panicked {
            message: panic_message(&*payload),
        })
    })
}

/// Runs a body on the three cores of a MIX block at once: they may wait for each other, so each has
/// a thread of the host. The error is that of the first core which failed by itself.
fn run_gang(
    on_lane: impl Fn(Lane, &Gang) -> Result<(), KernelError> + Sync,
) -> Result<(), KernelError> {
    let gang = Gang::new();
    let run = |lane| {
        let ended = on_lane(lane, &gang);
        gang.end(lane);
        ended
    };
    let run = &run;
    let [aic, vectors @ ..] = Lane::MIX;
    let mut ended = std::thread::scope(|scope| {
        let vectors = vectors.map(|lane| {
            let started = std::thread::Builder::new().spawn_scoped(scope, move || run(lane));
            // Without this core the others would wait for ever.
            started.inspect_err(|_| gang.end(lane))
        });
        let mut ended = vec![run(aic)];
        ended.extend(vectors.map(|thread| match thread {
            Ok(thread) => thread.join().expect("panics of a body are caught"),
            Err(error) => Err(KernelError::fail(format!(
                "start a host thread for a core: {error}"
            ))),
        }));
        ended
    });
    let waited = |ended: &Result<(), KernelError>| matches!(ended, Err(KernelError::Gang { .. }));
    ended.sort_by_key(waited);
    ended.into_iter().collect()
}

/// Where a core of a compiled body sits among those of its block.
struct Seat<'g> {
    gang: Option<&'g Gang>,
    lane: Lane,
    /// Why it waited in vain, if it did.
    failed: Cell<Option<KernelError>>,
}

/// What `device_sync` calls: waits for the other cores of the block. 0, or 1 when one of them has ended.
///
/// # Safety
/// `seat` is the address of a [`Seat`] that lives through the call, and that only this thread uses.
unsafe extern "C" fn sync_seat(seat: u64) -> i32 {
    // SAFETY: the caller passes on what it was given in its task, which `run_compiled` filled.
    let seat = unsafe { &*std::ptr::with_exposed_provenance::<Seat<'_>>(seat as usize) };
    match seat.gang.map_or(Ok(()), |gang| gang.sync(seat.lane)) {
        Ok(()) => 0,
        Err(error) => {
            seat.failed.set(Some(error));
            1
        }
    }
}

/// Calls a compiled body.
fn run_compiled(
    body: CompiledFn,
    place: Place<'_>,
    lane: Lane,
    gang: Option<&Gang>,
) -> Result<(), KernelError> {
    let mut task = TaskBlock::default();
    let tensors = place
        .tensors
        .iter()
        .map(|it| (it.start.expose_provenance() as u64, it.view));
    task.fill(tensors, place.scalars, place.n_blocks);
    task.set_place(place.block, lane);
    let failed = Cell::new(None);
    let seat = Seat { gang, lane, failed };
    let sync: unsafe extern "C" fn(u64) -> i32 = sync_seat;
    let at = std::ptr::from_ref(&seat).expose_provenance() as u64;
    task.set_sync(sync as usize as u64, at);
    // SAFETY: the function has this signature (see the module's Safety section); `task` and `seat` live
    // through the call; the engine keeps the tensors' memory live, and runs nothing beside it that
    // touches what the task declared, but for the other cores of a MIX block, which the kernel orders.
    let code = unsafe { body(task.words().as_ptr()) };
    match (seat.failed.take(), code) {
        (Some(error), _) => Err(error),
        (None, 0) => Ok(()),
        (None, code) => Err(KernelError::Code { code }),
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
