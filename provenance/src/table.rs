//! The table: recording memory, and the door through which a handle becomes an address.

use std::fmt;
use std::sync::Arc;

use crate::error::{Ask, Cause, NotRecorded, RecordCause, Refused};
use crate::ledger::Ledger;
use crate::ptr::{DevicePtr, Made, Span, WorkerRef};
use crate::slots::{Facts, Role, Slot, Slots};
use crate::sync::{Mutex, MutexGuard, lock, table_number};
use crate::word::{Snapshot, State};

/// Who owns which device memory, and what of it is alive.
///
/// Clones share one table. Readers ([`with_range`](Self::with_range), [`check`](Self::check),
/// [`hold`](Self::hold)) take no lock and do not wait for each other, nor for writers.
#[derive(Clone)]
pub struct Table(Arc<Shared>);

struct Shared {
    /// What tells the handles of this table from those of others.
    number: u32,
    slots: Slots,
    ledger: Mutex<Ledger>,
}

impl Default for Table {
    fn default() -> Self {
        Self::new()
    }
}

impl fmt::Debug for Table {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Table")
            .field("stats", &self.stats())
            .finish_non_exhaustive()
    }
}

impl Table {
    /// An empty table.
    ///
    /// # Panics
    /// When the process has made four billion of them.
    pub fn new() -> Self {
        Self(Arc::new(Shared {
            number: table_number(),
            slots: Slots::new(),
            ledger: Mutex::new(Ledger::default()),
        }))
    }

    /// Enters memory that the worker's allocator has just handed out.
    ///
    /// # Errors
    /// When the life of the worker is over, or the memory is empty, wraps around, or overlaps
    /// with a live allocation. The native allocation is then the caller's to free.
    pub fn record(
        &self,
        worker: WorkerRef,
        address: u64,
        bytes: u64,
    ) -> Result<DevicePtr, NotRecorded> {
        let facts = Facts {
            worker,
            base: address,
            bytes,
            role: Role::Allocation,
        };
        self.enter(&mut self.ledger(), facts)
            .map_err(|cause| facts.not_recorded(cause))
    }

    /// Takes an entry for live memory and publishes it: from here on its handle is worth something.
    pub(crate) fn enter(
        &self,
        ledger: &mut Ledger,
        facts: Facts,
    ) -> Result<DevicePtr, RecordCause> {
        ledger.admit(self.slots(), &facts)?;
        let entry = ledger.take_entry(self.slots())?;
        let slot = self.slots().ensure(entry);
        ledger.enter(entry, &facts);
        Ok(self.publish(slot, entry, facts))
    }

    pub(crate) fn publish(&self, slot: &Slot, entry: u32, facts: Facts) -> DevicePtr {
        let generation = slot.word.load().generation();
        slot.set_facts(facts);
        slot.word.publish(generation);
        self.slots().set_live(entry, Some(generation));
        self.handle(entry, generation, &facts)
    }

    /// Calls `native` with the device address of the range, which stays alive during the call:
    /// a free by another thread is refused as in use meanwhile.
    ///
    /// # Errors
    /// When the handle is not worth that range, or not on that worker; `native` is not called.
    ///
    /// # Panics
    /// Only if `native` does; the use ends then as well.
    ///
    /// Cost: two atomic operations on the entry's own cache line.
    pub fn with_range<R>(
        &self,
        ask: Ask,
        span: Span,
        native: impl FnOnce(u64) -> R,
    ) -> Result<R, Refused> {
        let using = self.enter_use(ask, span)?;
        Ok(native(using.address))
    }

    fn enter_use(&self, ask: Ask, span: Span) -> Result<Use<'_>, Refused> {
        let address = self.pin(ask, span)?;
        Ok(Use {
            table: self,
            ptr: span.ptr,
            address,
        })
    }

    /// Whether the handle is worth that range on that worker, and at which address, at one
    /// instant during the call. Enough for a reader that is alone with the table; with other
    /// threads about use [`with_range`](Self::with_range) or [`hold`](Self::hold).
    ///
    /// # Errors
    /// When it is not.
    ///
    /// Cost: writes nothing, and reads one word of a dense array if this table made the handle, so
    /// that consecutive checks overlap in the processor; for one that came as bytes a cache line.
    #[inline]
    pub fn check(&self, ask: Ask, span: Span) -> Result<u64, Refused> {
        let own = (span.ptr.made.by == self.0.number) & span.within(span.ptr.made.extent);
        let asked = ask.worker.is_none_or(|worker| worker == span.ptr.worker.id);
        let live = own & asked && self.slots().is_live(span.ptr.entry, span.ptr.generation);
        if !live {
            self.check_claim(ask, span)?;
        }
        Ok(span.ptr.base + span.ptr.offset)
    }

    /// The check of a handle that is to be compared word by word.
    #[inline(never)]
    fn check_claim(&self, ask: Ask, span: Span) -> Result<(), Refused> {
        let asked = ask.worker.is_none_or(|worker| worker == span.ptr.worker.id);
        if !(asked && self.covers(span)) {
            // Under the lock, what the first look saw half-way is over.
            self.live(&self.ledger(), ask, span)?;
        }
        Ok(())
    }

    pub(crate) fn covers(&self, span: Span) -> bool {
        let slot = self.slots().at(span.ptr.entry);
        slot.is_some_and(|slot| slot.covers(span))
    }

    /// The door: checks and pins in one step. Returns the address.
    pub(crate) fn pin(&self, ask: Ask, span: Span) -> Result<u64, Refused> {
        let ptr = span.ptr;
        let slot = loop {
            match self.slots().at(ptr.entry) {
                Some(slot) if slot.word.pin(ptr.generation) => break slot,
                _ => self.refuse(&self.ledger(), ask, span)?,
            }
        };
        let facts = slot.facts();
        if allows(&facts, ask, span) {
            return Ok(ptr.base + ptr.offset);
        }
        self.unpin(ptr.entry);
        Err(mismatch(&facts, ask, span))
    }

    /// Ends a use. The last one of a released or lost entry finishes what was waiting for it.
    pub(crate) fn unpin(&self, entry: u32) {
        let slot = self.slots().ensure(entry);
        let left = slot.word.unpin();
        if left.pins() == 0 && left.state() != State::Live {
            self.settle_last_use(slot, entry, left);
        }
    }

    #[cold]
    fn settle_last_use(&self, slot: &Slot, entry: u32, left: Snapshot) {
        let mut ledger = self.ledger();
        if left.state() == State::Lost {
            if slot.word.vacate(left.generation()) {
                ledger.put_entry(entry);
            }
        } else if slot.word.revoke_retired(left.generation()) {
            let facts = slot.facts();
            ledger.strike(entry, &facts);
            ledger
                .due
                .push(self.handle(entry, left.generation(), &facts));
        }
    }

    /// Says why a handle is worth nothing. Under the lock no word changes but by pins, so what a
    /// reader saw in the middle of another's change is looked at again: `Ok` is "try once more".
    #[cold]
    pub(crate) fn refuse(&self, ledger: &Ledger, ask: Ask, span: Span) -> Result<(), Refused> {
        let word = self.slots().at(span.ptr.entry).map(|slot| slot.word.load());
        let refused = |cause| Err(Refused { ask, span, cause });
        match (other_worker(ask, span.ptr), word) {
            (Some(cause), _) => refused(cause),
            (None, Some(word)) if word.takes_pins(span.ptr.generation) => Ok(()),
            _ if ledger.is_lost(span.ptr.worker) => refused(Cause::WorkerLost {
                worker: span.ptr.worker,
            }),
            (None, word) => refused(word.map_or(Cause::Unknown, |word| verdict(word, span.ptr))),
        }
    }

    /// The live entry that a handle names, for writers.
    pub(crate) fn live<'t>(
        &'t self,
        ledger: &Ledger,
        ask: Ask,
        span: Span,
    ) -> Result<(&'t Slot, Facts), Refused> {
        let slot = loop {
            match self.slots().at(span.ptr.entry) {
                Some(slot) if slot.word.load().is_live(span.ptr.generation) => break slot,
                _ => self.refuse(ledger, ask, span)?,
            }
        };
        let facts = slot.facts();
        if allows(&facts, ask, span) {
            Ok((slot, facts))
        } else {
            Err(mismatch(&facts, ask, span))
        }
    }

    pub(crate) fn slots(&self) -> &Slots {
        &self.0.slots
    }

    pub(crate) fn ledger(&self) -> MutexGuard<'_, Ledger> {
        lock(&self.0.ledger)
    }

    pub(crate) fn handle(&self, entry: u32, generation: u32, facts: &Facts) -> DevicePtr {
        DevicePtr {
            worker: facts.worker,
            entry,
            generation,
            base: facts.base,
            offset: 0,
            made: Made {
                by: self.0.number,
                extent: facts.bytes,
            },
        }
    }
}

impl Facts {
    pub(crate) fn not_recorded(&self, cause: RecordCause) -> NotRecorded {
        NotRecorded {
            worker: self.worker,
            address: self.base,
            bytes: self.bytes,
            cause,
        }
    }
}

/// The whole check of a handle against its live entry.
fn allows(facts: &Facts, ask: Ask, span: Span) -> bool {
    let asked = ask.worker.is_none_or(|worker| worker == facts.worker.id);
    asked && facts.agree(span.ptr) && span.within(facts.bytes)
}

/// Which part of the check failed.
#[cold]
fn mismatch(facts: &Facts, ask: Ask, span: Span) -> Refused {
    let cause = if !facts.agree(span.ptr) {
        Cause::Foreign {
            owner: facts.worker,
            base: facts.base,
        }
    } else if let Some(cause) = other_worker(ask, span.ptr) {
        cause
    } else {
        Cause::OutOfRange {
            extent: facts.bytes,
        }
    };
    Refused { ask, span, cause }
}

fn other_worker(ask: Ask, ptr: DevicePtr) -> Option<Cause> {
    let owner = ptr.worker.id;
    ask.worker
        .is_some_and(|asked| asked != owner)
        .then_some(Cause::OtherWorker { owner })
}

/// What the word of an entry says about a handle that it does not allow.
fn verdict(word: Snapshot, ptr: DevicePtr) -> Cause {
    let uses = word.pins();
    if word.generation() < ptr.generation {
        return Cause::Unknown;
    }
    if word.generation() > ptr.generation {
        return Cause::Stale;
    }
    match word.state() {
        State::Vacant => Cause::Unknown,
        State::Live => Cause::TooManyUses { uses },
        State::Retired => Cause::Retired { uses },
        State::Leaked => Cause::Leaked,
        // `Lost` on a worker that lives: a window, whose memory was on one that does not.
        State::Revoked | State::Lost => Cause::Stale,
    }
}

/// A use on the stack of the user: ends when dropped.
struct Use<'t> {
    table: &'t Table,
    ptr: DevicePtr,
    address: u64,
}

impl Drop for Use<'_> {
    fn drop(&mut self) {
        self.table.unpin(self.ptr.entry);
    }
}
