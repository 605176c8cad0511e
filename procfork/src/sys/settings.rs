//! CPUs, nice value, resource limits and environment of the calling process.
#![expect(unsafe_code, reason = "system calls; see the Safety section of `sys`")]

use std::ffi::CStr;
use std::io;
use std::mem::size_of;

use super::checked;
use crate::threads::Alone;

/// `sched_setaffinity(0)`: restricts the calling thread to these CPUs, each below `CPU_SETSIZE`.
pub(crate) fn set_cpus(cpus: &[u32]) -> io::Result<()> {
    let mut set = empty_set();
    for cpu in cpus {
        // SAFETY: the set is initialised, and the macro checks the number against its size.
        unsafe { libc::CPU_SET(*cpu as usize, &mut set) };
    }
    // SAFETY: the set is initialised and as long as said; 0 is the caller.
    checked(unsafe { libc::sched_setaffinity(0, size_of::<libc::cpu_set_t>(), &raw const set) })
        .map(drop)
}

/// `sched_getaffinity(0)`: the CPUs that the calling thread may use.
pub(crate) fn cpus() -> io::Result<Vec<u32>> {
    let mut set = empty_set();
    // SAFETY: the set is writable and as long as said; 0 is the caller.
    checked(unsafe { libc::sched_getaffinity(0, size_of::<libc::cpu_set_t>(), &raw mut set) })?;
    let all = 0..libc::CPU_SETSIZE as u32;
    // SAFETY: the set is initialised, and the number is below its size.
    Ok(all
        .filter(|cpu| unsafe { libc::CPU_ISSET(*cpu as usize, &set) })
        .collect())
}

fn empty_set() -> libc::cpu_set_t {
    // SAFETY: a set of bits; all zero is the empty one.
    unsafe { std::mem::zeroed() }
}

/// `setpriority(PRIO_PROCESS, 0)`: the nice value of the calling thread.
pub(crate) fn set_nice(nice: i32) -> io::Result<()> {
    // SAFETY: plain numbers; 0 is the caller.
    checked(unsafe { libc::setpriority(libc::PRIO_PROCESS, 0, nice) }).map(drop)
}

/// `getpriority(PRIO_PROCESS, 0)`: the nice value of the calling thread.
///
/// Asked without the C library: the kernel's answer is 20 minus the nice value, so that -1 is never one.
pub(crate) fn nice() -> io::Result<i32> {
    // SAFETY: plain numbers; 0 is the caller.
    let answer = checked(unsafe { libc::syscall(libc::SYS_getpriority, libc::PRIO_PROCESS, 0) })?;
    Ok(20 - i32::try_from(answer).unwrap_or(20))
}

/// `setrlimit`: both limits, so that the process cannot raise the soft one again.
///
/// Without privileges a value above the hard limit is refused (`EPERM`).
pub(crate) fn set_limit(resource: u32, value: u64) -> io::Result<()> {
    let limit = libc::rlimit {
        rlim_cur: value,
        rlim_max: value,
    };
    // SAFETY: the structure is initialised and lives over the call.
    checked(unsafe { libc::setrlimit(resource as _, &raw const limit) }).map(drop)
}

/// `getrlimit`: the soft limit.
pub(crate) fn limit(resource: u32) -> io::Result<u64> {
    Ok(get(resource)?.rlim_cur)
}

fn get(resource: u32) -> io::Result<libc::rlimit> {
    let mut limit = libc::rlimit {
        rlim_cur: 0,
        rlim_max: 0,
    };
    // SAFETY: the structure is writable and lives over the call.
    checked(unsafe { libc::getrlimit(resource as _, &raw mut limit) })?;
    Ok(limit)
}

/// `setenv`: puts a variable into the environment.
pub(crate) fn set_variable(_alone: &Alone, name: &CStr, value: &CStr) -> io::Result<()> {
    // SAFETY: both end with a zero byte and are copied; the proof says that no other thread reads the environment.
    checked(unsafe { libc::setenv(name.as_ptr(), value.as_ptr(), 1) }).map(drop)
}
