//! The writers of many views of one buffer, found by exactly their bytes.
//!
//! A program that cuts a tensor into tiles names the same tiles again and again. Where no two writers of a buffer share
//! a byte, the one that has exactly the bytes of an access is the only one that meets it. So such an access costs one
//! look here, however many tiles there are, and no search through a [tree](super::index).

use hashbrown::HashTable;

use super::records::Records;
use crate::view::View;

/// The writers that stand in trees.
#[derive(Default)]
pub(super) struct Exact {
    records: HashTable<u32>,
}

impl Exact {
    /// Forgets all writers.
    pub(super) fn clear(&mut self) {
        self.records.clear();
    }

    /// Adds a writer that is not here.
    pub(super) fn insert(&mut self, record: u32, records: &Records) {
        let hash = |record: u32| {
            let record = &records[record];
            hash(record.buffer, record.lo, record.hi)
        };
        self.records
            .insert_unique(hash(record), record, |&other| hash(other));
    }

    /// Takes out a writer, before its bytes change.
    pub(super) fn remove(&mut self, at: u32, records: &Records) {
        let record = &records[at];
        let hash = hash(record.buffer, record.lo, record.hi);
        let found = self.records.find_entry(hash, |&other| other == at);
        debug_assert!(found.is_ok(), "a writer of a tree is here");
        if let Ok(entry) = found {
            entry.remove();
        }
    }

    /// A writer of this buffer that has exactly these bytes.
    #[inline]
    pub(super) fn find(&self, buffer: u32, view: &View, records: &Records) -> Option<u32> {
        let is_it = |&at: &u32| records[at].buffer == buffer && records.is_exactly(at, view);
        let hash = hash(buffer, view.lo(), view.hi());
        self.records.find(hash, is_it).copied()
    }

    #[cfg(test)]
    pub(super) fn len(&self) -> usize {
        self.records.len()
    }
}

/// Fixed, so that every run of a program behaves alike.
#[inline]
const fn hash(buffer: u32, lo: u64, hi: u64) -> u64 {
    let mixed = lo.wrapping_mul(0x9e37_79b9_7f4a_7c15) ^ hi.rotate_left(32) ^ buffer as u64;
    let spread = (mixed ^ (mixed >> 32)).wrapping_mul(0xd1b5_4a32_d192_ed03);
    spread ^ (spread >> 32)
}
