//! Waiting for children through their pidfd, without reaping by accident.
#![expect(unsafe_code, reason = "system calls; see the Safety section of `sys`")]

use std::io;
use std::mem::MaybeUninit;
use std::os::fd::{AsRawFd, BorrowedFd};
use std::time::Instant;

use super::{checked, retry};
use crate::cause::ExitCause;
use crate::signal::Signal;

/// Whether an ended child is left as a zombie or removed.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Take {
    /// Look only: the zombie keeps its pid and its group reserved.
    Peek,
    /// Reap: the pid may be used again by anyone.
    Reap,
}

/// `waitid(P_PIDFD, …, WEXITED | WNOHANG)`: how the child ended, or `None` while it runs.
///
/// `ECHILD` (reaped by somebody else, or never a child of the caller) is `ExitCause::Lost`.
pub(crate) fn ended(pidfd: BorrowedFd<'_>, take: Take) -> io::Result<Option<ExitCause>> {
    let keep = if take == Take::Peek { libc::WNOWAIT } else { 0 };
    match wait_now(pidfd, libc::WEXITED | keep) {
        Ok(info) => Ok(info.map(|info| cause_of(&info))),
        Err(error) if error.raw_os_error() == Some(libc::ECHILD) => Ok(Some(ExitCause::Lost)),
        Err(error) => Err(error),
    }
}

/// `waitid(P_PIDFD, …, WSTOPPED | WNOHANG | WNOWAIT)`: the signal that stopped the child, while
/// it is stopped.
pub(crate) fn stopped(pidfd: BorrowedFd<'_>) -> io::Result<Option<Signal>> {
    let info = wait_now(pidfd, libc::WSTOPPED | libc::WNOWAIT)?;
    Ok(info.and_then(|info| Signal::new(status(&info))))
}

/// `waitpid(-1, WNOHANG)`: reaps any child that has ended; false when there is none. For a
/// supervisor of adopted orphans only: it takes the exit statuses of everybody's children.
#[cfg(feature = "testing")]
pub(crate) fn reap_any() -> bool {
    retry(|| {
        // SAFETY: no status is asked for.
        checked(unsafe { libc::waitpid(-1, std::ptr::null_mut(), libc::WNOHANG) })
    })
    .is_ok_and(|pid| pid > 0)
}

/// `poll(POLLIN)`: sleeps until the descriptor is readable (a pidfd: its process has ended) or the
/// deadline has passed; true when it is readable.
pub(crate) fn wait_readable(fd: BorrowedFd<'_>, deadline: Instant) -> io::Result<bool> {
    poll([(fd, libc::POLLIN)], Some(deadline)).map(|[ready]| ready)
}

/// `poll(0)`: sleeps until nobody holds the reading side of this pipe, or the deadline has passed;
/// true when nobody does.
pub(crate) fn wait_hung_up(pipe: BorrowedFd<'_>, deadline: Instant) -> io::Result<bool> {
    poll([(pipe, 0)], Some(deadline)).map(|[ready]| ready)
}

/// `poll(POLLIN)` on two descriptors, without a deadline; true when the second one is readable.
pub(crate) fn wait_either(first: BorrowedFd<'_>, second: BorrowedFd<'_>) -> io::Result<bool> {
    poll([(first, libc::POLLIN), (second, libc::POLLIN)], None).map(|[_, second]| second)
}

fn poll<const N: usize>(
    fds: [(BorrowedFd<'_>, i16); N],
    deadline: Option<Instant>,
) -> io::Result<[bool; N]> {
    let mut entries = fds.map(|(fd, events)| libc::pollfd {
        fd: fd.as_raw_fd(),
        events,
        revents: 0,
    });
    retry(|| {
        let timeout = deadline.map_or(-1, millis_until);
        // SAFETY: N valid entries, exclusively borrowed for the call.
        checked(unsafe { libc::poll(entries.as_mut_ptr(), N as libc::nfds_t, timeout) })
    })?;
    Ok(entries.map(|entry| entry.revents != 0))
}

/// The time left, in milliseconds, rounded up so that a waiter never wakes too early.
pub(crate) fn millis_until(deadline: Instant) -> i32 {
    let left = deadline.saturating_duration_since(Instant::now());
    i32::try_from(left.as_nanos().div_ceil(1_000_000)).unwrap_or(i32::MAX)
}

fn wait_now(pidfd: BorrowedFd<'_>, options: i32) -> io::Result<Option<libc::siginfo_t>> {
    retry(|| {
        let mut info = MaybeUninit::<libc::siginfo_t>::zeroed();
        let id = u32::try_from(pidfd.as_raw_fd()).expect("an open descriptor is not negative");
        // SAFETY: info is valid for writes; the other arguments are plain numbers.
        checked(unsafe {
            libc::waitid(
                libc::P_PIDFD,
                id,
                info.as_mut_ptr(),
                options | libc::WNOHANG,
            )
        })?;
        // SAFETY: zeroed memory is a valid siginfo_t, and the kernel wrote into it or did not.
        let info = unsafe { info.assume_init() };
        Ok((info.si_signo != 0).then_some(info))
    })
}

fn cause_of(info: &libc::siginfo_t) -> ExitCause {
    let status = status(info);
    match info.si_code {
        libc::CLD_EXITED => ExitCause::Exited(u8::try_from(status & 0xff).unwrap_or(u8::MAX)),
        code => match Signal::new(status) {
            Some(signal) => ExitCause::Signaled {
                signal,
                core_dumped: code == libc::CLD_DUMPED,
            },
            None => ExitCause::Lost,
        },
    }
}

fn status(info: &libc::siginfo_t) -> i32 {
    // SAFETY: waitid filled the SIGCHLD member of the union, which holds si_status.
    unsafe { info.si_status() }
}
