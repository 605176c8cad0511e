//! Inference: which earlier tasks a task must follow, from the bytes that each touches.
//!
//! The ledger keeps, per buffer, a record for every access of a live task that a later access could
//! still conflict with: an index of writers, and one of readers. An access then
//!
//! * that reads follows every writer it meets (read after write);
//! * that writes follows every writer and reader it meets (write after write, write after read).
//!
//! **What a write does to older records.** A later task that meets bytes of an older record inside
//! the new write is ordered after the new write, which is ordered after the older one. So the new
//! write takes those bytes from the older record: all of them and the record is gone, part of a run
//! and the record shrinks or splits. Where bytes cannot be taken (strided views that are covered in
//! part) the record stays as it is; the edges it then causes are implied by others and cost no
//! concurrency. Either way every edge is a true conflict.
//!
//! **Retirement.** The records of a task hang on one chain, whose head the task keeps. A task that
//! ended gives up its own records and no others; records that were taken over wait on the chain
//! until then. So the number of records is bounded by the accesses of the live tasks, plus one for
//! each split, and a split belongs to a live writer. Buffers without records are kept for their next
//! use, a number in proportion to the most that ever had records at once.

mod buffers;
mod index;
mod records;

use crate::args::Access;
use crate::heap::{BlockId, Heap};
use crate::ids::TaskId;
use crate::view::View;

use buffers::Buffers;
use index::{Hit, Nodes};
use records::{Records, Role};

/// No record, no buffer, no view.
pub(crate) const NONE: u32 = u32::MAX;

/// Why one task follows another.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Why {
    /// It uses what the other produced: a failure of the other makes it pointless.
    Data,
    /// It reuses memory that the other used: it must only wait.
    Order,
}

/// All live accesses.
#[derive(Default)]
pub(crate) struct Ledger {
    buffers: Buffers,
    records: Records,
    nodes: Nodes,
    /// The memory of intermediate tensors, which tasks hold by records too.
    pub(crate) heap: Heap,
    /// Scratch for the records that one search finds.
    hits: Vec<Hit>,
}

impl Ledger {
    /// Forgets all accesses, and keeps the memory that they took.
    pub(crate) fn clear(&mut self) {
        self.buffers.clear();
        self.records.clear();
        self.nodes.clear();
    }

    /// Finds what `task` must follow because of its accesses, and says for which one; then records them.
    ///
    /// `chain` is the head of the task's records. `found` may be called twice for one other task, and is
    /// never called for `task` itself. Reads first: what a task reads it must learn about before its own
    /// write takes the bytes over.
    #[inline]
    pub(crate) fn access_all<'a>(
        &mut self,
        task: u32,
        chain: &mut u32,
        accesses: impl Iterator<Item = &'a Access> + Clone,
        mut found: impl FnMut(usize, u32, Why),
    ) {
        let mut writes_any = false;
        for (at, access) in accesses.clone().enumerate() {
            if access.tag.writes() {
                writes_any = true;
            } else if access.tag.reads() && !access.view.is_empty() {
                self.read(task, chain, access, |other| found(at, other, Why::Data));
            }
        }
        if !writes_any {
            return;
        }
        for (at, access) in accesses.enumerate() {
            if access.tag.writes() && !access.view.is_empty() {
                self.write(task, chain, access, |other, why| found(at, other, why));
            }
        }
    }

    #[inline]
    fn read(&mut self, task: u32, chain: &mut u32, access: &Access, mut found: impl FnMut(u32)) {
        let (view, buffer) = (&access.view, self.buffers.enter(&access.buffer));
        self.search(buffer, view, |other| {
            if other != task {
                found(other);
            }
        });
        *chain = self.records.add(task, buffer, view, Role::Reader, *chain);
        let readers = &mut self.buffers[buffer].readers;
        readers.insert(*chain, &mut self.nodes, &mut self.records);
    }

    #[inline]
    fn write(
        &mut self,
        task: u32,
        chain: &mut u32,
        access: &Access,
        mut found: impl FnMut(u32, Why),
    ) {
        let (view, buffer) = (&access.view, self.buffers.enter(&access.buffer));
        let new = self.records.add(task, buffer, view, Role::Writer, *chain);
        *chain = new;
        let mut found = |other: u32, why| {
            if other != task {
                found(other, why);
            }
        };
        let why = if access.tag.reads() {
            Why::Data
        } else {
            Why::Order
        };
        let is_placed = self.overwrite(buffer, Role::Writer, view, new, |other| found(other, why));
        self.overwrite(buffer, Role::Reader, view, NONE, |other| {
            found(other, Why::Order)
        });
        if !is_placed {
            let writers = &mut self.buffers[buffer].writers;
            writers.insert(new, &mut self.nodes, &mut self.records);
        }
    }

    /// Gives up the records on a chain.
    #[inline]
    pub(crate) fn retire(&mut self, mut chain: u32) {
        while chain != NONE {
            let next = self.records[chain].chain;
            self.give_up(chain);
            chain = next;
        }
    }

    /// Notes that a task uses a block of the heap until it ends.
    pub(crate) fn hold(&mut self, slot: u32, task: TaskId, chain: &mut u32, block: BlockId) {
        self.heap.hold(block, task);
        *chain = self.records.add_holder(slot, block, *chain);
    }

    /// Whether a chain holds the block.
    pub(crate) fn holds(&self, mut chain: u32, block: BlockId) -> bool {
        while chain != NONE {
            if self.records[chain].role == Role::Holder && self.records.held(chain) == block {
                return true;
            }
            chain = self.records[chain].chain;
        }
        false
    }

    /// Gives up the blocks that a chain holds and returns the chain of what is left.
    ///
    /// For a task that failed: its memory is free, but what it should have written is remembered.
    pub(crate) fn release_blocks(&mut self, mut chain: u32) -> u32 {
        let mut kept = NONE;
        while chain != NONE {
            let next = self.records[chain].chain;
            if self.records[chain].role == Role::Holder {
                self.give_up(chain);
            } else {
                self.records[chain].chain = kept;
                kept = chain;
            }
            chain = next;
        }
        kept
    }

    /// Number of records, those that were taken over included.
    pub(crate) fn n_records(&self) -> usize {
        self.records.len()
    }

    /// Reports the task of every writer that really meets the view.
    #[inline]
    fn search(&mut self, buffer: u32, view: &View, mut found: impl FnMut(u32)) {
        let writers = &self.buffers[buffer].writers;
        let Some((list, len)) = writers.list() else {
            self.hits.clear();
            writers.find(view, &self.nodes, &self.records, &mut self.hits);
            let tasks = self.hits.iter().map(|hit| self.records[hit.record].task);
            return tasks.for_each(found);
        };
        for &record in &list[..len] {
            if self.records.meets(record, view) {
                found(self.records[record].task);
            }
        }
    }

    /// Reports the tasks of a role that a write meets, and takes their bytes. Says whether `new`, the
    /// record of the write, was put in the place of one with the same bytes.
    #[inline]
    fn overwrite(
        &mut self,
        buffer: u32,
        role: Role,
        view: &View,
        new: u32,
        mut found: impl FnMut(u32),
    ) -> bool {
        let mut is_placed = false;
        let index = self.buffers[buffer].index(role);
        let Some((list, len)) = index.list() else {
            self.hits.clear();
            index.find(view, &self.nodes, &self.records, &mut self.hits);
            for at in 0..self.hits.len() {
                let hit = self.hits[at];
                found(self.records[hit.record].task);
                is_placed |= self.take_over(buffer, role, view, hit, new, is_placed);
            }
            return is_placed;
        };
        for (at, &record) in (0..).zip(&list[..len]) {
            if self.records.meets(record, view) {
                found(self.records[record].task);
                let hit = Hit::in_list(record, at);
                is_placed |= self.take_over(buffer, role, view, hit, new, is_placed);
            }
        }
        is_placed
    }

    /// Takes the bytes of `view` from a record that meets it. The first one with the same bytes leaves its place to
    /// `new`, and that is what is said.
    #[inline]
    fn take_over(
        &mut self,
        buffer: u32,
        role: Role,
        view: &View,
        hit: Hit,
        new: u32,
        is_placed: bool,
    ) -> bool {
        if is_placed || new == NONE || !self.records.is_exactly(hit.record, view) {
            self.take(hit.record, view);
            return false;
        }
        let index = self.buffers[buffer].index(role);
        index.replace(hit, new, &mut self.nodes, &mut self.records);
        self.records[hit.record].role = Role::TakenOver;
        true
    }

    /// Takes the bytes of `view` from a record that meets it.
    fn take(&mut self, at: u32, view: &View) {
        if self.records.is_covered(at, view) {
            self.unlink(at);
        } else if view.is_dense() && self.records.is_dense(at) {
            self.cut(at, view);
        }
    }

    /// Takes part of a run: from its front, from its back, or out of the middle.
    fn cut(&mut self, at: u32, view: &View) {
        // The index is ordered by the first byte, so the record leaves it and comes back.
        let whole = self.records[at];
        self.unlink(at);
        let record = &mut self.records[at];
        record.role = whole.role;
        if view.lo() <= whole.lo {
            record.lo = view.hi();
            return self.put(at);
        }
        record.hi = view.lo();
        self.put(at);
        if view.hi() < whole.hi {
            let behind = View::dense(view.hi(), whole.hi);
            let (task, buffer, role) = (whole.task, whole.buffer, whole.role);
            let rest = self.records.add(task, buffer, &behind, role, whole.chain);
            self.records[at].chain = rest;
            self.put(rest);
        }
    }

    /// Puts a record on the index of its buffer and role.
    fn put(&mut self, at: u32) {
        let (buffer, role) = (self.records[at].buffer, self.records[at].role);
        let index = self.buffers[buffer].index(role);
        index.insert(at, &mut self.nodes, &mut self.records);
    }

    /// Takes a record off its index and forgets it.
    #[inline]
    fn give_up(&mut self, at: u32) {
        let (buffer, role) = (self.records[at].buffer, self.records[at].role);
        match role {
            Role::Reader | Role::Writer => {
                let index = self.buffers[buffer].index(role);
                index.remove(at, &mut self.nodes, &mut self.records);
            }
            Role::Holder => self.heap.release(self.records.held(at)),
            Role::TakenOver => {}
        }
        self.records.remove(at);
    }

    /// Takes a record off its index.
    fn unlink(&mut self, at: u32) {
        let (buffer, role) = (self.records[at].buffer, self.records[at].role);
        let index = self.buffers[buffer].index(role);
        index.remove(at, &mut self.nodes, &mut self.records);
        self.records[at].role = Role::TakenOver;
    }
}

#[cfg(test)]
#[path = "infer/tests/oracle.rs"]
mod oracle;
#[cfg(test)]
mod tests;
