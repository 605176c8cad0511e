//! Opening a chip on any platform.

use crate::chip::Chip;
use crate::compile::CompileOptions;
use crate::error::DeviceError;
use crate::platform::Platform;
use crate::sim::{SimChip, SimOptions};
use crate::vendor::{VendorChip, VendorOptions};

/// How to open a chip. Start from the default.
#[derive(Clone, Debug, Default)]
pub struct OpenOptions {
    /// Settings of a simulated chip; ignored on hardware.
    pub sim: SimOptions,
    /// Settings of a chip of the vendor; ignored by the simulator.
    pub vendor: VendorOptions,
    /// How kernels with sources are compiled.
    pub compile: CompileOptions,
}

/// Opens chip number `device_id` of a platform, bound to the calling thread.
///
/// Opening a simulated chip takes some ten microseconds; no thread is started.
///
/// # Errors
/// [`DeviceError::TouchedBeforeFork`] in a child of a process that touched a device. On hardware,
/// [`DeviceError::Missing`] or [`DeviceError::Library`] if the vendor's library is missing or does
/// not fit, and [`DeviceError::Visible`] or [`DeviceError::NoSuchDevice`] if there is no such
/// device.
pub fn open(
    platform: Platform,
    device_id: u32,
    options: &OpenOptions,
) -> Result<Box<dyn Chip>, DeviceError> {
    match platform {
        Platform::Sim(arch) => Ok(Box::new(SimChip::open(arch, device_id, options)?)),
        Platform::A2a3 | Platform::A5 => {
            Ok(Box::new(VendorChip::open(platform, device_id, options)?))
        }
    }
}
