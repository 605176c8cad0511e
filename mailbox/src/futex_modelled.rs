//! The futex as the models see it: a kernel with one lock and one queue.
//!
//! What the real one promises is kept: the check of the words and going to sleep are one step with
//! respect to a wake, and a sleeper may return for no reason. Time does not pass in a model: a sleep that
//! nobody ends is a deadlock, and the checker reports it.

use std::time::Duration;

use loom::sync::{Condvar, Mutex};

use crate::sync::{AtomicU32, Ordering};

/// The most words that one wait can watch.
pub(crate) const WORDS_MAX: usize = 128;

/// Why a wait came back.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[expect(dead_code, reason = "time does not pass in a model")]
pub(crate) enum Woken {
    LookAgain,
    TimedOut,
}

/// One word and the value it must still have for the wait to sleep.
pub(crate) type Watched<'a> = (&'a AtomicU32, u32);

struct Kernel {
    lock: Mutex<()>,
    sleepers: Condvar,
}

loom::lazy_static! {
    static ref KERNEL: Kernel = Kernel { lock: Mutex::new(()), sleepers: Condvar::new() };
}

/// Sleeps while every word still has its value, until the next wake.
pub(crate) fn wait(
    words: &[Watched<'_>],
    _timeout: Option<Duration>,
    _fallback: Duration,
) -> Woken {
    let guard = KERNEL.lock.lock().unwrap();
    if words
        .iter()
        .all(|(word, value)| word.load(Ordering::Relaxed) == *value)
    {
        drop(KERNEL.sleepers.wait(guard).unwrap());
    }
    Woken::LookAgain
}

/// Wakes every sleeper; one that slept on another word returns for no reason, which is allowed.
pub(crate) fn wake_all(_word: &AtomicU32) {
    let _guard = KERNEL.lock.lock().unwrap();
    KERNEL.sleepers.notify_all();
}
