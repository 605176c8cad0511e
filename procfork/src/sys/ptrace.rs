//! Reading another process's thread from outside.
#![expect(unsafe_code, reason = "system calls; see the Safety section of `sys`")]

use std::io;
use std::mem::MaybeUninit;
use std::ptr;

use super::{checked, retry};
use crate::pid::Pid;

/// The registers that unwinding begins with.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(crate) struct Registers {
    /// The instruction pointer.
    pub(crate) pc: u64,
    /// The stack pointer.
    pub(crate) sp: u64,
    /// The frame pointer.
    pub(crate) fp: u64,
    /// The link register; zero on x86-64, which has none.
    pub(crate) lr: u64,
}

/// A thread that this thread traces. All calls come from the thread that seized it.
///
/// When it is dropped before it stopped, the kernel lets go of it when the *tracing thread* ends,
/// which is why captures run on a thread of their own.
#[derive(Debug)]
pub(crate) struct Traced(Pid);

/// What a traced thread stopped for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Stop {
    /// For the tracer, or because its process is stopped.
    Asked,
    /// A signal is about to be delivered, which must be passed on.
    Signal(i32),
}

impl Traced {
    /// `ptrace(PTRACE_SEIZE)`: becomes the tracer, without stopping the thread.
    ///
    /// # Errors
    ///
    /// `EPERM` when it may not be traced or somebody else traces it; `ESRCH` when it is gone.
    pub(crate) fn seize(tid: Pid) -> io::Result<Self> {
        request(
            libc::PTRACE_SEIZE as i32,
            tid,
            ptr::null_mut(),
            ptr::null_mut(),
        )?;
        Ok(Self(tid))
    }

    /// `ptrace(PTRACE_INTERRUPT)`: asks the thread to stop; it does so when it leaves the kernel.
    pub(crate) fn interrupt(&self) -> io::Result<()> {
        request(
            libc::PTRACE_INTERRUPT as i32,
            self.0,
            ptr::null_mut(),
            ptr::null_mut(),
        )
    }

    /// `waitid(WSTOPPED | WNOHANG)`: what the thread has stopped for, if it has.
    ///
    /// Never asks for ended threads: taking the end of a child away from its parent's own
    /// bookkeeping is not this function's to do.
    pub(crate) fn stop(&self) -> io::Result<Option<Stop>> {
        retry(|| {
            let mut info = MaybeUninit::<libc::siginfo_t>::zeroed();
            let id = self.0.raw().cast_unsigned();
            let options = libc::WSTOPPED | libc::WNOHANG | libc::__WALL;
            // SAFETY: info is valid for writes; the other arguments are plain numbers.
            checked(unsafe { libc::waitid(libc::P_PID, id, info.as_mut_ptr(), options) })?;
            // SAFETY: zeroed memory is a valid siginfo_t, and the kernel wrote into it or did not.
            let info = unsafe { info.assume_init() };
            Ok((info.si_signo != 0).then(|| stop_of(&info)))
        })
    }

    /// `ptrace(PTRACE_GETREGSET)`: the registers of the stopped thread.
    pub(crate) fn registers(&self) -> io::Result<Registers> {
        let mut raw = MaybeUninit::<libc::user_regs_struct>::zeroed();
        let len = size_of::<libc::user_regs_struct>();
        let mut vector = libc::iovec {
            iov_base: raw.as_mut_ptr().cast(),
            iov_len: len,
        };
        let set = ptr::without_provenance_mut(NT_PRSTATUS);
        let vector = (&raw mut vector).cast();
        request(libc::PTRACE_GETREGSET as i32, self.0, set, vector)?;
        // SAFETY: plain numbers, zeroed first and then written by the kernel.
        Ok(registers_of(&unsafe { raw.assume_init() }))
    }

    /// `ptrace(PTRACE_DETACH)`: lets the stopped thread go on as it would have. A thread of a
    /// stopped process stays stopped.
    pub(crate) fn detach(self, stop: Stop) -> io::Result<()> {
        let signal = match stop {
            Stop::Asked => 0,
            Stop::Signal(number) => usize::try_from(number).unwrap_or(0),
        };
        let signal = ptr::without_provenance_mut(signal);
        request(libc::PTRACE_DETACH as i32, self.0, ptr::null_mut(), signal)
    }
}

/// `process_vm_readv()`: copies memory of another process; how much could be read.
pub(crate) fn read_memory(pid: Pid, address: u64, buffer: &mut [u8]) -> io::Result<usize> {
    let len = buffer.len();
    let local = libc::iovec {
        iov_base: buffer.as_mut_ptr().cast(),
        iov_len: len,
    };
    let address = usize::try_from(address).map_err(io::Error::other)?;
    let remote = libc::iovec {
        iov_base: ptr::without_provenance_mut(address),
        iov_len: len,
    };
    // SAFETY: local is valid for writes of its length; remote is an address of the other process,
    // which the kernel checks.
    let count =
        unsafe { libc::process_vm_readv(pid.raw(), &raw const local, 1, &raw const remote, 1, 0) };
    Ok(usize::try_from(checked(count as i64)?).unwrap_or(0))
}

const NT_PRSTATUS: usize = 1;
const PTRACE_EVENT_STOP: i32 = 128;

fn request(what: i32, tid: Pid, address: *mut u8, data: *mut u8) -> io::Result<()> {
    // SAFETY: the requests above take null, a number, or an iovec of the caller that lives for the
    // call; the memory of this process is written through that iovec only.
    checked(unsafe { libc::ptrace(what as _, tid.raw(), address, data) }).map(drop)
}

fn stop_of(info: &libc::siginfo_t) -> Stop {
    // SAFETY: waitid filled the SIGCHLD member of the union, which holds si_status.
    let status = unsafe { info.si_status() };
    match (info.si_code, status >> 8) {
        (_, PTRACE_EVENT_STOP) => Stop::Asked,
        (libc::CLD_TRAPPED, 0) => Stop::Signal(status & 0x7f),
        _ => Stop::Asked,
    }
}

#[cfg(target_arch = "x86_64")]
fn registers_of(raw: &libc::user_regs_struct) -> Registers {
    Registers {
        pc: raw.rip,
        sp: raw.rsp,
        fp: raw.rbp,
        lr: 0,
    }
}

#[cfg(target_arch = "aarch64")]
fn registers_of(raw: &libc::user_regs_struct) -> Registers {
    Registers {
        pc: raw.pc,
        sp: raw.sp,
        fp: raw.regs[29],
        lr: raw.regs[30],
    }
}
