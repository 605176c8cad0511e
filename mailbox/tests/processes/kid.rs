//! A forked process that is never left behind.
#![expect(unsafe_code, reason = "fork and its kin")]

use std::panic::{AssertUnwindSafe, catch_unwind};

use mailbox::Probe;

/// A process that this one has forked; killed and reaped when dropped.
#[derive(Debug)]
pub(crate) struct Kid {
    pid: libc::pid_t,
    status: Option<i32>,
}

/// The exit code of a process whose body panicked.
pub(crate) const PANICKED: i32 = 101;

impl Kid {
    /// Forks; the new process runs `body` and exits with its result.
    pub(crate) fn fork(body: impl FnOnce() -> i32) -> Kid {
        // SAFETY: this binary never has a second thread.
        match unsafe { libc::fork() } {
            -1 => panic!("fork: {}", std::io::Error::last_os_error()),
            0 => {
                die_with_parent();
                let code = catch_unwind(AssertUnwindSafe(body)).unwrap_or(PANICKED);
                // SAFETY: ends this process without running what its parent has registered.
                unsafe { libc::_exit(code) }
            }
            pid => Kid { pid, status: None },
        }
    }

    pub(crate) fn pid(&self) -> libc::pid_t {
        self.pid
    }

    pub(crate) fn kill(&self) {
        if self.status.is_none() {
            // SAFETY: the process is ours and not reaped, so the number is still its own.
            unsafe { libc::kill(self.pid, libc::SIGKILL) };
        }
    }

    /// The wait status, once the process has ended.
    pub(crate) fn try_reap(&mut self) -> Option<i32> {
        self.reap_with(libc::WNOHANG)
    }

    /// The wait status, after the process has ended.
    pub(crate) fn reap(&mut self) -> i32 {
        self.reap_with(0).expect("a blocking wait has an answer")
    }

    fn reap_with(&mut self, flags: i32) -> Option<i32> {
        let mut status = 0;
        while self.status.is_none() {
            // SAFETY: the process is ours and not reaped; `status` is a valid place.
            match unsafe { libc::waitpid(self.pid, &mut status, flags) } {
                pid if pid == self.pid => self.status = Some(status),
                0 => break,
                _ => {}
            }
        }
        self.status
    }
}

impl Drop for Kid {
    fn drop(&mut self) {
        self.kill();
        self.reap();
    }
}

/// Alive until it has ended; does not reap.
impl Probe for Kid {
    fn alive(&self) -> bool {
        // SAFETY: all zeros is a valid siginfo.
        let mut info: libc::siginfo_t = unsafe { std::mem::zeroed() };
        let flags = libc::WEXITED | libc::WNOHANG | libc::WNOWAIT;
        // SAFETY: the process is ours; `info` is a valid place.
        let rc = unsafe { libc::waitid(libc::P_PID, self.pid.cast_unsigned(), &mut info, flags) };
        // SAFETY: waitid filled it, or it is still all zeros.
        rc == 0 && unsafe { info.si_pid() } == 0
    }
}

/// Ends the calling process as a crash would.
pub(crate) fn kill_self() -> ! {
    // SAFETY: signals this process only.
    unsafe { libc::raise(libc::SIGKILL) };
    unreachable!("SIGKILL cannot be survived")
}

/// A scenario that is killed by its deadline takes its processes with it.
fn die_with_parent() {
    // SAFETY: sets an attribute of this process.
    unsafe { libc::prctl(libc::PR_SET_PDEATHSIG, libc::SIGKILL) };
}
