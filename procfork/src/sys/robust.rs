//! A robust mutex whose only purpose is to be owned: the kernel marks it when its owner dies.
//!
//! The kernel walks a dying thread's list of robust futexes before it frees its memory or closes
//! its files, so that a mark in such a futex is the earliest notice of a death. A thread has one
//! such list and the C library owns it; the one sound way to get a word on it without disturbing
//! the library is to let the library put it there, by locking a robust process-shared mutex.
#![expect(unsafe_code, reason = "system calls; see the Safety section of `sys`")]

use std::io;
use std::mem::MaybeUninit;
use std::ptr::NonNull;

use super::checked_number;
use super::process::this_tid;
use crate::sync::{AtomicU32, Ordering};

/// Bytes that a mutex takes, at most, on the supported platforms.
pub(crate) const MUTEX_BYTES: usize = 64;

/// Where in the mutex the C library keeps the futex word. Checked after each lock.
#[cfg(not(target_env = "musl"))]
const WORD_OFFSET: usize = 0;
#[cfg(target_env = "musl")]
const WORD_OFFSET: usize = 4;

const _: () = assert!(size_of::<libc::pthread_mutex_t>() <= MUTEX_BYTES);
const _: () = assert!(align_of::<libc::pthread_mutex_t>() <= 64);

/// The futex word of a mutex.
///
/// # Safety
///
/// `mutex` points to `MUTEX_BYTES` of memory that stay mapped for `'a`.
pub(crate) unsafe fn word<'a>(mutex: NonNull<u8>) -> &'a AtomicU32 {
    // SAFETY: the offset stays within MUTEX_BYTES.
    let word = unsafe { mutex.add(WORD_OFFSET) }.cast::<AtomicU32>();
    // SAFETY: mapped for 'a as the caller vouches, aligned because the mutex is, and accessed by
    // all parties (this crate, the C library, the kernel) with atomic instructions only.
    unsafe { word.as_ref() }
}

/// Makes a robust process-shared mutex in zeroed shared memory and locks it for the calling
/// thread, for as long as that thread lives.
///
/// # Errors
///
/// `ENOTSUP` when the word is not where this crate expects it: the C library is unknown.
///
/// # Safety
///
/// - `mutex` points to `MUTEX_BYTES` of zeroed memory, aligned to 64 bytes, that no other thread
///   uses as a mutex.
/// - It stays mapped until the calling thread has ended: the thread's list refers to it.
pub(crate) unsafe fn lock_for_life(mutex: NonNull<u8>) -> io::Result<()> {
    let raw = mutex.cast::<libc::pthread_mutex_t>().as_ptr();
    let attributes = attributes()?;
    // SAFETY: raw is aligned, zeroed, unused memory for a mutex; the attributes are initialised.
    checked_number(unsafe { libc::pthread_mutex_init(raw, attributes.as_ptr()) })?;
    // SAFETY: initialised just above; uncontended, because nobody else locks it.
    checked_number(unsafe { libc::pthread_mutex_lock(raw) })?;
    // SAFETY: the memory stays mapped at least during this call.
    let found = unsafe { word(mutex) }.load(Ordering::Relaxed);
    let expected = this_tid().raw().cast_unsigned();
    if found == expected {
        Ok(())
    } else {
        Err(io::Error::from_raw_os_error(libc::ENOTSUP))
    }
}

fn attributes() -> io::Result<MaybeUninit<libc::pthread_mutexattr_t>> {
    let mut attributes = MaybeUninit::<libc::pthread_mutexattr_t>::uninit();
    let raw = attributes.as_mut_ptr();
    // SAFETY: valid for writes.
    checked_number(unsafe { libc::pthread_mutexattr_init(raw) })?;
    // SAFETY: initialised just above.
    checked_number(unsafe {
        libc::pthread_mutexattr_setpshared(raw, libc::PTHREAD_PROCESS_SHARED)
    })?;
    // SAFETY: initialised above.
    checked_number(unsafe { libc::pthread_mutexattr_setrobust(raw, libc::PTHREAD_MUTEX_ROBUST) })?;
    Ok(attributes)
}
