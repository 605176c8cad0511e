//! How the memory of every chip is used, for people and programs.

use std::fmt;

use serde::{Deserialize, Serialize};

use crate::error::WorkerDied;

/// The memory of one chip, as its worker counts it, and what went over the border since it started. Sizes in bytes.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[non_exhaustive]
pub struct DeviceUsage {
    /// What allocations and windows may take: the budget, or the memory of the chip.
    pub total_bytes: u64,
    /// What live allocations and the chip's own windows take.
    pub used_bytes: u64,
    /// What is left of the total.
    pub free_bytes: u64,
    /// The largest allocation that would succeed now.
    pub largest_block_bytes: u64,
    /// Number of live allocations.
    pub allocations: u64,
    /// Number of mapped windows, of this chip's own memory and of others'.
    pub windows: u64,
    /// Number of allocations that the device would not give back; they stay taken.
    pub leaked: u64,
    /// Host-to-device copies: staging of task arguments, and [`Worker::copy_to`](crate::Worker::copy_to).
    pub copies_to: u64,
    /// What they copied.
    pub copied_to_bytes: u64,
    /// Device-to-host copies.
    pub copies_from: u64,
    /// What they copied.
    pub copied_from_bytes: u64,
    /// Calls of the device about memory and runs, copies and failed ones included.
    pub device_calls: u64,
}

/// The memory of one chip worker, or how it died.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct ChipMemory {
    /// Path of the chip worker.
    pub path: String,
    /// Its next-level index.
    pub chip: u32,
    /// What it says; none from a dead one, whose memory is gone.
    pub usage: Result<DeviceUsage, WorkerDied>,
}

/// The memory of every chip of a worker.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct MemoryReport {
    /// By next-level index.
    pub chips: Vec<ChipMemory>,
}

impl MemoryReport {
    /// What a living chip says.
    #[must_use]
    pub fn chip(&self, chip: u32) -> Option<&DeviceUsage> {
        let of = self.chips.iter().find(|of| of.chip == chip)?;
        of.usage.as_ref().ok()
    }

    /// Bytes copied to all living chips since they started.
    #[must_use]
    pub fn copied_to_bytes(&self) -> u64 {
        let usages = self.chips.iter().filter_map(|of| of.usage.as_ref().ok());
        usages.map(|usage| usage.copied_to_bytes).sum()
    }
}

impl fmt::Display for DeviceUsage {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "{} of {} bytes used ({} free, largest block {}) by {} allocations and {} windows, {} leaked; \
             {} bytes in {} copies to it, {} bytes in {} copies from it",
            self.used_bytes,
            self.total_bytes,
            self.free_bytes,
            self.largest_block_bytes,
            self.allocations,
            self.windows,
            self.leaked,
            self.copied_to_bytes,
            self.copies_to,
            self.copied_from_bytes,
            self.copies_from,
        )
    }
}

impl fmt::Display for MemoryReport {
    /// A line per chip.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for chip in &self.chips {
            match &chip.usage {
                Ok(usage) => writeln!(f, "{}: {usage}", chip.path)?,
                Err(died) => writeln!(f, "{}: gone with its memory, {}", chip.path, died.cause)?,
            }
        }
        Ok(())
    }
}
