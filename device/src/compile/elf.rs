//! Whether a shared object is whole, before the loader maps it: of one that was cut short it would fault
//! in pages that are not there.

use std::fs::File;
use std::io::{self, Read as _};
use std::path::Path;

/// Bytes of the header of a 64-bit file.
const HEADER: usize = 64;

/// Whether this is a 64-bit little-endian ELF file that is as long as it says.
///
/// The table of sections comes last, so that a file which has all of it was not cut short.
pub(crate) fn is_whole(path: &Path) -> bool {
    let read = || -> io::Result<bool> {
        let mut file = File::open(path)?;
        let mut header = [0; HEADER];
        file.read_exact(&mut header)?;
        let length = file.metadata()?.len();
        let is_known = header.starts_with(b"\x7fELF\x02\x01");
        Ok(is_known && end_of_sections(&header).is_some_and(|end| end <= length))
    };
    read().unwrap_or(false)
}

/// `e_shoff + e_shentsize * e_shnum`.
fn end_of_sections(header: &[u8; HEADER]) -> Option<u64> {
    let at = u64::from_le_bytes(*header[40..].first_chunk()?);
    let [size, count] = [58, 60].map(|at| u64::from(header[at]) | u64::from(header[at + 1]) << 8);
    at.checked_add(size * count)
}
