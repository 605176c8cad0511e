//! Which process touched a device first, and whether a chip is used where it was opened.
//!
//! Vendor runtimes do not survive a fork: a child of a process that touched a device cannot use
//! any. The simulator keeps the same rule, so that a program that breaks it finds out without
//! hardware.

use std::process;
use std::sync::atomic::{AtomicU32, Ordering};

use crate::error::DeviceError;

/// The process that opened the first chip; 0 while none did. Inherited over a fork, which is the
/// point.
static TOUCHED_IN: AtomicU32 = AtomicU32::new(0);

/// The process that opened a chip first, here or in a parent before it forked this process.
///
/// A parent that wants to fork chip workers asks this first: `Some(its own id)` means that its
/// children cannot open chips. Costs nothing and never touches a device.
#[must_use]
pub fn touched_in() -> Option<u32> {
    // Relaxed: the number itself is all that is read, and it is written once.
    let process = TOUCHED_IN.load(Ordering::Relaxed);
    (process != 0).then_some(process)
}

/// Notes that this process touches a device; refused if a parent did so before the fork.
pub(crate) fn touch() -> Result<(), DeviceError> {
    let here = process::id();
    // Relaxed: as in `touched_in`; whoever loses the race reads the winner's number, which is the
    // same.
    let first = TOUCHED_IN.compare_exchange(0, here, Ordering::Relaxed, Ordering::Relaxed);
    match first.unwrap_or_else(|earlier| earlier) {
        touched_in if touched_in == 0 || touched_in == here => Ok(()),
        touched_in => Err(DeviceError::TouchedBeforeFork { touched_in, here }),
    }
}

/// The process a chip belongs to.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Home {
    chip: u32,
    process: u32,
}

impl Home {
    pub(crate) fn here(chip: u32) -> Self {
        Self {
            chip,
            process: process::id(),
        }
    }

    /// Refuses a chip that was carried over a fork.
    pub(crate) fn check(self) -> Result<(), DeviceError> {
        let here = process::id();
        let Self {
            chip,
            process: opened_in,
        } = self;
        if here == opened_in {
            Ok(())
        } else {
            Err(DeviceError::Forked {
                chip,
                opened_in,
                here,
            })
        }
    }
}
