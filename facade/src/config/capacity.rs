//! How much of the graph may be alive at once.

use taskgraph::BACKING_BYTES_MAX;

use super::{Limits, WorkerBuilder};
use crate::error::ConfigError;

/// Bytes of the ring of each scope depth, where nothing was said: address space, which costs memory as it is used.
pub(super) const HEAP_BYTES: u64 = 1 << 30;
/// Tasks that may be live at once, where nothing was said.
pub(super) const TASKS_MAX: u32 = 1 << 20;

impl WorkerBuilder {
    /// Sets the bytes that intermediate tensors ([`Orchestrator::alloc`](crate::Orchestrator::alloc)) may take at once in
    /// scopes of each depth, and so many for the intermediate tensors of all recorded graphs
    /// ([`Orchestrator::graph`](crate::Orchestrator::graph)) together. Default: 1 GiB, of which only what is used costs
    /// memory.
    ///
    /// An allocation that finds no room waits for tasks that are in the way, and is an error where none is.
    pub fn heap(mut self, bytes: u64) -> Self {
        self.spec.limits.heap_bytes = bytes;
        self
    }

    /// Sets how many tasks of this worker may be submitted and not ended at once. Default: 1 048 576.
    ///
    /// A submit beyond that waits until a task ends.
    pub fn tasks_max(mut self, n_tasks: u32) -> Self {
        self.spec.limits.tasks_max = n_tasks;
        self
    }
}

impl Limits {
    /// Refuses what no graph can have.
    pub(super) fn check_capacity(&self, name: &str) -> Result<(), ConfigError> {
        let wrong = |option, value, max| ConfigError::BadCapacity {
            name: name.to_owned(),
            option,
            value,
            max,
        };
        if !(1..=BACKING_BYTES_MAX / 2).contains(&self.heap_bytes) {
            return Err(wrong("heap", self.heap_bytes, BACKING_BYTES_MAX / 2));
        }
        if !(1..=i32::MAX as u32).contains(&self.tasks_max) {
            let max = i32::MAX as u64;
            return Err(wrong("tasks_max", self.tasks_max.into(), max));
        }
        Ok(())
    }
}
