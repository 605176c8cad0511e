//! The device-side scheduler of a simulated chip: takes core tasks, orders them, executes them.
//!
//! # Cores
//!
//! A chip has dozens of cores and the host a few. The cores are *logical*: each task gets the next core of its type in
//! turn, and the thread that polls executes the blocks one after another. An idle chip has no thread at all, so it
//! costs nothing, and a chip worker process is one core of the host's work, as it should be.
//!
//! # Order
//!
//! Edges, slots and ready queues are `taskgraph`'s. To its scheduler the engine is three workers, one per core shape
//! (AIC, AIV, MIX), each with a queue of its own: one task of each shape can be in flight, and the engine executes what
//! it is told in the order in which it is told. A task ends when its last block has.
//!
//! # Bounds
//!
//! At most [`TASKS_MAX`] tasks are live. An orchestration that submits more makes room by executing the oldest ready
//! tasks while it submits, so the memory of a run does not grow with its length.
//!
//! # Failure
//!
//! The first failure ends the run: no further task starts, and the failure is the run's outcome.

use std::rc::Rc;
use std::time::{Duration, Instant};

use smallvec::SmallVec;
use taskgraph::{
    Access, Depth, Dispatch, Limits, Outcome, Placement, RunId, Scalar, Scheduler, SubmitError,
    TaskId, TaskSpec, WorkerId, WorkerKind,
};

use crate::allocations::Resolved;
use crate::args::CoreArgs;
use crate::callable::ChipCallable;
use crate::chip::{Progress, RunReport};
use crate::context::CoreTensor;
use crate::error::{DeviceError, OrchestrationError, TaskPlace};
use crate::kernel::CoreType;
use crate::platform::CoreCounts;
use crate::sim::body::SimCallable;
use crate::sim::memory::DeviceMemory;
use crate::sim::options::TaskFault;

/// How many tasks may be live at once.
const TASKS_MAX: usize = 1024;

/// How many blocks one poll executes at most.
const BLOCKS_PER_SLICE: u32 = 256;

/// How long a poll of a hanging run rests, so that polling in a loop does not burn a core.
const HANG_REST: Duration = Duration::from_micros(200);

/// What the engine knows of the chip that it is part of.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Machine {
    pub(crate) chip: u32,
    pub(crate) cores: CoreCounts,
    pub(crate) op_timeout: Duration,
}

/// One live core task with its arguments, in the storage of its slot.
#[derive(Debug, Default)]
struct CoreTask {
    /// Position in the order of submission.
    number: u64,
    kernel_idx: usize,
    n_blocks: u32,
    tensors: SmallVec<[CoreTensor; 4]>,
    scalars: SmallVec<[Scalar; 4]>,
}

/// The run that the engine works on.
#[derive(Debug)]
struct Current {
    run: RunId,
    callable: Rc<SimCallable>,
    faults: Vec<(u64, TaskFault)>,
    n_submitted: u64,
    /// The task being executed and its next block.
    executing: Option<(Dispatch, u32)>,
    /// The place of a task that never ends, and since when.
    hanging: Option<(TaskPlace, Instant)>,
    report: RunReport,
}

/// The scheduler and its tasks; kept from run to run, so that a run of the usual size allocates nothing.
pub(crate) struct Engine {
    machine: Machine,
    graph: Scheduler,
    pools: [WorkerId; 3],
    /// The core of each shape that is used next.
    next_core: [u16; 3],
    /// By slot of the graph.
    tasks: Vec<CoreTask>,
    current: Option<Current>,
    /// Scratch of `submit`.
    accesses: Vec<Access>,
}

impl Engine {
    pub(crate) fn new(machine: Machine) -> Self {
        let mut graph = Scheduler::new(Limits::default().tasks_max(TASKS_MAX as u32));
        let pools = [(); 3].map(|()| {
            let added = graph.add_worker(WorkerKind::NextLevel, Depth::One);
            added.expect("three workers are far below the limit")
        });
        let (next_core, tasks, accesses) = ([0; 3], Vec::new(), Vec::new());
        Self {
            machine,
            graph,
            pools,
            next_core,
            tasks,
            current: None,
            accesses,
        }
    }

    /// Begins a run; the one before has ended.
    pub(crate) fn begin(&mut self, callable: Rc<SimCallable>, faults: Vec<(u64, TaskFault)>) {
        assert!(self.current.is_none(), "a run takes the whole chip");
        self.next_core = [0; 3];
        let run = self.graph.begin_run();
        let report = RunReport::default();
        let (n_submitted, executing, hanging) = (0, None, None);
        self.current = Some(Current {
            run,
            callable,
            faults,
            n_submitted,
            executing,
            hanging,
            report,
        });
    }

    /// Declares that the run takes no further tasks.
    pub(crate) fn seal(&mut self) {
        let run = self.current().run;
        self.graph.seal(run).expect("the current run is not over");
    }

    /// Ends the run, whatever is left of it, and reports what it did.
    pub(crate) fn end(&mut self) -> RunReport {
        let current = self.current.take().expect("a run that began");
        let fail = |graph: &mut Scheduler, dispatch: Dispatch| {
            graph
                .completed(dispatch.dispatch, Outcome::Failed)
                .expect("it is in flight");
        };
        // Cancelling a run that is over is refused, which is just as well.
        let _over = self.graph.cancel(current.run);
        if let Some((dispatch, _)) = current.executing {
            fail(&mut self.graph, dispatch);
        }
        while let Some(dispatch) = self.graph.next_dispatch() {
            fail(&mut self.graph, dispatch);
        }
        while self.graph.next_effect().is_some() {}
        self.graph
            .release_run(current.run)
            .expect("the run is known until it is released");
        current.report
    }

    /// Adds a task to the run after everything that its accesses depend on. Makes room first if all slots are taken.
    pub(crate) fn submit(
        &mut self,
        kernel_idx: usize,
        args: &CoreArgs,
        memory: &DeviceMemory,
    ) -> Result<TaskId, OrchestrationError> {
        let kernel = &self.callable().kernels[kernel_idx];
        let n_blocks = args.block_count(kernel.name)?;
        let resolved = memory.allocations().tensors(kernel.name, args)?;
        self.make_room()?;
        let task = self.submit_to_graph(kernel.core, &resolved, &args.after);
        let task = task.map_err(|error| OrchestrationError::Task {
            kernel: kernel.name,
            problem: error.to_string(),
        })?;
        let tensors = resolved.iter().map(|it| CoreTensor {
            start: memory.host_pointer(it.first),
            view: it.view,
            tag: it.tag,
        });
        let tensors = tensors.collect();
        self.store(task, kernel_idx, n_blocks, tensors, &args.scalars);
        Ok(task)
    }

    /// Executes up to a slice of blocks.
    ///
    /// # Errors
    /// The failure that ends the run.
    pub(crate) fn advance(&mut self) -> Result<Progress, DeviceError> {
        for _ in 0..BLOCKS_PER_SLICE {
            match self.step()? {
                Step::Executed => {}
                Step::Hanging => return Ok(Progress::Running),
                Step::Idle => return Ok(Progress::Finished),
            }
        }
        Ok(Progress::Running)
    }

    /// Executes one block of the next ready task.
    fn step(&mut self) -> Result<Step, DeviceError> {
        if let Some((place, since)) = self.current().hanging {
            return self.watch_hang(place, since);
        }
        let executing = self.current().executing;
        let Some((dispatch, block)) = executing.or_else(|| Some((self.graph.next_dispatch()?, 0)))
        else {
            return Ok(Step::Idle);
        };
        self.current_mut().executing = Some((dispatch, block));
        self.execute(dispatch, block)
    }

    /// Runs one block on the next core, and moves on.
    fn execute(&mut self, dispatch: Dispatch, block: u32) -> Result<Step, DeviceError> {
        let place = self.place(dispatch, block);
        let (chip, callable) = (self.machine.chip, self.callable());
        match self.fault_at(place.task) {
            Some(TaskFault::Hardware) => {
                return Err(DeviceError::Fault {
                    chip,
                    callable: callable.name,
                    task: place,
                });
            }
            Some(TaskFault::Hang) => {
                self.current_mut().hanging = Some((place, Instant::now()));
                return Ok(Step::Hanging);
            }
            None => {}
        }
        let task = &self.tasks[dispatch.task.slot as usize];
        let blocks = (block, task.n_blocks);
        let loaded = &self.current().callable;
        let ended = loaded.execute(task.kernel_idx, &task.tensors, &task.scalars, blocks);
        if let Err(source) = ended {
            let callable = callable.name;
            return Err(DeviceError::Kernel {
                chip,
                callable,
                task: place,
                source,
            });
        }
        let is_last = block + 1 == task.n_blocks;
        self.finish_block(dispatch, block, is_last);
        Ok(Step::Executed)
    }

    /// Counts a block; after the last one the task has ended.
    fn finish_block(&mut self, dispatch: Dispatch, block: u32, is_last: bool) {
        let current = self.current_mut();
        current.report.blocks += 1;
        if !is_last {
            current.executing = Some((dispatch, block + 1));
            return;
        }
        current.report.tasks += 1;
        current.executing = None;
        self.graph
            .completed(dispatch.dispatch, Outcome::Ok)
            .expect("it is in flight");
        while self.graph.next_effect().is_some() {}
    }

    /// Names the task and takes the next core of its shape.
    fn place(&mut self, dispatch: Dispatch, block: u32) -> TaskPlace {
        let task = &self.tasks[dispatch.task.slot as usize];
        let kernel = &self.callable().kernels[task.kernel_idx];
        let number = task.number;
        let cores = self.machine.cores;
        let count = if kernel.core == CoreType::Aiv {
            cores.aiv
        } else {
            cores.aic
        };
        let next = &mut self.next_core[shape(kernel.core)];
        let core_idx = *next;
        *next = (core_idx + 1) % count;
        TaskPlace {
            kernel: kernel.name,
            task: number,
            block,
            core: kernel.core,
            core_idx,
        }
    }

    fn fault_at(&self, task: u64) -> Option<TaskFault> {
        let faults = &self.current().faults;
        faults
            .iter()
            .find(|(at, _)| *at == task)
            .map(|(_, kind)| *kind)
    }

    /// Waits for a hanging core, a short rest at a time, until the operation's time is over.
    fn watch_hang(&self, task: TaskPlace, since: Instant) -> Result<Step, DeviceError> {
        let Machine {
            chip,
            op_timeout: limit,
            ..
        } = self.machine;
        let left = limit.saturating_sub(since.elapsed());
        if left.is_zero() {
            let callable = self.callable().name;
            return Err(DeviceError::Timeout {
                chip,
                callable,
                task,
                limit,
            });
        }
        std::thread::sleep(left.min(HANG_REST));
        Ok(Step::Hanging)
    }

    /// Executes tasks until the graph has a free slot.
    ///
    /// # Errors
    /// The failure that ends the run.
    fn make_room(&mut self) -> Result<(), DeviceError> {
        while self.graph.n_live_tasks() >= TASKS_MAX {
            self.step()?;
        }
        Ok(())
    }

    fn submit_to_graph(
        &mut self,
        core: CoreType,
        tensors: &[Resolved],
        after: &[TaskId],
    ) -> Result<TaskId, SubmitError> {
        self.accesses.clear();
        self.accesses
            .extend(tensors.iter().map(|it| Access::new(&it.view, it.tag)));
        let placement = Placement::On(self.pools[shape(core)]);
        let spec = TaskSpec {
            accesses: &self.accesses,
            ..TaskSpec::new(placement)
        };
        let run = self.current.as_ref().expect("a run that began").run;
        self.graph.submit(run, &spec.after(after))
    }

    /// Keeps what the graph does not: the task's arguments, in the storage of its slot.
    fn store(
        &mut self,
        id: TaskId,
        kernel_idx: usize,
        n_blocks: u32,
        tensors: SmallVec<[CoreTensor; 4]>,
        scalars: &[Scalar],
    ) {
        let slot = id.slot as usize;
        if slot >= self.tasks.len() {
            self.tasks.resize_with(slot + 1, CoreTask::default);
        }
        let current = self.current_mut();
        let number = current.n_submitted;
        current.n_submitted += 1;
        let scalars = SmallVec::from_slice(scalars);
        self.tasks[slot] = CoreTask {
            number,
            kernel_idx,
            n_blocks,
            tensors,
            scalars,
        };
    }

    fn callable(&self) -> &'static ChipCallable {
        self.current().callable.callable
    }

    fn current(&self) -> &Current {
        self.current.as_ref().expect("a run that began")
    }

    fn current_mut(&mut self) -> &mut Current {
        self.current.as_mut().expect("a run that began")
    }
}

/// What one step did.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Step {
    Executed,
    Hanging,
    /// No task is ready and none is in flight: whatever was submitted has ended.
    Idle,
}

/// Position of a core shape in the tables of the engine.
fn shape(core: CoreType) -> usize {
    match core {
        CoreType::Aic => 0,
        CoreType::Aiv => 1,
        CoreType::Mix => 2,
    }
}
