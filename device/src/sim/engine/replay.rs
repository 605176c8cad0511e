//! Graph tasks on the chip: submitted for the cost of their boundary, prepared between other work,
//! replayed node by node.
//!
//! ```text
//! submit_graph --> one pending task ------------------------ its inputs are ready --+
//!        |                                                                          +--> roots are ready
//!        +--> nodes become core tasks, some per step ------- the last one: prepared -+
//! ```
//!
//! The two facts are counted by `taskgraph`, which activates the roots exactly once, whichever comes
//! last. So a graph is prepared while what it reads is still being computed.
//!
//! A prepared node is a core task with host pointers: it costs memory. At most [`NODES_AHEAD`] are kept
//! for graphs that wait behind others; the oldest graph is always prepared, because all others may wait
//! for it.

use std::collections::VecDeque;
use std::sync::Arc;

use smallvec::SmallVec;
use taskgraph::capture::{Bindings, Definition, Mismatch, NodeArg, NodeRef};
use taskgraph::{Access, BufferId, BufferKind, DType, TaskArgs, TaskId, Tensor};

use super::Engine;
use super::steps::Step;
use crate::chip::DeviceAddress;
use crate::context::CoreTensor;
use crate::error::{DeviceError, OrchestrationError};
use crate::graph::GraphCounts;
use crate::predicate::Condition;
use crate::sim::graphs::Pools;
use crate::sim::memory::DeviceMemory;
use crate::sim::task::{CoreTask, is_alone};
use crate::trace::TraceLane;

/// How many nodes one step prepares.
const NODES_PER_STEP: usize = 32;

/// How many prepared nodes may wait.
const NODES_AHEAD: usize = 4096;

/// Lists of core tasks that are kept for later graphs.
const SPARE_MAX: usize = 16;

/// A graph task that has not ended.
struct Replay {
    task: TaskId,
    definition: Arc<Definition>,
    boundary: TaskArgs,
    heap: Option<Tensor>,
    /// What its first node is among the tasks of the run.
    first_number: u64,
    /// The prepared ones come first; what is behind them is storage of an earlier graph.
    nodes: Vec<CoreTask>,
    n_prepared: usize,
}

/// All graph tasks of the run.
#[derive(Default)]
pub(super) struct Replays {
    all: Vec<Option<Replay>>,
    free: Vec<usize>,
    /// Positions by slot of the scheduler; what stands there may have ended.
    by_slot: Vec<usize>,
    /// Positions of those that have not ended, oldest first.
    live: VecDeque<usize>,
    /// Positions of those that are not prepared, oldest first.
    unprepared: VecDeque<usize>,
    /// Prepared nodes of all.
    n_ahead: usize,
    spare: Vec<Vec<CoreTask>>,
    /// Intermediate memory of graphs of this run that have ended.
    free_heaps: Vec<Tensor>,
}

impl Replays {
    /// A node of a graph task.
    pub(super) fn node(&self, graph: usize, node: u32) -> &CoreTask {
        let replay = self.all[graph].as_ref();
        &replay.expect("a graph that has not ended").nodes[node as usize]
    }

    /// Where the graph task is that the scheduler knows by this name.
    pub(super) fn find(&self, task: TaskId) -> Option<usize> {
        let at = *self.by_slot.get(task.slot as usize)?;
        let found = self.all.get(at)?.as_ref()?;
        (found.task == task).then_some(at)
    }

    /// A graph task has ended: its memory is free for the next one.
    pub(super) fn ended(&mut self, task: TaskId) {
        let Some(at) = self.find(task) else {
            return;
        };
        let replay = self.all[at].take().expect("it was just found");
        self.free.push(at);
        self.live.retain(|live| *live != at);
        self.unprepared.retain(|waiting| *waiting != at);
        self.n_ahead -= replay.n_prepared;
        self.free_heaps.extend(replay.heap);
        if self.spare.len() < SPARE_MAX {
            self.spare.push(replay.nodes);
        }
    }

    pub(super) fn is_empty(&self) -> bool {
        self.live.is_empty()
    }

    /// The run has ended, and its memory goes with it.
    pub(super) fn clear(&mut self) {
        self.all.clear();
        self.free.clear();
        self.by_slot.clear();
        self.live.clear();
        self.unprepared.clear();
        self.free_heaps.clear();
        self.n_ahead = 0;
    }

    fn add(&mut self, replay: Replay) {
        let slot = replay.task.slot as usize;
        let at = self.free.pop().unwrap_or(self.all.len());
        if slot >= self.by_slot.len() {
            self.by_slot.resize(slot + 1, usize::MAX);
        }
        self.by_slot[slot] = at;
        if at == self.all.len() {
            self.all.push(None);
        }
        self.all[at] = Some(replay);
        self.live.push_back(at);
        self.unprepared.push_back(at);
    }

    /// The graph that is prepared next, if there may be more prepared nodes.
    fn next(&self) -> Option<usize> {
        let next = *self.unprepared.front()?;
        let is_oldest = self.live.front() == Some(&next);
        (is_oldest || self.n_ahead < NODES_AHEAD).then_some(next)
    }
}

impl Engine {
    /// The workers of the graph by core shape, as recordings name them.
    pub(crate) fn pools(&self) -> &Pools {
        &self.pools
    }

    /// How the graphs of this run were submitted.
    pub(crate) fn graph_counts(&mut self) -> &mut GraphCounts {
        &mut self.current_mut().report.graphs
    }

    /// Adds a recorded graph to the run, as one task; or says how the call differs from the recorded one,
    /// and adds nothing.
    pub(crate) fn submit_graph(
        &mut self,
        definition: &Arc<Definition>,
        boundary: TaskArgs,
        after: &[TaskId],
        memory: &mut DeviceMemory,
        allocated: &mut Vec<DeviceAddress>,
    ) -> Result<Result<(), Mismatch>, OrchestrationError> {
        let mut binding = match definition.bind(&boundary, &[]) {
            Ok(binding) => binding,
            Err(mismatch) => return Ok(Err(mismatch)),
        };
        self.make_room(memory)?;
        let heap = self.heap(definition.heap_bytes(), memory, allocated)?;
        if let Some(heap) = &heap {
            binding = binding.heap(heap).map_err(refused)?;
        }
        let binding = binding.after(after).prepared_later();
        let run = self.current().run;
        let task = self.graph.submit_graph(run, &binding).map_err(refused)?;
        let nodes = self.replays.spare.pop().unwrap_or_default();
        let current = self.current.as_mut().expect("a run that began");
        self.replays.add(Replay {
            task,
            definition: Arc::clone(definition),
            boundary,
            heap,
            first_number: current.n_submitted,
            nodes,
            n_prepared: 0,
        });
        current.n_submitted += u64::from(definition.n_nodes());
        Ok(Ok(()))
    }

    /// An event on the lane of graph submits.
    pub(crate) fn trace_graph_submit(&mut self, began: Option<u64>) {
        self.trace(TraceLane::GraphSubmit, began);
    }

    /// Turns some nodes of the next graph into core tasks; whether there was one.
    pub(super) fn prepare_some(&mut self, memory: &DeviceMemory) -> bool {
        let Some(at) = self.replays.next() else {
            return false;
        };
        let began = self.tracer.now();
        let mut replay = self.replays.all[at].take().expect("it is not prepared");
        let n_nodes = replay.definition.n_nodes() as usize;
        let until = n_nodes.min(replay.n_prepared + NODES_PER_STEP);
        self.replays.n_ahead += until - replay.n_prepared;
        if replay.nodes.len() < until {
            replay.nodes.resize_with(until, CoreTask::default);
        }
        while replay.n_prepared < until {
            self.prepare(&mut replay, memory);
        }
        let task = replay.task;
        self.replays.all[at] = Some(replay);
        if until == n_nodes {
            self.replays.unprepared.pop_front();
            self.graph.prepared(task).expect("it waits for this");
        }
        self.trace(TraceLane::GraphPrepare, began);
        true
    }

    /// Turns the next node into a core task.
    fn prepare(&mut self, replay: &mut Replay, memory: &DeviceMemory) {
        let Replay {
            definition,
            boundary,
            heap,
            nodes,
            n_prepared,
            ..
        } = replay;
        let node = definition.node(*n_prepared as u32);
        let bindings = Bindings {
            boundary,
            heap: *heap,
        };
        let located = Located {
            definition,
            bindings,
            memory,
        };
        let task = &mut nodes[*n_prepared];
        located.fill(task, node);
        task.number = replay.first_number + *n_prepared as u64;
        task.guards.clear();
        let current = self.current.as_ref().expect("a run that began");
        if current.callable.can_stray(task.kernel_idx) || !current.faults.is_empty() {
            located.guard(task);
        }
        if self.machine.host_threads > 1 {
            let accesses = task.tensors.iter().map(|it| Access::new(&it.view, it.tag));
            task.is_alone = is_alone(&accesses.collect::<SmallVec<[_; 8]>>(), task.n_blocks);
        }
        *n_prepared += 1;
    }

    /// Intermediate memory of a graph: that of one that has ended, or new. If there is none, what runs may
    /// give some back.
    fn heap(
        &mut self,
        bytes: u64,
        memory: &mut DeviceMemory,
        allocated: &mut Vec<DeviceAddress>,
    ) -> Result<Option<Tensor>, OrchestrationError> {
        if bytes == 0 {
            return Ok(None);
        }
        loop {
            let fits = |heap: &Tensor| heap.backing_bytes() >= bytes;
            if let Some(at) = self.replays.free_heaps.iter().position(fits) {
                return Ok(Some(self.replays.free_heaps.swap_remove(at)));
            }
            match memory.malloc(bytes) {
                Ok(address) => {
                    allocated.push(address);
                    return Ok(Some(whole(address, bytes)?));
                }
                Err(full @ DeviceError::OutOfMemory { .. }) if !self.replays.is_empty() => {
                    let step = self.slice(|engine| engine.step(memory))?;
                    if step == Step::Idle && self.replays.free_heaps.is_empty() {
                        return Err(full.into());
                    }
                }
                Err(error) => return Err(error.into()),
            }
        }
    }

    /// An event that concerns the run as a whole.
    pub(super) fn trace(&mut self, lane: TraceLane, began: Option<u64>) {
        if began.is_some() {
            let current = self.current.as_ref().expect("a run that began");
            let (name, number) = (current.callable.callable.name, current.number);
            self.tracer.span(lane, began, name, number);
        }
    }
}

/// What the sources of a definition are in one replay, on the host.
struct Located<'a> {
    definition: &'a Definition,
    bindings: Bindings<'a>,
    memory: &'a DeviceMemory,
}

impl Located<'_> {
    fn fill(&self, task: &mut CoreTask, node: NodeRef<'_>) {
        task.kernel_idx = node.callable() as usize;
        task.n_blocks = node.n_blocks();
        task.is_alone = false;
        task.tensors.clear();
        task.tensors
            .extend(node.args(0).map(|arg| self.tensor(&arg)));
        let scalar = |source| self.definition.scalar(source, &self.bindings);
        let scalars = node
            .scalars(0)
            .map(|source| scalar(source).expect("it was bound"));
        task.scalars.clear();
        task.scalars.extend(scalars);
        task.predicate = node.predicate().map(|predicate| {
            let element = self.tensor(&predicate.element);
            (element, Condition::of_code(predicate.condition))
        });
    }

    /// Tensors are views of allocations, whose identity is their base.
    fn tensor(&self, arg: &NodeArg) -> CoreTensor {
        let view = self
            .definition
            .tensor(arg, &self.bindings)
            .expect("it was bound");
        let first = DeviceAddress(view.buffer().id + view.byte_offset());
        CoreTensor {
            start: self.memory.host_pointer(first),
            view,
            tag: arg.tag,
        }
    }

    /// Notes what is behind the allocations that the task writes.
    fn guard(&self, task: &mut CoreTask) {
        let written = task
            .tensors
            .iter()
            .enumerate()
            .filter(|(_, it)| it.tag.writes());
        let guards = written.filter_map(|(idx, it)| {
            let end = self.memory.allocations().end_of(it.view.buffer().id)?;
            Some((idx, self.memory.guard(end)))
        });
        task.guards.extend(guards);
    }
}

/// An allocation as bytes.
fn whole(address: DeviceAddress, bytes: u64) -> Result<Tensor, OrchestrationError> {
    let buffer = BufferId::new(0, address.0, 0, BufferKind::Device);
    Ok(Tensor::contiguous(buffer, DType::U8, &[bytes], bytes)?)
}

fn refused(error: impl std::fmt::Display) -> OrchestrationError {
    OrchestrationError::refuse(format!("submit a graph: {error}"))
}
