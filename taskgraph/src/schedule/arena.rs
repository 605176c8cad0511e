//! The slots of live tasks, and the edges between them.
//!
//! An edge is one word in the slot of the task that comes first: the slot that waits, and a bit that
//! says whether it needs the data. The first few stand in the slot, the rest in blocks of a common
//! pool, so that a steady stream of tasks allocates nothing.

use crate::ids::{RunId, TaskId};
use crate::infer::{NONE, Why};
use crate::slot::{State, Step};

/// Edges that stand in the slot itself.
const INLINE: usize = 4;
/// Edges in one block of the pool.
const BLOCK: usize = 7;
/// Marks an edge that carries data; slots are numbered below it.
const DATA: u32 = 1 << 31;

/// Where a task goes when it is ready.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Place {
    /// To a line, by number.
    Line(u32),
    /// To the workers of a group, by number of the group.
    Group(u32),
}

/// Everything the scheduler knows of one task.
pub(super) struct Slot {
    pub(super) generation: u32,
    state: State,
    pub(super) place: Place,
    pub(super) run: RunId,
    /// Number of the submission; orders tasks of different lines.
    pub(super) seq: u64,
    /// Predecessors that have not ended.
    pub(super) waits: u32,
    /// Next slot on the one list that this slot is on.
    pub(super) link: u32,
    /// Head of the chain of records in the ledger.
    pub(super) records: u32,
    /// The task whose failure makes this one pointless; itself when it failed on its own.
    pub(super) cause: Option<TaskId>,
    n_edges: u32,
    edges: [u32; INLINE],
    /// Newest block of further edges.
    block: u32,
}

impl Slot {
    fn new(generation: u32) -> Slot {
        Slot {
            generation,
            state: State::Free,
            place: Place::Line(NONE),
            run: RunId(0),
            seq: 0,
            waits: 0,
            link: NONE,
            records: NONE,
            cause: None,
            n_edges: 0,
            edges: [0; INLINE],
            block: NONE,
        }
    }

    pub(super) fn state(&self) -> State {
        self.state
    }

    /// Moves on; an illegal step is a fault of this crate and stops.
    pub(super) fn step(&mut self, step: Step) {
        match self.state.next(step) {
            Some(next) => self.state = next,
            None => panic!("slot cannot {step:?} in state {:?}", self.state),
        }
    }
}

/// Further edges of one slot; the blocks of a slot are chained, newest first.
struct Block {
    edges: [u32; BLOCK],
    next: u32,
}

/// All slots.
pub(super) struct Arena {
    slots: Vec<Slot>,
    free: Vec<u32>,
    blocks: Vec<Block>,
    free_blocks: Vec<u32>,
    tasks_max: u32,
    /// Scratch for the tasks that one end makes ready.
    pub(super) ready: Vec<u32>,
    /// The task that was oldest when somebody last asked.
    oldest: TaskId,
}

impl Arena {
    pub(super) fn new(tasks_max: u32) -> Arena {
        Arena {
            slots: Vec::new(),
            free: Vec::new(),
            blocks: Vec::new(),
            free_blocks: Vec::new(),
            tasks_max,
            ready: Vec::new(),
            oldest: TaskId {
                slot: 0,
                generation: 0,
            },
        }
    }

    pub(super) fn n_live(&self) -> usize {
        self.slots.len() - self.free.len()
    }

    pub(super) fn is_full(&self) -> bool {
        self.free.is_empty() && self.slots.len() >= self.tasks_max as usize
    }

    /// The task that was submitted first among those that are live.
    ///
    /// Looks through all slots, but only when the last answer is no longer live.
    pub(super) fn oldest(&mut self) -> TaskId {
        if !self.is_current(self.oldest) {
            let live = (0..self.slots.len() as u32).filter(|&s| self[s].state != State::Free);
            let oldest = live.min_by_key(|&slot| self[slot].seq);
            self.oldest = oldest.map_or(self.oldest, |slot| self.id(slot));
        }
        self.oldest
    }

    /// Takes a slot, which is then Building. The arena must not be full.
    pub(super) fn take(&mut self, run: RunId, seq: u64, place: Place) -> u32 {
        let index = self.free.pop().unwrap_or_else(|| {
            self.slots.push(Slot::new(0));
            self.slots.len() as u32 - 1
        });
        let slot = &mut self.slots[index as usize];
        (slot.run, slot.seq, slot.place) = (run, seq, place);
        slot.step(Step::Submit);
        index
    }

    /// Gives back a slot that is Completed or Failed.
    pub(super) fn give_back(&mut self, index: u32) {
        let slot = &mut self.slots[index as usize];
        slot.step(Step::Consume);
        slot.step(Step::Reuse);
        *slot = Slot::new(slot.generation.wrapping_add(1));
        self.free.push(index);
    }

    pub(super) fn id(&self, slot: u32) -> TaskId {
        TaskId {
            slot,
            generation: self[slot].generation,
        }
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

    /// Makes `later` follow `earlier`, unless that has ended or is followed already.
    pub(super) fn connect(&mut self, earlier: u32, later: u32, why: Why) {
        let first = &self[earlier];
        if first.state.has_ended() {
            if why == Why::Data {
                let cause = first.cause;
                self.poison(later, cause);
            }
            return;
        }
        let data = if why == Why::Data { DATA } else { 0 };
        // Edges are only added to the task that is being submitted: a second one to it is the last.
        match self.last_edge(earlier) {
            Some(edge) if *edge & !DATA == later => *edge |= data,
            _ => {
                self.push_edge(earlier, later | data);
                self[later].waits += 1;
            }
        }
    }

    /// Marks a task as pointless; the first cause stays.
    pub(super) fn poison(&mut self, slot: u32, cause: Option<TaskId>) {
        let slot = &mut self[slot];
        slot.cause = slot.cause.or(cause);
    }

    /// Takes all edges of a slot, oldest first, as the slot that waits and why it does.
    pub(super) fn take_edges(&mut self, slot: u32, mut each: impl FnMut(&mut Arena, u32, Why)) {
        let n = std::mem::take(&mut self[slot].n_edges) as usize;
        let inline = self[slot].edges;
        let mut block = std::mem::replace(&mut self[slot].block, NONE);
        let mut hand_out = |arena: &mut Arena, edge: u32| {
            let why = if edge & DATA == 0 {
                Why::Order
            } else {
                Why::Data
            };
            each(arena, edge & !DATA, why);
        };
        for &edge in &inline[..n.min(INLINE)] {
            hand_out(self, edge);
        }
        block = self.reverse_blocks(block);
        let mut left = n.saturating_sub(INLINE);
        while block != NONE {
            let Block { edges, next } = self.blocks[block as usize];
            for &edge in &edges[..left.min(BLOCK)] {
                hand_out(self, edge);
            }
            left = left.saturating_sub(BLOCK);
            self.free_blocks.push(block);
            block = next;
        }
    }

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

    fn push_edge(&mut self, slot: u32, edge: u32) {
        let at = self[slot].n_edges as usize;
        self[slot].n_edges += 1;
        if at < INLINE {
            self[slot].edges[at] = edge;
            return;
        }
        if (at - INLINE).is_multiple_of(BLOCK) {
            let next = self[slot].block;
            self[slot].block = self.take_block(next);
        }
        let block = self[slot].block;
        self.blocks[block as usize].edges[(at - INLINE) % BLOCK] = edge;
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
