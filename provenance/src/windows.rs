//! Windows: memory of an allocation, shown at some address on its own or another worker.

use crate::error::{Ask, NotRecorded, Operation, RecordCause, Refused};
use crate::ledger::Ledger;
use crate::ptr::{DevicePtr, Span, WorkerRef};
use crate::slots::{Facts, Role, Slot};
use crate::table::Table;

impl Table {
    /// Enters a window: `bytes` at `address` of `worker` show memory that another entry owns.
    ///
    /// `behind` is that memory, if it is recorded in this table: it is then not freed as long as
    /// the window lives, and [`root`](Self::root) leads there. Windows may overlap each other and
    /// allocations; each is an entry of its own with an extent of its own.
    ///
    /// # Errors
    /// When the life of the worker is over, the window is empty or wraps around, or the memory
    /// behind it is not `bytes` of something alive.
    pub fn record_window(
        &self,
        worker: WorkerRef,
        address: u64,
        bytes: u64,
        behind: Option<DevicePtr>,
    ) -> Result<DevicePtr, NotRecorded> {
        let facts = Facts {
            worker,
            base: address,
            bytes,
            role: Role::Window,
        };
        let show = Ask::owner(Operation::Show);
        let mut ledger = self.ledger();
        let entered = (|| {
            let behind = match behind {
                Some(ptr) => Some(
                    self.root_in(&ledger, show, ptr.span(bytes))
                        .map_err(Box::new)?,
                ),
                None => None,
            };
            let window = self.enter(&mut ledger, facts)?;
            if let Some(behind) = behind {
                ledger.link(window.entry, behind);
            }
            Ok(window)
        })();
        entered.map_err(|cause: RecordCause| facts.not_recorded(cause))
    }

    /// The handle of the memory itself: where a window leads, and every other handle unchanged.
    ///
    /// Two handles of one byte have one root, on whichever worker it is looked at: the root is
    /// what a dependency key is made of.
    ///
    /// # Errors
    /// When the handle is not worth that range.
    ///
    /// Cost: for an allocation that of [`check`](Self::check); for a window the writers' lock.
    pub fn root(&self, ask: Ask, span: Span) -> Result<DevicePtr, Refused> {
        // Read before the check: whoever has the handle sees its entry in this life or a later
        // one, and the check rules the later ones out.
        let role = self.slots().at(span.ptr.entry).map(Slot::role);
        self.check(ask, span)?;
        match role {
            Some(Role::Window) => self.root_in(&self.ledger(), ask, span),
            _ => Ok(span.ptr),
        }
    }

    fn root_in(&self, ledger: &Ledger, ask: Ask, span: Span) -> Result<DevicePtr, Refused> {
        self.live(ledger, ask, span)?;
        let ptr = span.ptr;
        let root = ledger.backing.get(&ptr.entry);
        // The window lies within its root, and the span within the window: nothing overflows.
        Ok(root.map_or(ptr, |root| DevicePtr {
            offset: root.offset + ptr.offset,
            ..*root
        }))
    }
}
