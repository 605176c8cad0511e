//! Memory that several processes share.
#![expect(unsafe_code, reason = "system calls; see the Safety section of `sys`")]

use std::ffi::CStr;
use std::fs::File;
use std::io;
use std::os::fd::{AsRawFd as _, BorrowedFd, FromRawFd as _, OwnedFd};
use std::ptr::NonNull;

use super::checked;

/// `memfd_create(MFD_CLOEXEC)`: a nameless file in memory, zero-filled, of this length. The label
/// is what `/proc` shows for it.
pub(crate) fn memory_file(label: &CStr, len: usize) -> io::Result<File> {
    // SAFETY: the label ends with a zero byte and lives for the call.
    let fd = checked(unsafe { libc::memfd_create(label.as_ptr(), libc::MFD_CLOEXEC) })?;
    // SAFETY: the call above created this descriptor and nobody else knows it.
    let file = File::from(unsafe { OwnedFd::from_raw_fd(fd) });
    file.set_len(u64::try_from(len).unwrap_or(u64::MAX))?;
    Ok(file)
}

/// A shared mapping, zero-filled at first, unmapped when dropped.
///
/// One that is hidden from children is kept in an [`Own`](super::own::Own): a copy of this value in a forked process has
/// nothing mapped, and must neither be read nor dropped.
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

    /// `mmap(MAP_SHARED, fd)`: the first `len` bytes of a memory file.
    pub(crate) fn of(fd: BorrowedFd<'_>, len: usize) -> io::Result<Self> {
        Self::map(len, libc::MAP_SHARED, fd.as_raw_fd())
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

    /// `madvise(MADV_DONTFORK)`: children forked from now on do not get this mapping. See the type for what that asks of
    /// the caller.
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
        // SAFETY: the range is exactly this mapping, in this process (see the type), and borrows of it have ended.
        unsafe { libc::munmap(self.start.as_ptr().cast(), self.len) };
    }
}
