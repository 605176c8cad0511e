//! The device-side scheduler of a simulated chip: takes core tasks, orders them, executes them.
//!
//! # Cores and threads
//!
//! A chip has dozens of cores and a few scheduler threads, and the host a few threads. Both are
//! *logical*: the thread that polls plays each scheduler thread, which gives blocks to its free cores
//! through their handshakes (see `cores.rs`), and then executes what the cores were given. If the
//! chip may use more threads of the host ([`SimOptions::host_threads`]), and what the cores were
//! given is worth it, some threads are started for that step and end with it. So an idle chip has no
//! thread, and costs nothing. The three cores of a MIX block run at the same time always, because
//! they may wait for each other.
//!
//! # Order
//!
//! Edges, slots and ready queues are `taskgraph`'s. To its scheduler the engine is a pool of workers
//! for each core shape (AIC, AIV, MIX): a scheduler thread has one task of each shape in hand, and
//! hands its blocks out to as many cores as are free. A task ends when its last block has.
//!
//! # Bounds
//!
//! At most [`TASKS_MAX`] tasks are live, a graph counting as one until it runs. An orchestration that submits more makes room by executing
//! ready tasks while it submits, so the memory of a run does not grow with its length.
//!
//! # Failure
//!
//! The first failure ends the run: no further task starts, and the failure is the run's outcome.
//!
//! [`SimOptions::host_threads`]: crate::SimOptions::host_threads

mod replay;
mod steps;

use std::rc::Rc;
use std::time::{Duration, Instant};

use smallvec::SmallVec;
use taskgraph::{
    Access, Depth, Dispatch, Effect, Limits, Outcome, Placement, RunId, RunStatus, Scheduler,
    SubmitError, Tag, TaskId, TaskSpec, WorkerId, WorkerKind,
};

use self::replay::Replays;
use self::steps::Step;
use super::body::SimCallable;
use super::cores::Cores;
use super::graphs::Pools;
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
use crate::trace::TraceLane;

/// How many tasks may be live at once.
const TASKS_MAX: usize = 1024;

/// How many blocks one poll executes at most.
const BLOCKS_PER_SLICE: usize = 256;

/// The core task that is kept somewhere.
fn task_at<'a>(tasks: &'a [CoreTask], replays: &'a Replays, at: TaskAt) -> &'a CoreTask {
    match at {
        TaskAt::Slot(slot) => &tasks[slot],
        TaskAt::Node { graph, node } => replays.node(graph, node),
    }
}

/// How many tasks of one shape can have begun at most.
const IN_HAND_MAX: usize = taskgraph::WORKERS_MAX / 3;

/// What the engine knows of the chip that it is part of.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Machine {
    pub(crate) chip: u32,
    pub(crate) cores: CoreCounts,
    /// Its scheduler threads; at least one.
    pub(crate) schedulers: usize,
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

/// A task that was begun, with how many of its blocks cores were given, and how many have ended.
#[derive(Clone, Copy, Debug)]
struct Begun {
    dispatch: Dispatch,
    task: TaskAt,
    given: u32,
    ended: u32,
    n_blocks: u32,
}

/// One block that a core was given.
#[derive(Clone, Copy, Debug)]
struct Item {
    /// Position of its task among those that were begun.
    begun: usize,
    task: TaskAt,
    place: TaskPlace,
}

/// Where a core task is kept.
#[derive(Clone, Copy, Debug)]
enum TaskAt {
    /// In the storage of its slot.
    Slot(usize),
    /// Among the nodes of a graph task.
    Node { graph: usize, node: u32 },
}

/// The scheduler and its tasks; kept from run to run, so that a run of the usual size allocates
/// nothing.
pub(crate) struct Engine {
    machine: Machine,
    graph: Scheduler,
    /// The graph's workers by core shape.
    pools: Pools,
    cores: Cores,
    /// A bit for each scheduler thread that gave a block to a core in this slice.
    active: u64,
    /// By slot of the graph.
    tasks: Vec<CoreTask>,
    replays: Replays,
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
        let in_hand = machine
            .schedulers
            .max(machine.host_threads)
            .min(IN_HAND_MAX);
        let pools = [(); 3].map(|()| {
            let add = |_| graph.add_worker(WorkerKind::NextLevel, Depth::One);
            let added: Result<Vec<WorkerId>, _> = (0..in_hand).map(add).collect();
            added.expect("three pools stay below the limit of workers")
        });
        Self {
            machine,
            graph,
            pools,
            cores: Cores::new(machine.cores, machine.schedulers),
            active: 0,
            tasks: Vec::new(),
            replays: Replays::default(),
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
        self.cores.reset();
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
        self.replays.clear();
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
        after: &[TaskId],
        memory: &DeviceMemory,
    ) -> Result<TaskId, OrchestrationError> {
        let began = self.tracer.now();
        let kernel = &self.callable().kernels[kernel_idx];
        let n_blocks = args.block_count(kernel.name)?;
        self.find_arguments(kernel.name, args, memory)?;
        let predicate = self.find_predicate(args, memory)?;
        self.make_room(memory)?;
        let id =
            self.submit_to_graph(kernel.core, after)
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
        self.trace(TraceLane::TaskSubmit, began);
        Ok(id)
    }

    /// Executes up to a slice of blocks.
    ///
    /// # Errors
    /// The failure that ends the run.
    pub(crate) fn advance(&mut self, memory: &DeviceMemory) -> Result<Progress, DeviceError> {
        self.slice(|engine| {
            let mut left = BLOCKS_PER_SLICE;
            loop {
                match engine.step(memory)? {
                    Step::Worked(blocks) if blocks < left => left -= blocks,
                    Step::Worked(_) | Step::Hanging => return Ok(Progress::Running),
                    Step::Idle => return engine.over(),
                }
            }
        })
    }

    /// Nothing is left to do: the run is over, or something went wrong with it that must not look like it.
    fn over(&self) -> Result<Progress, DeviceError> {
        match self.graph.run_status(self.current().run) {
            Some(RunStatus::Done(_)) => Ok(Progress::Finished),
            _ => Err(self.stalled()),
        }
    }

    /// Nothing can be begun, and nothing runs that could change that.
    fn stalled(&self) -> DeviceError {
        DeviceError::Stalled {
            chip: self.machine.chip,
            callable: self.callable().name,
            tasks: self.graph.n_live_tasks(),
        }
    }

    /// A slice of steps, which appears on the lanes of the scheduler threads that were active in it.
    fn slice<R>(
        &mut self,
        steps: impl FnOnce(&mut Self) -> Result<R, DeviceError>,
    ) -> Result<R, DeviceError> {
        let began = self.tracer.now();
        self.active = 0;
        let ended = steps(self);
        if began.is_some() {
            let current = self.current.as_ref().expect("a run that began");
            let (name, number) = (current.callable.callable.name, current.number);
            let is_active = |it: &u16| self.active & (1 << it) != 0;
            let active = (0..self.cores.schedulers()).filter(is_active);
            active.for_each(|it| {
                self.tracer
                    .span(TraceLane::Scheduler(it), began, name, number)
            });
        }
        ended
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
    fn make_room(&mut self, memory: &DeviceMemory) -> Result<(), DeviceError> {
        if self.graph.n_live_tasks() < TASKS_MAX {
            return Ok(());
        }
        self.slice(|engine| {
            while engine.graph.n_live_tasks() >= TASKS_MAX {
                if engine.step(memory)? == Step::Idle && engine.graph.n_live_tasks() >= TASKS_MAX {
                    return Err(engine.stalled());
                }
            }
            Ok(())
        })
    }

    fn submit_to_graph(&mut self, core: CoreType, after: &[TaskId]) -> Result<TaskId, SubmitError> {
        let placement = Placement::AnyOf(&self.pools[core as usize]);
        let spec = TaskSpec {
            accesses: &self.accesses,
            ..TaskSpec::new(placement)
        };
        let run = self.current.as_ref().expect("a run that began").run;
        self.graph.submit(run, &spec.after(after))
    }

    /// Where the task of a dispatch is kept.
    fn locate(&self, task: TaskId) -> TaskAt {
        if self.replays.is_empty() {
            return TaskAt::Slot(task.slot as usize);
        }
        let node = self.graph.node_of(task).and_then(|(graph, node)| {
            let graph = self.replays.find(graph)?;
            Some(TaskAt::Node { graph, node })
        });
        node.unwrap_or(TaskAt::Slot(task.slot as usize))
    }

    /// Tells the graph that a dispatch has ended.
    fn finish(&mut self, dispatch: Dispatch, outcome: Outcome) {
        self.graph
            .completed(dispatch.dispatch, outcome)
            .expect("it is in flight");
        self.note_ends();
    }

    /// Takes note of the graph tasks that have ended.
    fn note_ends(&mut self) {
        while let Some(effect) = self.graph.next_effect() {
            if let Effect::TaskFinished { task, .. } = effect
                && !self.replays.is_empty()
            {
                self.replays.ended(task);
            }
        }
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
