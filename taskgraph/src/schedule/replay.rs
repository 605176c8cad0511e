//! Replays: one task for the graph, many for the workers.
//!
//! A graph task takes part in inference through its boundary, as any task does, and is submitted for the
//! cost of that. Its nodes do not exist before it starts: then each gets a slot when the last node that
//! it follows has ended, and gives it back at its own end. So what a replay holds is a counter for each
//! node, and a slot for each node that is ready or runs.
//!
//! ```text
//! submit_graph ──> Pending ──(inputs are ready, and it is prepared)──> Ready
//!                                                                        │ next_dispatch
//!                                                                        v
//!     roots: Ready ──> a line ──> worker ──> ended ──> fan-out counted down ──> next nodes
//!                                                │
//!                                                v the last one
//!                         the graph task is Completed, or Failed as its first node that failed
//! ```
//!
//! Nodes fail as tasks do: who needs their data is skipped, the others run. To the outside the graph is
//! one task, which has then failed, and everything that reads what it should have written is skipped.
//!
//! Slots of nodes do not count against [`Limits::tasks_max`](super::Limits): a graph that waited for a
//! slot could be what all the others wait for.

use std::collections::VecDeque;
use std::sync::Arc;

use super::Scheduler;
use super::arena::{Kind, Place};
use super::runs::ShortRun;
use super::spec::{Effect, EventError, Placement, SubmitError, TaskEnd};
use super::submit::follow;
use super::workers::WorkerSet;
use crate::capture::{Binding, DATA, Definition, Targets};
use crate::ids::{RunId, TaskId};
use crate::infer::NONE;
use crate::slot::{State, Step};

/// A node that needs data of one that failed, in its counter.
const POISONED: u32 = 1 << 31;

/// One graph task that has not ended.
struct Replay {
    definition: Arc<Definition>,
    /// The slot of the graph task.
    slot: u32,
    /// For each node how many it follows that have not ended; empty before the start.
    waits: Vec<u32>,
    n_left: u32,
    /// Whether the two facts that start it are one: nobody will call `prepared`.
    is_prepared: bool,
    /// How it ends, if not well.
    end: Option<TaskEnd>,
}

/// All graph tasks.
#[derive(Default)]
pub(super) struct Replays {
    all: Vec<Option<Replay>>,
    free: Vec<u32>,
    /// Graph tasks whose turn has come and which were not started.
    pub(super) ready: VecDeque<u32>,
    /// Counters of graph tasks that ended, to be used again.
    spare: Vec<Vec<u32>>,
    /// Scratch: nodes that ended and whose fan-out was not counted, with whether they failed.
    ended: Vec<(u32, bool)>,
    /// Scratch: nodes that have nothing left to wait for.
    released: Vec<(u32, bool)>,
}

/// Lists of counters that are kept for later graph tasks.
const SPARE_MAX: usize = 64;

impl Replays {
    fn add(&mut self, definition: &Arc<Definition>, is_prepared: bool) -> u32 {
        let replay = Replay {
            definition: Arc::clone(definition),
            slot: NONE,
            waits: self.spare.pop().unwrap_or_default(),
            n_left: definition.n_nodes(),
            is_prepared,
            end: None,
        };
        let index = self.free.pop().unwrap_or(self.all.len() as u32);
        match self.all.get_mut(index as usize) {
            Some(free) => *free = Some(replay),
            None => self.all.push(Some(replay)),
        }
        index
    }

    /// The graph task has ended.
    pub(super) fn remove(&mut self, index: u32) {
        let replay = self.all[index as usize].take();
        self.free.push(index);
        let mut waits = replay.map_or(Vec::new(), |replay| replay.waits);
        waits.clear();
        if self.spare.len() < SPARE_MAX {
            self.spare.push(waits);
        }
    }

    fn get_mut(&mut self, index: u32) -> &mut Replay {
        self.all[index as usize]
            .as_mut()
            .expect("a graph task that has not ended")
    }

    fn get(&self, index: u32) -> &Replay {
        self.all[index as usize]
            .as_ref()
            .expect("a graph task that has not ended")
    }
}

impl Replay {
    /// Counts down what follows a node, and lists what has nothing left to wait for, with whether it
    /// needs data of a node that failed.
    fn count_down(&mut self, node: u32, failed: bool, released: &mut Vec<(u32, bool)>) {
        self.n_left -= 1;
        for edge in self.definition.raw_fan_out(node) {
            let later = edge & !DATA;
            let waits = &mut self.waits[later as usize];
            *waits -= 1;
            if failed && edge & DATA != 0 {
                *waits |= POISONED;
            }
            if *waits & !POISONED == 0 {
                released.push((later, *waits != 0));
            }
        }
    }

    /// The first failure says how a graph ends; a cancelled node only where nothing failed.
    fn note(&mut self, end: TaskEnd) {
        if matches!(self.end, None | Some(TaskEnd::Cancelled)) && end != TaskEnd::Completed {
            self.end = Some(end);
        }
    }
}

impl Scheduler {
    /// Adds a recorded graph to an open run, as one task. It starts when everything it follows has ended,
    /// and when it was [prepared](Scheduler::prepared), where that was asked for.
    ///
    /// Costs the boundary, as [`submit`](Scheduler::submit) does, and nothing for the nodes. What is
    /// dispatched are the nodes; [`node_of`](Scheduler::node_of) tells which. The end of the graph task is
    /// reported once, when all nodes have ended; a node that fails on its own is reported by
    /// [`Effect::NodeFailed`] before.
    ///
    /// # Errors
    /// As [`submit`](Scheduler::submit), for the workers of all nodes: one that a node needs must live, and
    /// of those that a node can choose from one must.
    pub fn submit_graph(
        &mut self,
        run: RunId,
        binding: &Binding<'_>,
    ) -> Result<TaskId, SubmitError> {
        let accesses = binding.boundary.accesses().iter().chain(&binding.heap);
        self.check(run, binding.after, accesses.clone())?;
        self.check_targets(binding.definition.targets())?;
        let replay = self.replays.add(binding.definition, binding.is_prepared);
        let slot = self.take_slot(run, Place::graph(replay));
        self.replays.get_mut(replay).slot = slot;
        self.record_graph(slot, binding.definition.n_nodes());
        self.arena[slot].waits += u32::from(!binding.is_prepared);
        let records = self.order_graph(slot, binding);
        Ok(self.launch(slot, records, accesses, binding.after))
    }

    /// Finds what a graph task follows because of its boundary, and because of its intermediate memory, whose users are
    /// kept apart even where inference is switched off: no caller sees it. Returns the records of both.
    fn order_graph(&mut self, slot: u32, binding: &Binding<'_>) -> u32 {
        let is_automatic = self.is_automatic(slot, binding.inference);
        let boundary = binding.boundary.accesses();
        let (run, arena) = (self.runs.of_task(self.arena[slot].run), &mut self.arena);
        let (ledger, mut records) = (&mut self.ledger, NONE);
        let mut found = |earlier, why| follow(arena, run, slot, earlier, why);
        if is_automatic && binding.definition.is_apart() {
            ledger.access_apart(slot, &mut records, boundary, &mut found);
        } else if is_automatic {
            let found = |_, earlier, why| found(earlier, why);
            ledger.access_all(slot, &mut records, boundary.iter(), found);
        }
        // Last: nobody has said that it is not where the graph reads.
        let found = |_, earlier, why| found(earlier, why);
        ledger.access_all(slot, &mut records, binding.heap.iter(), found);
        records
    }

    /// Event: whatever a graph task needs besides its inputs is there; for one that was bound with
    /// [`prepared_later`](Binding::prepared_later).
    ///
    /// # Errors
    /// When the task is not a graph task that waits for this; one of a cancelled run does not.
    pub fn prepared(&mut self, graph: TaskId) -> Result<(), EventError> {
        let refused = EventError::NotAwaited { task: graph };
        if !self.arena.is_current(graph) || self.arena[graph.slot].state().has_ended() {
            return Err(refused);
        }
        let Kind::Graph(replay) = self.arena[graph.slot].place.kind() else {
            return Err(refused);
        };
        if !self.count_preparation(replay) {
            return Err(refused);
        }
        self.settle();
        Ok(())
    }

    /// Counts down the fact that a graph task is prepared; whether it was still missing.
    fn count_preparation(&mut self, replay: u32) -> bool {
        let Replay {
            slot, is_prepared, ..
        } = self.replays.get_mut(replay);
        let (slot, was_missing) = (*slot, !std::mem::replace(is_prepared, true));
        if was_missing {
            self.arena[slot].waits -= 1;
            if self.arena[slot].waits == 0 {
                self.release(slot);
            }
        }
        was_missing
    }

    /// Which node of which graph task a dispatched task is; `None` for one that was submitted itself.
    pub fn node_of(&self, task: TaskId) -> Option<(TaskId, u32)> {
        let slot = self
            .arena
            .is_current(task)
            .then(|| &self.arena[task.slot])?;
        let (replay, node) = slot.node()?;
        Some((self.arena.id(self.replays.get(replay).slot), node))
    }

    fn check_targets(&self, targets: &Targets) -> Result<(), SubmitError> {
        if targets.n_subs > 0 {
            self.check_subs(targets.n_subs)?;
        }
        let all = targets
            .any_of
            .iter()
            .fold(targets.needed, |all, set| all | set);
        let unknown = WorkerSet::from_bits(all).without(&self.workers.next_level());
        if let Some(worker) = unknown.first() {
            return Err(SubmitError::NotNextLevel { worker });
        }
        let live = self.workers.live();
        let needed = WorkerSet::from_bits(targets.needed).without(live).first();
        let any_of = targets.any_of.iter().map(|set| WorkerSet::from_bits(*set));
        let mut idle = any_of.filter(|set| set.and(live).is_empty());
        match needed.or_else(|| idle.next()?.first()) {
            Some(worker) => Err(SubmitError::WorkerLost { worker }),
            None => Ok(()),
        }
    }

    /// Starts the graph tasks whose turn has come.
    pub(super) fn start_graphs(&mut self) {
        while let Some(slot) = self.replays.ready.pop_front() {
            let Kind::Graph(replay) = self.arena[slot].place.kind() else {
                unreachable!("only graph tasks are put there")
            };
            self.start_graph(slot, replay);
            self.settle();
        }
    }

    fn start_graph(&mut self, slot: u32, index: u32) {
        self.arena[slot].step(Step::Dispatch);
        let replay = self.replays.get_mut(index);
        let definition = Arc::clone(&replay.definition);
        replay.waits.extend(definition.fan_in_counts());
        for &root in definition.roots() {
            self.begin_node(&definition, index, root);
        }
        if definition.n_nodes() == 0 {
            self.complete(slot);
        }
    }

    /// A node has nothing left to wait for: it gets a slot and goes in line.
    fn begin_node(&mut self, definition: &Definition, replay: u32, node: u32) {
        let outer = self.replays.get(replay).slot;
        let (run, seq) = (self.arena[outer].run, self.arena[outer].seq);
        let placement = definition.node(node).placement();
        let Ok(place) = self.place(&placement) else {
            return self.fail_unplaced(replay, node, &placement);
        };
        let slot = self.arena.take_node(run, seq, place, (replay, node));
        if let Kind::Group(group) = place.kind() {
            self.groups[group].slot = slot;
        }
        self.arena[slot].step(Step::Release);
        self.enqueue(slot);
    }

    /// No worker is left for a node. It gets a slot all the same, to end as any other does.
    #[cold]
    fn fail_unplaced(&mut self, replay: u32, node: u32, placement: &Placement<'_>) {
        let outer = self.replays.get(replay).slot;
        let (run, seq) = (self.arena[outer].run, self.arena[outer].seq);
        let slot = self
            .arena
            .take_node(run, seq, Place::line(0), (replay, node));
        self.arena[slot].step(Step::Release);
        let candidates = self.candidates(placement);
        self.end_unserved(slot, candidates);
    }

    /// Notes how a node ended, and reports one that failed on its own.
    pub(super) fn node_ended(&mut self, task: TaskId, (replay, node): (u32, u32), end: TaskEnd) {
        self.replays.get_mut(replay).note(end);
        if let TaskEnd::Failed(failure) = end {
            let outer = self.replays.get(replay).slot;
            let run = self.runs.id(self.arena[outer].run);
            let graph = self.arena.id(outer);
            self.effects.push_back(Effect::NodeFailed {
                run,
                graph,
                node,
                task,
                failure,
            });
        }
    }

    /// A node gives its slot back, and what follows it goes on. Long chains of skipped nodes need no deep
    /// stack.
    pub(super) fn release_nodes(&mut self, slot: u32, (index, node): (u32, u32)) {
        let failed = self.arena[slot].state() == State::Failed;
        self.arena.give_back(slot);
        let definition = Arc::clone(&self.replays.get(index).definition);
        let outer = self.replays.get(index).slot;
        let is_cancelled = self.runs.of_task(self.arena[outer].run).is_cancelled;
        let mut ended = std::mem::take(&mut self.replays.ended);
        let mut released = std::mem::take(&mut self.replays.released);
        ended.push((node, failed));
        while let Some((node, failed)) = ended.pop() {
            let replay = self.replays.get_mut(index);
            replay.count_down(node, failed, &mut released);
            for (later, is_poisoned) in released.drain(..) {
                if is_cancelled {
                    self.replays.get_mut(index).note(TaskEnd::Cancelled);
                    ended.push((later, true));
                } else if is_poisoned {
                    ended.push((later, true));
                } else {
                    self.begin_node(&definition, index, later);
                }
            }
        }
        (self.replays.ended, self.replays.released) = (ended, released);
        let replay = self.replays.get(index);
        if replay.n_left == 0 {
            match replay.end {
                None => self.complete(outer),
                Some(end) => self.end_badly(outer, end),
            }
        }
    }

    /// Lets the graph tasks of a cancelled run go that were not prepared, and now never will be: each ends
    /// with the last task that it follows.
    pub(super) fn drop_unprepared_graphs(&mut self, run: ShortRun) {
        for index in 0..self.replays.all.len() as u32 {
            let waiting = self.replays.all[index as usize]
                .as_ref()
                .filter(|it| !it.is_prepared && self.arena[it.slot].run == run);
            if waiting.is_some() {
                self.count_preparation(index);
            }
        }
    }

    /// Drops the graph tasks whose turn has come and which were not started.
    pub(super) fn drop_ready_graphs(&mut self) {
        while let Some(slot) = self.replays.ready.pop_front() {
            self.end_badly(slot, TaskEnd::Cancelled);
        }
    }
}
