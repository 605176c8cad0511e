//! Asks the kernel for a feature by using it once, harmlessly.
//!
//! # Safety
//! The only unsafe code of xtask: system calls that have no safe wrapper in our dependencies. None
//! of them writes to memory, and every pointer that is passed points to a live local variable.

#![expect(
    unsafe_code,
    reason = "system calls without a safe wrapper; see the module doc"
)]

use std::{
    fs, io,
    os::fd::{AsFd, FromRawFd, OwnedFd},
    process::{Command, Stdio},
    sync::atomic::AtomicU32,
};

use nix::sys::memfd::{MFdFlags, memfd_create};

/// A feature: what is to be said about it, or how it is missing.
type Found = Result<String, String>;

/// memfd_create(2), with seals.
pub(super) fn memfd() -> Found {
    match memfd_create(
        "doctor",
        MFdFlags::MFD_ALLOW_SEALING | MFdFlags::MFD_CLOEXEC,
    ) {
        Ok(_) => Ok("with seals".to_owned()),
        Err(errno) => Err(errno.to_string()),
    }
}

/// pidfd_open(2), on this process.
pub(super) fn pidfd() -> Found {
    let (pid, no_flags) = (std::process::id(), 0);
    // SAFETY: two integers; the call touches no memory of ours.
    let opened = unsafe { libc::syscall(libc::SYS_pidfd_open, pid, no_flags) };
    let fd = i32::try_from(answer(opened)?).map_err(|error| error.to_string())?;
    // SAFETY: the kernel has just opened it for this process, and nobody else knows its number.
    let fd = unsafe { OwnedFd::from_raw_fd(fd) };
    let _is_open = fd.as_fd();
    Ok(String::new())
}

/// futex(2): wakes nobody on a word of our own.
pub(super) fn futex() -> Found {
    let word = AtomicU32::new(0);
    let wakes = 1;
    // SAFETY: FUTEX_WAKE looks up who sleeps on the address of `word`, which is live and aligned;
    // it reads and writes nothing there.
    let woken = unsafe { libc::syscall(libc::SYS_futex, word.as_ptr(), libc::FUTEX_WAKE, wakes) };
    answer(woken).map(|_| String::new())
}

/// futex_waitv(2): a wait on no word at all is invalid where the call exists.
pub(super) fn futex_waitv() -> Found {
    let (no_words, n_words, flags, no_deadline, clock) = (0_usize, 0, 0, 0_usize, 0);
    // SAFETY: the list of words has length zero and there is no deadline, so no address is read.
    let refused = unsafe {
        libc::syscall(
            libc::SYS_futex_waitv,
            no_words,
            n_words,
            flags,
            no_deadline,
            clock,
        )
    };
    match answer(refused) {
        Err(_) if io::Error::last_os_error().raw_os_error() == Some(libc::EINVAL) => {
            Ok(String::new())
        }
        Err(error) => Err(error),
        Ok(_) => Err("it accepts a wait on nothing".to_owned()),
    }
}

/// The result of a raw system call.
fn answer(result: i64) -> Result<i64, String> {
    if result < 0 {
        Err(io::Error::last_os_error().to_string())
    } else {
        Ok(result)
    }
}

/// Whether a parent may look into its children from outside.
pub(super) fn ptrace_scope() -> Found {
    let Ok(scope) = fs::read_to_string("/proc/sys/kernel/yama/ptrace_scope") else {
        return Ok("no restriction by Yama".to_owned());
    };
    match scope.trim() {
        "0" => Ok("ptrace_scope 0: any process of the same user".to_owned()),
        "1" => Ok("ptrace_scope 1: descendants".to_owned()),
        other => Err(format!(
            "ptrace_scope {other} forbids it without CAP_SYS_PTRACE"
        )),
    }
}

/// Whether an unprivileged process may have a user namespace of its own.
pub(super) fn user_namespace() -> Found {
    let mut unshare = Command::new("unshare");
    unshare
        .args(["--user", "true"])
        .stdout(Stdio::null())
        .stderr(Stdio::null());
    match unshare.status() {
        Ok(status) if status.success() => Ok(String::new()),
        Ok(_) => Err("`unshare --user` is refused".to_owned()),
        Err(error) => Err(format!("unknown: `unshare` cannot be started ({error})")),
    }
}
