//! A chip of the vendor behind the trait.
//!
//! # A run
//!
//! The orchestration runs on the host, at the launch, and puts each task on one stream. The card
//! executes a stream in order, so every edge that the tasks could have is kept, and none has to be
//! found. A run is over when the stream is empty; runs that were launched one behind the other are
//! over together.
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
//!   registered kernels' handles with it, the kernels are loaded again.

use std::collections::VecDeque;
use std::marker::PhantomData;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::rc::Rc;
use std::time::{Duration, Instant};

use taskgraph::Tag;

use super::acl::{Acl, Hal, Handle, VendorError};
use super::options::VendorOptions;
use super::run::{Builder, VendorCallable, VendorRun, VendorState, compile};
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
use crate::error::{DeviceError, OrchestrationError, panic_message};
use crate::open::OpenOptions;
use crate::orchestrator::ChipOrchestrator;
use crate::platform::{CoreCounts, Platform};
use crate::process::{self, Home};
use crate::trace::TraceEvent;

/// How often a probe resets a card at most.
const RESETS_MAX: u32 = 3;

/// What a probe writes and wants to read back.
const PROBE_PATTERN: [u8; 64] = [0x5A; 64];

/// One card.
pub(crate) struct VendorChip {
    info: ChipInfo,
    home: Home,
    options: VendorOptions,
    acl: Acl,
    stream: Handle,
    memory: Allocations,
    compiler: KernelCompiler,
    callables: Vec<Rc<VendorCallable>>,
    /// Runs that were not finalized, oldest first.
    runs: VecDeque<VendorRun>,
    next_run: u64,
    /// The fault that made the chip unusable.
    unusable: Option<String>,
    closed: bool,
    /// The library binds contexts to threads.
    not_send: PhantomData<*const ()>,
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
        let list = vendor
            .visible_devices
            .clone()
            .or_else(|| std::env::var(VARIABLE).ok());
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
            home: Home::here(device_id),
            options: vendor,
            acl,
            stream,
            memory: Allocations::new(device_id),
            compiler: KernelCompiler::new(platform, &options.compile),
            callables: Vec::new(),
            runs: VecDeque::new(),
            next_run: 0,
            unusable: None,
            closed: false,
            not_send: PhantomData,
        };
        // A failure drops the chip, which closes it.
        chip.try_memory()?;
        Ok(chip)
    }

    fn id(&self) -> u32 {
        self.info.logical_id
    }

    fn admit(&self, operation: &'static str) -> Result<(), DeviceError> {
        self.home.check()?;
        if self.closed {
            return Err(DeviceError::Closed {
                operation,
                chip: self.id(),
            });
        }
        Ok(())
    }

    /// Refuses what needs the card when the card is at fault.
    fn admit_work(&self, operation: &'static str) -> Result<(), DeviceError> {
        self.admit(operation)?;
        match self.unusable.clone() {
            Some(cause) => Err(DeviceError::Unusable {
                operation,
                chip: self.id(),
                cause,
            }),
            None => Ok(()),
        }
    }

    /// The result of a call; a fault of the device marks the chip.
    fn noted<T>(&mut self, result: Result<T, VendorError>) -> Result<T, DeviceError> {
        result.map_err(|error| {
            if error.is_device_fault() {
                self.mark(error.to_string());
            }
            DeviceError::from(error)
        })
    }

    fn mark(&mut self, cause: String) {
        tracing::warn!(
            chip = self.id(),
            cause,
            "the chip is unusable until a probe passes"
        );
        self.unusable.get_or_insert(cause);
    }

    fn run_idx(&self, operation: &'static str, run: RunId) -> Result<usize, DeviceError> {
        let found = self.runs.iter().position(|known| known.id == run);
        found.ok_or(DeviceError::UnknownRun {
            operation,
            chip: self.id(),
            run,
        })
    }

    fn wrong_state(&self, operation: &'static str, idx: usize) -> DeviceError {
        let VendorRun { id: run, state, .. } = &self.runs[idx];
        DeviceError::RunState {
            operation,
            chip: self.id(),
            run: *run,
            state: state.name(),
        }
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
        self.runs.iter_mut().for_each(|run| run.allocated.clear());
        let callables = std::mem::take(&mut self.callables);
        let reload = |loaded: &Rc<VendorCallable>| {
            VendorCallable::load(self.acl, loaded.callable, loaded.artefacts.clone()).map(Rc::new)
        };
        self.callables = callables.iter().map(reload).collect::<Result<_, _>>()?;
        Ok(())
    }

    /// Lets the orchestration put the run's tasks on the stream.
    fn enqueue(&mut self, idx: usize) -> Result<RunReport, DeviceError> {
        let chip = self.id();
        let run = &mut self.runs[idx];
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
    fn advance(&mut self, idx: usize) {
        if let Err(refused) = self.admit_work("execute a run") {
            self.runs[idx].state = VendorState::Finished(Err(refused));
            return;
        }
        let complete = self.acl.is_complete(self.stream);
        match self.noted(complete) {
            Ok(true) => self.finish_all(),
            Ok(false) => self.watch(idx),
            Err(error) => self.runs[idx].state = VendorState::Finished(Err(error)),
        }
    }

    fn finish_all(&mut self) {
        for run in &mut self.runs {
            if let VendorState::Executing { report, .. } = run.state {
                run.state = VendorState::Finished(Ok(report));
            }
        }
    }

    /// Fails a run whose time is over.
    fn watch(&mut self, idx: usize) {
        let VendorState::Executing { since, .. } = self.runs[idx].state else {
            return;
        };
        let limit = self.options.run_timeout;
        if since.elapsed() < limit {
            // A rest, so that polling in a loop does not burn a core; short against a launch.
            std::thread::sleep(Duration::from_micros(20));
            return;
        }
        let callable = self.runs[idx].callable.callable.name;
        let error = DeviceError::RunTimeout {
            chip: self.id(),
            callable,
            limit,
        };
        self.mark(error.to_string());
        self.runs[idx].state = VendorState::Finished(Err(error));
    }

    fn release(&mut self) -> Result<(), DeviceError> {
        if self.unusable.is_some() {
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
        self.admit_work("allocate")?;
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
        self.admit_work("free")?;
        self.memory.revoke(address)?;
        let freed = self.acl.free(address.0);
        self.noted(freed)
    }

    fn copy_to(&mut self, to: DeviceAddress, from: &[u8]) -> Result<(), DeviceError> {
        self.admit_work("copy to the chip")?;
        self.memory.resolve("copy_to", to, from.len() as u64)?;
        let copied = self.acl.copy_to(to.0, from);
        self.noted(copied)
    }

    fn copy_from(&mut self, to: &mut [u8], from: DeviceAddress) -> Result<(), DeviceError> {
        self.admit_work("copy from the chip")?;
        self.memory.resolve("copy_from", from, to.len() as u64)?;
        let copied = self.acl.copy_from(to, from.0);
        self.noted(copied)
    }

    fn memory(&self) -> Result<MemoryReport, DeviceError> {
        self.admit_work("report memory")?;
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
        self.admit_work("register a callable")?;
        if let Some(problem) = callable.fault() {
            return Err(DeviceError::Callable {
                callable: callable.name,
                problem,
            });
        }
        let is_known = |known: &Rc<VendorCallable>| std::ptr::eq(known.callable, callable);
        let slot = match self.callables.iter().position(is_known) {
            Some(slot) => slot,
            None => {
                let artefacts = compile(callable, &self.compiler, self.info.platform)?;
                let loaded = VendorCallable::load(self.acl, callable, artefacts);
                let loaded = self.noted(loaded)?;
                self.callables.push(Rc::new(loaded));
                self.callables.len() - 1
            }
        };
        Ok(CallableSlot(slot as u32))
    }

    fn max_prepared(&self) -> usize {
        self.options.max_prepared.max(1)
    }

    fn prepare(&mut self, slot: CallableSlot, args: ChipArgs) -> Result<RunId, DeviceError> {
        self.admit_work("prepare a run")?;
        let (chip, known) = (self.id(), self.callables.len());
        let unknown = DeviceError::UnknownCallable { chip, slot, known };
        let callable = self.callables.get(slot.0 as usize).ok_or(unknown)?.clone();
        let prepared = self
            .runs
            .iter()
            .filter(|run| matches!(run.state, VendorState::Prepared));
        if prepared.count() >= self.max_prepared() {
            return Err(DeviceError::TooManyPrepared {
                chip,
                max: self.max_prepared(),
            });
        }
        for tensor in &args.tensors {
            self.memory.find(tensor, Tag::Input)?;
        }
        let id = RunId(self.next_run);
        self.next_run += 1;
        let (state, allocated) = (VendorState::Prepared, Vec::new());
        self.runs.push_back(VendorRun {
            id,
            callable,
            args,
            state,
            allocated,
        });
        Ok(id)
    }

    fn launch(&mut self, run: RunId) -> Result<(), DeviceError> {
        self.admit_work("launch a run")?;
        let idx = self.run_idx("launch", run)?;
        if !matches!(self.runs[idx].state, VendorState::Prepared) {
            return Err(self.wrong_state("launch", idx));
        }
        let since = Instant::now();
        self.runs[idx].state = match self.enqueue(idx) {
            Ok(report) => VendorState::Executing { since, report },
            // The card may have accepted a part of it, so this is a run that failed, not one that
            // never was.
            Err(error) => VendorState::Finished(Err(error)),
        };
        Ok(())
    }

    fn poll(&mut self, run: RunId) -> Result<Progress, DeviceError> {
        self.admit("poll a run")?;
        let idx = self.run_idx("poll", run)?;
        match self.runs[idx].state {
            VendorState::Prepared => return Err(self.wrong_state("poll", idx)),
            VendorState::Executing { .. } => self.advance(idx),
            VendorState::Finished(_) => {}
        }
        match self.runs[idx].state {
            VendorState::Finished(_) => Ok(Progress::Finished),
            _ => Ok(Progress::Running),
        }
    }

    fn finalize(&mut self, run: RunId) -> Result<RunReport, DeviceError> {
        self.admit("finalize a run")?;
        let idx = self.run_idx("finalize", run)?;
        if matches!(self.runs[idx].state, VendorState::Executing { .. }) {
            return Err(self.wrong_state("finalize", idx));
        }
        let run = self.runs.remove(idx).expect("the index was just found");
        if self.unusable.is_none() {
            for address in run.allocated {
                self.free(address)?;
            }
        }
        match run.state {
            VendorState::Finished(outcome) => outcome,
            _ => Ok(RunReport::default()),
        }
    }

    fn unusable(&self) -> Option<&str> {
        self.unusable.as_deref()
    }

    fn probe(&mut self) -> Result<(), DeviceError> {
        self.admit("probe the chip")?;
        if self.unusable.is_none() {
            return self.try_memory();
        }
        let mut last = None;
        for attempt in 1..=RESETS_MAX {
            match self.try_reset() {
                Ok(()) => {
                    self.unusable = None;
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
        self.home.check()?;
        if std::mem::replace(&mut self.closed, true) {
            return Ok(());
        }
        self.runs.clear();
        self.release()
    }
}

impl Drop for VendorChip {
    fn drop(&mut self) {
        // A copy that a fork left in a child is not this process's to close.
        if self.home.check().is_ok()
            && let Err(error) = self.close()
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
