//! The three futex calls: wait on one word, wait on several, wake.
//!
//! # Safety
//!
//! The kernel reads the words itself; a call is sound for any reference that lives as long as the call,
//! and a word in a shared mapping is found by its page, so that two processes meet on it wherever each
//! of them has mapped it. The wait calls return for many reasons (woken, changed, interrupted, timed
//! out): callers look again and decide, so that no return code can end a wait early.
#![expect(
    unsafe_code,
    reason = "system calls that no safe wrapper offers for shared words"
)]

use std::sync::atomic::AtomicU32;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

/// The most words that one wait can watch (the kernel's limit).
pub(crate) const WORDS_MAX: usize = 128;

/// Why a wait came back. Only the time-out matters to a caller: everything else means "look again".
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Woken {
    /// Woken, changed before we slept, or interrupted.
    LookAgain,
    /// The whole time-out passed.
    TimedOut,
}

/// One word and the value it must still have for the wait to sleep.
pub(crate) type Watched<'a> = (&'a AtomicU32, u32);

/// Sleeps while every word still has its value, for at most `timeout` (for ever when `None`).
///
/// Where the kernel is too old to watch several words (before 5.16), only the first is watched, for at
/// most `fallback`: the caller looks at the others in between.
pub(crate) fn wait(words: &[Watched<'_>], timeout: Option<Duration>, fallback: Duration) -> Woken {
    static WAITV_MISSING: AtomicBool = AtomicBool::new(false);
    let [first, rest @ ..] = words else {
        return Woken::LookAgain;
    };
    if rest.is_empty() {
        return wait_one(*first, timeout);
    }
    if !WAITV_MISSING.load(Ordering::Relaxed) {
        match wait_many(words, timeout) {
            Some(woken) => return woken,
            None => WAITV_MISSING.store(true, Ordering::Relaxed),
        }
    }
    wait_one(*first, Some(timeout.map_or(fallback, |t| t.min(fallback))))
}

/// `futex(FUTEX_WAIT)`: one word, relative time.
fn wait_one((word, expected): Watched<'_>, timeout: Option<Duration>) -> Woken {
    let timespec = timeout.map(relative);
    let timespec_ptr = timespec
        .as_ref()
        .map_or(std::ptr::null(), std::ptr::from_ref);
    // SAFETY: `word` outlives the call, the kernel only reads it; the time is null or a valid timespec
    // on our stack; the remaining arguments are ignored for FUTEX_WAIT.
    let rc = unsafe {
        libc::syscall(
            libc::SYS_futex,
            word.as_ptr(),
            libc::FUTEX_WAIT,
            expected,
            timespec_ptr,
            0,
            0,
        )
    };
    outcome(rc)
}

/// `futex_waitv`: up to [`WORDS_MAX`] words, absolute monotonic time. `None`: the kernel lacks it.
fn wait_many(words: &[Watched<'_>], timeout: Option<Duration>) -> Option<Woken> {
    let mut waiters = [WaitV {
        value: 0,
        address: 0,
        flags: 0,
        reserved: 0,
    }; WORDS_MAX];
    let n_words = words.len().min(WORDS_MAX);
    for (slot, (word, expected)) in waiters.iter_mut().zip(words) {
        *slot = WaitV {
            value: u64::from(*expected),
            address: word.as_ptr() as u64,
            flags: FUTEX2_SIZE_U32,
            reserved: 0,
        };
    }
    let timespec = timeout.map(absolute);
    let timespec_ptr = timespec
        .as_ref()
        .map_or(std::ptr::null(), std::ptr::from_ref);
    // SAFETY: `waiters` holds `n_words` valid entries whose words outlive the call and are only read;
    // the time is null or a valid timespec on our stack.
    let rc = unsafe {
        libc::syscall(
            libc::SYS_futex_waitv,
            waiters.as_ptr(),
            n_words,
            0,
            timespec_ptr,
            libc::CLOCK_MONOTONIC,
        )
    };
    if rc < 0 && matches!(errno(), libc::ENOSYS | libc::EPERM) {
        return None;
    }
    Some(outcome(rc))
}

/// `futex(FUTEX_WAKE)`: wakes every sleeper on the word, in all processes.
pub(crate) fn wake_all(word: &AtomicU32) {
    // SAFETY: the kernel uses the address as a key only; waking wakes sleepers that look again.
    unsafe {
        libc::syscall(
            libc::SYS_futex,
            word.as_ptr(),
            libc::FUTEX_WAKE,
            i32::MAX,
            0,
            0,
            0,
        )
    };
}

/// EAGAIN (changed), EINTR (a signal) and a wake all mean "look again".
fn outcome(rc: libc::c_long) -> Woken {
    if rc >= 0 {
        return Woken::LookAgain;
    }
    match errno() {
        libc::ETIMEDOUT => Woken::TimedOut,
        libc::EAGAIN | libc::EINTR => Woken::LookAgain,
        other => unreachable!("a futex wait on a live, aligned word failed with errno {other}"),
    }
}

fn errno() -> i32 {
    std::io::Error::last_os_error().raw_os_error().unwrap_or(0)
}

fn relative(timeout: Duration) -> libc::timespec {
    libc::timespec {
        tv_sec: libc::time_t::try_from(timeout.as_secs()).unwrap_or(libc::time_t::MAX),
        tv_nsec: libc::c_long::from(timeout.subsec_nanos().cast_signed()),
    }
}

/// The monotonic time at which a time-out that starts now has passed.
fn absolute(timeout: Duration) -> libc::timespec {
    let mut now = libc::timespec {
        tv_sec: 0,
        tv_nsec: 0,
    };
    // SAFETY: `now` is a valid place for the answer, and the clock always exists.
    unsafe { libc::clock_gettime(libc::CLOCK_MONOTONIC, &mut now) };
    let since_boot = Duration::new(now.tv_sec.cast_unsigned(), now.tv_nsec as u32);
    relative(since_boot.saturating_add(timeout))
}

/// `struct futex_waitv` of the kernel.
#[derive(Clone, Copy)]
#[repr(C)]
struct WaitV {
    value: u64,
    address: u64,
    flags: u32,
    reserved: u32,
}

const FUTEX2_SIZE_U32: u32 = 2;

const _: () = assert!(size_of::<WaitV>() == 24);
