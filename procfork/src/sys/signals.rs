//! Signal masks and dispositions.
#![expect(unsafe_code, reason = "system calls; see the Safety section of `sys`")]

use std::io;
use std::mem::MaybeUninit;

use super::{checked, checked_number};

/// A signal mask that was in force before, to be put back.
#[derive(Clone, Copy)]
pub(crate) struct Mask(libc::sigset_t);

/// The highest signal number of Linux on x86-64 and aarch64.
pub(crate) const LAST_SIGNAL: i32 = 64;

impl Mask {
    /// The mask that blocks nothing.
    pub(crate) fn empty() -> Self {
        let mut set = MaybeUninit::<libc::sigset_t>::uninit();
        // SAFETY: set is valid for writes; sigemptyset initialises all of it.
        unsafe { libc::sigemptyset(set.as_mut_ptr()) };
        // SAFETY: initialised by the call above.
        Self(unsafe { set.assume_init() })
    }

    /// The mask that blocks all that can be blocked.
    pub(crate) fn full() -> Self {
        let mut set = MaybeUninit::<libc::sigset_t>::uninit();
        // SAFETY: set is valid for writes; sigfillset initialises all of it.
        unsafe { libc::sigfillset(set.as_mut_ptr()) };
        // SAFETY: initialised by the call above.
        Self(unsafe { set.assume_init() })
    }

    /// Every signal, those included that the C library keeps for itself and leaves out of a full
    /// mask. For dispositions only.
    pub(crate) fn every() -> Self {
        let mut set = MaybeUninit::<libc::sigset_t>::uninit();
        // SAFETY: one set, valid for writes; any bits are a valid set.
        unsafe { set.as_mut_ptr().write_bytes(0xff, 1) };
        // SAFETY: initialised by the call above.
        Self(unsafe { set.assume_init() })
    }

    /// For calls that take a set.
    pub(crate) fn as_raw(&self) -> *const libc::sigset_t {
        &raw const self.0
    }

    /// `pthread_sigmask(SIG_SETMASK)`: puts this mask in force for the calling thread and returns
    /// the one before.
    pub(crate) fn install(&self) -> io::Result<Mask> {
        let mut before = Self::empty();
        // SAFETY: both sets are initialised and live for the call.
        checked_number(unsafe {
            libc::pthread_sigmask(libc::SIG_SETMASK, &raw const self.0, &raw mut before.0)
        })?;
        Ok(before)
    }
}

/// `sigaction(signal, NULL)`: whether the kernel reaps children by itself because `SIGCHLD` is
/// ignored or has `SA_NOCLDWAIT`.
pub(crate) fn children_reap_themselves() -> io::Result<bool> {
    let action = action_of(libc::SIGCHLD)?;
    let ignored = action.sa_sigaction == libc::SIG_IGN;
    Ok(ignored || action.sa_flags & libc::SA_NOCLDWAIT != 0)
}

/// `sigaction` for every signal: back to the default, except `SIGPIPE`, which stays ignored as in
/// every Rust program.
///
/// Numbers that the C library keeps for itself are refused by it (`EINVAL`) and skipped.
pub(crate) fn reset_dispositions() {
    for number in 1..=LAST_SIGNAL {
        let handler = if number == libc::SIGPIPE {
            libc::SIG_IGN
        } else {
            libc::SIG_DFL
        };
        set_disposition(number, handler);
    }
}

fn set_disposition(number: i32, handler: libc::sighandler_t) {
    let mut action = zeroed_action();
    action.sa_sigaction = handler;
    // SAFETY: the action names no function of ours, only SIG_DFL or SIG_IGN; the old one is not
    // asked for. SIGKILL and SIGSTOP fail with EINVAL, as they should.
    unsafe { libc::sigaction(number, &raw const action, std::ptr::null_mut()) };
}

fn action_of(number: i32) -> io::Result<libc::sigaction> {
    let mut action = zeroed_action();
    // SAFETY: action is valid for writes; a null new action changes nothing.
    checked(unsafe { libc::sigaction(number, std::ptr::null(), &raw mut action) })?;
    Ok(action)
}

fn zeroed_action() -> libc::sigaction {
    // SAFETY: all-zero bytes are a valid sigaction: the default handler, no flags, no mask.
    unsafe { MaybeUninit::<libc::sigaction>::zeroed().assume_init() }
}
