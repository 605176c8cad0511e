//! The memory map of a process: which file is where.

use std::ops::Range;

/// One line of `/proc/PID/maps`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Mapping {
    pub(super) addresses: Range<u64>,
    pub(super) executable: bool,
    pub(super) offset: u64,
    pub(super) inode: u64,
    /// The file, or a name in brackets; empty for anonymous memory.
    pub(super) path: String,
}

/// The name of the kernel's own code in every process.
pub(super) const VDSO: &str = "[vdso]";

/// Reads the lines; malformed ones are skipped.
pub(super) fn parse(maps: &str) -> Vec<Mapping> {
    maps.lines().filter_map(Mapping::parse).collect()
}

impl Mapping {
    /// `start-end access offset device inode path`, where the path may hold blanks.
    fn parse(line: &str) -> Option<Self> {
        let mut fields = line.splitn(6, ' ');
        let (start, end) = fields.next()?.split_once('-')?;
        let hex = |text| u64::from_str_radix(text, 16).ok();
        let executable = fields.next()?.as_bytes().get(2) == Some(&b'x');
        let offset = hex(fields.next()?)?;
        let inode = fields.nth(1)?.parse().ok()?;
        let path = fields.next().unwrap_or("").trim_start().to_owned();
        Some(Self {
            addresses: hex(start)?..hex(end)?,
            executable,
            offset,
            inode,
            path,
        })
    }

    /// Whether there is an image behind it that has code.
    pub(super) fn has_code(&self) -> bool {
        self.executable && (self.path.starts_with('/') || self.path == VDSO)
    }
}

#[cfg(test)]
mod tests;
