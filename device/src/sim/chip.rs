//! The simulated chip: memory, callables, runs in turn, faults.

use std::collections::VecDeque;
use std::marker::PhantomData;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::rc::Rc;

use taskgraph::{Tag, TaskId};

use crate::args::{ChipArgs, CoreArgs};
use crate::callable::ChipCallable;
use crate::chip::{
    CallableSlot, Chip, ChipInfo, DeviceAddress, MemoryReport, Progress, RunId, RunReport,
};
use crate::compile::KernelCompiler;
use crate::error::{DeviceError, OrchestrationError, panic_message};
use crate::open::OpenOptions;
use crate::orchestrator::{ChipOrchestrator, RunBuilder};
use crate::platform::{Arch, Platform};
use crate::process::{self, Home};
use crate::sim::body::SimCallable;
use crate::sim::engine::{Engine, Machine};
use crate::sim::memory::DeviceMemory;
use crate::sim::options::{SimFault, SimOptions, TaskFault};
use crate::sim::run::{RunState, SimRun};
use crate::sim::tracer::Tracer;
use crate::trace::TraceEvent;

/// More threads than this are of no use to one chip.
const HOST_THREADS_MAX: usize = 72;

/// What a probe writes and wants to read back.
const PROBE_PATTERN: [u8; 64] = [0xA5; 64];

/// One simulated chip.
pub(crate) struct SimChip {
    info: ChipInfo,
    home: Home,
    options: SimOptions,
    memory: DeviceMemory,
    compiler: KernelCompiler,
    callables: Vec<Rc<SimCallable>>,
    /// Runs that were not finalized, oldest first.
    runs: Vec<SimRun>,
    /// Launched runs that are not over, in the order of their launch; the first one executes.
    launched: VecDeque<RunId>,
    next_run: u64,
    n_launched: u64,
    n_frees: u64,
    probes_to_fail: u32,
    engine: Engine,
    /// The fault that made the chip unusable.
    unusable: Option<String>,
    closed: bool,
    /// Bound to its thread, like the context of a real chip.
    not_send: PhantomData<*const ()>,
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
        let info = ChipInfo {
            platform,
            logical_id: id,
            physical_id: id,
            cores: arch.cores(),
            memory_bytes: memory.report().total_bytes,
        };
        let machine = Machine {
            chip: id,
            cores: info.cores,
            op_timeout: options.op_timeout,
            host_threads: options.host_threads.clamp(1, HOST_THREADS_MAX),
        };
        Ok(Self {
            info,
            home: Home::here(id),
            options: options.clone(),
            memory,
            compiler,
            callables: Vec::new(),
            runs: Vec::new(),
            launched: VecDeque::new(),
            next_run: 0,
            n_launched: 0,
            n_frees: 0,
            probes_to_fail: options.probes_to_fail(),
            engine: Engine::new(machine, Tracer::new(options.trace)),
            unusable: None,
            closed: false,
            not_send: PhantomData,
        })
    }

    fn id(&self) -> u32 {
        self.info.logical_id
    }

    /// Whether the chip may be used at all by whoever calls.
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

    /// Whether the chip takes new work.
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

    fn run_idx(&self, operation: &'static str, run: RunId) -> Result<usize, DeviceError> {
        let found = self.runs.iter().position(|known| known.id == run);
        found.ok_or(DeviceError::UnknownRun {
            operation,
            chip: self.id(),
            run,
        })
    }

    /// The position of a run that is launched, finished or not.
    fn launched_idx(&self, operation: &'static str, run: RunId) -> Result<usize, DeviceError> {
        let idx = self.run_idx(operation, run)?;
        match &self.runs[idx].state {
            state @ RunState::Prepared => Err(self.wrong_state(operation, run, state)),
            _ => Ok(idx),
        }
    }

    fn wrong_state(&self, operation: &'static str, run: RunId, state: &RunState) -> DeviceError {
        DeviceError::RunState {
            operation,
            chip: self.id(),
            run,
            state: state.name(),
        }
    }

    /// Moves the run whose turn it is on by one slice.
    fn advance(&mut self) {
        let Some(&run) = self.launched.front() else {
            return;
        };
        let idx = self.runs.iter().position(|known| known.id == run);
        let idx = idx.expect("a launched run is finalized only after it left the queue");
        if let Err(refused) = self.admit_work("execute a run") {
            return self.finish(idx, Err(refused));
        }
        if let RunState::Launched(number) = self.runs[idx].state {
            self.runs[idx].state = RunState::Executing;
            if let Err(error) = self.orchestrate(idx, number) {
                return self.end(idx, Err(error));
            }
        }
        match self.engine.advance() {
            Ok(Progress::Running) => {}
            Ok(Progress::Finished) => self.end(idx, Ok(())),
            Err(error) => self.end(idx, Err(error)),
        }
    }

    /// Lets the orchestration submit the run's tasks.
    fn orchestrate(&mut self, idx: usize, number: u64) -> Result<(), DeviceError> {
        let (chip, faults) = (self.id(), self.faults_of(number));
        let run = &mut self.runs[idx];
        let callable = run.callable.callable;
        self.engine.begin(number, run.callable.clone(), faults);
        let began = self.engine.tracer().now();
        let (engine, memory) = (&mut self.engine, &mut self.memory);
        let allocated = &mut run.allocated;
        let mut builder = Builder {
            engine,
            memory,
            allocated,
            failure: None,
        };
        let mut orchestrator = ChipOrchestrator::new(callable, &mut builder);
        let orchestrate = || (callable.orchestration)(&mut orchestrator, &run.args);
        let built = catch_unwind(AssertUnwindSafe(orchestrate)).unwrap_or_else(|payload| {
            Err(OrchestrationError::Panicked {
                message: panic_message(&*payload),
            })
        });
        let failure = builder.failure;
        self.engine
            .tracer()
            .orchestration(began, callable.name, number);
        if let Some(failure) = failure {
            return Err(failure);
        }
        let callable = callable.name;
        built.map_err(|source| DeviceError::Orchestration {
            chip,
            callable,
            source,
        })?;
        self.engine.seal();
        Ok(())
    }

    /// Ends the run that the engine works on.
    fn end(&mut self, idx: usize, outcome: Result<(), DeviceError>) {
        let report = self.engine.end();
        self.finish(idx, outcome.map(|()| report));
    }

    fn faults_of(&self, number: u64) -> Vec<(u64, TaskFault)> {
        let of_run = |fault: &SimFault| match *fault {
            SimFault::Task { run, task, kind } if run == number => Some((task, kind)),
            _ => None,
        };
        self.options.faults.iter().filter_map(of_run).collect()
    }

    /// Keeps the outcome of the run whose turn it was, and notes what makes the chip unusable.
    fn finish(&mut self, idx: usize, outcome: Result<RunReport, DeviceError>) {
        if let Err(error @ (DeviceError::Fault { .. } | DeviceError::Timeout { .. })) = &outcome {
            tracing::warn!(chip = self.id(), %error, "the chip is unusable until a probe passes");
            self.unusable = Some(error.to_string());
        }
        self.launched.pop_front();
        self.runs[idx].state = RunState::Finished(outcome);
    }
}

impl Chip for SimChip {
    fn info(&self) -> &ChipInfo {
        &self.info
    }

    fn malloc(&mut self, bytes: u64) -> Result<DeviceAddress, DeviceError> {
        self.admit("allocate")?;
        self.memory.malloc(bytes)
    }

    fn free(&mut self, address: DeviceAddress) -> Result<(), DeviceError> {
        self.admit("free")?;
        let nth = self.n_frees;
        self.n_frees += 1;
        if self.options.faults.contains(&SimFault::Free { nth }) {
            return Err(DeviceError::FreeFailed {
                chip: self.id(),
                address,
            });
        }
        self.memory.free(address)
    }

    fn copy_to(&mut self, to: DeviceAddress, from: &[u8]) -> Result<(), DeviceError> {
        self.admit("copy to the chip")?;
        self.memory.write(to, from)
    }

    fn copy_from(&mut self, to: &mut [u8], from: DeviceAddress) -> Result<(), DeviceError> {
        self.admit("copy from the chip")?;
        self.memory.read(to, from)
    }

    fn memory(&self) -> Result<MemoryReport, DeviceError> {
        self.admit("report memory")?;
        Ok(self.memory.report())
    }

    fn register(&mut self, callable: &'static ChipCallable) -> Result<CallableSlot, DeviceError> {
        self.admit("register a callable")?;
        if let Some(problem) = callable.fault() {
            return Err(DeviceError::Callable {
                callable: callable.name,
                problem,
            });
        }
        let is_known = |known: &Rc<SimCallable>| std::ptr::eq(known.callable, callable);
        let slot = match self.callables.iter().position(is_known) {
            Some(slot) => slot,
            None => {
                self.callables
                    .push(Rc::new(SimCallable::load(callable, &self.compiler)?));
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
            .filter(|run| matches!(run.state, RunState::Prepared));
        if prepared.count() >= self.max_prepared() {
            return Err(DeviceError::TooManyPrepared {
                chip,
                max: self.max_prepared(),
            });
        }
        for tensor in &args.tensors {
            self.memory.allocations().find(tensor, Tag::Input)?;
        }
        let id = RunId(self.next_run);
        self.next_run += 1;
        let state = RunState::Prepared;
        self.runs.push(SimRun {
            id,
            callable,
            args,
            state,
            allocated: Vec::new(),
        });
        Ok(id)
    }

    fn launch(&mut self, run: RunId) -> Result<(), DeviceError> {
        self.admit_work("launch a run")?;
        let idx = self.run_idx("launch", run)?;
        if !matches!(self.runs[idx].state, RunState::Prepared) {
            return Err(self.wrong_state("launch", run, &self.runs[idx].state));
        }
        self.runs[idx].state = RunState::Launched(self.n_launched);
        self.n_launched += 1;
        self.launched.push_back(run);
        Ok(())
    }

    fn poll(&mut self, run: RunId) -> Result<Progress, DeviceError> {
        self.admit("poll a run")?;
        let idx = self.launched_idx("poll", run)?;
        if !matches!(self.runs[idx].state, RunState::Finished(_)) {
            self.advance();
        }
        match self.runs[idx].state {
            RunState::Finished(_) => Ok(Progress::Finished),
            _ => Ok(Progress::Running),
        }
    }

    fn finalize(&mut self, run: RunId) -> Result<RunReport, DeviceError> {
        self.admit("finalize a run")?;
        let idx = self.run_idx("finalize", run)?;
        if matches!(
            self.runs[idx].state,
            RunState::Launched(_) | RunState::Executing
        ) {
            return Err(self.wrong_state("finalize", run, &self.runs[idx].state));
        }
        let run = self.runs.remove(idx);
        for address in run.allocated {
            self.memory.free(address)?;
        }
        match run.state {
            RunState::Finished(outcome) => outcome,
            _ => Ok(RunReport::default()),
        }
    }

    fn unusable(&self) -> Option<&str> {
        self.unusable.as_deref()
    }

    fn probe(&mut self) -> Result<(), DeviceError> {
        self.admit("probe the chip")?;
        if let Some(left) = self.probes_to_fail.checked_sub(1) {
            self.probes_to_fail = left;
            let address = DeviceAddress(crate::sim::memory::BASE);
            return Err(DeviceError::ProbeMismatch {
                chip: self.id(),
                address,
            });
        }
        let address = self.memory.malloc(PROBE_PATTERN.len() as u64)?;
        let mut found = [0; PROBE_PATTERN.len()];
        self.memory.write(address, &PROBE_PATTERN)?;
        self.memory.read(&mut found, address)?;
        self.memory.free(address)?;
        if found != PROBE_PATTERN {
            return Err(DeviceError::ProbeMismatch {
                chip: self.id(),
                address,
            });
        }
        self.unusable = None;
        Ok(())
    }

    fn take_trace(&mut self) -> Vec<TraceEvent> {
        self.engine.tracer().take()
    }

    fn close(&mut self) -> Result<(), DeviceError> {
        self.home.check()?;
        self.closed = true;
        self.runs.clear();
        self.launched.clear();
        Ok(())
    }
}

/// The chip as the orchestration of one run sees it.
struct Builder<'run> {
    engine: &'run mut Engine,
    memory: &'run mut DeviceMemory,
    /// What the run allocated, to be freed with it.
    allocated: &'run mut Vec<DeviceAddress>,
    /// The failure of a task that was executed to make room; the run's first cause.
    failure: Option<DeviceError>,
}

impl RunBuilder for Builder<'_> {
    fn submit(
        &mut self,
        kernel_idx: usize,
        args: &CoreArgs<'_>,
    ) -> Result<TaskId, OrchestrationError> {
        if self.failure.is_some() {
            return Err(OrchestrationError::RunFailed);
        }
        match self.engine.submit(kernel_idx, args, self.memory) {
            Err(OrchestrationError::Memory(failure)) if failure.is_of_a_task() => {
                self.failure = Some(*failure);
                Err(OrchestrationError::RunFailed)
            }
            submitted => submitted,
        }
    }

    fn alloc(&mut self, bytes: u64) -> Result<DeviceAddress, DeviceError> {
        let address = self.memory.malloc(bytes)?;
        self.allocated.push(address);
        Ok(address)
    }
}
