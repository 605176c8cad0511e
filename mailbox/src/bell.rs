//! Bells: how one side tells another, perhaps asleep, that there is something to look at.
//!
//! A bell is one word: a count of rings that were heard, and a bit that is set while somebody sleeps or is
//! about to. Ringing is a fence and a load while nobody does: no store, no system call.
//!
//! ```text
//! ringer                                  parker
//! publish                                 set PARKED, keep the word as the key
//! fence                                   fence
//! while the word has PARKED               look again: found -> do not sleep
//!     count + 1, PARKED cleared: wake     sleep while the word equals the key
//! ```
//!
//! The fences stand in one order. If the ringer's comes first, the parker's last look sees what was
//! published. If the parker's comes first, the ringer sees PARKED and changes the word, and the kernel
//! either finds it changed or wakes the sleeper. So a wake-up is never lost.
//!
//! The count is there for several parkers. Without it one that was woken and parks again would restore
//! the very word that another, not yet asleep, was about to sleep on, after the only wake. (A model found
//! that; `weaken="bell_count"` shows it.) A parker never clears the bit: that would hide the others. The
//! cost is at most one needless wake after a wait that ended by itself.

#[cfg(not(loom))]
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
#[cfg(not(loom))]
use std::sync::Arc;
use std::time::{Duration, Instant};

use crate::crowd::Crowd;
#[cfg(not(loom))]
use crate::segment::{Segment, SegmentError};
use crate::sync::{AtomicU32, Ordering, futex, parker_fence, ringer_fence};
use crate::wait::{Activity, Probe, WaitError, Waiter};
use crate::words::BellWord;

/// Somebody sleeps on the bell, or is about to. The bits above count the rings that were heard.
const PARKED: u32 = 1;

/// A word that one side sleeps on and the other rings.
#[derive(Clone, Debug)]
pub(crate) struct Bell {
    word: BellWord,
    crowd: Crowd,
}

impl Bell {
    /// The bell at byte `offset` of a segment, whose parkers are part of `crowd`.
    #[cfg(not(loom))]
    pub(crate) fn new(
        segment: &Arc<Segment>,
        offset: usize,
        crowd: Crowd,
    ) -> Result<Bell, SegmentError> {
        let word = BellWord::new(segment, offset)?;
        Ok(Bell { word, crowd })
    }

    #[cfg(loom)]
    pub(crate) fn modelled() -> Bell {
        Bell {
            word: BellWord::modelled(),
            crowd: Crowd::modelled(),
        }
    }

    /// Those who wait for each other here.
    pub(crate) fn crowd(&self) -> &Crowd {
        &self.crowd
    }

    #[inline(always)]
    fn word(&self) -> &AtomicU32 {
        self.word.get()
    }

    /// Wakes whoever is parked. Whatever they wait for must have been published before.
    #[inline(always)]
    pub(crate) fn ring(&self) {
        ringer_fence();
        if self.is_parked() {
            self.wake();
        }
    }

    /// Whether somebody sleeps, or is about to: a hint that is stale as soon as it is given.
    #[inline(always)]
    pub(crate) fn is_parked(&self) -> bool {
        self.word().load(Ordering::Relaxed) & PARKED != 0
    }

    /// Only the ringer that clears the bit pays the system call. Relaxed throughout: the fences order the
    /// bit against what was published, and the kernel orders a wake against a sleeper's check of the word.
    #[cold]
    fn wake(&self) {
        let mut word = self.word().load(Ordering::Relaxed);
        while word & PARKED != 0 {
            let rung = if cfg!(weaken = "bell_count") {
                0
            } else {
                word.wrapping_add(PARKED)
            };
            let changed =
                self.word()
                    .compare_exchange(word, rung, Ordering::Relaxed, Ordering::Relaxed);
            match changed {
                Ok(_) => return futex::wake_all(self.word()),
                Err(now) => word = now,
            }
        }
    }

    /// Raises the parked bit. The caller must look once more before it sleeps on the key.
    pub(crate) fn prepare(&self) -> Key {
        let word = self.word().fetch_or(PARKED, Ordering::Relaxed) | PARKED;
        parker_fence();
        Key(word)
    }

    /// Sleeps until rung, until a death word changes, or until the time-out; or less.
    pub(crate) fn sleep<'a>(
        &'a self,
        key: Key,
        deaths: &[futex::Watched<'a>],
        timeout: Option<Duration>,
        fallback: Duration,
    ) -> futex::Woken {
        let mut words = Vec::with_capacity(1 + deaths.len());
        words.push((self.word(), key.0));
        words.extend_from_slice(deaths);
        futex::wait(&words, timeout, fallback)
    }
}

/// The word as it was when its holder announced that it would sleep: it sleeps while nothing has changed.
#[derive(Clone, Copy, Debug)]
#[must_use = "look once more at what is awaited, then park with it"]
pub struct Key(u32);

/// The one bell of a parent, rung by all of its children.
///
/// A clone is another handle of the same bell. Make it before the first mailbox; hand its descriptor to
/// children that do not inherit it.
#[derive(Clone, Debug)]
pub struct Doorbell {
    #[cfg(not(loom))]
    segment: Arc<Segment>,
    bell: Bell,
}

/// Bytes of a doorbell's segment: the bell has its cache lines to itself.
#[cfg(not(loom))]
pub(crate) const DOORBELL_BYTES: usize = 4096;
/// Where the number of peers stands in it.
#[cfg(not(loom))]
const CROWD_AT: usize = 2048;

impl Doorbell {
    /// A new bell.
    ///
    /// # Errors
    ///
    /// As [`Segment::create`].
    #[cfg(not(loom))]
    pub fn create() -> Result<Doorbell, SegmentError> {
        Doorbell::over(Segment::create("doorbell", DOORBELL_BYTES)?)
    }

    /// The bell behind a received descriptor.
    ///
    /// # Errors
    ///
    /// As [`Segment::from_fd`].
    #[cfg(not(loom))]
    pub fn from_fd(fd: OwnedFd) -> Result<Doorbell, SegmentError> {
        Doorbell::over(Segment::from_fd(fd, DOORBELL_BYTES)?)
    }

    #[cfg(not(loom))]
    fn over(segment: Segment) -> Result<Doorbell, SegmentError> {
        let segment = Arc::new(segment);
        let crowd = Crowd::new(&segment, CROWD_AT)?;
        let bell = Bell::new(&segment, 0, crowd)?;
        Ok(Doorbell { segment, bell })
    }

    /// Those who wait for each other over this doorbell.
    #[cfg(not(loom))]
    pub(crate) fn crowd(&self) -> Crowd {
        self.bell.crowd().clone()
    }

    #[cfg(loom)]
    pub(crate) fn modelled() -> Doorbell {
        Doorbell {
            bell: Bell::modelled(),
        }
    }

    /// Says how many processes wait for each other over this doorbell: the parent, its children, and whoever else is busy
    /// in the same tree. Where they are more than the machine has cores, waiting ones make room instead of spinning.
    ///
    /// Nothing said counts as few. For the parent; children see it at their next wait.
    pub fn expect_peers(&self, n_peers: usize) {
        self.bell.crowd().set_peers(n_peers);
    }

    /// Rings: whoever is parked wakes and looks again. A fence and a load while nobody is parked.
    ///
    /// Children ring through their ends. A thread of the parent rings to make a parked thread notice
    /// something that it has published itself.
    #[inline]
    pub fn ring(&self) {
        self.bell.ring();
    }

    /// Waits until `ready` says so: spins as long as that pays, then parks.
    ///
    /// Several threads may wait on one doorbell; a ring wakes them all. `ready` is asked often while
    /// spinning and must be cheap; whatever it looks at must be published before a [`Doorbell::ring`]
    /// (the ends of this crate do so). `activity` bounds how long a dead peer can go unnoticed where
    /// the probe has no death word.
    ///
    /// # Errors
    ///
    /// [`WaitError::PeerDied`] when the probe says so and a last look found nothing, or
    /// [`WaitError::Deadline`]. Interruptions by signals never end a wait.
    #[inline]
    pub fn wait(
        &self,
        waiter: &mut Waiter,
        probe: &impl Probe,
        activity: Activity,
        deadline: Option<Instant>,
        ready: impl FnMut() -> bool,
    ) -> Result<(), WaitError> {
        waiter.wait(&self.bell, probe, activity, deadline, ready)
    }

    /// Announces that the caller is about to [`Doorbell::park`]. It must look once more at all that it
    /// waits for, and park only when it found nothing.
    pub fn prepare(&self) -> Key {
        self.bell.prepare()
    }

    /// Sleeps once, until rung, until the probe's death word changes, or until the deadline; or less.
    ///
    /// The caller looks again afterwards, whatever ended the sleep. Prefer [`Doorbell::wait`], which
    /// also keeps the periods in which a probe without a death word must be asked.
    pub fn park(
        &self,
        key: Key,
        probe: &impl Probe,
        activity: Activity,
        deadline: Option<Instant>,
    ) {
        crate::wait::park(&self.bell, key, probe, activity, deadline);
    }
}

#[cfg(not(loom))]
impl AsFd for Doorbell {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.segment.as_fd()
    }
}
