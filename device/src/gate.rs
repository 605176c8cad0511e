//! Who may use a chip now: its own process, while it is open, while no fault is in the way.

use crate::error::DeviceError;
use crate::process::Home;

/// The door in front of a chip; every operation asks here first.
#[derive(Debug)]
pub(crate) struct Gate {
    chip: u32,
    home: Home,
    closed: bool,
    /// The first fault since the last reset.
    fault: Option<String>,
}

impl Gate {
    /// An open chip of this process.
    pub(crate) fn open(chip: u32) -> Self {
        Self {
            chip,
            home: Home::here(chip),
            closed: false,
            fault: None,
        }
    }

    /// Lets through whatever an open chip can do, at fault or not.
    pub(crate) fn admit(&self, operation: &'static str) -> Result<(), DeviceError> {
        self.home.check()?;
        if self.closed {
            return Err(DeviceError::Closed {
                operation,
                chip: self.chip,
            });
        }
        Ok(())
    }

    /// Lets through what needs a device that is not at fault.
    pub(crate) fn admit_work(&self, operation: &'static str) -> Result<(), DeviceError> {
        self.admit(operation)?;
        match self.fault.clone() {
            Some(cause) => Err(DeviceError::Unusable {
                operation,
                chip: self.chip,
                cause,
            }),
            None => Ok(()),
        }
    }

    /// The device is at fault from now on.
    pub(crate) fn mark(&mut self, error: &DeviceError) {
        tracing::warn!(chip = self.chip, %error, "the chip is unusable until a probe passes");
        self.fault.get_or_insert_with(|| error.to_string());
    }

    /// The device was reset and works.
    pub(crate) fn clear(&mut self) {
        self.fault = None;
    }

    pub(crate) fn fault(&self) -> Option<&str> {
        self.fault.as_deref()
    }

    /// Closes for good; whether this call did it.
    pub(crate) fn close(&mut self) -> Result<bool, DeviceError> {
        self.home.check()?;
        Ok(!std::mem::replace(&mut self.closed, true))
    }
}
