//! One descriptor that watches many: the cheap question "has any of them ended".
#![expect(unsafe_code, reason = "system calls; see the Safety section of `sys`")]

use std::io;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, FromRawFd, OwnedFd};
use std::time::Instant;

use super::wait::millis_until;
use super::{checked, retry};

/// An epoll instance whose members are named by a number of the caller's choice.
#[derive(Debug)]
pub(crate) struct Epoll(OwnedFd);

const BATCH: usize = 64;

impl Epoll {
    /// `epoll_create1(EPOLL_CLOEXEC)`.
    pub(crate) fn new() -> io::Result<Self> {
        // SAFETY: a plain flag.
        let fd = checked(unsafe { libc::epoll_create1(libc::EPOLL_CLOEXEC) })?;
        // SAFETY: the call above created this descriptor and nobody else knows it.
        Ok(Self(unsafe { OwnedFd::from_raw_fd(fd) }))
    }

    /// `epoll_ctl(EPOLL_CTL_ADD)`: watches a descriptor for readability, under this key.
    pub(crate) fn add(&self, fd: BorrowedFd<'_>, key: u64) -> io::Result<()> {
        let mut event = libc::epoll_event {
            events: libc::EPOLLIN as u32,
            u64: key,
        };
        // SAFETY: both descriptors are open; event lives for the call.
        checked(unsafe {
            libc::epoll_ctl(
                self.0.as_raw_fd(),
                libc::EPOLL_CTL_ADD,
                fd.as_raw_fd(),
                &raw mut event,
            )
        })
        .map(drop)
    }

    /// `epoll_ctl(EPOLL_CTL_DEL)`: stops watching a descriptor.
    pub(crate) fn remove(&self, fd: BorrowedFd<'_>) -> io::Result<()> {
        // SAFETY: both descriptors are open; no event is needed to delete.
        checked(unsafe {
            libc::epoll_ctl(
                self.0.as_raw_fd(),
                libc::EPOLL_CTL_DEL,
                fd.as_raw_fd(),
                std::ptr::null_mut(),
            )
        })
        .map(drop)
    }

    /// `epoll_wait` until the deadline, or a look without waiting: keys of readable members, at
    /// most a batch of them.
    pub(crate) fn ready(&self, deadline: Option<Instant>) -> io::Result<Vec<u64>> {
        let mut events = [libc::epoll_event { events: 0, u64: 0 }; BATCH];
        let count = retry(|| {
            let timeout = deadline.map_or(0, millis_until);
            // SAFETY: the array is valid for writes of BATCH events.
            checked(unsafe {
                libc::epoll_wait(
                    self.0.as_raw_fd(),
                    events.as_mut_ptr(),
                    BATCH as i32,
                    timeout,
                )
            })
        })?;
        let count = usize::try_from(count).unwrap_or(0);
        Ok(events[..count].iter().map(|event| event.u64).collect())
    }
}

impl AsFd for Epoll {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.0.as_fd()
    }
}
