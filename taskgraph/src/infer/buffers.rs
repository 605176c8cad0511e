//! The buffers that live accesses touch, found by identity.

use hashbrown::HashTable;

use super::index::Index;
use super::records::Role;
use crate::buffer::BufferId;

/// Unused buffers that are kept however few are in use.
const SPARE: usize = 64;

struct Buffer {
    id: BufferId,
    writers: Index,
    readers: Index,
}

/// The table of buffers.
pub(super) struct Buffers {
    /// A `hash of an identity -> index in all` pair means that the buffer has records, or had some
    /// a while ago.
    by_id: HashTable<u32>,
    all: Vec<Buffer>,
    free: Vec<u32>,
    /// Buffers in `by_id` that have no record on an index.
    n_unused: usize,
}

impl Default for Buffers {
    /// With room for all spare buffers, and as many places of deleted ones: the table cleans up in place then, and a
    /// stream of buffers that come once and never again does not make it grow.
    fn default() -> Buffers {
        Buffers {
            by_id: HashTable::with_capacity(4 * SPARE),
            all: Vec::new(),
            free: Vec::new(),
            n_unused: 0,
        }
    }
}

impl Buffer {
    fn is_unused(&self) -> bool {
        self.writers.is_empty() && self.readers.is_empty()
    }
}

impl Buffers {
    /// The number of a buffer that is about to get a record, and counts as used from now on.
    pub(super) fn enter(&mut self, id: &BufferId) -> u32 {
        let (hash, all) = (id.hash(), &self.all);
        let known = self
            .by_id
            .find(hash, |&index| all[index as usize].id == *id);
        let Some(&index) = known else {
            return self.add(id, hash);
        };
        self.n_unused -= usize::from(all[index as usize].is_unused());
        index
    }

    /// A record was taken off an index of this buffer, not to come back.
    pub(super) fn leave(&mut self, buffer: u32) {
        if self.all[buffer as usize].is_unused() {
            self.n_unused += 1;
            // A sweep looks at every bucket, so it must be worth that many steps, also after a peak. A quarter leaves the
            // table less than half full, so that it cleans up in place and does not grow.
            if self.n_unused > SPARE + self.by_id.num_buckets() / 4 {
                self.sweep();
            }
        }
    }

    pub(super) fn index(&mut self, buffer: u32, role: Role) -> &mut Index {
        let buffer = &mut self.all[buffer as usize];
        match role {
            Role::Reader => &mut buffer.readers,
            Role::Writer => &mut buffer.writers,
            Role::TakenOver | Role::Holder => unreachable!("such a record is on no index"),
        }
    }

    /// Number of buffers that have records.
    #[cfg(test)]
    pub(super) fn n_used(&self) -> usize {
        self.by_id.len() - self.n_unused
    }

    fn add(&mut self, id: &BufferId, hash: u64) -> u32 {
        let buffer = Buffer {
            id: *id,
            writers: Index::EMPTY,
            readers: Index::EMPTY,
        };
        let index = self.free.pop().unwrap_or(self.all.len() as u32);
        match self.all.get_mut(index as usize) {
            Some(free) => *free = buffer,
            None => self.all.push(buffer),
        }
        let all = &self.all;
        self.by_id
            .insert_unique(hash, index, |&other| all[other as usize].id.hash());
        index
    }

    /// Forgets all unused buffers; each was counted once since the last time.
    fn sweep(&mut self) {
        let (all, free) = (&self.all, &mut self.free);
        self.by_id.retain(|&mut index| {
            let is_unused = all[index as usize].is_unused();
            if is_unused {
                free.push(index);
            }
            !is_unused
        });
        self.n_unused = 0;
    }
}

#[cfg(test)]
mod tests;
