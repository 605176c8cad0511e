//! Where the vendor's libraries are looked for.

use std::fmt;
use std::path::{Path, PathBuf};

use thiserror::Error;

use crate::compile::List;
use crate::error::DeviceError;
use crate::library::{LibraryError, Loaded};
use crate::platform::Platform;

/// Names the installation of the vendor's kit.
const HOME: &str = "ASCEND_HOME_PATH";

/// Directories below the installation that hold libraries.
const BELOW_HOME: [&str; 2] = ["lib64", "runtime/lib64"];

/// A library of the vendor is nowhere to be found.
#[derive(Debug, Error)]
#[error(
    "find {library}, which platform {platform} needs: {}; \
     set {HOME} to the CANN installation or add its lib64 to LD_LIBRARY_PATH, \
     or use the simulator (platform {})",
    Places(searched),
    platform.simulated()
)]
pub struct MissingLibrary {
    /// File name of the library.
    pub library: &'static str,
    /// The platform that needs it.
    pub platform: Platform,
    /// The directories that were looked into.
    pub searched: Vec<PathBuf>,
    /// What the loader said in the end, if it was asked.
    pub source: Option<LibraryError>,
}

/// The places that were looked into, as a clause.
struct Places<'a>(&'a [PathBuf]);

impl fmt::Display for Places<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.0 {
            [] => f.write_str("neither variable below is set, and the loader does not know it"),
            dirs => write!(f, "it is not in {}", List(dirs)),
        }
    }
}

/// The directories that are looked into, in order.
#[derive(Clone, Debug)]
pub(crate) struct SearchPath {
    dirs: Vec<PathBuf>,
    /// Whether the loader may look where it always does, when the directories do not have it.
    and_loader: bool,
}

impl SearchPath {
    /// The given directories alone, or `$ASCEND_HOME_PATH/lib64` and the like, `$LD_LIBRARY_PATH`,
    /// and what the loader knows besides.
    pub(crate) fn new(given: &[PathBuf]) -> Self {
        if !given.is_empty() {
            return Self {
                dirs: given.to_vec(),
                and_loader: false,
            };
        }
        let home = std::env::var_os(HOME).filter(|home| !home.is_empty());
        let kit = home
            .iter()
            .flat_map(|home| BELOW_HOME.map(|dir| Path::new(home).join(dir)));
        let path = std::env::var_os("LD_LIBRARY_PATH").unwrap_or_default();
        let listed = std::env::split_paths(&path).filter(|dir| !dir.as_os_str().is_empty());
        Self {
            dirs: kit.chain(listed).collect(),
            and_loader: true,
        }
    }

    /// Loads a library: the first file of this name, else whatever the loader finds by itself.
    pub(crate) fn load(
        &self,
        platform: Platform,
        library: &'static str,
    ) -> Result<Loaded, DeviceError> {
        let found = self
            .dirs
            .iter()
            .map(|dir| dir.join(library))
            .find(|path| path.is_file());
        if let Some(path) = found {
            return Ok(Loaded::open(&path)?);
        }
        let searched = self.dirs.clone();
        let missing = |source| {
            let missing = MissingLibrary {
                library,
                platform,
                searched,
                source,
            };
            DeviceError::Missing(Box::new(missing))
        };
        if !self.and_loader {
            return Err(missing(None));
        }
        let loaded = Loaded::open(Path::new(library));
        loaded.map_err(|source| missing(Some(source)))
    }
}
