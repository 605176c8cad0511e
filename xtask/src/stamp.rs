//! A digest of xtask's own sources: what this binary was built from.
//!
//! `cargo xtask` always rebuilds, so there the stamp agrees by construction. A binary that is
//! started by its path (`target/debug/xtask`), after a checkout of another revision or in another
//! clone, would judge the tree by other rules than the tree's own. It refuses instead.
//!
//! Every other program that xtask runs is built by cargo in the same breath; none is looked up by
//! path, so none can be stale.

use std::{fs, io, path::Path};

/// The stamp of the sources in `package` (the directory that holds xtask's manifest), as hex.
///
/// # Errors
/// When a source file cannot be read.
pub(crate) fn of_sources(package: &Path) -> io::Result<String> {
    let mut hash = Fnv::default();
    add_dir(&mut hash, &package.join("src"))?;
    Ok(format!("{:016x}", hash.0))
}

/// Adds all files below `dir`, in the order of their names.
fn add_dir(hash: &mut Fnv, dir: &Path) -> io::Result<()> {
    let mut entries = fs::read_dir(dir)?.collect::<io::Result<Vec<_>>>()?;
    entries.sort_by_key(fs::DirEntry::file_name);
    for entry in entries {
        hash.add(entry.file_name().as_encoded_bytes());
        if entry.file_type()?.is_dir() {
            add_dir(hash, &entry.path())?;
        } else {
            hash.add(&fs::read(entry.path())?);
        }
    }
    Ok(())
}

/// FNV-1a, 64 bits: enough against accidents, and the same in the build script and in the program.
struct Fnv(u64);

impl Default for Fnv {
    fn default() -> Self {
        Self(0xcbf2_9ce4_8422_2325)
    }
}

impl Fnv {
    /// Adds one field; the length keeps neighbouring fields apart.
    fn add(&mut self, bytes: &[u8]) {
        let length = (bytes.len() as u64).to_le_bytes();
        for &byte in length.iter().chain(bytes) {
            self.0 = (self.0 ^ u64::from(byte)).wrapping_mul(0x0100_0000_01b3);
        }
    }
}
