//! Windows: memory of an allocation, shown at some address on its own or another worker.

use crate::error::{Ask, Cause, NotRecorded, Operation, RecordCause, Refused};
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
        let mut ledger = self.ledger();
        let entered = (|| {
            let behind = self.behind(&ledger, behind, bytes)?;
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

    /// The root of what a window is to show.
    pub(crate) fn behind(
        &self,
        ledger: &Ledger,
        behind: Option<DevicePtr>,
        bytes: u64,
    ) -> Result<Option<DevicePtr>, RecordCause> {
        let show = Ask::owner(Operation::Show);
        let root = behind.map(|ptr| self.root_in(ledger, show, ptr.span(bytes)));
        Ok(root.transpose().map_err(Box::new)?)
    }

    /// The same bytes as a worker sees them: unchanged where it owns the handle, as the memory
    /// itself where it owns that, else through a window of its own. What comes out is a claim like any other.
    ///
    /// # Errors
    /// When the handle is not worth that range, or the worker has no window on it.
    ///
    /// Cost: for the owner a comparison; else the writers' lock, and the windows on that memory.
    pub fn seen_from(&self, ask: Ask, span: Span) -> Result<Span, Refused> {
        let owner = span.ptr.worker.id;
        let Some(worker) = ask.worker.filter(|&worker| worker != owner) else {
            return Ok(span);
        };
        let ledger = self.ledger();
        let root = self.root_in(&ledger, Ask::owner(ask.operation), span)?;
        if root.worker.id == worker {
            return Ok(root.span(span.bytes));
        }
        let windows = ledger.shown.get(&root.entry).into_iter().flatten();
        let mut seen = windows.filter_map(|&window| self.seen_in(&ledger, window, root));
        seen.find(|ptr| ptr.worker.id == worker && self.covers(ptr.span(span.bytes)))
            .map(|ptr| ptr.span(span.bytes))
            .ok_or(Refused {
                ask,
                span,
                cause: Cause::OtherWorker { owner },
            })
    }

    /// The numbers of the workers that see a range: its owner, and those with a window on it.
    ///
    /// # Errors
    /// When the handle is not worth that range.
    ///
    /// Cost: as for [`seen_from`](Self::seen_from).
    pub fn viewers(&self, ask: Ask, span: Span) -> Result<Vec<u32>, Refused> {
        let ledger = self.ledger();
        let root = self.root_in(&ledger, ask, span)?;
        let windows = ledger.shown.get(&root.entry).into_iter().flatten();
        let seen = windows.filter_map(|&window| self.seen_in(&ledger, window, root));
        let covered = seen.filter(|ptr| self.covers(ptr.span(span.bytes)));
        let mut workers: Vec<u32> = covered.map(|ptr| ptr.worker.id).collect();
        workers.push(root.worker.id);
        workers.sort_unstable();
        workers.dedup();
        Ok(workers)
    }

    /// A place of a root, in one of the windows that show the root.
    fn seen_in(&self, ledger: &Ledger, window: u32, root: DevicePtr) -> Option<DevicePtr> {
        let from = ledger.backing.get(&window)?.offset;
        let slot = self.slots().at(window)?;
        let handle = self.handle(window, slot.word.load().generation(), &slot.facts());
        handle.plus(root.offset.checked_sub(from)?).ok()
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
