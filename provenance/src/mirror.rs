//! The child's half: the same names for the same memory, checked by its own books.
//!
//! A parent reserves an entry and sends its [`Ticket`] along with the request to allocate. The
//! child records what its device gave it under that ticket, in a table of its own; so later it
//! can check each handle that arrives against what it did itself, whatever the parent believes.

use crate::error::{NotRecorded, RecordCause};
use crate::ptr::{DevicePtr, WorkerRef};
use crate::slots::{Facts, Role};
use crate::table::Table;

/// The name that memory will have once it exists.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Ticket {
    /// Whose memory it will be.
    pub worker: WorkerRef,
    /// The entry.
    pub entry: u32,
    /// The generation of the entry.
    pub generation: u32,
}

/// An entry set aside for memory that is being allocated. Dropped, it is free again.
#[derive(Debug)]
#[must_use = "dropping it gives the entry back"]
pub struct Reservation {
    table: Table,
    ticket: Ticket,
}

impl Reservation {
    /// The name to send to the child.
    pub fn ticket(&self) -> Ticket {
        self.ticket
    }

    /// The allocation succeeded: enters it.
    ///
    /// # Errors
    /// As for [`Table::record`].
    pub fn record(self, address: u64, bytes: u64) -> Result<DevicePtr, NotRecorded> {
        self.table.record_as(self.ticket, address, bytes)
    }

    /// The memory is mapped as a window: enters it, as [`Table::record_window`] does.
    ///
    /// # Errors
    /// As for [`Table::record_window`].
    pub fn record_window(
        self,
        address: u64,
        bytes: u64,
        behind: Option<DevicePtr>,
    ) -> Result<DevicePtr, NotRecorded> {
        self.table
            .record_window_as(self.ticket, address, bytes, behind)
    }
}

impl Drop for Reservation {
    fn drop(&mut self) {
        let mut ledger = self.table.ledger();
        let slot = self.table.slots().ensure(self.ticket.entry);
        // The ticket may be on its way still: the entry moves on, so that it is spent.
        if slot.word.skip(self.ticket.generation) {
            ledger.put_entry(self.ticket.entry);
        }
    }
}

impl Table {
    /// Sets an entry aside for memory that is about to be allocated on the worker.
    ///
    /// # Errors
    /// When the life of the worker is over, or all entries are in use.
    pub fn reserve(&self, worker: WorkerRef) -> Result<Reservation, NotRecorded> {
        let facts = Facts {
            worker,
            base: 0,
            bytes: 0,
            role: Role::Allocation,
        };
        let mut ledger = self.ledger();
        if ledger.is_lost(worker) {
            return Err(facts.not_recorded(RecordCause::WorkerLost));
        }
        let entry = ledger
            .take_entry(self.slots())
            .map_err(|cause| facts.not_recorded(cause))?;
        let generation = self.slots().ensure(entry).word.load().generation();
        let ticket = Ticket {
            worker,
            entry,
            generation,
        };
        drop(ledger);
        Ok(Reservation {
            table: self.clone(),
            ticket,
        })
    }

    /// Enters memory under a name that another table gave it.
    ///
    /// # Errors
    /// As for [`record`](Self::record), and when the ticket is spent.
    pub fn record_as(
        &self,
        ticket: Ticket,
        address: u64,
        bytes: u64,
    ) -> Result<DevicePtr, NotRecorded> {
        self.enter_as(ticket, address, bytes, Role::Allocation, None)
    }

    /// Enters a window under a name that another table gave it.
    ///
    /// # Errors
    /// As for [`record_window`](Self::record_window), and when the ticket is spent.
    pub fn record_window_as(
        &self,
        ticket: Ticket,
        address: u64,
        bytes: u64,
        behind: Option<DevicePtr>,
    ) -> Result<DevicePtr, NotRecorded> {
        self.enter_as(ticket, address, bytes, Role::Window, behind)
    }

    fn enter_as(
        &self,
        ticket: Ticket,
        base: u64,
        bytes: u64,
        role: Role,
        behind: Option<DevicePtr>,
    ) -> Result<DevicePtr, NotRecorded> {
        let Ticket {
            worker,
            entry,
            generation,
        } = ticket;
        let facts = Facts {
            worker,
            base,
            bytes,
            role,
        };
        let mut ledger = self.ledger();
        let entered = (|| {
            ledger.admit(self.slots(), &facts)?;
            let behind = self.behind(&ledger, behind, bytes)?;
            let slot = self.slots().ensure(entry);
            let spent = |_| RecordCause::Spent { entry, generation };
            slot.word.advance(generation).map_err(spent)?;
            ledger.enter(entry, &facts);
            if let Some(behind) = behind {
                ledger.link(entry, behind);
            }
            Ok(self.publish(slot, entry, facts))
        })();
        entered.map_err(|cause| facts.not_recorded(cause))
    }
}
