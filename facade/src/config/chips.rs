//! What the builder says about chips: a budget of memory, how a simulated one reuses addresses, and how long what runs on
//! one may take.

use std::time::Duration;

use device::{AddressReuse, OpenOptions};
use serde::{Deserialize, Serialize};

use super::WorkerBuilder;
use crate::error::ConfigError;

/// Options of each chip of one worker.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct ChipOptions {
    /// The most bytes that allocations and windows of one chip may take; `None` is all that the chip has.
    pub(crate) budget: Option<u64>,
    /// Whether a simulated chip hands a freed address out again at once.
    pub(crate) reuse_at_once: bool,
    /// How long a core task of a simulated chip, or a run on a chip of the vendor, may take; `None` is the device's own
    /// limit.
    pub(crate) timeout: Option<Duration>,
}

impl ChipOptions {
    pub(crate) fn check(&self, name: &str) -> Result<(), ConfigError> {
        if let Some(limit) = self.timeout {
            super::check_limit(name, "device_timeout", limit)?;
        }
        if self.budget != Some(0) {
            return Ok(());
        }
        Err(ConfigError::NoDeviceMemory {
            name: name.to_owned(),
        })
    }

    pub(crate) fn open_options(&self) -> OpenOptions {
        let mut options = OpenOptions::default();
        options.sim.address_reuse = match self.reuse_at_once {
            true => AddressReuse::AtOnce,
            false => AddressReuse::Late,
        };
        if let Some(limit) = self.timeout {
            options.sim.op_timeout = limit;
            options.vendor.run_timeout = limit;
        }
        options
    }
}

impl WorkerBuilder {
    /// Sets how long one operation of each chip of this worker may take: a core task on a simulated chip, a whole run on a
    /// chip of the vendor. One that takes longer fails with [`FaultKind::Unusable`](crate::FaultKind::Unusable), and so
    /// does whatever that chip is given afterwards. Default: 3 s and 45 s.
    pub fn device_timeout(mut self, limit: Duration) -> Self {
        self.spec.chip.timeout = Some(limit);
        self
    }

    /// Sets the most bytes that [`Worker::malloc`](crate::Worker::malloc) and domains may take on each chip of this worker.
    /// Default: all that the chip has. What tasks need for their own arguments and intermediates is not counted.
    pub fn device_memory(mut self, budget_bytes: u64) -> Self {
        self.spec.chip.budget = Some(budget_bytes);
        self
    }

    /// Sets whether simulated chips hand out the address of freed memory again at once, which is the hardest case for
    /// pointers that are stale. Default: as late as possible. Chips of the vendor do as they do.
    pub fn address_reuse(mut self, reuse: AddressReuse) -> Self {
        self.spec.chip.reuse_at_once = reuse == AddressReuse::AtOnce;
        self
    }
}
