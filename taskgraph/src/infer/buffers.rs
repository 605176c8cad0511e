//! The buffers that live accesses touch, found by identity.

use hashbrown::HashTable;

use super::index::Index;
use super::records::Role;
use crate::buffer::BufferId;

/// Unused buffers that are kept however few are in use.
const SPARE: usize = 64;

/// One cache line: whoever touches a buffer that nobody has touched for a while waits for memory once.
#[repr(align(64))]
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

const _: () = assert!(size_of::<Buffer>() == 64);

impl Default for Buffers {
    /// With room for all spare buffers, and as many places of deleted ones: the table cleans up in place then, and a
    /// stream of buffers that come once and never again does not make it grow.
    fn default() -> Buffers {
        let by_id = HashTable::with_capacity(4 * SPARE);
        let room = by_id.capacity();
        Buffers {
            by_id,
            all: Vec::with_capacity(room),
            free: Vec::with_capacity(room),
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
    #[inline]
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
    #[inline]
    pub(super) fn leave(&mut self, buffer: u32) {
        self.n_unused += usize::from(self.all[buffer as usize].is_unused());
    }

    #[inline]
    pub(super) fn index(&mut self, buffer: u32, role: Role) -> &mut Index {
        let buffer = &mut self.all[buffer as usize];
        match role {
            Role::Reader => &mut buffer.readers,
            Role::Writer => &mut buffer.writers,
            Role::TakenOver | Role::Holder => unreachable!("such a record is on no index"),
        }
    }

    /// Forgets all buffers.
    pub(super) fn clear(&mut self) {
        self.by_id.clear();
        self.all.clear();
        self.free.clear();
        self.n_unused = 0;
    }

    /// Number of buffers that have records.
    #[cfg(test)]
    pub(super) fn n_used(&self) -> usize {
        self.by_id.len() - self.n_unused
    }

    #[cold]
    fn add(&mut self, id: &BufferId, hash: u64) -> u32 {
        if self.by_id.len() == self.by_id.capacity() {
            self.make_room();
        }
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

    /// The table is full: forgets what is unused, when that is worth looking at every bucket; else grows. The lists grow
    /// with it, so that as many buffers as there were once never make them grow again.
    fn make_room(&mut self) {
        if self.n_unused > self.by_id.len() / 2 {
            self.sweep();
        }
        let all = &self.all;
        let hash = |&index: &u32| all[index as usize].id.hash();
        // Less than half full after a sweep, so that it cleans up in place.
        self.by_id.reserve(1, hash);
        let room = self.by_id.capacity();
        self.all.reserve_exact(room.saturating_sub(self.all.len()));
        self.free
            .reserve_exact(room.saturating_sub(self.free.len()));
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
