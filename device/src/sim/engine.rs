//! The device-side scheduler of a simulated chip: takes core tasks, orders them, executes them.
//!
//! # Cores and threads
//!
//! A chip has dozens of cores and the host a few. The cores are *logical*: each block gets the next
//! core of its type in turn, and the thread that polls executes the blocks. If the chip may use
//! more threads of the host ([`SimOptions::host_threads`]), and what is ready is worth it, some
//! threads are started for that slice of work and end with it. So an idle chip has no thread, and
//! costs nothing. The three cores of a MIX block run at the same time always, because they may wait
//! for each other.
//!
//! # Order
//!
//! Edges, slots and ready queues are `taskgraph`'s. To its scheduler the engine is a set of workers
//! for each core shape (AIC, AIV, MIX), as many as the chip may use threads; it executes what it is
//! told, in the order in which it is told. A task ends when its last block has.
//!
//! # Bounds
//!
//! At most [`TASKS_MAX`] tasks are live. An orchestration that submits more makes room by executing
//! ready tasks while it submits, so the memory of a run does not grow with its length.
//!
//! # Failure
//!
//! The first failure ends the run: no further task starts, and the failure is the run's outcome.
//!
//! [`SimOptions::host_threads`]: crate::SimOptions::host_threads

mod steps;

use std::rc::Rc;
use std::time::{Duration, Instant};

use smallvec::SmallVec;
use taskgraph::{
    Access, Depth, Dispatch, Limits, Outcome, Placement, RunId, Scheduler, SubmitError, Tag,
    TaskId, TaskSpec, WorkerId, WorkerKind,
};

use self::steps::Step;
use super::body::SimCallable;
use super::memory::DeviceMemory;
use super::options::TaskFault;
use super::task::{CoreTask, is_alone};
use super::tracer::Tracer;
use crate::allocations::Resolved;
use crate::args::CoreArgs;
use crate::callable::ChipCallable;
use crate::chip::{Progress, RunReport};
use crate::context::CoreTensor;
use crate::error::{DeviceError, OrchestrationError, TaskPlace};
use crate::kernel::CoreType;
use crate::platform::CoreCounts;
use crate::predicate::Condition;

/// How many tasks may be live at once.
const TASKS_MAX: usize = 1024;

/// How many blocks one poll executes at most.
const BLOCKS_PER_SLICE: usize = 256;

/// What the engine knows of the chip that it is part of.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Machine {
    pub(crate) chip: u32,
    pub(crate) cores: CoreCounts,
    pub(crate) op_timeout: Duration,
    /// How many threads of the host it may use; at least one, the calling one.
    pub(crate) host_threads: usize,
}

/// The run that the engine works on.
struct Current {
    run: RunId,
    /// Its number among the launched ones.
    number: u64,
    callable: Rc<SimCallable>,
    faults: Vec<(u64, TaskFault)>,
    n_submitted: u64,
    /// Tasks that were begun, oldest first.
    begun: Vec<Begun>,
    /// The place of a task that never ends, and since when.
    hanging: Option<(TaskPlace, Instant)>,
    report: RunReport,
}

/// A task that was begun, and its next block.
#[derive(Clone, Copy, Debug)]
struct Begun {
    dispatch: Dispatch,
    block: u32,
    n_blocks: u32,
}

/// One block that is about to be executed.
#[derive(Clone, Copy, Debug)]
struct Item {
    slot: usize,
    place: TaskPlace,
}

/// The scheduler and its tasks; kept from run to run, so that a run of the usual size allocates
/// nothing.
pub(crate) struct Engine {
    machine: Machine,
    graph: Scheduler,
    /// The graph's workers by core shape.
    pools: [Vec<WorkerId>; 3],
    /// The core of each shape that is used next.
    next_core: [u16; 3],
    /// By slot of the graph.
    tasks: Vec<CoreTask>,
    current: Option<Current>,
    tracer: Tracer,
    /// How long a block took lately; known only where threads could be used.
    pace: Duration,
    // Scratch, so that nothing is allocated per task.
    found: Vec<Resolved>,
    accesses: Vec<Access>,
    tensors: Vec<CoreTensor>,
    items: Vec<Item>,
}

impl Engine {
    pub(crate) fn new(machine: Machine, tracer: Tracer) -> Self {
        let mut graph = Scheduler::new(Limits::default().tasks_max(TASKS_MAX as u32));
        let pools = [(); 3].map(|()| {
            let add = |_| graph.add_worker(WorkerKind::NextLevel, Depth::One);
            let added: Result<Vec<WorkerId>, _> = (0..machine.host_threads).map(add).collect();
            added.expect("the number of threads is far below the limit of workers")
        });
        Self {
            machine,
            graph,
            pools,
            next_core: [0; 3],
            tasks: Vec::new(),
            current: None,
            tracer,
            pace: Duration::ZERO,
            found: Vec::new(),
            accesses: Vec::new(),
            tensors: Vec::new(),
            items: Vec::new(),
        }
    }

    /// Begins a run; the one before has ended.
    pub(crate) fn begin(
        &mut self,
        number: u64,
        callable: Rc<SimCallable>,
        faults: Vec<(u64, TaskFault)>,
    ) {
        assert!(self.current.is_none(), "a run takes the whole chip");
        self.next_core = [0; 3];
        let run = self.graph.begin_run();
        self.current = Some(Current {
            run,
            number,
            callable,
            faults,
            n_submitted: 0,
            begun: Vec::new(),
            hanging: None,
            report: RunReport::default(),
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
        // Cancelling a run that is over is refused, which is just as well.
        let _over = self.graph.cancel(current.run);
        for begun in current.begun {
            self.finish(begun.dispatch, Outcome::Failed);
        }
        while let Some(dispatch) = self.graph.next_dispatch() {
            self.finish(dispatch, Outcome::Failed);
        }
        self.graph
            .release_run(current.run)
            .expect("the run is known until it is released");
        current.report
    }

    pub(crate) fn tracer(&mut self) -> &mut Tracer {
        &mut self.tracer
    }

    /// Adds a task to the run after everything that its accesses depend on. Makes room first if all
    /// slots are taken.
    pub(crate) fn submit(
        &mut self,
        kernel_idx: usize,
        args: &CoreArgs<'_>,
        memory: &DeviceMemory,
    ) -> Result<TaskId, OrchestrationError> {
        let kernel = &self.callable().kernels[kernel_idx];
        let n_blocks = args.block_count(kernel.name)?;
        self.find_arguments(kernel.name, args, memory)?;
        let predicate = self.find_predicate(args, memory)?;
        self.make_room()?;
        let id = self
            .submit_to_graph(kernel.core, &args.after)
            .map_err(|error| OrchestrationError::Task {
                kernel: kernel.name,
                problem: error.to_string(),
            })?;
        let slot = id.slot as usize;
        if slot >= self.tasks.len() {
            self.tasks.resize_with(slot + 1, CoreTask::default);
        }
        let can_stray =
            self.current().callable.can_stray(kernel_idx) || !self.current().faults.is_empty();
        let task = &mut self.tasks[slot];
        task.guards.clear();
        if can_stray {
            let written = self
                .found
                .iter()
                .enumerate()
                .filter(|(_, it)| it.access.tag.writes());
            task.guards
                .extend(written.map(|(idx, it)| (idx, memory.guard(it.end))));
        }
        // The slot's old storage becomes the scratch of the next task.
        std::mem::swap(&mut task.tensors, &mut self.tensors);
        task.scalars = SmallVec::from_slice(&args.scalars);
        (task.kernel_idx, task.n_blocks, task.predicate) = (kernel_idx, n_blocks, predicate);
        task.is_alone = self.machine.host_threads > 1 && is_alone(&self.accesses, n_blocks);
        let current = self.current.as_mut().expect("a run that began");
        task.number = current.n_submitted;
        current.n_submitted += 1;
        Ok(id)
    }

    /// Executes up to a slice of blocks.
    ///
    /// # Errors
    /// The failure that ends the run.
    pub(crate) fn advance(&mut self) -> Result<Progress, DeviceError> {
        let started = self.tracer.now();
        let mut left = BLOCKS_PER_SLICE;
        let progress = loop {
            match self.step()? {
                Step::Executed(blocks) if blocks < left => left -= blocks,
                Step::Executed(_) | Step::Hanging => break Progress::Running,
                Step::Idle => break Progress::Finished,
            }
        };
        let current = self.current.as_ref().expect("a run that began");
        self.tracer
            .slice(started, current.callable.callable.name, current.number);
        Ok(progress)
    }

    /// Finds the task's tensors in memory: `accesses` for the graph, `tensors` for the kernel.
    fn find_arguments(
        &mut self,
        kernel: &'static str,
        args: &CoreArgs<'_>,
        memory: &DeviceMemory,
    ) -> Result<(), OrchestrationError> {
        memory
            .allocations()
            .find_all(kernel, args, &mut self.found)?;
        self.accesses.clear();
        self.accesses.extend(self.found.iter().map(|it| it.access));
        self.tensors.clear();
        for (it, (tensor, tag)) in self.found.iter().zip(&args.tensors) {
            let start = memory.host_pointer(it.first);
            self.tensors.push(CoreTensor {
                start,
                view: tensor.view,
                tag: *tag,
            });
        }
        Ok(())
    }

    /// Finds the element that decides whether the task runs; one more input, as far as the graph
    /// goes.
    fn find_predicate(
        &mut self,
        args: &CoreArgs<'_>,
        memory: &DeviceMemory,
    ) -> Result<Option<(CoreTensor, Condition)>, OrchestrationError> {
        let Some(predicate) = &args.predicate else {
            return Ok(None);
        };
        let tag = Tag::Input;
        let found = memory.allocations().find(&predicate.element, tag)?;
        self.accesses.push(found.access);
        let start = memory.host_pointer(found.first);
        let element = CoreTensor {
            start,
            view: predicate.element.view,
            tag,
        };
        Ok(Some((element, predicate.condition)))
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

    fn submit_to_graph(&mut self, core: CoreType, after: &[TaskId]) -> Result<TaskId, SubmitError> {
        let placement = match &self.pools[shape(core)][..] {
            [worker] => Placement::On(*worker),
            workers => Placement::AnyOf(workers),
        };
        let spec = TaskSpec {
            accesses: &self.accesses,
            ..TaskSpec::new(placement)
        };
        let run = self.current.as_ref().expect("a run that began").run;
        self.graph.submit(run, &spec.after(after))
    }

    /// Tells the graph that a dispatch has ended.
    fn finish(&mut self, dispatch: Dispatch, outcome: Outcome) {
        self.graph
            .completed(dispatch.dispatch, outcome)
            .expect("it is in flight");
        while self.graph.next_effect().is_some() {}
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

/// Position of a core shape in the tables of the engine.
fn shape(core: CoreType) -> usize {
    match core {
        CoreType::Aic => 0,
        CoreType::Aiv => 1,
        CoreType::Mix => 2,
    }
}
