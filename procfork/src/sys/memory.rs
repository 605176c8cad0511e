//! Memory that several processes share.
#![expect(unsafe_code, reason = "system calls; see the Safety section of `sys`")]

use std::io;
use std::ptr::NonNull;

use super::checked;

/// A shared mapping, zero-filled at first, unmapped when dropped.
///
/// Nobody gets a reference to its bytes except as atomics: other processes write to it.
#[derive(Debug)]
pub(crate) struct SharedMapping {
    start: NonNull<u8>,
    len: usize,
}

// SAFETY: the mapping belongs to the process, not to a thread; what is in it is accessed through
// atomics only.
unsafe impl Send for SharedMapping {}
// SAFETY: as for Send.
unsafe impl Sync for SharedMapping {}

impl SharedMapping {
    /// `mmap(MAP_SHARED | MAP_ANONYMOUS)`: memory that forked children inherit and share.
    pub(crate) fn anonymous(len: usize) -> io::Result<Self> {
        Self::map(len, libc::MAP_SHARED | libc::MAP_ANONYMOUS, -1)
    }

    fn map(len: usize, flags: i32, fd: i32) -> io::Result<Self> {
        let access = libc::PROT_READ | libc::PROT_WRITE;
        // SAFETY: a fresh mapping at an address of the kernel's choice replaces nothing.
        let start = unsafe { libc::mmap(std::ptr::null_mut(), len, access, flags, fd, 0) };
        if start == libc::MAP_FAILED {
            return Err(io::Error::last_os_error());
        }
        let start = NonNull::new(start.cast()).expect("mmap never returns null");
        Ok(Self { start, len })
    }

    /// `madvise(MADV_DONTFORK)`: children forked from now on do not get this mapping.
    pub(crate) fn hide_from_children(&self) -> io::Result<()> {
        // SAFETY: the range is exactly this mapping; the advice changes nothing in this process.
        checked(unsafe { libc::madvise(self.start.as_ptr().cast(), self.len, libc::MADV_DONTFORK) })
            .map(drop)
    }

    /// The first byte; page aligned.
    pub(crate) fn start(&self) -> NonNull<u8> {
        self.start
    }
}

impl Drop for SharedMapping {
    fn drop(&mut self) {
        // SAFETY: the range is exactly this mapping, and borrows of it have ended.
        unsafe { libc::munmap(self.start.as_ptr().cast(), self.len) };
    }
}
