//! Descriptors: closing all but a few.
#![expect(unsafe_code, reason = "system calls; see the Safety section of `sys`")]

use std::io;
use std::os::fd::{AsRawFd, BorrowedFd, FromRawFd, OwnedFd, RawFd};

use super::{checked, retry};

/// Closes every descriptor from 3 upwards that is not listed.
///
/// `close_range(2)` over the gaps; where the kernel lacks it (before 5.9) or a filter of system calls
/// that does not know it refuses it, one by one from `/proc/self/fd`. For the child's side of a fork only: owners of the closed descriptors that
/// were copied with the memory must never run.
pub(crate) fn close_all_but(keep: &[RawFd]) -> io::Result<()> {
    let mut keep: Vec<u32> = keep
        .iter()
        .filter_map(|&fd| u32::try_from(fd).ok())
        .collect();
    keep.sort_unstable();
    match close_gaps(&keep) {
        Err(error) if matches!(error.raw_os_error(), Some(libc::ENOSYS | libc::EPERM)) => {
            close_listed(&keep)
        }
        other => other,
    }
}

/// `dup2`: puts the given descriptors in place of 0, 1 and 2. The originals stay open.
pub(crate) fn replace_streams(streams: &[Option<OwnedFd>; 3]) -> io::Result<()> {
    for (target, fd) in (0..).zip(streams) {
        if let Some(fd) = fd {
            // SAFETY: fd is open; 0, 1 and 2 have no owner in Rust.
            checked(unsafe { libc::dup2(fd.as_raw_fd(), target) })?;
        }
    }
    Ok(())
}

/// `fcntl(F_SETFL, O_NONBLOCK)`: reads and writes fail with `EAGAIN` instead of waiting, for
/// everybody who shares this open file.
pub(crate) fn set_nonblocking(fd: BorrowedFd<'_>) -> io::Result<()> {
    // SAFETY: plain numbers.
    let flags = checked(unsafe { libc::fcntl(fd.as_raw_fd(), libc::F_GETFL) })?;
    let flags = flags | libc::O_NONBLOCK;
    // SAFETY: plain numbers.
    checked(unsafe { libc::fcntl(fd.as_raw_fd(), libc::F_SETFL, flags) }).map(drop)
}

/// `read()`: fills the front of the buffer; 0 at the end.
pub(crate) fn read(fd: BorrowedFd<'_>, buffer: &mut [u8]) -> io::Result<usize> {
    retry(|| {
        // SAFETY: the buffer is valid for writes of its length.
        let count = unsafe { libc::read(fd.as_raw_fd(), buffer.as_mut_ptr().cast(), buffer.len()) };
        Ok(usize::try_from(checked(count as i64)?).unwrap_or(0))
    })
}

/// `fcntl(F_SETFD, FD_CLOEXEC)`: a program that this process executes will not have it.
pub(crate) fn set_close_on_exec(fd: RawFd) -> io::Result<()> {
    // SAFETY: plain numbers; a wrong descriptor is EBADF.
    checked(unsafe { libc::fcntl(fd, libc::F_SETFD, libc::FD_CLOEXEC) }).map(drop)
}

/// Takes ownership of a descriptor that was handed to this process by number, if it is open.
///
/// # Safety
///
/// Nobody else in this process owns it.
pub(crate) unsafe fn adopt(fd: RawFd) -> io::Result<OwnedFd> {
    // Fails with EBADF when it is not open; an inherited one must not go to programs run later.
    set_close_on_exec(fd)?;
    // SAFETY: open, as just seen; without another owner, as the caller vouches.
    Ok(unsafe { OwnedFd::from_raw_fd(fd) })
}

fn close_gaps(keep: &[u32]) -> io::Result<()> {
    let mut first = 3;
    for &fd in keep.iter().filter(|&&fd| fd >= 3) {
        if first < fd {
            close_range(first, fd - 1)?;
        }
        first = first.max(fd + 1);
    }
    close_range(first, u32::MAX)
}

fn close_range(first: u32, last: u32) -> io::Result<()> {
    // SAFETY: plain numbers. Closing descriptors that Rust values own is what the function is for:
    // the caller is a fresh child in which those values never run.
    checked(unsafe { libc::syscall(libc::SYS_close_range, first, last, 0) }).map(drop)
}

fn close_listed(keep: &[u32]) -> io::Result<()> {
    let listed: Vec<u32> = std::fs::read_dir("/proc/self/fd")?
        .filter_map(|entry| entry.ok()?.file_name().to_str()?.parse().ok())
        .filter(|fd| *fd >= 3 && !keep.contains(fd))
        .collect();
    for fd in listed {
        // SAFETY: a plain number; EBADF for the directory handle itself, closed by now, is fine.
        unsafe { libc::close(fd.cast_signed()) };
    }
    Ok(())
}
