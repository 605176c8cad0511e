//! The system calls that procfork needs, one function per meaning.
//!
//! This is the only place of the crate that talks to the kernel or to the C library. Functions
//! take and return typed values, report failures as [`io::Error`] and retry on `EINTR` where the
//! call may be interrupted.
//!
//! # Safety
//!
//! `unsafe` is confined to the files of this folder. Each block makes one call and names the facts
//! that make it sound; the functions around them are safe to call unless marked otherwise.

use std::io;

#[cfg(feature = "dump")]
pub(crate) mod answer;
#[cfg(feature = "dump")]
pub(crate) mod crash;
pub(crate) mod epoll;
pub(crate) mod fds;
pub(crate) mod futex;
pub(crate) mod memory;
pub(crate) mod own;
pub(crate) mod page;
pub(crate) mod prctl;
pub(crate) mod process;
#[cfg(feature = "dump")]
pub(crate) mod ptrace;
pub(crate) mod robust;
pub(crate) mod settings;
pub(crate) mod signals;
pub(crate) mod spawn;
pub(crate) mod wait;

/// Turns the C convention "minus one and errno" into a result.
fn checked<T: Into<i64> + Copy>(value: T) -> io::Result<T> {
    if value.into() == -1 {
        Err(io::Error::last_os_error())
    } else {
        Ok(value)
    }
}

/// Turns the pthread convention "zero or the error number" into a result.
fn checked_number(number: i32) -> io::Result<()> {
    if number == 0 {
        Ok(())
    } else {
        Err(io::Error::from_raw_os_error(number))
    }
}

/// Repeats a call for as long as a signal interrupts it.
fn retry<T>(mut call: impl FnMut() -> io::Result<T>) -> io::Result<T> {
    loop {
        match call() {
            Err(error) if error.kind() == io::ErrorKind::Interrupted => continue,
            other => return other,
        }
    }
}
