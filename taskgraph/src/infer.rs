//! Inference: which earlier tasks a task must follow, from the bytes that each touches.
//!
//! The ledger keeps, per buffer, a record for every access of a live task that a later access could
//! still conflict with: one list of writers, one of readers. An access then
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
//! each split, and a split belongs to a live writer.

use hashbrown::HashTable;

use crate::args::Access;
use crate::buffer::BufferId;
use crate::view::View;

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

/// One access of one live task.
struct Record {
    lo: u64,
    hi: u64,
    task: u32,
    buffer: u32,
    /// Index in `views` for a view that is not one run.
    view: u32,
    prev: u32,
    next: u32,
    /// Next record of the same task.
    chain: u32,
    role: Role,
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Role {
    Reader,
    Writer,
    /// All its bytes were overwritten by a later task; on no list.
    TakenOver,
}

struct Buffer {
    id: BufferId,
    writers: u32,
    readers: u32,
}

/// All live accesses.
#[derive(Default)]
pub(crate) struct Ledger {
    /// A `hash of an identity -> index in buffers` pair means that the buffer has a record.
    by_id: HashTable<u32>,
    buffers: Vec<Buffer>,
    free_buffers: Vec<u32>,
    records: Vec<Record>,
    free_records: Vec<u32>,
    views: Vec<View>,
    free_views: Vec<u32>,
    n_records: usize,
}

impl Ledger {
    /// Finds what `task` must follow because of `access`, then records the access.
    ///
    /// `chain` is the head of the task's records. `found` may be called twice for one task, and is
    /// never called for `task` itself. The reads of a task must be given before its writes.
    pub(crate) fn access(
        &mut self,
        task: u32,
        chain: &mut u32,
        access: &Access,
        mut found: impl FnMut(u32, Why),
    ) {
        let (view, tag) = (&access.view, access.tag);
        if view.is_empty() || !(tag.reads() || tag.writes()) {
            return;
        }
        let buffer = self.buffer(&access.buffer);
        let writer_why = if tag.reads() { Why::Data } else { Why::Order };
        let mut found = |other: u32, why| {
            if other != task {
                found(other, why);
            }
        };
        let writers = self.buffers[buffer as usize].writers;
        self.scan(writers, view, tag.writes(), |other| {
            found(other, writer_why)
        });
        if tag.writes() {
            let readers = self.buffers[buffer as usize].readers;
            self.scan(readers, view, true, |other| found(other, Why::Order));
        }
        let role = if tag.writes() {
            Role::Writer
        } else {
            Role::Reader
        };
        *chain = self.record(task, buffer, view, role, *chain);
    }

    /// Gives up the records on a chain.
    pub(crate) fn retire(&mut self, mut chain: u32) {
        while chain != NONE {
            let next = self.records[chain as usize].chain;
            self.unlink(chain);
            self.free(chain);
            chain = next;
        }
    }

    /// Gives up the readers on a chain and returns the chain of what is left.
    ///
    /// For a task that failed: nobody needs to wait for its reads any more, but whoever reads what
    /// it should have written still has to learn of the failure.
    pub(crate) fn retire_reads(&mut self, mut chain: u32) -> u32 {
        let mut kept = NONE;
        while chain != NONE {
            let next = self.records[chain as usize].chain;
            if self.records[chain as usize].role == Role::Writer {
                self.records[chain as usize].chain = kept;
                kept = chain;
            } else {
                self.unlink(chain);
                self.free(chain);
            }
            chain = next;
        }
        kept
    }

    /// Number of records, those that were taken over included.
    pub(crate) fn n_records(&self) -> usize {
        self.n_records
    }

    /// Reports the tasks on a list whose view meets `view`; a write takes their bytes.
    fn scan(&mut self, head: u32, view: &View, takes: bool, mut found: impl FnMut(u32)) {
        let mut at = head;
        while at != NONE {
            let record = &self.records[at as usize];
            let next = record.next;
            if record.lo < view.hi() && view.lo() < record.hi && self.meets(at, view) {
                found(record.task);
                if takes {
                    self.take(at, view);
                }
            }
            at = next;
        }
    }

    /// Exact test for records whose bounding range meets that of `view`.
    fn meets(&self, at: u32, view: &View) -> bool {
        let record = &self.records[at as usize];
        match self.views.get(record.view as usize) {
            None if view.is_dense() => true,
            None => View::dense(record.lo, record.hi).overlaps(view),
            Some(strided) => strided.overlaps(view),
        }
    }

    /// Takes the bytes of `view` from a record that meets it.
    fn take(&mut self, at: u32, view: &View) {
        let record = &mut self.records[at as usize];
        let (lo, hi) = (record.lo, record.hi);
        if let Some(strided) = self.views.get(record.view as usize) {
            if view.covers(strided) {
                self.unlink(at);
            }
            return;
        }
        let whole = View::dense(lo, hi);
        if view.covers(&whole) {
            self.unlink(at);
        } else if view.is_dense() {
            self.cut(at, view);
        }
    }

    /// Takes part of a run: from its front, from its back, or out of the middle.
    fn cut(&mut self, at: u32, view: &View) {
        let record = &mut self.records[at as usize];
        let (hi, task, buffer, role) = (record.hi, record.task, record.buffer, record.role);
        if view.lo() <= record.lo {
            record.lo = view.hi();
            return;
        }
        record.hi = view.lo();
        if view.hi() < hi {
            let chain = record.chain;
            let rest = self.record(task, buffer, &View::dense(view.hi(), hi), role, chain);
            self.records[at as usize].chain = rest;
        }
    }

    fn record(&mut self, task: u32, buffer: u32, view: &View, role: Role, chain: u32) -> u32 {
        let list = self.list(buffer, role);
        let next = *list;
        let index = self.free_records.pop().unwrap_or(self.records.len() as u32);
        *self.list(buffer, role) = index;
        if next != NONE {
            self.records[next as usize].prev = index;
        }
        let view_index = if view.is_dense() {
            NONE
        } else {
            self.store(view)
        };
        let (lo, hi, prev) = (view.lo(), view.hi(), NONE);
        let record = Record {
            lo,
            hi,
            task,
            buffer,
            view: view_index,
            prev,
            next,
            chain,
            role,
        };
        self.n_records += 1;
        match self.records.get_mut(index as usize) {
            Some(unused) => *unused = record,
            None => self.records.push(record),
        }
        index
    }

    fn store(&mut self, view: &View) -> u32 {
        if let Some(index) = self.free_views.pop() {
            self.views[index as usize] = *view;
            return index;
        }
        self.views.push(*view);
        self.views.len() as u32 - 1
    }

    fn list(&mut self, buffer: u32, role: Role) -> &mut u32 {
        let buffer = &mut self.buffers[buffer as usize];
        if role == Role::Writer {
            &mut buffer.writers
        } else {
            &mut buffer.readers
        }
    }

    /// Takes a record off its list; nothing when it is on none.
    fn unlink(&mut self, at: u32) {
        let record = &mut self.records[at as usize];
        let (prev, next, buffer, role) = (record.prev, record.next, record.buffer, record.role);
        if role == Role::TakenOver {
            return;
        }
        record.role = Role::TakenOver;
        if next != NONE {
            self.records[next as usize].prev = prev;
        }
        if prev == NONE {
            *self.list(buffer, role) = next;
        } else {
            self.records[prev as usize].next = next;
        }
    }

    fn free(&mut self, at: u32) {
        let record = &self.records[at as usize];
        let (buffer, view) = (record.buffer, record.view);
        self.free_records.push(at);
        self.n_records -= 1;
        if view != NONE {
            self.free_views.push(view);
        }
        self.forget_if_unused(buffer);
    }

    /// Index of a buffer, which is new when it has no record.
    fn buffer(&mut self, id: &BufferId) -> u32 {
        let (hash, buffers) = (id.hash(), &mut self.buffers);
        if let Some(&index) = self
            .by_id
            .find(hash, |&index| buffers[index as usize].id == *id)
        {
            return index;
        }
        let buffer = Buffer {
            id: *id,
            writers: NONE,
            readers: NONE,
        };
        let index = self.free_buffers.pop().unwrap_or(buffers.len() as u32);
        if index as usize == buffers.len() {
            buffers.push(buffer);
        } else {
            buffers[index as usize] = buffer;
        }
        self.by_id
            .insert_unique(hash, index, |&other| buffers[other as usize].id.hash());
        index
    }

    fn forget_if_unused(&mut self, index: u32) {
        let buffer = &self.buffers[index as usize];
        if buffer.writers != NONE || buffer.readers != NONE {
            return;
        }
        if let Ok(entry) = self
            .by_id
            .find_entry(buffer.id.hash(), |&other| other == index)
        {
            entry.remove();
            self.free_buffers.push(index);
        }
    }
}

#[cfg(test)]
mod tests;
