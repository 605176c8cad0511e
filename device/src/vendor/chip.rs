//! A chip of the vendor behind the trait.
//!
//! # A run
//!
//! The orchestration runs on the host, at the launch, and puts each task on one stream. The card
//! executes a stream in order, so every edge that the tasks could have is kept, and none has to be
//! found. A run is over when the stream is empty; runs that were launched one behind the other are
//! over together. That holds for a run whose orchestration failed as well: its first tasks may be
//! on the stream.
//!
//! # After a fault
//!
//! An error of the device, or a run that takes too long, makes the chip unusable at once: the mark
//! comes from the error itself, not from a later question, since a card with an error answers
//! "fine" to some. From then on:
//! - new work is refused without a call;
//! - close makes no call at all: on such a card each release can block for minutes, and the end of
//!   the process releases all the same;
//! - [`Chip::probe`] resets the card, at most [`RESETS_MAX`] times, and believes only in memory
//!   that it allocated, wrote, read and freed. What was on the card is gone then: addresses and
//!   registered kernels' handles with it, the kernels are loaded again; runs that were not over have
//!   failed.

use std::marker::PhantomData;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::time::{Duration, Instant};

use super::acl::{Acl, Hal, Handle, VendorError};
use super::options::VendorOptions;
use super::run::{Builder, VendorCallable, compile};
use super::search::SearchPath;
use super::visible::{LogicalId, VARIABLE, VisibleDevices};
use crate::abi::TaskBlock;
use crate::allocations::Allocations;
use crate::args::ChipArgs;
use crate::callable::ChipCallable;
use crate::chip::{
    CallableSlot, Chip, ChipInfo, DeviceAddress, MemoryReport, Progress, RunId, RunReport,
};
use crate::compile::KernelCompiler;
use crate::error::{AddressProblem, DeviceError, OrchestrationError, panic_message};
use crate::gate::Gate;
use crate::open::OpenOptions;
use crate::orchestrator::ChipOrchestrator;
use crate::platform::{CoreCounts, Platform};
use crate::process;
use crate::runs::{Phase, Runs, Slots};
use crate::trace::TraceEvent;
use crate::window::{Window, WindowProblem};

/// How often a probe resets a card at most.
const RESETS_MAX: u32 = 3;

/// What a probe writes and wants to read back.
const PROBE_PATTERN: [u8; 64] = [0x5A; 64];

/// One card.
pub(crate) struct VendorChip {
    info: ChipInfo,
    options: VendorOptions,
    gate: Gate,
    acl: Acl,
    stream: Handle,
    memory: Allocations,
    compiler: KernelCompiler,
    callables: Slots<VendorCallable>,
    runs: Runs<VendorCallable, OnCard>,
    /// The library binds contexts to threads.
    not_send: PhantomData<*const ()>,
}

/// A launched run.
#[derive(Debug)]
struct OnCard {
    since: Instant,
    /// What comes of it when the stream is empty.
    outcome: Result<RunReport, DeviceError>,
}

impl OnCard {
    /// The outcome, to be asked for once.
    fn end(&mut self) -> Result<RunReport, DeviceError> {
        std::mem::replace(&mut self.outcome, Ok(RunReport::default()))
    }
}

impl VendorChip {
    /// Opens a card, from what costs nothing to what touches it; a card that fails its first test
    /// is not opened.
    pub(crate) fn open(
        platform: Platform,
        device_id: u32,
        options: &OpenOptions,
    ) -> Result<Self, DeviceError> {
        let vendor = options.vendor.clone();
        let logical = LogicalId(device_id);
        let of_environment =
            || std::env::var_os(VARIABLE).map(|list| list.to_string_lossy().into_owned());
        let list = vendor.visible_devices.clone().or_else(of_environment);
        let physical = VisibleDevices::parse(list.as_deref())?.physical(logical)?;
        let path = SearchPath::new(&vendor.library_dirs);
        let library = path.load(platform, "libascendcl.so")?;
        let acl = Acl::load(&library, logical, physical)?;
        process::touch()?;
        acl.init()?;
        let count = acl.device_count()?;
        if device_id >= count {
            return Err(DeviceError::NoSuchDevice {
                platform,
                device_id,
                count,
            });
        }
        tracing::info!(%platform, %logical, %physical, "opening a chip");
        let hal = path.load(platform, "libascend_hal.so").ok();
        let hal = hal.and_then(|library| Hal::load(&library, logical, physical).ok());
        let cores = core_counts(platform, hal.as_ref());
        acl.set_device()?;
        let bound = acl
            .memory()
            .and_then(|(_, total)| Ok((total, acl.create_stream()?)));
        let (memory_bytes, stream) = bound.inspect_err(|error| give_up(acl, error))?;
        let (logical_id, physical_id) = (logical.0, physical.0);
        let mut chip = Self {
            info: ChipInfo {
                platform,
                logical_id,
                physical_id,
                cores,
                memory_bytes,
            },
            options: vendor,
            gate: Gate::open(device_id),
            acl,
            stream,
            memory: Allocations::new(device_id),
            compiler: KernelCompiler::new(platform, &options.compile),
            callables: Slots::new(device_id),
            runs: Runs::new(device_id),
            not_send: PhantomData,
        };
        // A failure drops the chip, which closes it.
        chip.try_memory()?;
        Ok(chip)
    }

    fn id(&self) -> u32 {
        self.info.logical_id
    }

    /// The result of a call; a fault of the device marks the chip.
    fn noted<T>(&mut self, result: Result<T, VendorError>) -> Result<T, DeviceError> {
        result.map_err(|error| {
            let is_fault = error.is_device_fault();
            let error = DeviceError::from(error);
            if is_fault {
                self.gate.mark(&error);
            }
            error
        })
    }

    /// Allocates, writes, reads and frees a little memory.
    fn try_memory(&mut self) -> Result<(), DeviceError> {
        let mut found = [0; PROBE_PATTERN.len()];
        let acl = self.acl;
        let address = self.noted(acl.malloc(PROBE_PATTERN.len() as u64))?;
        let copied = acl.copy_to(address, &PROBE_PATTERN);
        let copied = copied.and_then(|()| acl.copy_from(&mut found, address));
        self.noted(copied)?;
        self.noted(acl.free(address))?;
        if found == PROBE_PATTERN {
            return Ok(());
        }
        Err(DeviceError::ProbeMismatch {
            chip: self.id(),
            address: DeviceAddress(address),
        })
    }

    /// One attempt to bring the card back: reset, a new stream, memory that works, the kernels
    /// again.
    fn try_reset(&mut self) -> Result<(), DeviceError> {
        self.acl.force_reset()?;
        self.acl.set_device()?;
        self.stream = self.acl.create_stream()?;
        self.try_memory()?;
        self.memory.clear();
        self.runs
            .end_by_reset(self.gate.fault().unwrap_or_default());
        let acl = self.acl;
        let reload =
            |old: &VendorCallable| VendorCallable::load(acl, old.callable, old.artefacts.clone());
        Ok(self.callables.reload(reload)?)
    }

    /// Lets the orchestration put the run's tasks on the stream.
    fn enqueue(&mut self, run: RunId) -> Result<RunReport, DeviceError> {
        let chip = self.id();
        let run = self.runs.prepared(run)?;
        let (loaded, args) = (run.callable.clone(), &run.args);
        let callable = loaded.callable;
        let mut builder = Builder {
            acl: self.acl,
            stream: self.stream,
            loaded: &loaded,
            memory: &mut self.memory,
            allocated: &mut run.allocated,
            report: RunReport::default(),
            fault: None,
            task: TaskBlock::default(),
        };
        let mut orchestrator = ChipOrchestrator::new(callable, &mut builder);
        let orchestrate = || (callable.orchestration)(&mut orchestrator, args);
        let built = catch_unwind(AssertUnwindSafe(orchestrate)).unwrap_or_else(|payload| {
            Err(OrchestrationError::Panicked {
                message: panic_message(&*payload),
            })
        });
        let (report, fault) = (builder.report, builder.fault);
        if let Some(fault) = fault {
            self.noted(Err(fault))?;
        }
        let callable = callable.name;
        built.map_err(|source| DeviceError::Orchestration {
            chip,
            callable,
            source,
        })?;
        Ok(report)
    }

    /// Asks the card, and ends what is over or has taken too long.
    fn advance(&mut self, run: RunId, since: Instant) {
        let complete = self.gate.admit_work("execute a run");
        let complete = complete.and_then(|()| {
            let complete = self.acl.is_complete(self.stream);
            self.noted(complete)
        });
        match complete {
            Ok(true) => self.runs.finish_all(OnCard::end),
            Ok(false) => self.watch(run, since),
            Err(error) => self.runs.known(run).phase = Phase::Finished(Err(error)),
        }
    }

    /// Fails a run whose time is over.
    fn watch(&mut self, run: RunId, since: Instant) {
        let limit = self.options.run_timeout;
        if since.elapsed() < limit {
            // A rest, so that polling in a loop does not burn a core; short against a launch.
            std::thread::sleep(Duration::from_micros(20));
            return;
        }
        let chip = self.id();
        let run = self.runs.known(run);
        let callable = run.callable.callable.name;
        let error = DeviceError::RunTimeout {
            chip,
            callable,
            limit,
        };
        self.gate.mark(&error);
        run.phase = Phase::Finished(Err(error));
    }

    fn release(&mut self) -> Result<(), DeviceError> {
        if self.gate.fault().is_some() {
            return Ok(());
        }
        let acl = self.acl;
        let bases: Vec<u64> = self.memory.bases().collect();
        self.memory.clear();
        for base in bases {
            self.noted(acl.free(base))?;
        }
        self.noted(acl.destroy_stream(self.stream))?;
        self.noted(acl.reset_device())
    }
}

impl Chip for VendorChip {
    fn info(&self) -> &ChipInfo {
        &self.info
    }

    fn malloc(&mut self, bytes: u64) -> Result<DeviceAddress, DeviceError> {
        self.gate.admit_work("allocate")?;
        let allocated = self.acl.malloc(bytes.max(1));
        if allocated.as_ref().is_err_and(VendorError::is_out_of_memory) {
            let report = self.memory()?;
            return Err(DeviceError::OutOfMemory {
                chip: self.id(),
                wanted_bytes: bytes,
                report,
            });
        }
        let address = self.noted(allocated)?;
        self.memory.record(address, bytes.max(1));
        Ok(DeviceAddress(address))
    }

    fn free(&mut self, address: DeviceAddress) -> Result<(), DeviceError> {
        self.gate.admit_work("free")?;
        self.runs.refuse_in_use(address, &self.memory)?;
        self.memory.revoke(address)?;
        let freed = self.acl.free(address.0);
        self.noted(freed)
    }

    fn copy_to(&mut self, to: DeviceAddress, from: &[u8]) -> Result<(), DeviceError> {
        self.gate.admit_work("copy to the chip")?;
        self.memory.resolve("copy_to", to, from.len() as u64)?;
        let copied = self.acl.copy_to(to.0, from);
        self.noted(copied)
    }

    fn copy_from(&mut self, to: &mut [u8], from: DeviceAddress) -> Result<(), DeviceError> {
        self.gate.admit_work("copy from the chip")?;
        self.memory.resolve("copy_from", from, to.len() as u64)?;
        let copied = self.acl.copy_from(to, from.0);
        self.noted(copied)
    }

    fn map_window(&mut self, window: &Window<'_>) -> Result<DeviceAddress, DeviceError> {
        self.gate.admit_work("map a window")?;
        Err(DeviceError::Window {
            chip: self.id(),
            bytes: window.bytes,
            source: WindowProblem::NotBuilt,
        })
    }

    fn unmap_window(&mut self, address: DeviceAddress) -> Result<(), DeviceError> {
        self.gate.admit_work("unmap a window")?;
        let problem = AddressProblem::NotWindow;
        Err(self.memory.refuse("unmap", address, 0, problem))
    }

    fn memory(&self) -> Result<MemoryReport, DeviceError> {
        self.gate.admit_work("report memory")?;
        let (free_bytes, total_bytes) = self.acl.memory()?;
        Ok(MemoryReport {
            total_bytes,
            used_bytes: total_bytes.saturating_sub(free_bytes),
            free_bytes,
            largest_block_bytes: free_bytes,
            allocations: self.memory.len(),
        })
    }

    fn register(&mut self, callable: &'static ChipCallable) -> Result<CallableSlot, DeviceError> {
        self.gate.admit_work("register a callable")?;
        let (acl, compiler, platform) = (self.acl, &self.compiler, self.info.platform);
        let load = || {
            let artefacts = compile(callable, compiler, platform)?;
            Ok(VendorCallable::load(acl, callable, artefacts)?)
        };
        let slot = self
            .callables
            .register(callable, |known| known.callable, load);
        if let Err(DeviceError::Vendor(refused)) = &slot {
            self.noted(Err(refused.clone()))?;
        }
        slot
    }

    fn max_prepared(&self) -> usize {
        self.options.max_prepared.max(1)
    }

    fn prepare(&mut self, slot: CallableSlot, args: ChipArgs) -> Result<RunId, DeviceError> {
        self.gate.admit_work("prepare a run")?;
        let (callable, max) = (self.callables.get(slot)?, self.max_prepared());
        self.runs.prepare(callable, args, &self.memory, max)
    }

    fn launch(&mut self, run: RunId) -> Result<(), DeviceError> {
        self.gate.admit_work("launch a run")?;
        self.runs.prepared(run)?;
        let since = Instant::now();
        let outcome = self.enqueue(run);
        self.runs.known(run).phase = if self.gate.fault().is_some() {
            Phase::Finished(outcome)
        } else {
            // Also one that failed half-way: the card executes what it has accepted, and until
            // then the run's memory and what its arguments name are not free.
            Phase::Executing(OnCard { since, outcome })
        };
        Ok(())
    }

    fn poll(&mut self, run: RunId) -> Result<Progress, DeviceError> {
        self.gate.admit("poll a run")?;
        if let Phase::Executing(OnCard { since, .. }) = self.runs.launched(run)?.phase {
            self.advance(run, since);
        }
        match self.runs.launched(run)?.phase {
            Phase::Finished(_) => Ok(Progress::Finished),
            _ => Ok(Progress::Running),
        }
    }

    fn finalize(&mut self, run: RunId) -> Result<RunReport, DeviceError> {
        self.gate.admit("finalize a run")?;
        let run = self.runs.remove(run)?;
        if self.gate.fault().is_none() {
            for address in run.allocated {
                self.free(address)?;
            }
        }
        match run.phase {
            Phase::Finished(outcome) => outcome,
            _ => Ok(RunReport::default()),
        }
    }

    fn unusable(&self) -> Option<&str> {
        self.gate.fault()
    }

    fn probe(&mut self) -> Result<(), DeviceError> {
        self.gate.admit("probe the chip")?;
        if self.gate.fault().is_none() {
            return self.try_memory();
        }
        let mut last = None;
        for attempt in 1..=RESETS_MAX {
            match self.try_reset() {
                Ok(()) => {
                    self.gate.clear();
                    return Ok(());
                }
                Err(error) => {
                    tracing::warn!(chip = self.id(), attempt, %error, "a reset did not help");
                    last = Some(error);
                }
            }
        }
        Err(last.expect("at least one reset was attempted"))
    }

    /// Nothing: the card's own profiler sees more than the host can.
    fn take_trace(&mut self) -> Vec<TraceEvent> {
        Vec::new()
    }

    fn close(&mut self) -> Result<(), DeviceError> {
        if !self.gate.close()? {
            return Ok(());
        }
        self.runs.clear();
        self.release()
    }
}

impl Drop for VendorChip {
    fn drop(&mut self) {
        // A copy that a fork left in a child is not this process's to close: its gate says so.
        if let Err(error) = self.close()
            && !matches!(error, DeviceError::Forked { .. })
        {
            tracing::error!(chip = self.id(), %error, "the chip did not close cleanly");
        }
    }
}

/// Gives a device back that could not be opened whole, unless it is at fault: then a release may
/// block.
fn give_up(acl: Acl, error: &VendorError) {
    if !error.is_device_fault()
        && let Err(error) = acl.reset_device()
    {
        tracing::error!(%error, "a device that could not be opened was not given back");
    }
}

/// What the driver says, or what the architecture has, when the driver cannot be asked.
fn core_counts(platform: Platform, hal: Option<&Hal>) -> CoreCounts {
    let usual = platform.arch().cores();
    let Some(hal) = hal else { return usual };
    let asked = hal
        .core_counts()
        .map(|(aic, aiv)| (u16::try_from(aic), u16::try_from(aiv)));
    match asked {
        Ok((Ok(aic), Ok(aiv))) => CoreCounts { aic, aiv },
        Ok(_) => usual,
        Err(error) => {
            tracing::warn!(%error, "the driver does not tell the number of cores");
            usual
        }
    }
}
