//! The slots of live tasks, and the edges between them.
//!
//! An edge is one word in the slot of the task that comes first: the slot that waits, and a bit that
//! says whether it needs the data. The first few stand in the slot, the rest in blocks of a common
//! pool, so that a steady stream of tasks allocates nothing.

use super::runs::ShortRun;
use crate::ids::TaskId;
use crate::infer::{NONE, Why};
use crate::slot::{State, Step};

/// Edges that stand in the slot itself.
const INLINE: usize = 3;
/// Edges in one block of the pool.
const BLOCK: usize = 7;
/// Marks an edge that carries data; slots are numbered below it.
const DATA: u32 = 1 << 31;

/// Where a task goes when it is ready. One word.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Place(u32);

/// What a place is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Kind {
    /// A line of workers.
    Line(u32),
    /// The workers of a group.
    Group(u32),
    /// Nowhere itself: its nodes do.
    Graph(u32),
}

impl Place {
    const GROUP: u32 = 1 << 31;
    const GRAPH: u32 = 1 << 30;

    pub(super) const fn line(line: u32) -> Place {
        Place(line)
    }

    pub(super) const fn group(group: u32) -> Place {
        Place(group | Place::GROUP)
    }

    pub(super) const fn graph(replay: u32) -> Place {
        Place(replay | Place::GRAPH)
    }

    pub(super) const fn kind(self) -> Kind {
        if self.0 & (Place::GROUP | Place::GRAPH) == 0 {
            Kind::Line(self.0)
        } else if self.0 & Place::GROUP != 0 {
            Kind::Group(self.0 & !Place::GROUP)
        } else {
            Kind::Graph(self.0 & !Place::GRAPH)
        }
    }
}

/// Everything the scheduler knows of one task: one cache line.
#[repr(align(64))]
pub(super) struct Slot {
    /// Number of the submission; orders tasks of different lines.
    pub(super) seq: u64,
    /// The task whose failure makes this one pointless; itself when it failed on its own.
    cause: TaskId,
    pub(super) generation: u32,
    /// Predecessors that have not ended.
    pub(super) waits: u32,
    /// Next slot on the one list that this slot is on; of a free slot, the next free one.
    pub(super) link: u32,
    /// Head of the chain of records in the ledger.
    pub(super) records: u32,
    pub(super) run: ShortRun,
    pub(super) place: Place,
    n_edges: u32,
    /// Newest block of further edges.
    block: u32,
    /// Of a node of a graph, which has no edges here: the graph and the node.
    edges: [u32; INLINE],
    state: State,
    is_node: bool,
}

const _: () = assert!(size_of::<Slot>() == 64);

/// No cause.
const NO_TASK: TaskId = TaskId {
    slot: NONE,
    generation: NONE,
};

impl Slot {
    fn new(generation: u32, run: ShortRun, seq: u64, place: Place) -> Slot {
        Slot {
            seq,
            cause: NO_TASK,
            generation,
            waits: 0,
            link: NONE,
            records: NONE,
            run,
            place,
            n_edges: 0,
            block: NONE,
            edges: [0; INLINE],
            state: State::Free,
            is_node: false,
        }
    }

    /// The handle of the task in this slot, whose index that is.
    #[inline]
    pub(super) fn id(&self, index: u32) -> TaskId {
        TaskId {
            slot: index,
            generation: self.generation,
        }
    }

    /// The replay and the node that it is one of; `None` for a task that was submitted.
    #[inline]
    pub(super) fn node(&self) -> Option<(u32, u32)> {
        self.is_node.then_some((self.edges[0], self.edges[1]))
    }

    #[inline]
    pub(super) fn state(&self) -> State {
        self.state
    }

    #[inline]
    pub(super) fn cause(&self) -> Option<TaskId> {
        (self.cause != NO_TASK).then_some(self.cause)
    }

    /// Marks a task as pointless; the first cause stays.
    #[inline]
    pub(super) fn poison(&mut self, cause: Option<TaskId>) {
        if self.cause == NO_TASK {
            self.cause = cause.unwrap_or(NO_TASK);
        }
    }

    /// Moves on; an illegal step is a fault of this crate and stops.
    #[inline]
    pub(super) fn step(&mut self, step: Step) {
        match self.state.next(step) {
            Some(next) => self.state = next,
            None => illegal(self.state, step),
        }
    }
}

#[cold]
fn illegal(state: State, step: Step) -> ! {
    panic!("slot cannot {step:?} in state {state:?}")
}

/// Further edges of one slot; the blocks of a slot are chained, newest first.
struct Block {
    edges: [u32; BLOCK],
    next: u32,
}

/// The edges of a slot that were taken and not yet looked at, oldest first.
pub(super) struct Edges {
    inline: [u32; INLINE],
    at: usize,
    left: usize,
    block: u32,
}

impl Edges {
    /// The next task that waits, and why.
    pub(super) fn next(&mut self, arena: &mut Arena) -> Option<(u32, Why)> {
        self.left = self.left.checked_sub(1)?;
        let edge = match self.inline.get(self.at) {
            Some(&edge) => edge,
            None => self.next_in_block(arena),
        };
        self.at += 1;
        let why = if edge & DATA == 0 {
            Why::Order
        } else {
            Why::Data
        };
        Some((edge & !DATA, why))
    }

    /// Frees a block with its last edge.
    fn next_in_block(&mut self, arena: &mut Arena) -> u32 {
        let (block, at) = (self.block, (self.at - INLINE) % BLOCK);
        let Block { edges, next } = &arena.blocks[block as usize];
        let edge = edges[at];
        if at == BLOCK - 1 || self.left == 0 {
            self.block = *next;
            arena.free_blocks.push(block);
        }
        edge
    }
}

/// All slots.
pub(super) struct Arena {
    slots: Vec<Slot>,
    /// First of the free slots, the one that was given back last: what it takes is in the cache.
    free: u32,
    /// Tasks that are live, which a limit is for.
    n_tasks: u32,
    /// Slots of nodes of graphs, which do not count.
    n_nodes: usize,
    blocks: Vec<Block>,
    free_blocks: Vec<u32>,
    tasks_max: u32,
    /// The task that was oldest when somebody last asked.
    oldest: TaskId,
}

impl Arena {
    pub(super) fn new(tasks_max: u32) -> Arena {
        Arena {
            slots: Vec::new(),
            free: NONE,
            n_tasks: 0,
            n_nodes: 0,
            blocks: Vec::new(),
            free_blocks: Vec::new(),
            tasks_max,
            oldest: TaskId {
                slot: 0,
                generation: 0,
            },
        }
    }

    pub(super) fn n_live(&self) -> usize {
        self.n_tasks as usize + self.n_nodes
    }

    #[inline]
    pub(super) fn is_full(&self) -> bool {
        self.n_tasks >= self.tasks_max
    }

    /// The task that was submitted first among those that are live.
    ///
    /// Looks through all slots, but only when the last answer is no longer live.
    pub(super) fn oldest(&mut self) -> TaskId {
        if !self.is_current(self.oldest) {
            let tasks = self.live_slots().filter(|&slot| !self[slot].is_node);
            let oldest = tasks.min_by_key(|&slot| self[slot].seq);
            self.oldest = oldest.map_or(self.oldest, |slot| self.id(slot));
        }
        self.oldest
    }

    pub(super) fn live_slots(&self) -> impl Iterator<Item = u32> {
        (0..self.slots.len() as u32).filter(|&slot| self[slot].state != State::Free)
    }

    /// Takes a slot for a task, which is then Building. The arena must not be full.
    #[inline]
    pub(super) fn take(&mut self, run: ShortRun, seq: u64, place: Place) -> u32 {
        self.n_tasks += 1;
        self.take_free(run, seq, place)
    }

    /// Takes a slot for a node of a graph.
    pub(super) fn take_node(
        &mut self,
        run: ShortRun,
        seq: u64,
        place: Place,
        (replay, node): (u32, u32),
    ) -> u32 {
        let index = self.take_free(run, seq, place);
        let slot = &mut self[index];
        slot.is_node = true;
        (slot.edges[0], slot.edges[1]) = (replay, node);
        self.n_nodes += 1;
        index
    }

    #[inline]
    fn take_free(&mut self, run: ShortRun, seq: u64, place: Place) -> u32 {
        let index = self.free;
        if let Some(slot) = self.slots.get_mut(index as usize) {
            self.free = slot.link;
            *slot = Slot::new(slot.generation, run, seq, place);
            slot.step(Step::Submit);
            return index;
        }
        let mut slot = Slot::new(0, run, seq, place);
        slot.step(Step::Submit);
        self.slots.push(slot);
        self.slots.len() as u32 - 1
    }

    /// Gives back a slot that is Completed or Failed.
    #[inline]
    pub(super) fn give_back(&mut self, index: u32) {
        let slot = &mut self.slots[index as usize];
        match slot.is_node {
            true => self.n_nodes -= 1,
            false => self.n_tasks -= 1,
        }
        slot.step(Step::Consume);
        slot.step(Step::Reuse);
        slot.generation = slot.generation.wrapping_add(1);
        slot.link = self.free;
        self.free = index;
    }

    /// The slot after this one on its list.
    pub(super) fn after(&self, slot: u32) -> Option<u32> {
        let next = self[slot].link;
        (next != NONE).then_some(next)
    }

    #[inline]
    pub(super) fn id(&self, slot: u32) -> TaskId {
        self[slot].id(slot)
    }

    /// Whether the handle is the one of the task that is in its slot now.
    pub(super) fn is_current(&self, task: TaskId) -> bool {
        self.slots
            .get(task.slot as usize)
            .is_some_and(|s| s.generation == task.generation && s.state != State::Free)
    }

    /// Whether the handle was given out at some time.
    pub(super) fn is_known(&self, task: TaskId) -> bool {
        let slot = self.slots.get(task.slot as usize);
        slot.is_some_and(|s| task.generation < s.generation) || self.is_current(task)
    }

    /// Whether the handle was given out for a task that was submitted, and not for a node of a graph.
    pub(super) fn is_task(&self, task: TaskId) -> bool {
        let is_node = self.is_current(task) && self[task.slot].is_node;
        self.is_known(task) && !is_node
    }

    /// Makes `later` follow `earlier`, unless that has ended or is followed already.
    #[inline]
    pub(super) fn connect(&mut self, earlier: u32, later: u32, why: Why) {
        let first = &mut self.slots[earlier as usize];
        if first.state.has_ended() {
            if why == Why::Data {
                let cause = first.cause();
                self[later].poison(cause);
            }
            return;
        }
        let data = if why == Why::Data { DATA } else { 0 };
        // Edges are only added to the task that is being submitted: a second one to it is the last.
        let n_edges = first.n_edges as usize;
        if n_edges < INLINE {
            if let Some(last) = n_edges.checked_sub(1)
                && first.edges[last] & !DATA == later
            {
                first.edges[last] |= data;
                return;
            }
            first.edges[n_edges] = later | data;
            first.n_edges += 1;
            self[later].waits += 1;
        } else {
            self.connect_by_block(earlier, later, data);
        }
    }

    /// As [`connect`](Arena::connect), for a slot that has no room for an edge in itself.
    fn connect_by_block(&mut self, earlier: u32, later: u32, data: u32) {
        match self.last_edge(earlier) {
            Some(edge) if *edge & !DATA == later => *edge |= data,
            _ => {
                self.push_in_block(earlier, later | data);
                self[later].waits += 1;
            }
        }
    }

    /// Takes all edges of a slot.
    #[inline]
    pub(super) fn take_edges(&mut self, slot: u32) -> Edges {
        let slot = &mut self.slots[slot as usize];
        let (left, block) = (slot.n_edges as usize, slot.block);
        (slot.n_edges, slot.block) = (0, NONE);
        let inline = slot.edges;
        let block = if block == NONE {
            NONE
        } else {
            self.reverse_blocks(block)
        };
        Edges {
            inline,
            at: 0,
            left,
            block,
        }
    }

    /// Blocks are chained newest first; edges are wanted oldest first.
    fn reverse_blocks(&mut self, mut block: u32) -> u32 {
        let mut reversed = NONE;
        while block != NONE {
            let next = std::mem::replace(&mut self.blocks[block as usize].next, reversed);
            (reversed, block) = (block, next);
        }
        reversed
    }

    fn last_edge(&mut self, slot: u32) -> Option<&mut u32> {
        let slot = &mut self.slots[slot as usize];
        match (slot.n_edges as usize).checked_sub(1)? {
            last if last < INLINE => Some(&mut slot.edges[last]),
            last => {
                let block = &mut self.blocks[slot.block as usize];
                Some(&mut block.edges[(last - INLINE) % BLOCK])
            }
        }
    }

    fn push_in_block(&mut self, slot: u32, edge: u32) {
        let at = self[slot].n_edges as usize - INLINE;
        self[slot].n_edges += 1;
        if at.is_multiple_of(BLOCK) {
            let next = self[slot].block;
            self[slot].block = self.take_block(next);
        }
        let block = self[slot].block;
        self.blocks[block as usize].edges[at % BLOCK] = edge;
    }

    fn take_block(&mut self, next: u32) -> u32 {
        let block = Block {
            edges: [0; BLOCK],
            next,
        };
        if let Some(index) = self.free_blocks.pop() {
            self.blocks[index as usize] = block;
            return index;
        }
        self.blocks.push(block);
        self.blocks.len() as u32 - 1
    }
}

impl std::ops::Index<u32> for Arena {
    type Output = Slot;

    fn index(&self, slot: u32) -> &Slot {
        &self.slots[slot as usize]
    }
}

impl std::ops::IndexMut<u32> for Arena {
    fn index_mut(&mut self, slot: u32) -> &mut Slot {
        &mut self.slots[slot as usize]
    }
}
