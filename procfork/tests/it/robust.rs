//! A robust mutex of the program's own, in memory that is shared with forked children.

use std::mem::MaybeUninit;

pub(crate) struct SharedMutex(*mut libc::pthread_mutex_t);

impl SharedMutex {
    pub(crate) fn new() -> Self {
        let access = libc::PROT_READ | libc::PROT_WRITE;
        let flags = libc::MAP_SHARED | libc::MAP_ANONYMOUS;
        // SAFETY: a fresh mapping, which is never removed.
        let page = unsafe { libc::mmap(std::ptr::null_mut(), 4096, access, flags, -1, 0) };
        assert_ne!(page, libc::MAP_FAILED);
        let mutex = Self(page.cast());
        let mut attributes = MaybeUninit::uninit();
        let raw = attributes.as_mut_ptr();
        // SAFETY: valid for writes.
        assert_eq!(unsafe { libc::pthread_mutexattr_init(raw) }, 0);
        let shared = libc::PTHREAD_PROCESS_SHARED;
        // SAFETY: initialised above.
        let set = unsafe { libc::pthread_mutexattr_setpshared(raw, shared) };
        assert_eq!(set, 0);
        let robust = libc::PTHREAD_MUTEX_ROBUST;
        // SAFETY: initialised above.
        assert_eq!(unsafe { libc::pthread_mutexattr_setrobust(raw, robust) }, 0);
        // SAFETY: zeroed memory of its own; initialised attributes.
        assert_eq!(unsafe { libc::pthread_mutex_init(mutex.0, raw) }, 0);
        mutex
    }

    pub(crate) fn lock(&self) {
        // SAFETY: initialised in `new`.
        assert_eq!(unsafe { libc::pthread_mutex_lock(self.0) }, 0);
    }

    pub(crate) fn unlock(&self) {
        // SAFETY: initialised in `new`, locked by this thread.
        assert_eq!(unsafe { libc::pthread_mutex_unlock(self.0) }, 0);
    }

    pub(crate) fn lock_finds_owner_dead(&self) -> bool {
        // SAFETY: initialised in `new`.
        unsafe { libc::pthread_mutex_lock(self.0) == libc::EOWNERDEAD }
    }
}
