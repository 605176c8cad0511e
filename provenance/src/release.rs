//! The end of memory: revoked first, then freed, or leaked.
//!
//! An interruption at any point leaves less authority, never more: a [`Revoked`] that is dropped
//! without its [`freed`](Revoked::freed), by a panic or a lost reply, is a leak.

use std::error::Error;

use crate::error::{Ask, Cause, FreeError, Operation, Refused};
use crate::ledger::Ledger;
use crate::ptr::{DevicePtr, WorkerRef};
use crate::slots::{Facts, Role, Slot};
use crate::table::Table;
use crate::word::{Snapshot, State};

/// Memory that nobody can use any more, on its way to the native free.
///
/// Say [`freed`](Self::freed) when that succeeded; dropping it instead counts a leak.
#[derive(Debug)]
#[must_use = "dropping it counts a leak: free the memory natively, then say `freed`"]
pub struct Revoked {
    table: Table,
    ptr: DevicePtr,
    bytes: u64,
    role: Role,
}

impl Revoked {
    /// The base handle, no longer worth anything.
    pub fn ptr(&self) -> DevicePtr {
        self.ptr
    }

    /// The device address to free.
    pub fn address(&self) -> u64 {
        self.ptr.base
    }

    /// How many bytes there were.
    pub fn bytes(&self) -> u64 {
        self.bytes
    }

    /// Whether it is to be freed (an allocation) or unmapped (a window).
    pub fn role(&self) -> Role {
        self.role
    }

    /// The native free succeeded; the entry can be used again.
    pub fn freed(self) {
        let table = self.table.clone();
        let slot = table.slots().ensure(self.ptr.entry);
        vacate(&mut table.ledger(), slot, self.ptr);
        // Dropped here: no longer `Revoked`, so not a leak.
    }
}

impl Drop for Revoked {
    fn drop(&mut self) {
        let slot = self.table.slots().ensure(self.ptr.entry);
        let mut ledger = self.table.ledger();
        let word = slot.word.load();
        if word != Snapshot::new(self.ptr.generation, State::Revoked, 0) {
            return;
        }
        if ledger.is_lost(self.ptr.worker) {
            vacate(&mut ledger, slot, self.ptr);
            return;
        }
        slot.word.leak();
        ledger.stats.leaked += 1;
        if self.role == Role::Allocation {
            ledger.stats.leaked_bytes += self.bytes;
        }
    }
}

fn vacate(ledger: &mut Ledger, slot: &Slot, ptr: DevicePtr) {
    if slot.word.vacate(ptr.generation) {
        ledger.put_entry(ptr.entry);
    }
}

impl Table {
    /// Frees an allocation: revokes it, then calls `native` with its address.
    ///
    /// # Errors
    /// [`FreeError::Refused`] when it is not the base of a live allocation of that worker, is in
    /// use, or windows show it: nothing happened. [`FreeError::Leaked`] when `native` failed: the
    /// memory is never usable again, and counted in [`Stats::leaked`](crate::Stats::leaked).
    pub fn free<E: Error + 'static>(
        &self,
        ask: Ask,
        ptr: DevicePtr,
        native: impl FnOnce(u64) -> Result<(), E>,
    ) -> Result<(), FreeError<E>> {
        let revoked = self.revoke(ask, ptr)?;
        match native(revoked.address()) {
            Ok(()) => {
                revoked.freed();
                Ok(())
            }
            Err(source) => Err(FreeError::Leaked {
                ptr,
                bytes: revoked.bytes,
                source,
            }),
        }
    }

    /// The first half of [`free`](Self::free), and of the release of one window: from here on
    /// nobody can use it, and the caller owes the native part.
    ///
    /// # Errors
    /// As for [`free`](Self::free). `ask.operation` says which role is meant:
    /// [`Operation::Release`] a window, everything else an allocation.
    pub fn revoke(&self, ask: Ask, ptr: DevicePtr) -> Result<Revoked, Refused> {
        let mut ledger = self.ledger();
        let facts = self.close(&ledger, ask, ptr)?;
        ledger.strike(ptr.entry, &facts);
        Ok(self.revoked(ptr, &facts))
    }

    /// Releases several windows, all or none of them.
    ///
    /// # Errors
    /// As for [`revoke`](Self::revoke), for the first that cannot be released; all others are as
    /// they were.
    pub fn revoke_windows(&self, ask: Ask, ptrs: &[DevicePtr]) -> Result<Vec<Revoked>, Refused> {
        let ask = Ask {
            operation: Operation::Release,
            ..ask
        };
        let mut ledger = self.ledger();
        let mut held = Vec::with_capacity(ptrs.len());
        for &ptr in ptrs {
            match self.close(&ledger, ask, ptr) {
                Ok(facts) => held.push((ptr, facts)),
                Err(refused) => {
                    held.iter().for_each(|&(ptr, _)| self.reopen(ptr));
                    return Err(refused);
                }
            }
        }
        held.iter()
            .for_each(|(ptr, facts)| ledger.strike(ptr.entry, facts));
        Ok(held
            .into_iter()
            .map(|(ptr, facts)| self.revoked(ptr, &facts))
            .collect())
    }

    /// Live to revoked, if everything permits it. The books are still to be brought up to date.
    fn close(&self, ledger: &Ledger, ask: Ask, ptr: DevicePtr) -> Result<Facts, Refused> {
        let (slot, facts) = self.releasable(ledger, ask, ptr)?;
        slot.word
            .revoke(ptr.generation)
            .map_err(|word| in_use(ask, ptr, word))?;
        self.slots().set_live(ptr.entry, None);
        Ok(facts)
    }

    /// Revoked back to live: of a release of several, one was refused.
    fn reopen(&self, ptr: DevicePtr) {
        self.slots().ensure(ptr.entry).word.reinstate();
        self.slots().set_live(ptr.entry, Some(ptr.generation));
    }

    /// Releases memory now, or when its last use ends. New uses are refused at once.
    ///
    /// `Some` is for the caller to free; after `None` it comes out of [`due`](Self::due), once
    /// the uses that began before have ended.
    ///
    /// # Errors
    /// As for [`revoke`](Self::revoke), except that uses are no obstacle.
    pub fn retire(&self, ask: Ask, ptr: DevicePtr) -> Result<Option<Revoked>, Refused> {
        let mut ledger = self.ledger();
        let (slot, facts) = self.releasable(&ledger, ask, ptr)?;
        let now = slot.word.retire(ptr.generation);
        let now = now.map_err(|word| in_use(ask, ptr, word))?;
        self.slots().set_live(ptr.entry, None);
        if now == State::Retired {
            return Ok(None);
        }
        ledger.strike(ptr.entry, &facts);
        Ok(Some(self.revoked(ptr, &facts)))
    }

    /// What was retired and has seen its last use since the last call, for the caller to free.
    pub fn due(&self) -> Vec<Revoked> {
        let mut ledger = self.ledger();
        let due = std::mem::take(&mut ledger.due);
        due.into_iter()
            .map(|ptr| self.revoked(ptr, &self.slots().ensure(ptr.entry).facts()))
            .collect()
    }

    /// Whether [`due`](Self::due) has something to give.
    pub fn has_due(&self) -> bool {
        !self.ledger().due.is_empty()
    }

    /// The life of a worker is over: all of its memory is gone, and every window on it.
    ///
    /// Uses that are going on end as they can; nothing of it can be used again, and nothing is
    /// recorded for it any more. Returns how many allocations were lost. A second call does nothing.
    pub fn worker_lost(&self, worker: WorkerRef) -> usize {
        let mut ledger = self.ledger();
        let owner = ledger.owners.entry(worker).or_default();
        owner.lost = true;
        let allocations: Vec<u32> = owner.allocations.values().copied().collect();
        let mut entries = allocations.clone();
        entries.extend(&owner.windows);
        for entry in &allocations {
            entries.extend(ledger.shown.get(entry).into_iter().flatten());
        }
        entries.sort_unstable();
        entries.dedup();
        for entry in entries {
            self.lose(&mut ledger, entry);
        }
        self.forget_due(&mut ledger, worker);
        allocations.len()
    }

    /// What waited for its native free needs none any more.
    fn forget_due(&self, ledger: &mut Ledger, worker: WorkerRef) {
        let (gone, due) = std::mem::take(&mut ledger.due)
            .into_iter()
            .partition::<Vec<_>, _>(|ptr: &DevicePtr| ptr.worker == worker);
        ledger.due = due;
        for ptr in gone {
            vacate(ledger, self.slots().ensure(ptr.entry), ptr);
        }
    }

    fn lose(&self, ledger: &mut Ledger, entry: u32) {
        let slot = self.slots().ensure(entry);
        let facts = slot.facts();
        let Ok(word) = slot.word.lose() else { return };
        self.slots().set_live(entry, None);
        ledger.strike(entry, &facts);
        if word.pins() == 0 && slot.word.vacate(word.generation()) {
            ledger.put_entry(entry);
        }
    }

    /// Everything that a release checks besides uses.
    fn releasable<'t>(
        &'t self,
        ledger: &Ledger,
        ask: Ask,
        ptr: DevicePtr,
    ) -> Result<(&'t Slot, Facts), Refused> {
        let refused = |cause| Refused {
            ask,
            span: ptr.span(0),
            cause,
        };
        let (slot, facts) = self.live(ledger, ask, ptr.span(0))?;
        let wanted = if ask.operation == Operation::Release {
            Role::Window
        } else {
            Role::Allocation
        };
        match facts.role {
            Role::Window if wanted == Role::Allocation => Err(refused(Cause::NotAllocation)),
            Role::Allocation if wanted == Role::Window => Err(refused(Cause::NotWindow)),
            _ if ptr.offset != 0 => Err(refused(Cause::NotBase)),
            _ => match ledger.windows_on(ptr.entry) {
                0 => Ok((slot, facts)),
                windows => Err(refused(Cause::Windows { windows })),
            },
        }
    }

    fn revoked(&self, ptr: DevicePtr, facts: &Facts) -> Revoked {
        Revoked {
            table: self.clone(),
            ptr,
            bytes: facts.bytes,
            role: facts.role,
        }
    }
}

fn in_use(ask: Ask, ptr: DevicePtr, word: Snapshot) -> Refused {
    Refused {
        ask,
        span: ptr.span(0),
        cause: Cause::InUse { uses: word.pins() },
    }
}
