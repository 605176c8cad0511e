//! Copies between the host and device memory, and what they exclude.
//!
//! The graph orders tasks; nothing orders a copy of the host with them, or with another copy. So of two that conflict
//! (they overlap, and one writes) the second is refused, whichever it is:
//!
//! ```text
//!  a copy begins   looks at the records of tasks and at copies, enters itself   under core, in one step
//!  a submit        looks at copies, enters its record                           under core, in one step
//! ```
//!
//! A copy of many bytes takes several requests to its chip. It is entered from the first to the last.

use std::ops::Range;

use taskgraph::BufferId;

use super::Engine;
use super::core::{Core, DeviceUse, Hold};
use crate::buffer::Use;
use crate::error::{Name, WorkerDied};

/// The copies that are under way.
#[derive(Default)]
pub(super) struct Copies {
    running: Vec<(u64, DeviceUse)>,
    /// The number of the next one.
    next: u64,
}

/// Why a task was not submitted.
pub(crate) enum NotSubmitted {
    /// The graph refused it.
    Graph(taskgraph::SubmitError),
    /// The graph refused it for want of a worker that has died.
    Died(WorkerDied),
    /// The host copies what it would use.
    HostCopy {
        /// The device memory.
        buffer: BufferId,
        /// What the copy does to it.
        how: Use,
    },
}

impl From<taskgraph::SubmitError> for NotSubmitted {
    fn from(error: taskgraph::SubmitError) -> Self {
        NotSubmitted::Graph(error)
    }
}

/// Who does something that conflicts with a copy.
pub(crate) enum Busy {
    /// An unfinished task, by the name of its callable.
    Task(Name, Use),
    /// Another copy.
    Copy(Use),
}

/// A copy that is under way; it is over when this is dropped. Not to be dropped while core is held.
pub(crate) struct Copying<'e> {
    engine: &'e Engine,
    number: u64,
}

impl Drop for Copying<'_> {
    fn drop(&mut self) {
        let mut core = self.engine.core();
        let number = self.number;
        core.copies.running.retain(|(other, _)| *other != number);
    }
}

impl Engine {
    /// Enters a copy, from when on no task and no other copy that conflicts with it begins.
    ///
    /// Cost: proportional to the unfinished tasks.
    pub(crate) fn begin_copy(&self, copy: DeviceUse) -> Result<Copying<'_>, Busy> {
        let mut core = self.core();
        if let Some((task, how)) = core.device_user(&copy) {
            return Err(Busy::Task(task, how));
        }
        if let Some(how) = core.copies.conflicting(&copy) {
            return Err(Busy::Copy(how));
        }
        let number = core.copies.next;
        core.copies.next += 1;
        core.copies.running.push((number, copy));
        Ok(Copying {
            engine: self,
            number,
        })
    }
}

impl Core {
    /// An unfinished task that conflicts with a copy, and what it does.
    fn device_user(&self, copy: &DeviceUse) -> Option<(Name, Use)> {
        self.records().find_map(|record| {
            let mut uses = record.holds.iter().flat_map(device_uses);
            let used = uses.find(|used| used.conflicts_with(copy))?;
            Some((Name::clone(&record.callable), used.how))
        })
    }
}

impl Copies {
    /// Whether no copy conflicts with what a new task holds. One look where nothing is copied.
    pub(super) fn permit(&self, holds: &[Hold]) -> Result<(), NotSubmitted> {
        if self.running.is_empty() {
            return Ok(());
        }
        for used in holds.iter().flat_map(device_uses) {
            if let Some(how) = self.conflicting(used) {
                let buffer = used.buffer;
                return Err(NotSubmitted::HostCopy { buffer, how });
            }
        }
        Ok(())
    }

    fn conflicting(&self, used: &DeviceUse) -> Option<Use> {
        let mut running = self.running.iter();
        let found = running.find(|(_, copy)| copy.conflicts_with(used));
        found.map(|(_, copy)| copy.how)
    }
}

impl DeviceUse {
    fn conflicts_with(&self, other: &Self) -> bool {
        let writes = self.how == Use::Write || other.how == Use::Write;
        writes && self.buffer == other.buffer && overlap(&self.bytes, &other.bytes)
    }
}

/// Whether the ranges have a byte in common.
fn overlap(a: &Range<u64>, b: &Range<u64>) -> bool {
    a.start.max(b.start) < a.end.min(b.end)
}

fn device_uses(hold: &Hold) -> &[DeviceUse] {
    match hold {
        Hold::Device(device) => &device.uses,
        Hold::Buffer(..) => &[],
    }
}
