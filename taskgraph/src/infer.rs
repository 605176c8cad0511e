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
//! A write of exactly the bytes of an older write gets the record of that, which stays where it is. So does a read of
//! exactly the bytes of an older read, where its task is [known to follow](Ledger::access_apart) that one.
//!
//! **Retirement.** The accesses of a task hang on one chain of [tokens], whose head the task keeps; a token stands for
//! a record until another task takes that over. A task that ended gives up its own records and no others. So the
//! number of records is bounded by the accesses of the live tasks, plus one for each split, and a split belongs to a
//! live writer. Buffers without records are kept for their next use, a number in proportion to the most that ever had
//! records at once.

mod buffers;
mod exact;
mod index;
mod records;
mod shapes;
mod tokens;

use crate::args::{Access, Tag};
use crate::heap::{BlockId, Heap};
use crate::ids::TaskId;
use crate::view::View;

use buffers::Buffers;
use index::Nodes;
use records::{Records, Role};
use tokens::Tokens;

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
    tokens: Tokens,
    nodes: Nodes,
    /// The memory of intermediate tensors, which tasks hold by records too.
    pub(crate) heap: Heap,
    /// Scratch for the records that one search finds.
    hits: Vec<u32>,
}

impl Ledger {
    /// Forgets all accesses, and keeps the memory that they took.
    pub(crate) fn clear(&mut self) {
        self.buffers.clear();
        self.records.clear();
        self.tokens.clear();
        self.nodes.clear();
    }

    /// Finds what `task` must follow because of its accesses, and says for which one; then records them.
    ///
    /// `chain` is the head of the task's tokens. `found` may be called twice for one other task, and is
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

    /// Does so for a task of which no byte that it reads is one that it writes. Writes first: from then on it is known
    /// whom the task follows in any case.
    ///
    /// A read of such an earlier task gives its record to one of the same bytes: who overwrites them follows the new
    /// task, which follows the earlier one. So bytes that a chain of tasks reads have one record, however long it is.
    ///
    /// The tokens of the reads stand behind that of the first write, in the order of the accesses. So a task whose first
    /// write is that of an earlier one finds there what its reads are likely to be, and looks for no buffer.
    pub(crate) fn access_apart(
        &mut self,
        task: u32,
        chain: &mut u32,
        accesses: &[Access],
        mut found: impl FnMut(u32, Why),
    ) {
        let (mut likely, mut last) = (NONE, NONE);
        for access in accesses {
            if access.tag.writes() && !access.view.is_empty() {
                let former = self.write(task, chain, access, &mut found);
                if last == NONE {
                    last = *chain;
                    likely = self.next_token(former);
                }
            }
        }
        for access in accesses {
            if access.tag != Tag::Input || access.view.is_empty() {
                continue;
            }
            let mut token = NONE;
            match self.known_reader(likely, access) {
                Some(known) => {
                    likely = self.next_token(likely);
                    token = self.tokens.add(NONE);
                    self.read_again(known, (task, token), &access.view, &mut found);
                }
                None => {
                    likely = NONE;
                    self.read(task, &mut token, access, |other| found(other, Why::Data));
                }
            }
            match last {
                NONE => *chain = token,
                last => self.tokens[last].next = token,
            }
            last = token;
        }
    }

    /// The next token of the same task; [`NONE`] for none.
    fn next_token(&self, token: u32) -> u32 {
        match token {
            NONE => NONE,
            token => self.tokens[token].next,
        }
    }

    /// The record that a token stands for, if it is a read of just these bytes.
    #[inline]
    fn known_reader(&self, token: u32, access: &Access) -> Option<u32> {
        if token == NONE {
            return None;
        }
        let at = self.record_of(token)?;
        let record = &self.records[at];
        let is_it = record.role == Role::Reader
            && *self.buffers[record.buffer].id() == access.buffer
            && self.records.is_exactly(at, &access.view);
        is_it.then_some(at)
    }

    /// A read of the bytes of an older one that gives its record to it.
    #[inline]
    fn read_again(
        &mut self,
        known: u32,
        new: (u32, u32),
        view: &View,
        mut found: impl FnMut(u32, Why),
    ) {
        // A writer in between may have left the record as it was, and one before may fail yet.
        let buffer = self.records[known].buffer;
        self.search(buffer, view, |other| {
            if other != new.0 {
                found(other, Why::Data);
            }
        });
        self.hand_over(known, new);
    }

    #[inline(never)]
    fn read(&mut self, task: u32, chain: &mut u32, access: &Access, mut found: impl FnMut(u32)) {
        let (view, buffer) = (&access.view, self.buffers.enter(&access.buffer));
        *chain = self.tokens.add(*chain);
        self.search(buffer, view, |other| {
            if other != task {
                found(other);
            }
        });
        self.put_new((task, *chain), buffer, view, Role::Reader);
    }

    /// Returns the token, of an earlier task, of which it has the record now; [`NONE`] without one.
    #[inline(never)]
    fn write(
        &mut self,
        task: u32,
        chain: &mut u32,
        access: &Access,
        mut found: impl FnMut(u32, Why),
    ) -> u32 {
        let (view, buffer) = (&access.view, self.buffers.enter(&access.buffer));
        *chain = self.tokens.add(*chain);
        let new = (task, *chain);
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
        let former = self.write_over(buffer, view, new, |other| found(other, why));
        self.take_from_readers(buffer, view, |other| found(other, Why::Order));
        if former == NONE {
            self.put_new(new, buffer, view, Role::Writer);
        }
        former
    }

    /// A new record for a token, on the index of its buffer.
    #[inline(always)]
    fn put_new(&mut self, (task, token): (u32, u32), buffer: u32, view: &View, role: Role) {
        let record = self.records.add((task, token), buffer, view, role);
        self.tokens[token].record = record;
        let index = self.buffers[buffer].index(role);
        index.insert(record, &mut self.nodes, &mut self.records);
    }

    /// Gives up the records that a chain of tokens stands for.
    #[inline]
    pub(crate) fn retire(&mut self, mut chain: u32) {
        while chain != NONE {
            let next = self.tokens[chain].next;
            if let Some(record) = self.record_of(chain) {
                self.give_up(record);
            }
            self.tokens.remove(chain);
            chain = next;
        }
    }

    /// Notes that a task uses a block of the heap until it ends.
    pub(crate) fn hold(&mut self, slot: u32, task: TaskId, chain: &mut u32, block: BlockId) {
        self.heap.hold(block, task);
        *chain = self.tokens.add(*chain);
        self.tokens[*chain].record = self.records.add_holder((slot, *chain), block);
    }

    /// Whether a chain holds the block.
    pub(crate) fn holds(&self, mut chain: u32, block: BlockId) -> bool {
        while chain != NONE {
            let record = self.record_of(chain);
            if record.is_some_and(|at| self.is_holder(at) && self.records.held(at) == block) {
                return true;
            }
            chain = self.tokens[chain].next;
        }
        false
    }

    /// Gives up the blocks that a chain holds and returns the chain of what is left.
    ///
    /// For a task that failed: its memory is free, but what it should have written is remembered.
    pub(crate) fn release_blocks(&mut self, mut chain: u32) -> u32 {
        let mut kept = NONE;
        while chain != NONE {
            let next = self.tokens[chain].next;
            if let Some(record) = self.record_of(chain)
                && self.is_holder(record)
            {
                self.give_up(record);
                self.tokens.remove(chain);
            } else {
                self.tokens[chain].next = kept;
                kept = chain;
            }
            chain = next;
        }
        kept
    }

    /// Number of accesses of live tasks, those whose records were taken over included.
    pub(crate) fn n_records(&self) -> usize {
        self.tokens.len()
    }

    /// The record that a token stands for, unless that was taken over.
    #[inline]
    fn record_of(&self, token: u32) -> Option<u32> {
        let record = self.tokens[token].record;
        (record != NONE && self.records[record].owner == token).then_some(record)
    }

    fn is_holder(&self, record: u32) -> bool {
        self.records[record].role == Role::Holder
    }

    /// Reports the task of every writer that really meets the view.
    #[inline]
    fn search(&mut self, buffer: u32, view: &View, mut found: impl FnMut(u32)) {
        let writers = &self.buffers[buffer].writers;
        if let Some((list, len)) = writers.list() {
            for &record in &list[..len] {
                if self.records.meets(record, view) {
                    found(self.records[record].task);
                }
            }
        } else if let Some(sole) = writers.sole(buffer, view, &self.nodes, &self.records) {
            found(self.records[sole].task);
        } else {
            self.find_in_tree(buffer, Role::Writer, view);
            self.hits
                .iter()
                .for_each(|&record| found(self.records[record].task));
        }
    }

    /// Fills `hits` with the records that really meet the view.
    #[inline(never)]
    fn find_in_tree(&mut self, buffer: u32, role: Role, view: &View) {
        self.hits.clear();
        let index = self.buffers[buffer].index(role);
        index.find(view, &self.nodes, &self.records, &mut self.hits);
    }

    /// Reports the tasks of the writers that a write meets, and takes their bytes. One of them may have the same bytes:
    /// its record is then that of the new one, a task and its token, and the token that had it is returned. [`NONE`]
    /// where there is none.
    #[inline]
    fn write_over(
        &mut self,
        buffer: u32,
        view: &View,
        new: (u32, u32),
        mut found: impl FnMut(u32),
    ) -> u32 {
        let writers = &self.buffers[buffer].writers;
        let mut former = NONE;
        if let Some((list, len)) = writers.list() {
            for &record in &list[..len] {
                if self.records.meets(record, view) {
                    found(self.records[record].task);
                    former = self.take_writer(record, view, new, former);
                }
            }
        } else if let Some(sole) = writers.sole(buffer, view, &self.nodes, &self.records) {
            found(self.records[sole].task);
            former = self.hand_over(sole, new);
        } else {
            self.find_in_tree(buffer, Role::Writer, view);
            for at in 0..self.hits.len() {
                let record = self.hits[at];
                found(self.records[record].task);
                former = self.take_writer(record, view, new, former);
            }
        }
        former
    }

    /// Takes the bytes of `view` from a writer that meets it, or the whole record for the new one, unless that has one
    /// of a `former` token already; that token after it.
    #[inline]
    fn take_writer(&mut self, record: u32, view: &View, new: (u32, u32), former: u32) -> u32 {
        if former == NONE && self.records.is_exactly(record, view) {
            return self.hand_over(record, new);
        }
        self.take(record, view);
        former
    }

    /// Gives a record to another token, that of a later task. Returns the token that had it.
    #[inline]
    fn hand_over(&mut self, at: u32, (task, token): (u32, u32)) -> u32 {
        let record = &mut self.records[at];
        record.task = task;
        self.tokens[token].record = at;
        std::mem::replace(&mut record.owner, token)
    }

    /// Reports the tasks of the readers that a write meets, and takes their bytes.
    #[inline]
    fn take_from_readers(&mut self, buffer: u32, view: &View, mut found: impl FnMut(u32)) {
        let readers = &self.buffers[buffer].readers;
        if let Some((list, len)) = readers.list() {
            for &record in &list[..len] {
                if self.records.meets(record, view) {
                    found(self.records[record].task);
                    self.take(record, view);
                }
            }
            return;
        }
        self.find_in_tree(buffer, Role::Reader, view);
        for at in 0..self.hits.len() {
            let record = self.hits[at];
            found(self.records[record].task);
            self.take(record, view);
        }
    }

    /// Takes the bytes of `view` from a record that meets it.
    #[inline(never)]
    fn take(&mut self, at: u32, view: &View) {
        if self.records.is_covered(at, view) {
            self.give_up(at);
        } else if view.is_dense() && self.records.is_dense(at) {
            self.cut(at, view);
        } else {
            let (buffer, role) = (self.records[at].buffer, self.records[at].role);
            self.buffers[buffer].index(role).note_meeting();
        }
    }

    /// Takes part of a run: from its front, from its back, or out of the middle.
    fn cut(&mut self, at: u32, view: &View) {
        // The index is ordered by the first byte, so the record leaves it and comes back.
        let whole = self.records[at];
        self.unlink(at);
        let record = &mut self.records[at];
        if view.lo() <= whole.lo {
            record.lo = view.hi();
            return self.put(at);
        }
        record.hi = view.lo();
        self.put(at);
        if view.hi() < whole.hi {
            let behind = View::dense(view.hi(), whole.hi);
            let token = self.tokens.add(self.tokens[whole.owner].next);
            self.tokens[whole.owner].next = token;
            let is_list = self.buffers[whole.buffer]
                .index(whole.role)
                .list()
                .is_some();
            self.put_new((whole.task, token), whole.buffer, &behind, whole.role);
            if is_list {
                // If that made it a tree, it has not seen the record of the write that cuts, which comes yet and may
                // have taken a part of another one before.
                self.buffers[whole.buffer].index(whole.role).note_meeting();
            }
        }
    }

    /// Forgets a record.
    #[inline]
    fn give_up(&mut self, at: u32) {
        match self.records[at].role {
            Role::Reader | Role::Writer => self.unlink(at),
            Role::Holder => self.heap.release(self.records.held(at)),
        }
        self.records.remove(at);
    }

    /// Puts a record on the index of its buffer and role.
    fn put(&mut self, at: u32) {
        let (buffer, role) = (self.records[at].buffer, self.records[at].role);
        let index = self.buffers[buffer].index(role);
        index.insert(at, &mut self.nodes, &mut self.records);
    }

    /// Takes a record off its index.
    #[inline]
    fn unlink(&mut self, at: u32) {
        let (buffer, role) = (self.records[at].buffer, self.records[at].role);
        let index = self.buffers[buffer].index(role);
        index.remove(at, &mut self.nodes, &mut self.records);
    }
}

#[cfg(test)]
#[path = "infer/tests/oracle.rs"]
mod oracle;
#[cfg(test)]
mod tests;
