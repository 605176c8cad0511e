//! The writers of many views of one buffer, found by exactly their bytes.
//!
//! A program that cuts a tensor into tiles names the same tiles again and again. Where no two writers of a buffer share
//! a byte, the one that has exactly the bytes of an access is the only one that meets it. So such an access costs one
//! look here, however many tiles there are, and no search through a [tree](super::index).

use super::NONE;
use super::records::Records;
use crate::view::View;

/// Buckets of the smallest table.
const BUCKETS_MIN: usize = 64;

#[derive(Clone, Copy)]
struct Bucket {
    /// Where a search for the record begins, in a table of any size.
    hash: u32,
    /// [`NONE`] in an empty bucket.
    record: u32,
}

const EMPTY: Bucket = Bucket {
    hash: 0,
    record: NONE,
};

/// The writers that stand in trees: an open table, a quarter of it empty at least, in which a search goes from bucket
/// to bucket until an empty one. It grows and never shrinks.
#[derive(Default)]
pub(super) struct Exact {
    /// As many as a power of two, or none.
    table: Vec<Bucket>,
    n_records: usize,
}

impl Exact {
    /// Forgets all writers.
    pub(super) fn clear(&mut self) {
        if self.n_records > 0 {
            self.table.fill(EMPTY);
            self.n_records = 0;
        }
    }

    /// Adds a writer that is not here.
    pub(super) fn insert(&mut self, record: u32, records: &Records) {
        if 4 * (self.n_records + 1) > 3 * self.table.len() {
            self.grow();
        }
        let hash = hash_of(record, records);
        self.put(Bucket { hash, record });
        self.n_records += 1;
    }

    /// Takes out a writer, before its bytes change.
    pub(super) fn remove(&mut self, record: u32, records: &Records) {
        let mask = self.mask();
        let mut hole = hash_of(record, records) as usize & mask;
        while self.table[hole].record != record {
            assert_ne!(self.table[hole].record, NONE, "a writer of a tree is here");
            hole = (hole + 1) & mask;
        }
        // Whoever is behind the hole, and was put there because the hole was taken, moves into it.
        let mut at = (hole + 1) & mask;
        while self.table[at].record != NONE {
            let distance_from = |start: usize| at.wrapping_sub(start) & mask;
            if distance_from(self.table[at].hash as usize & mask) >= distance_from(hole) {
                self.table[hole] = self.table[at];
                hole = at;
            }
            at = (at + 1) & mask;
        }
        self.table[hole] = EMPTY;
        self.n_records -= 1;
    }

    /// A writer of this buffer that has exactly these bytes.
    #[inline]
    pub(super) fn find(&self, buffer: u32, view: &View, records: &Records) -> Option<u32> {
        let (wanted, mask) = (hash(buffer, view.lo(), view.hi()), self.mask());
        let mut at = wanted as usize & mask;
        loop {
            let Bucket { hash, record } = *self.table.get(at)?;
            if record == NONE {
                return None;
            }
            let is_likely = hash == wanted && records[record].buffer == buffer;
            if is_likely && records.is_exactly(record, view) {
                return Some(record);
            }
            at = (at + 1) & mask;
        }
    }

    #[cfg(test)]
    pub(super) fn len(&self) -> usize {
        self.n_records
    }

    #[inline]
    fn mask(&self) -> usize {
        self.table.len().wrapping_sub(1)
    }

    fn put(&mut self, bucket: Bucket) {
        let mask = self.mask();
        let mut at = bucket.hash as usize & mask;
        while self.table[at].record != NONE {
            at = (at + 1) & mask;
        }
        self.table[at] = bucket;
    }

    #[cold]
    fn grow(&mut self) {
        let n_buckets = (2 * self.table.len()).max(BUCKETS_MIN);
        let old = std::mem::replace(&mut self.table, vec![EMPTY; n_buckets]);
        old.into_iter()
            .filter(|bucket| bucket.record != NONE)
            .for_each(|bucket| self.put(bucket));
    }
}

fn hash_of(record: u32, records: &Records) -> u32 {
    let record = &records[record];
    hash(record.buffer, record.lo, record.hi)
}

/// Fixed, so that every run of a program behaves alike.
#[inline]
const fn hash(buffer: u32, lo: u64, hi: u64) -> u32 {
    let mixed = lo.wrapping_mul(0x9e37_79b9_7f4a_7c15) ^ hi.rotate_left(32) ^ buffer as u64;
    let spread = (mixed ^ (mixed >> 32)).wrapping_mul(0xd1b5_4a32_d192_ed03);
    (spread >> 32) as u32
}

#[cfg(test)]
mod tests;
