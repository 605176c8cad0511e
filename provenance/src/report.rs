//! What there is: totals, and a list per worker.

use crate::ptr::{DevicePtr, WorkerRef};
use crate::slots::Role;
use crate::table::Table;

/// Totals of a table.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct Stats {
    /// Allocations that can be used, or wait for their last use.
    pub live: u64,
    /// Their bytes.
    pub bytes: u64,
    /// Windows that can be used, or wait for their last use.
    pub windows: u64,
    /// Releases whose native part failed or was interrupted, ever.
    pub leaked: u64,
    /// The bytes that these cost; windows cost none.
    pub leaked_bytes: u64,
}

/// One line of a report.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Entry {
    /// The base handle.
    pub ptr: DevicePtr,
    /// Its extent.
    pub bytes: u64,
    /// What it is.
    pub role: Role,
    /// Uses that are queued or running.
    pub uses: u32,
    /// Whether it was released and waits for these.
    pub retired: bool,
}

impl Table {
    /// Totals over all workers. Takes the writers' lock for a moment.
    pub fn stats(&self) -> Stats {
        self.ledger().stats
    }

    /// What a worker has: allocations by address, then windows in the order of their entries.
    ///
    /// Cost: proportional to their number, under the writers' lock.
    pub fn report(&self, worker: WorkerRef) -> Vec<Entry> {
        let ledger = self.ledger();
        let Some(owner) = ledger.owners.get(&worker) else {
            return Vec::new();
        };
        let entries = owner.allocations.values().chain(&owner.windows);
        entries.map(|&entry| self.line(entry)).collect()
    }

    fn line(&self, entry: u32) -> Entry {
        let slot = self.slots().ensure(entry);
        let word = slot.word.load();
        let facts = slot.facts();
        Entry {
            ptr: self.handle(entry, word.generation(), &facts),
            bytes: facts.bytes,
            role: facts.role,
            uses: word.pins(),
            retired: !word.is_live(word.generation()),
        }
    }
}
