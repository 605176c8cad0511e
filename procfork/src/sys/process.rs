//! Creating, naming, grouping and signalling processes.
#![expect(unsafe_code, reason = "system calls; see the Safety section of `sys`")]

use std::io;
use std::os::fd::{AsRawFd, BorrowedFd, FromRawFd, OwnedFd};

use super::{checked, retry};
use crate::pid::Pid;
use crate::signal::Signal;
use crate::threads::Alone;

/// The two sides of a fork.
pub(crate) enum Side {
    /// This is the child.
    Child,
    /// This is the parent, of this child.
    ParentOf(Pid),
}

/// `fork()`: duplicates the calling process, which has proved that it has one thread.
pub(crate) fn fork(_alone: &Alone) -> io::Result<Side> {
    // SAFETY: the proof says that no other thread exists whose locks the child would inherit; fork
    // itself has no other precondition.
    let pid = checked(unsafe { libc::fork() })?;
    Ok(Pid::new(pid).map_or(Side::Child, Side::ParentOf))
}

/// `unshare(CLONE_THREAD)`: whether the calling thread is the only one of its process. By unshare(2) the flag has no effect
/// in a process with one thread, and is refused in one with several. False also where a sandbox refuses the call.
pub(crate) fn has_one_thread() -> bool {
    // SAFETY: this flag alone changes nothing; no memory is touched.
    checked(unsafe { libc::unshare(libc::CLONE_THREAD) }).is_ok()
}

/// `kill(SIGKILL)` and `waitpid`: removes a child that was just made and is known by nobody yet.
pub(crate) fn kill_and_reap(child: Pid) {
    // SAFETY: plain numbers; the child is not reaped, so that the number is its own.
    unsafe { libc::kill(child.raw(), libc::SIGKILL) };
    let _ = retry(|| {
        // SAFETY: no status is asked for; the number is an own child's.
        checked(unsafe { libc::waitpid(child.raw(), std::ptr::null_mut(), 0) })
    });
}

/// `getpid()`: the calling process.
pub(crate) fn this_pid() -> Pid {
    // SAFETY: takes nothing and cannot fail.
    let raw = unsafe { libc::getpid() };
    Pid::new(raw).expect("the kernel numbers processes from 1")
}

/// `getppid()`: the parent, or `None` when it lives outside this pid namespace.
pub(crate) fn parent_pid() -> Option<Pid> {
    // SAFETY: takes nothing and cannot fail.
    Pid::new(unsafe { libc::getppid() })
}

/// `gettid()`: the calling thread.
pub(crate) fn this_tid() -> Pid {
    // SAFETY: takes nothing and cannot fail.
    let raw = unsafe { libc::gettid() };
    Pid::new(raw).expect("the kernel numbers threads from 1")
}

/// `_exit(code)`: ends the process now, without exit handlers, destructors or buffers.
pub(crate) fn exit_now(code: u8) -> ! {
    // SAFETY: ends the process; nothing of it is used afterwards.
    unsafe { libc::_exit(i32::from(code)) }
}

/// `setpgid(pid, group)`: moves a process into a group; its own number makes it the leader of a
/// new one.
pub(crate) fn set_group(pid: Pid, group: Pid) -> io::Result<()> {
    // SAFETY: plain numbers; the kernel checks that pid is the caller or an own child.
    checked(unsafe { libc::setpgid(pid.raw(), group.raw()) }).map(drop)
}

/// `getpgid(pid)`: the group of a process, a zombie included.
pub(crate) fn group_of(pid: Pid) -> io::Result<Pid> {
    // SAFETY: a plain number; no memory is touched.
    let raw = checked(unsafe { libc::getpgid(pid.raw()) })?;
    Pid::new(raw).ok_or_else(|| io::Error::from_raw_os_error(libc::ESRCH))
}

/// `kill(-group, signal)`: signals every process of a group.
///
/// The caller has proved that the group is its own: it holds a member that is not reaped yet, or
/// is a member itself. This is the one place where the sign trick stands.
pub(crate) fn signal_group(group: Pid, signal: Signal) -> io::Result<()> {
    if group.raw() == 1 {
        // Its negation would mean "every process there is".
        return Err(io::Error::from_raw_os_error(libc::EPERM));
    }
    // SAFETY: plain numbers; no memory is touched.
    checked(unsafe { libc::kill(-group.raw(), signal.number()) }).map(drop)
}

/// `kill(0, signal)`: signals every process of the caller's own group, the caller included.
pub(crate) fn signal_own_group(signal: Signal) -> io::Result<()> {
    // SAFETY: plain numbers; group 0 is the caller's own.
    checked(unsafe { libc::kill(0, signal.number()) }).map(drop)
}

/// `pidfd_open(pid)`: a descriptor that names this process for ever, close-on-exec.
///
/// The caller knows that the number still names the process it means (an own child that is not
/// reaped, or checked by start time afterwards).
pub(crate) fn open_pidfd(pid: Pid) -> io::Result<OwnedFd> {
    // SAFETY: plain numbers; no memory is touched.
    let raw = checked(unsafe { libc::syscall(libc::SYS_pidfd_open, pid.raw(), 0) })?;
    let fd = i32::try_from(raw).expect("the kernel returned a descriptor");
    // SAFETY: the call above created this descriptor and nobody else knows it.
    Ok(unsafe { OwnedFd::from_raw_fd(fd) })
}

/// `pidfd_send_signal(pidfd, signal)`: signals exactly the process behind the descriptor.
///
/// Fails with `ESRCH` when it has been reaped.
pub(crate) fn signal_pidfd(pidfd: BorrowedFd<'_>, signal: Signal) -> io::Result<()> {
    let no_info = std::ptr::null::<libc::siginfo_t>();
    // SAFETY: the descriptor is open for the duration of the borrow; a null siginfo is allowed
    // and means the same as kill().
    let result = unsafe {
        libc::syscall(
            libc::SYS_pidfd_send_signal,
            pidfd.as_raw_fd(),
            signal.number(),
            no_info,
            0,
        )
    };
    checked(result).map(drop)
}

/// `sched_yield()`: lets other threads of this core run.
pub(crate) fn yield_now() {
    std::thread::yield_now();
}

/// `fflush(NULL)`: writes what the C library buffers for output.
pub(crate) fn flush_c_streams() {
    // SAFETY: a null stream means all output streams; the C library locks them itself.
    unsafe { libc::fflush(std::ptr::null_mut()) };
}
