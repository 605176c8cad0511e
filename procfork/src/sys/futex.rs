//! Waiting in the kernel until a word changes: one word, or one of several.
#![expect(unsafe_code, reason = "system calls; see the Safety section of `sys`")]

use std::io;
use std::time::{Duration, Instant};

use super::checked;
use crate::sync::AtomicU32;

/// The bit that a waiter sets so that the kernel wakes somebody when the owner dies.
pub(crate) const WAITERS: u32 = libc::FUTEX_WAITERS;
/// The bit that the kernel sets when the owner has died.
pub(crate) const OWNER_DIED: u32 = libc::FUTEX_OWNER_DIED;
/// The bits that hold the owner's thread id.
pub(crate) const OWNER: u32 = libc::FUTEX_TID_MASK;

/// A word and the value that it must still have for the wait to begin.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Expect<'a> {
    pub(crate) word: &'a AtomicU32,
    pub(crate) value: u32,
}

/// How a wait ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Waited {
    /// A word was woken or had another value, or a signal came: look again.
    Look,
    /// The deadline has passed.
    TimedOut,
}

/// `futex(FUTEX_WAIT)` on a word shared between processes, until a relative timeout.
pub(crate) fn wait_one(expect: Expect<'_>, timeout: Option<Duration>) -> io::Result<Waited> {
    let time = timeout.map(timespec);
    let pointer = time.as_ref().map_or(std::ptr::null(), std::ptr::from_ref);
    // SAFETY: the word is a live atomic; the time lives for the call or is null.
    let result = unsafe {
        libc::syscall(
            libc::SYS_futex,
            expect.word.as_ptr(),
            libc::FUTEX_WAIT,
            expect.value,
            pointer,
        )
    };
    outcome(checked(result))
}

/// `futex_waitv` on words shared between processes, until an absolute deadline (Linux 5.16).
///
/// # Errors
///
/// `ENOSYS` (or `EPERM` under a strict filter) where the kernel lacks it: the caller falls back.
pub(crate) fn wait_any(
    words: &[Option<Expect<'_>>; MAX_WORDS],
    deadline: Option<Instant>,
) -> io::Result<Waited> {
    let mut entries = [Entry::default(); MAX_WORDS];
    let mut count = 0;
    for (entry, expect) in entries.iter_mut().zip(words.iter().flatten()) {
        *entry = Entry::of(*expect);
        count += 1;
    }
    let time = deadline.map(monotonic).transpose()?;
    let pointer = time.as_ref().map_or(std::ptr::null(), std::ptr::from_ref);
    // SAFETY: `count` initialised entries whose words are live atomics; the time lives for the
    // call or is null.
    let result = unsafe {
        libc::syscall(
            libc::SYS_futex_waitv,
            entries.as_ptr(),
            count,
            0,
            pointer,
            libc::CLOCK_MONOTONIC,
        )
    };
    outcome(checked(result))
}

/// `futex(FUTEX_WAKE)`: wakes every waiter of a word shared between processes.
pub(crate) fn wake_all(word: &AtomicU32) {
    // SAFETY: the word is a live atomic; waking touches no memory.
    unsafe { libc::syscall(libc::SYS_futex, word.as_ptr(), libc::FUTEX_WAKE, i32::MAX) };
}

/// Words that [`wait_any`] takes at once: a mailbox, and the deaths of parent and root.
pub(crate) const MAX_WORDS: usize = 3;

/// `struct futex_waitv` of the kernel's interface.
#[repr(C)]
#[derive(Clone, Copy, Default)]
struct Entry {
    value: u64,
    address: u64,
    flags: u32,
    reserved: u32,
}

const _: () = assert!(size_of::<Entry>() == 24);
const FUTEX_32_BITS: u32 = 2;

impl Entry {
    fn of(expect: Expect<'_>) -> Self {
        Self {
            value: expect.value.into(),
            address: expect.word.as_ptr().addr() as u64,
            flags: FUTEX_32_BITS,
            reserved: 0,
        }
    }
}

fn outcome(result: io::Result<i64>) -> io::Result<Waited> {
    match result {
        Ok(_) => Ok(Waited::Look),
        Err(error) => match error.raw_os_error() {
            Some(libc::EAGAIN | libc::EINTR) => Ok(Waited::Look),
            Some(libc::ETIMEDOUT) => Ok(Waited::TimedOut),
            _ => Err(error),
        },
    }
}

fn timespec(duration: Duration) -> libc::timespec {
    libc::timespec {
        tv_sec: i64::try_from(duration.as_secs()).unwrap_or(i64::MAX),
        tv_nsec: duration.subsec_nanos().into(),
    }
}

/// The deadline on the clock of the kernel: `Instant` hides its own.
fn monotonic(deadline: Instant) -> io::Result<libc::timespec> {
    let mut now = timespec(Duration::ZERO);
    // SAFETY: now is valid for writes.
    checked(unsafe { libc::clock_gettime(libc::CLOCK_MONOTONIC, &raw mut now) })?;
    let left = deadline.saturating_duration_since(Instant::now());
    let now = Duration::new(
        now.tv_sec.cast_unsigned(),
        u32::try_from(now.tv_nsec).unwrap_or(0),
    );
    Ok(timespec(now.saturating_add(left)))
}
