//! What the machine itself asks for: two cache lines that bounce, and a futex that wakes.

use std::sync::atomic::{AtomicU32, Ordering};

use mailbox::Segment;

/// One word per direction, each alone on its cache line, and two words to sleep on.
pub(crate) struct Raw<'a> {
    there: &'a AtomicU32,
    back: &'a AtomicU32,
    bell_there: &'a AtomicU32,
    bell_back: &'a AtomicU32,
}

impl<'a> Raw<'a> {
    pub(crate) fn new(segment: &'a Segment) -> Raw<'a> {
        assert!(segment.len() >= 4096);
        let word = |line: usize| -> &'a AtomicU32 {
            // SAFETY: within the segment as asserted, aligned because a mapping begins at a page, and
            // used as an atomic only.
            unsafe {
                &*segment
                    .as_ptr()
                    .wrapping_add(line * 128)
                    .cast::<AtomicU32>()
            }
        };
        Raw {
            there: word(0),
            back: word(1),
            bell_there: word(2),
            bell_back: word(3),
        }
    }

    pub(crate) fn ask(&self, n_trips: u32) {
        let first = self.there.load(Ordering::Relaxed);
        for i in 1..=n_trips {
            self.there.store(first + i, Ordering::Release);
            while self.back.load(Ordering::Acquire) != first + i {}
        }
    }

    pub(crate) fn answer(&self, n_trips: u32) {
        let first = self.back.load(Ordering::Relaxed);
        for i in 1..=n_trips {
            while self.there.load(Ordering::Acquire) != first + i {}
            self.back.store(first + i, Ordering::Release);
        }
    }

    /// Wakes the other side and watches for its answer awake, as a parent does that has just submitted.
    pub(crate) fn wake_and_watch(&self) {
        let before = self.bell_back.load(Ordering::Acquire);
        self.bell_there.fetch_add(1, Ordering::Release);
        wake(self.bell_there);
        while self.bell_back.load(Ordering::Acquire) == before {
            std::hint::spin_loop();
        }
    }

    pub(crate) fn sleep_and_answer(&self) {
        // Both sides count the same sleeps, so the last answer tells which wake is due.
        sleep_while(self.bell_there, self.bell_back.load(Ordering::Relaxed));
        self.bell_back.fetch_add(1, Ordering::Release);
    }
}

fn sleep_while(word: &AtomicU32, value: u32) {
    while word.load(Ordering::Acquire) == value {
        let forever = std::ptr::null::<libc::timespec>();
        // SAFETY: the word outlives the call, and the kernel only reads it.
        unsafe {
            libc::syscall(
                libc::SYS_futex,
                word.as_ptr(),
                libc::FUTEX_WAIT,
                value,
                forever,
            )
        };
    }
}

fn wake(word: &AtomicU32) {
    // SAFETY: the address is a key only.
    unsafe { libc::syscall(libc::SYS_futex, word.as_ptr(), libc::FUTEX_WAKE, 1) };
}

/// Keeps the calling process on one core, where there is one to spare for each side.
pub(crate) fn pin(core: usize) {
    if std::thread::available_parallelism().is_ok_and(|n| n.get() >= 2) {
        // SAFETY: all zeros is the empty set.
        let mut set: libc::cpu_set_t = unsafe { std::mem::zeroed() };
        // SAFETY: the core's number is far below the size of the set.
        unsafe { libc::CPU_SET(core, &mut set) };
        // SAFETY: the set is valid; a refusal only costs accuracy.
        unsafe { libc::sched_setaffinity(0, size_of_val(&set), &set) };
    }
}

/// Waits for the child that was forked, and for its success.
pub(crate) fn reap(child: libc::pid_t) {
    let mut status = 0;
    // SAFETY: `child` is ours and not yet reaped; `status` is a valid place.
    let reaped = unsafe { libc::waitpid(child, &mut status, 0) };
    assert!(
        reaped == child && status == 0,
        "the child ended with status {status:#x}"
    );
}
