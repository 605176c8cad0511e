//! What can be chosen about a vendor's chip.

use std::path::PathBuf;
use std::time::Duration;

/// Settings of a chip of the vendor. All fields are public; start from [`VendorOptions::default`].
#[derive(Clone, Debug)]
pub struct VendorOptions {
    /// Directories of the vendor's libraries; those of the environment unless said.
    pub library_dirs: Vec<PathBuf>,
    /// The list of visible devices; that of the environment unless said. It must be what the
    /// runtime library of this process sees.
    pub visible_devices: Option<String>,
    /// How long a launched run may take before it fails and the chip counts as unusable.
    pub run_timeout: Duration,
    /// How many runs may be prepared while another executes.
    pub max_prepared: usize,
}

impl Default for VendorOptions {
    fn default() -> Self {
        Self {
            library_dirs: Vec::new(),
            visible_devices: None,
            run_timeout: Duration::from_secs(45),
            max_prepared: 2,
        }
    }
}
