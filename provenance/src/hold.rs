//! Uses that outlive a call: what a queued or running task holds.

use std::fmt;

use crate::error::{Ask, Refused};
use crate::ptr::Span;
use crate::table::Table;

/// The device arguments of a task, checked and kept alive until this is dropped.
///
/// Meanwhile [`free`](Table::free) of any of them is refused as in use, and
/// [`retire`](Table::retire) waits. Taken at submit, dropped when the task has ended, however it
/// has ended: a panic or an abandoned task drops it as well.
#[must_use = "dropping it ends the use"]
pub struct Hold {
    table: Table,
    spans: Box<[Span]>,
}

impl Hold {
    /// What is held, in the order in which it was asked for.
    pub fn spans(&self) -> &[Span] {
        &self.spans
    }
}

impl fmt::Debug for Hold {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Hold").field(&self.spans).finish()
    }
}

impl Drop for Hold {
    fn drop(&mut self) {
        self.spans
            .iter()
            .for_each(|span| self.table.unpin(span.ptr.entry));
    }
}

impl Table {
    /// Checks all of the ranges and keeps them alive, or none of them. One range named twice is
    /// held twice.
    ///
    /// # Errors
    /// For the first range that its handle is not worth, or not on that worker.
    ///
    /// Cost: two atomic operations per range, and an allocation.
    pub fn hold(&self, ask: Ask, spans: &[Span]) -> Result<Hold, Refused> {
        for (done, &span) in spans.iter().enumerate() {
            if let Err(refused) = self.pin(ask, span) {
                spans[..done]
                    .iter()
                    .for_each(|span| self.unpin(span.ptr.entry));
                return Err(refused);
            }
        }
        Ok(Hold {
            table: self.clone(),
            spans: spans.into(),
        })
    }
}
