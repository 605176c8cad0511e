//! Attributes of the calling process: death signal, name, subreaper.
#![expect(unsafe_code, reason = "system calls; see the Safety section of `sys`")]

use std::ffi::CStr;
use std::io;

use super::checked;
use crate::signal::Signal;

/// `prctl(PR_SET_PDEATHSIG)`: the signal that this process gets when the thread that created it
/// ends.
pub(crate) fn set_death_signal(signal: Option<Signal>) -> io::Result<()> {
    let number = signal.map_or(0, Signal::number);
    // SAFETY: plain numbers; no memory is touched.
    checked(unsafe { libc::prctl(libc::PR_SET_PDEATHSIG, number) }).map(drop)
}

/// `prctl(PR_GET_PDEATHSIG)`: the death signal that is armed, if any.
pub(crate) fn death_signal() -> io::Result<Option<Signal>> {
    let mut number: i32 = 0;
    // SAFETY: number is valid for writes of an int.
    checked(unsafe { libc::prctl(libc::PR_GET_PDEATHSIG, &raw mut number) })?;
    Ok(Signal::new(number))
}

/// `prctl(PR_SET_NAME)`: the name of the calling thread, cut at 15 bytes by the kernel.
pub(crate) fn set_name(name: &CStr) -> io::Result<()> {
    // SAFETY: a string that ends with a zero byte and lives for the call.
    checked(unsafe { libc::prctl(libc::PR_SET_NAME, name.as_ptr()) }).map(drop)
}

/// `prctl(PR_SET_CHILD_SUBREAPER)`: orphans among the descendants become children of this
/// process.
pub(crate) fn set_subreaper(on: bool) -> io::Result<()> {
    let flag: libc::c_ulong = on.into();
    // SAFETY: plain numbers; no memory is touched.
    checked(unsafe { libc::prctl(libc::PR_SET_CHILD_SUBREAPER, flag, 0, 0, 0) }).map(drop)
}

/// `prctl(PR_GET_CHILD_SUBREAPER)`: whether this process adopts orphans of its descendants.
pub(crate) fn is_subreaper() -> io::Result<bool> {
    let mut flag: i32 = 0;
    // SAFETY: flag is valid for writes of an int.
    checked(unsafe { libc::prctl(libc::PR_GET_CHILD_SUBREAPER, &raw mut flag, 0, 0, 0) })?;
    Ok(flag != 0)
}
