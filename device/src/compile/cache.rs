//! The kernel cache: a directory of compiled kernels, named by the content that they were made of.
//!
//! An entry is one file, written under a random name and renamed into place, so that a reader sees
//! all of it or nothing and two processes that compile the same kernel at once do not meet. An
//! entry is never changed. Its modification time is when it was last used; what nobody used for
//! [`UNUSED_MAX`] is removed when something new is added. The directory may have been somebody's
//! before: what the cache has not named itself is not touched.

use std::ffi::OsStr;
use std::fs::{self, File};
use std::io;
use std::path::{Path, PathBuf};
use std::time::{Duration, SystemTime};

use tempfile::{NamedTempFile, TempPath};

use crate::callable::Digest;
use crate::compile::error::CompileError;

/// How long an entry may lie unused.
const UNUSED_MAX: Duration = Duration::from_secs(14 * 24 * 60 * 60);

/// What the cache gives its files as extensions: a shared library, an object for the cores.
const EXTENSIONS: [&str; 2] = ["so", "o"];

/// How the name of a file begins that is not published, and how many random characters follow.
const STAGED: &str = "staged-";
const STAGED_RANDOM: usize = 6;

/// The header that every kernel may include.
const HEADER: &str = include_str!("../../include/device_kernel.h");

/// A cache directory.
#[derive(Clone, Debug)]
pub(crate) struct Cache {
    dir: PathBuf,
}

impl Cache {
    pub(crate) fn new(dir: PathBuf) -> Self {
        Self { dir }
    }

    /// Where kernels are cached unless something else is said: `$DEVICE_KERNEL_CACHE`, else
    /// `device-kernels` in `$XDG_CACHE_HOME`, `$HOME/.cache` or the directory for temporary files.
    pub(crate) fn default_dir() -> PathBuf {
        let variable = |name| std::env::var_os(name).filter(|value| !value.is_empty());
        if let Some(dir) = variable("DEVICE_KERNEL_CACHE") {
            return PathBuf::from(dir);
        }
        let home = || variable("HOME").map(|home| Path::new(&home).join(".cache"));
        let base = variable("XDG_CACHE_HOME").map(PathBuf::from).or_else(home);
        base.unwrap_or_else(std::env::temp_dir)
            .join("device-kernels")
    }

    /// The entry of this name, if it exists; notes that it was used.
    pub(crate) fn find(&self, digest: Digest, extension: &str) -> Option<PathBuf> {
        let path = self.entry(digest, extension);
        let file = File::open(&path).ok()?;
        if let Err(error) = file.set_modified(SystemTime::now()) {
            tracing::debug!(%error, path = %path.display(), "the use of a cached kernel is not noted");
        }
        Some(path)
    }

    /// A private file to write the next entry into; removed unless it is published.
    pub(crate) fn stage(&self, extension: &str) -> Result<TempPath, CompileError> {
        let suffix = format!(".{extension}");
        self.create_dir()
            .map_err(|source| self.failed("create", &self.dir, source))?;
        let mut builder = tempfile::Builder::new();
        let staged = builder
            .prefix(STAGED)
            .rand_bytes(STAGED_RANDOM)
            .suffix(&suffix)
            .tempfile_in(&self.dir);
        let staged = staged.map_err(|source| self.failed("write to", &self.dir, source))?;
        Ok(staged.into_temp_path())
    }

    /// Makes a staged file the entry of this name, at once for everybody.
    pub(crate) fn publish(
        &self,
        staged: TempPath,
        digest: Digest,
        extension: &str,
    ) -> Result<PathBuf, CompileError> {
        let path = self.entry(digest, extension);
        let published = staged.persist(&path);
        published.map_err(|error| self.failed("publish", &path, error.error))?;
        self.sweep();
        Ok(path)
    }

    /// The directory with the header for kernels, written if it is not there or is not that header.
    pub(crate) fn header_dir(&self) -> Result<PathBuf, CompileError> {
        let name = format!("include-{:#}", Digest::of(HEADER.as_bytes()));
        let (dir, path) = (
            self.dir.join(&name),
            self.dir.join(&name).join("device_kernel.h"),
        );
        // Compared as a whole: another text under this name would be a compiler's riddle.
        if !fs::read(&path).is_ok_and(|found| found == HEADER.as_bytes()) {
            let written = fs::create_dir_all(&dir).and_then(|()| write_whole(&dir, &path));
            written.map_err(|source| self.failed("write", &path, source))?;
        }
        Ok(dir)
    }

    fn create_dir(&self) -> io::Result<()> {
        fs::create_dir_all(&self.dir)
    }

    fn entry(&self, digest: Digest, extension: &str) -> PathBuf {
        self.dir.join(format!("{digest}.{extension}"))
    }

    /// Removes entries that nobody used for long, and what crashed compilations left. Failures are
    /// harmless.
    fn sweep(&self) {
        let Ok(entries) = fs::read_dir(&self.dir) else {
            return;
        };
        let of_cache = |entry: &fs::DirEntry| is_of_cache(&entry.file_name());
        for entry in entries.flatten().filter(of_cache) {
            let Ok(meta) = entry.metadata() else { continue };
            let unused = meta.modified().ok().and_then(|at| at.elapsed().ok());
            if meta.is_file() && unused.is_some_and(|unused| unused > UNUSED_MAX) {
                let removed = fs::remove_file(entry.path());
                tracing::debug!(path = %entry.path().display(), ?removed, "an unused kernel is removed");
            }
        }
    }

    fn failed(&self, operation: &'static str, path: &Path, source: io::Error) -> CompileError {
        CompileError::Cache {
            operation,
            path: path.to_owned(),
            source,
        }
    }
}

/// Whether a name is one that the cache gives: to an entry, or to a file that is not published.
fn is_of_cache(name: &OsStr) -> bool {
    let parts = name.to_str().and_then(|name| name.rsplit_once('.'));
    let Some((stem, extension)) = parts else {
        return false;
    };
    let is_hex = |byte: u8| matches!(byte, b'0'..=b'9' | b'a'..=b'f');
    let is_entry = stem.len() == 2 * size_of::<Digest>() && stem.bytes().all(is_hex);
    let is_staged = stem.strip_prefix(STAGED).is_some_and(|random| {
        random.len() == STAGED_RANDOM && random.bytes().all(|it| it.is_ascii_alphanumeric())
    });
    EXTENSIONS.contains(&extension) && (is_entry || is_staged)
}

/// Writes the header beside its place and renames it there.
fn write_whole(dir: &Path, path: &Path) -> io::Result<()> {
    let staged = NamedTempFile::new_in(dir)?;
    fs::write(staged.path(), HEADER)?;
    staged.persist(path).map_err(|error| error.error)?;
    Ok(())
}

#[cfg(test)]
mod tests;
