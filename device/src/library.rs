//! Shared libraries that are loaded once and never unloaded.
//!
//! Unloading a library whose thread-local destructors are pending, or whose threads still run,
//! crashes; vendor libraries have both. So a library stays for the life of the process: one handle
//! per path, however often it is asked for. Each one keeps its symbols to itself (`RTLD_LOCAL`), so
//! that two libraries may export the same global, and is bound whole at load (`RTLD_NOW`), so that
//! nothing is found missing in the middle of a run.
//!
//! # Safety
//!
//! The `unsafe` here is `dlopen` (which runs the library's initialisers) and `dlsym`. The paths
//! come from the vendor search, which is the administrator's choice, and from the kernel cache,
//! which this crate writes. A symbol is only returned as an address; whoever calls it states its
//! type.

#![expect(unsafe_code, reason = "dlopen and dlsym, see the Safety section")]

use std::collections::HashMap;
use std::ffi::CString;
use std::path::{Path, PathBuf};
use std::ptr::NonNull;
use std::sync::{Mutex, PoisonError};

use libloading::os::unix::{Library, RTLD_LOCAL, RTLD_NOW};
use thiserror::Error;

/// Why a library or one of its symbols cannot be used. The loader's own words are the source.
#[derive(Debug, Error)]
#[non_exhaustive]
pub enum LibraryError {
    /// The loader refused the file: missing, of another architecture, or with undefined symbols.
    #[error("load {path}", path = path.display())]
    Load {
        /// The library.
        path: PathBuf,
        /// What the loader said.
        source: libloading::Error,
    },
    /// The library does not export the symbol.
    #[error("find `{symbol}` in {path}", path = path.display())]
    Symbol {
        /// The library.
        path: PathBuf,
        /// The symbol.
        symbol: String,
        /// What the loader said.
        source: libloading::Error,
    },
    /// The library speaks another version of the interface.
    #[error("use {path}: its interface has version {found}, version {wanted} is needed", path = path.display())]
    Version {
        /// The library.
        path: PathBuf,
        /// The version that is needed.
        wanted: String,
        /// The version that it reports.
        found: String,
    },
    /// The library exports the symbol without an address.
    #[error("use `{symbol}` of {path}: the symbol is there, but its address is null", path = path.display())]
    NullSymbol {
        /// The library.
        path: PathBuf,
        /// The symbol.
        symbol: String,
    },
}

/// A library that stays loaded.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Loaded {
    path: &'static Path,
    library: &'static Library,
}

/// The libraries of this process by path; entries are never removed.
static LOADED: Mutex<Option<HashMap<PathBuf, Loaded>>> = Mutex::new(None);

impl Loaded {
    /// Loads the library, or returns the handle that exists.
    ///
    /// A path without a slash is searched for by the loader, along `LD_LIBRARY_PATH` and the
    /// system's cache.
    pub(crate) fn open(path: &Path) -> Result<Self, LibraryError> {
        let mut table = LOADED.lock().unwrap_or_else(PoisonError::into_inner);
        let table = table.get_or_insert_default();
        if let Some(loaded) = table.get(path) {
            return Ok(*loaded);
        }
        // SAFETY: running the library's initialisers is what loading it means; see the module's
        // Safety section.
        let library = unsafe { Library::open(Some(path), RTLD_NOW | RTLD_LOCAL) };
        let library = library
            .map_err(|source| LibraryError::Load {
                path: path.to_owned(),
                source,
            })
            .map(|library| Box::leak(Box::new(library)))?;
        let loaded = Self {
            path: Box::leak(path.to_owned().into_boxed_path()),
            library,
        };
        table.insert(path.to_owned(), loaded);
        Ok(loaded)
    }

    pub(crate) fn path(&self) -> &'static Path {
        self.path
    }

    /// The address of a symbol, which is not null.
    pub(crate) fn symbol(&self, symbol: &str) -> Result<NonNull<()>, LibraryError> {
        let path = || self.path.to_owned();
        let name = CString::new(symbol).expect("symbol names contain no zero byte");
        // SAFETY: the symbol is only taken as an address here.
        let found = unsafe { self.library.get::<*mut ()>(name.as_bytes_with_nul()) };
        let found = found.map_err(|source| LibraryError::Symbol {
            path: path(),
            symbol: symbol.to_owned(),
            source,
        })?;
        NonNull::new(found.as_raw_ptr().cast::<()>()).ok_or_else(|| LibraryError::NullSymbol {
            path: path(),
            symbol: symbol.to_owned(),
        })
    }
}
