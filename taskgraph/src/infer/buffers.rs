//! The buffers that live accesses touch, found by identity.
//!
//! The table is open: a bucket holds half of the hash and the number of a buffer, and a search goes from bucket to
//! bucket until it finds the buffer or an empty one. At least half of the buckets are empty, and nothing is ever taken
//! out: buffers without records stay until the table is full, and then it is made anew without them.

use super::NONE;
use super::index::Index;
use super::records::Role;
use crate::buffer::BufferId;

/// Buffers that a table has room for at least.
const ROOM_MIN: usize = 256;

/// One cache line: whoever touches a buffer that nobody has touched for a while waits for memory once.
#[repr(align(64))]
pub(super) struct Buffer {
    id: BufferId,
    pub(super) writers: Index,
    pub(super) readers: Index,
}

const _: () = assert!(size_of::<Buffer>() == 64);

/// One place of the table.
#[derive(Clone, Copy)]
struct Bucket {
    /// The high half of the hash; the low half says where the search begins.
    tag: u32,
    /// [`NONE`] in an empty bucket.
    buffer: u32,
}

const EMPTY: Bucket = Bucket::new(0, NONE);

impl Bucket {
    const fn new(hash: u64, buffer: u32) -> Bucket {
        Bucket {
            tag: (hash >> 32) as u32,
            buffer,
        }
    }
}

/// The table of buffers.
pub(super) struct Buffers {
    /// Twice as many as there is room for; a power of two.
    table: Vec<Bucket>,
    all: Vec<Buffer>,
    /// Numbers that no bucket has. Their buffers have no records.
    free: Vec<u32>,
}

impl Default for Buffers {
    fn default() -> Buffers {
        Buffers {
            table: vec![EMPTY; 2 * ROOM_MIN],
            all: Vec::with_capacity(ROOM_MIN),
            free: Vec::with_capacity(ROOM_MIN),
        }
    }
}

impl Buffer {
    fn is_unused(&self) -> bool {
        self.writers.is_empty() && self.readers.is_empty()
    }

    pub(super) fn id(&self) -> &BufferId {
        &self.id
    }

    #[inline]
    pub(super) fn index(&mut self, role: Role) -> &mut Index {
        match role {
            Role::Reader => &mut self.readers,
            Role::Writer => &mut self.writers,
            Role::Holder => unreachable!("such a record is on no index"),
        }
    }
}

impl Buffers {
    /// The number of a buffer that is about to get a record. Without one it may be forgotten when the next is entered.
    #[inline(always)]
    pub(super) fn enter(&mut self, id: &BufferId) -> u32 {
        let hash = id.hash();
        let (wanted, mask) = (Bucket::new(hash, NONE), self.table.len() - 1);
        let mut at = hash as usize & mask;
        loop {
            let bucket = self.table[at];
            if bucket.buffer == NONE {
                return self.add(id, hash, at);
            }
            if bucket.tag == wanted.tag && self.all[bucket.buffer as usize].id == *id {
                return bucket.buffer;
            }
            at = (at + 1) & mask;
        }
    }

    /// Forgets all buffers.
    pub(super) fn clear(&mut self) {
        self.table.fill(EMPTY);
        self.all.clear();
        self.free.clear();
    }

    /// Number of buffers that have records.
    #[cfg(test)]
    pub(super) fn n_used(&self) -> usize {
        self.all.iter().filter(|buffer| !buffer.is_unused()).count()
    }

    /// How many buffers the table may hold.
    fn room(&self) -> usize {
        self.table.len() / 2
    }

    /// Number of buffers in the table.
    fn n_known(&self) -> usize {
        self.all.len() - self.free.len()
    }

    /// Adds a buffer that is not in the table, in an empty bucket that is the first for it.
    #[inline(never)]
    fn add(&mut self, id: &BufferId, hash: u64, mut bucket: usize) -> u32 {
        if self.n_known() == self.room() {
            self.make_room();
            bucket = self.first_empty(hash);
        }
        let buffer = Buffer {
            id: *id,
            writers: Index::EMPTY,
            readers: Index::EMPTY,
        };
        let number = self.free.pop().unwrap_or(self.all.len() as u32);
        match self.all.get_mut(number as usize) {
            Some(free) => *free = buffer,
            None => self.all.push(buffer),
        }
        self.table[bucket] = Bucket::new(hash, number);
        number
    }

    /// The first empty bucket for a buffer with this hash.
    fn first_empty(&self, hash: u64) -> usize {
        let mask = self.table.len() - 1;
        let mut at = hash as usize & mask;
        while self.table[at].buffer != NONE {
            at = (at + 1) & mask;
        }
        at
    }

    /// Makes the table anew without the buffers that have no records, and twice as large when that frees less than
    /// half of it. So each buffer that is added later pays for two that are looked at here, whatever comes. The lists
    /// grow with the table, so that as many buffers as there were once never make them grow again.
    #[cold]
    fn make_room(&mut self) {
        let n_used = self.all.iter().filter(|buffer| !buffer.is_unused()).count();
        let n_buckets = self.table.len() << usize::from(n_used > self.room() / 2);
        self.table.clear();
        self.table.resize(n_buckets, EMPTY);
        let room = self.room();
        self.all.reserve_exact(room.saturating_sub(self.all.len()));
        self.free.clear();
        self.free.reserve_exact(room);
        for number in (0..self.all.len() as u32).rev() {
            let buffer = &self.all[number as usize];
            if buffer.is_unused() {
                self.free.push(number);
            } else {
                let hash = buffer.id.hash();
                let bucket = self.first_empty(hash);
                self.table[bucket] = Bucket::new(hash, number);
            }
        }
    }
}

impl std::ops::Index<u32> for Buffers {
    type Output = Buffer;

    #[inline]
    fn index(&self, buffer: u32) -> &Buffer {
        &self.all[buffer as usize]
    }
}

impl std::ops::IndexMut<u32> for Buffers {
    #[inline]
    fn index_mut(&mut self, buffer: u32) -> &mut Buffer {
        &mut self.all[buffer as usize]
    }
}

#[cfg(test)]
mod tests;
