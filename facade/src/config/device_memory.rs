//! What the builder says about the memory of chips: a budget, and how a simulated chip reuses addresses.

use device::{AddressReuse, OpenOptions, SimOptions};
use serde::{Deserialize, Serialize};

use super::WorkerBuilder;
use crate::error::ConfigError;

/// Options of the memory of each chip of one worker.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct DeviceMemoryOptions {
    /// The most bytes that allocations and windows of one chip may take; `None` is all that the chip has.
    pub(crate) budget: Option<u64>,
    /// Whether a simulated chip hands a freed address out again at once.
    pub(crate) reuse_at_once: bool,
}

impl DeviceMemoryOptions {
    pub(crate) fn check(&self, name: &str) -> Result<(), ConfigError> {
        if self.budget != Some(0) {
            return Ok(());
        }
        Err(ConfigError::NoDeviceMemory {
            name: name.to_owned(),
        })
    }

    pub(crate) fn open_options(&self) -> OpenOptions {
        let address_reuse = if self.reuse_at_once {
            AddressReuse::AtOnce
        } else {
            AddressReuse::Late
        };
        let sim = SimOptions {
            address_reuse,
            ..SimOptions::default()
        };
        OpenOptions {
            sim,
            ..OpenOptions::default()
        }
    }
}

impl WorkerBuilder {
    /// Sets the most bytes that [`Worker::malloc`](crate::Worker::malloc) and domains may take on each chip of this worker.
    /// Default: all that the chip has. What tasks need for their own arguments and intermediates is not counted.
    pub fn device_memory(mut self, budget_bytes: u64) -> Self {
        self.spec.device_memory.budget = Some(budget_bytes);
        self
    }

    /// Sets whether simulated chips hand out the address of freed memory again at once, which is the hardest case for
    /// pointers that are stale. Default: as late as possible. Chips of the vendor do as they do.
    pub fn address_reuse(mut self, reuse: AddressReuse) -> Self {
        self.spec.device_memory.reuse_at_once = reuse == AddressReuse::AtOnce;
        self
    }
}
