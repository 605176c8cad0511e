//! What only writers need: which entries are vacant, what lies where, what shows what.
//!
//! One lock guards all of it. No reader takes it unless it is refused.

use std::collections::{BTreeMap, BTreeSet, HashMap};

use crate::error::RecordCause;
use crate::ptr::{DevicePtr, Made, WorkerRef};
use crate::report::Stats;
use crate::slots::{Facts, Role, Slots};
use crate::word::State;

/// The books of one worker.
#[derive(Debug, Default)]
pub(crate) struct Owner {
    /// Set when that life is over; nothing is recorded any more.
    pub(crate) lost: bool,
    /// address -> entry: "the live allocation that begins here is this entry". They do not overlap.
    pub(crate) allocations: BTreeMap<u64, u32>,
    /// The entries that are windows on this worker.
    pub(crate) windows: BTreeSet<u32>,
}

/// The writers' side of the table.
#[derive(Debug, Default)]
pub(crate) struct Ledger {
    /// Vacant entries below `fresh`.
    free: Vec<u32>,
    /// No entry from here on was ever handed out.
    fresh: u32,
    pub(crate) owners: HashMap<WorkerRef, Owner>,
    /// window -> handle of the memory behind it, never itself a window.
    pub(crate) backing: HashMap<u32, DevicePtr>,
    /// entry -> the live windows that show it; no empty lists.
    pub(crate) shown: HashMap<u32, Vec<u32>>,
    /// Retired entries whose last use has ended, for the owner to free.
    pub(crate) due: Vec<DevicePtr>,
    pub(crate) stats: Stats,
}

impl Ledger {
    /// A vacant entry, now the caller's.
    pub(crate) fn take_entry(&mut self, slots: &Slots) -> Result<u32, RecordCause> {
        loop {
            let entry = match self.free.pop() {
                Some(entry) => entry,
                None => self.fresh_entry()?,
            };
            // Another table's ticket may have taken it already.
            if slots.ensure(entry).word.load().state() == State::Vacant {
                return Ok(entry);
            }
        }
    }

    fn fresh_entry(&mut self) -> Result<u32, RecordCause> {
        let entry = self.fresh;
        self.fresh = entry
            .checked_add(1)
            .ok_or(RecordCause::Full { entries: u32::MAX })?;
        Ok(entry)
    }

    /// Gives an entry back that is vacant again. One that only tickets of another table name is
    /// that table's to hand out.
    pub(crate) fn put_entry(&mut self, entry: u32) {
        if entry < self.fresh {
            self.free.push(entry);
        }
    }

    /// Whether such memory can be recorded.
    pub(crate) fn admit(&self, slots: &Slots, facts: &Facts) -> Result<(), RecordCause> {
        if facts.bytes == 0 {
            return Err(RecordCause::Empty);
        }
        if facts.base.checked_add(facts.bytes).is_none() {
            return Err(RecordCause::Overflow);
        }
        match self.owners.get(&facts.worker) {
            Some(owner) if owner.lost => Err(RecordCause::WorkerLost),
            Some(owner) if facts.role == Role::Allocation => no_overlap(owner, slots, facts),
            _ => Ok(()),
        }
    }

    /// Enters live memory into the books.
    pub(crate) fn enter(&mut self, entry: u32, facts: &Facts) {
        let owner = self.owners.entry(facts.worker).or_default();
        match facts.role {
            Role::Allocation => {
                owner.allocations.insert(facts.base, entry);
                self.stats.live += 1;
                self.stats.bytes += facts.bytes;
            }
            Role::Window => {
                owner.windows.insert(entry);
                self.stats.windows += 1;
            }
        }
    }

    /// Strikes memory out of the books: its address may be recorded again from now on.
    pub(crate) fn strike(&mut self, entry: u32, facts: &Facts) {
        let owner = self.owners.entry(facts.worker).or_default();
        match facts.role {
            Role::Allocation => {
                owner.allocations.remove(&facts.base);
                self.stats.live -= 1;
                self.stats.bytes -= facts.bytes;
            }
            Role::Window => {
                owner.windows.remove(&entry);
                self.stats.windows -= 1;
                self.unlink(entry);
            }
        }
    }

    /// A window shows `behind`.
    pub(crate) fn link(&mut self, window: u32, behind: DevicePtr) {
        self.backing.insert(window, behind);
        self.shown.entry(behind.entry()).or_default().push(window);
    }

    fn unlink(&mut self, window: u32) {
        let Some(behind) = self.backing.remove(&window) else {
            return;
        };
        let Some(windows) = self.shown.get_mut(&behind.entry()) else {
            return;
        };
        windows.retain(|&other| other != window);
        if windows.is_empty() {
            self.shown.remove(&behind.entry());
        }
    }

    /// How many live windows show the entry.
    pub(crate) fn windows_on(&self, entry: u32) -> usize {
        self.shown.get(&entry).map_or(0, Vec::len)
    }

    pub(crate) fn is_lost(&self, worker: WorkerRef) -> bool {
        self.owners.get(&worker).is_some_and(|owner| owner.lost)
    }
}

/// The allocation that begins last before the end of the new one is the only one that can
/// reach into it, since recorded ones do not overlap.
fn no_overlap(owner: &Owner, slots: &Slots, new: &Facts) -> Result<(), RecordCause> {
    let Some((&base, &entry)) = owner.allocations.range(..new.base + new.bytes).next_back() else {
        return Ok(());
    };
    let slot = slots.ensure(entry);
    let held = slot.facts();
    if base + held.bytes <= new.base {
        return Ok(());
    }
    let held_ptr = DevicePtr {
        worker: held.worker,
        entry,
        generation: slot.word.load().generation(),
        base,
        offset: 0,
        made: Made::BY_NOBODY,
    };
    Err(RecordCause::Overlap {
        held: held_ptr,
        bytes: held.bytes,
    })
}
