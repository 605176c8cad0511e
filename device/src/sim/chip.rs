//! The simulated chip: memory, callables, runs in turn, faults.

use std::collections::VecDeque;
use std::marker::PhantomData;
use std::panic::{AssertUnwindSafe, catch_unwind};

use super::body::SimCallable;
use super::builder::Builder;
use super::engine::{Engine, Machine};
use super::graphs::Graphs;
use super::memory::{self, DeviceMemory};
use super::options::{SimFault, SimOptions, TaskFault};
use super::tracer::Tracer;
use crate::args::ChipArgs;
use crate::callable::ChipCallable;
use crate::chip::{
    CallableSlot, Chip, ChipInfo, DeviceAddress, MemoryReport, Progress, RunId, RunReport,
};
use crate::compile::KernelCompiler;
use crate::error::{DeviceError, OrchestrationError, panic_message};
use crate::gate::Gate;
use crate::open::OpenOptions;
use crate::orchestrator::ChipOrchestrator;
use crate::platform::{Arch, Platform};
use crate::process;
use crate::runs::{Phase, Runs, Slots};
use crate::trace::TraceEvent;
use crate::window::Window;

/// More threads than this are of no use to one chip.
const HOST_THREADS_MAX: usize = 72;

/// What a probe writes and wants to read back.
const PROBE_PATTERN: [u8; 64] = [0xA5; 64];

/// One simulated chip.
pub(crate) struct SimChip {
    info: ChipInfo,
    options: SimOptions,
    gate: Gate,
    memory: DeviceMemory,
    compiler: KernelCompiler,
    callables: Slots<SimCallable>,
    runs: Runs<SimCallable, OnChip>,
    /// Launched runs that are not over, in the order of their launch; the first one executes.
    launched: VecDeque<RunId>,
    engine: Engine,
    graphs: Graphs,
    n_launched: u64,
    n_frees: u64,
    n_unmaps: u64,
    probes_to_fail: u32,
    /// Bound to its thread, like the context of a real chip.
    not_send: PhantomData<*const ()>,
}

/// A launched run.
#[derive(Clone, Copy, Debug)]
struct OnChip {
    /// Its number among the launched ones.
    number: u64,
    /// Whether its turn has come, so that its tasks are with the engine.
    is_begun: bool,
}

impl SimChip {
    pub(crate) fn open(arch: Arch, id: u32, options: &OpenOptions) -> Result<Self, DeviceError> {
        process::touch()?;
        let platform = Platform::Sim(arch);
        let compiler = KernelCompiler::new(platform, &options.compile);
        let options = &options.sim;
        let memory = DeviceMemory::reserve(
            id,
            options.memory_bytes,
            options.address_reuse,
            options.placed.iter().map(|address| address.0).collect(),
        )?;
        let (memory_bytes, cores) = (memory.report().total_bytes, arch.cores());
        let (logical_id, physical_id) = (id, id);
        let machine = Machine {
            chip: id,
            cores,
            schedulers: options.schedulers,
            op_timeout: options.op_timeout,
            host_threads: options.host_threads.clamp(1, HOST_THREADS_MAX),
        };
        Ok(Self {
            info: ChipInfo {
                platform,
                logical_id,
                physical_id,
                cores,
                memory_bytes,
            },
            options: options.clone(),
            gate: Gate::open(id),
            memory,
            compiler,
            callables: Slots::new(id),
            runs: Runs::new(id),
            launched: VecDeque::new(),
            engine: Engine::new(machine, Tracer::new(options.trace)),
            graphs: Graphs::default(),
            n_launched: 0,
            n_frees: 0,
            n_unmaps: 0,
            probes_to_fail: options.probes_to_fail(),
            not_send: PhantomData,
        })
    }

    fn id(&self) -> u32 {
        self.info.logical_id
    }

    /// Moves the run whose turn it is on by one slice.
    fn advance(&mut self) {
        let Some(&run) = self.launched.front() else {
            return;
        };
        if let Err(refused) = self.gate.admit_work("execute a run") {
            return self.finish(run, Err(refused));
        }
        if let Phase::Executing(on_chip) = &mut self.runs.known(run).phase
            && !std::mem::replace(&mut on_chip.is_begun, true)
        {
            let number = on_chip.number;
            if let Err(error) = self.orchestrate(run, number) {
                return self.end(run, Err(error));
            }
        }
        match self.engine.advance(&self.memory) {
            Ok(Progress::Running) => {}
            Ok(Progress::Finished) => self.end(run, Ok(())),
            Err(error) => self.end(run, Err(error)),
        }
    }

    /// Lets the orchestration submit the run's tasks.
    fn orchestrate(&mut self, run: RunId, number: u64) -> Result<(), DeviceError> {
        let (chip, faults) = (self.id(), self.faults_of(number));
        let run = self.runs.known(run);
        let callable = run.callable.callable;
        self.engine.begin(number, run.callable.clone(), faults);
        let began = self.engine.tracer().now();
        let mut builder = Builder {
            engine: &mut self.engine,
            memory: &mut self.memory,
            graphs: &mut self.graphs,
            allocated: &mut run.allocated,
            failure: None,
        };
        let mut orchestrator = ChipOrchestrator::new(callable, &mut builder);
        let orchestrate = || (callable.orchestration)(&mut orchestrator, &run.args);
        let built = catch_unwind(AssertUnwindSafe(orchestrate)).unwrap_or_else(|payload| {
            Err(OrchestrationError::Panicked {
                message: panic_message(&*payload),
            })
        });
        let (failure, callable) = (builder.failure, callable.name);
        self.engine.tracer().orchestration(began, callable, number);
        if let Some(failure) = failure {
            return Err(failure);
        }
        built.map_err(|source| DeviceError::Orchestration {
            chip,
            callable,
            source,
        })?;
        self.engine.seal();
        Ok(())
    }

    /// Ends the run that the engine works on.
    fn end(&mut self, run: RunId, outcome: Result<(), DeviceError>) {
        let report = self.engine.end();
        self.finish(run, outcome.map(|()| report));
    }

    /// Keeps the outcome of the run whose turn it was, and notes what makes the chip unusable.
    fn finish(&mut self, run: RunId, outcome: Result<RunReport, DeviceError>) {
        if let Err(error @ (DeviceError::Fault { .. } | DeviceError::Timeout { .. })) = &outcome {
            self.gate.mark(error);
        }
        self.launched.pop_front();
        self.runs.known(run).phase = Phase::Finished(outcome);
    }

    /// Allocates, writes, reads and frees a little memory.
    fn try_memory(&mut self) -> Result<(), DeviceError> {
        let address = self.memory.malloc(PROBE_PATTERN.len() as u64)?;
        let mut found = [0; PROBE_PATTERN.len()];
        self.memory.write(address, &PROBE_PATTERN)?;
        self.memory.read(&mut found, address)?;
        self.memory.free(address)?;
        if found == PROBE_PATTERN {
            return Ok(());
        }
        Err(DeviceError::ProbeMismatch {
            chip: self.id(),
            address,
        })
    }

    fn faults_of(&self, number: u64) -> Vec<(u64, TaskFault)> {
        let of_run = |fault: &SimFault| match *fault {
            SimFault::Task { run, task, kind } if run == number => Some((task, kind)),
            _ => None,
        };
        self.options.faults.iter().filter_map(of_run).collect()
    }
}

impl Chip for SimChip {
    fn info(&self) -> &ChipInfo {
        &self.info
    }

    fn malloc(&mut self, bytes: u64) -> Result<DeviceAddress, DeviceError> {
        self.gate.admit_work("allocate")?;
        self.memory.malloc(bytes)
    }

    fn free(&mut self, address: DeviceAddress) -> Result<(), DeviceError> {
        self.gate.admit_work("free")?;
        self.runs
            .refuse_in_use(address, self.memory.allocations())?;
        let nth = self.n_frees;
        self.n_frees += 1;
        if self.options.faults.contains(&SimFault::Free { nth }) {
            self.memory.leak(address)?;
            return Err(DeviceError::FreeFailed {
                chip: self.id(),
                address,
            });
        }
        self.memory.free(address)
    }

    fn copy_to(&mut self, to: DeviceAddress, from: &[u8]) -> Result<(), DeviceError> {
        self.gate.admit_work("copy to the chip")?;
        self.memory.write(to, from)
    }

    fn copy_from(&mut self, to: &mut [u8], from: DeviceAddress) -> Result<(), DeviceError> {
        self.gate.admit_work("copy from the chip")?;
        self.memory.read(to, from)
    }

    fn map_window(&mut self, window: &Window<'_>) -> Result<DeviceAddress, DeviceError> {
        self.gate.admit_work("map a window")?;
        self.memory.map_window(window)
    }

    fn unmap_window(&mut self, address: DeviceAddress) -> Result<(), DeviceError> {
        self.gate.admit_work("unmap a window")?;
        self.runs
            .refuse_in_use(address, self.memory.allocations())?;
        let nth = self.n_unmaps;
        self.n_unmaps += 1;
        if self.options.faults.contains(&SimFault::Unmap { nth }) {
            self.memory.leak(address)?;
            return Err(DeviceError::FreeFailed {
                chip: self.id(),
                address,
            });
        }
        self.memory.unmap_window(address)
    }

    fn memory(&self) -> Result<MemoryReport, DeviceError> {
        self.gate.admit_work("report memory")?;
        Ok(self.memory.report())
    }

    fn register(&mut self, callable: &'static ChipCallable) -> Result<CallableSlot, DeviceError> {
        self.gate.admit_work("register a callable")?;
        let load = || SimCallable::load(callable, &self.compiler);
        self.callables
            .register(callable, |known| known.callable, load)
    }

    fn max_prepared(&self) -> usize {
        self.options.max_prepared.max(1)
    }

    fn prepare(&mut self, slot: CallableSlot, args: ChipArgs) -> Result<RunId, DeviceError> {
        self.gate.admit_work("prepare a run")?;
        let (callable, max) = (self.callables.get(slot)?, self.max_prepared());
        self.runs
            .prepare(callable, args, self.memory.allocations(), max)
    }

    fn launch(&mut self, run: RunId) -> Result<(), DeviceError> {
        self.gate.admit_work("launch a run")?;
        let prepared = self.runs.prepared(run)?;
        let number = self.n_launched;
        prepared.phase = Phase::Executing(OnChip {
            number,
            is_begun: false,
        });
        self.n_launched += 1;
        self.launched.push_back(run);
        Ok(())
    }

    fn poll(&mut self, run: RunId) -> Result<Progress, DeviceError> {
        self.gate.admit("poll a run")?;
        if let Phase::Executing(_) = self.runs.launched(run)?.phase {
            self.advance();
        }
        match self.runs.launched(run)?.phase {
            Phase::Finished(_) => Ok(Progress::Finished),
            _ => Ok(Progress::Running),
        }
    }

    fn finalize(&mut self, run: RunId) -> Result<RunReport, DeviceError> {
        self.gate.admit("finalize a run")?;
        let run = self.runs.remove(run)?;
        for address in run.allocated {
            self.memory.free(address)?;
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
        if let Some(left) = self.probes_to_fail.checked_sub(1) {
            self.probes_to_fail = left;
            let address = DeviceAddress(memory::BASE);
            return Err(DeviceError::ProbeMismatch {
                chip: self.id(),
                address,
            });
        }
        if let Some(cause) = self.gate.fault() {
            // As on hardware, where the chip is reset: what was on it is gone. The engine has
            // nothing of it: the fault ended the run that it worked on.
            self.memory.clear();
            self.runs.end_by_reset(cause);
            self.launched.clear();
        }
        self.try_memory()?;
        self.gate.clear();
        Ok(())
    }

    fn take_trace(&mut self) -> Vec<TraceEvent> {
        self.engine.tracer().take()
    }

    fn close(&mut self) -> Result<(), DeviceError> {
        if self.gate.close()? {
            self.runs.clear();
            self.launched.clear();
            self.memory.clear();
        }
        Ok(())
    }
}
