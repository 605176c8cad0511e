//! Waiting: spin while that pays, then park.
//!
//! A wake across processes costs some twenty to fifty microseconds. A waiter therefore spins for up to
//! about that long before it parks, less after spins that did not pay (see `spin.rs`).
//!
//! The first part of a spin reads no clock and asks nobody: it is a bare loop over `ready`, which is what
//! makes a round trip cost little more than its two cache-line transfers.

use std::time::{Duration, Instant};

use crate::bell::{Bell, Key};
use crate::spin::SpinMemory;
use crate::sync::{AtomicU32, Ordering, futex};

/// Tells whether the peers of a wait are alive.
pub trait Probe {
    /// False once a peer whose death should end the wait is dead. Asked now and then while spinning,
    /// and before and after each sleep; must be cheap and must not block.
    fn alive(&self) -> bool;

    /// Adds the words that the kernel changes when a peer dies, so that a sleep ends at that instant.
    /// Without one, sleeps are cut into bounded periods and [`Probe::alive`] is asked in between.
    fn death_words<'a>(&'a self, words: &mut DeathWords<'a>) {
        let _ = words;
    }
}

/// A probe for peers that cannot die before the wait ends, such as threads of the same process.
#[derive(Clone, Copy, Debug, Default)]
pub struct Immortal;

impl Probe for Immortal {
    fn alive(&self) -> bool {
        true
    }
}

/// The death words of one wait; see [`Probe::death_words`].
#[derive(Debug, Default)]
pub struct DeathWords<'a> {
    words: Vec<futex::Watched<'a>>,
    incomplete: bool,
}

impl<'a> DeathWords<'a> {
    /// Watches `word`: the peer is alive while it equals `alive`.
    ///
    /// The word must be a futex in shared memory that is woken when it changes, as the kernel does
    /// for a robust futex with its waiters bit set. As many words as the kernel can watch at once are
    /// kept; with more of them sleeps are bounded as if there were none.
    pub fn watch(&mut self, word: &'a AtomicU32, alive: u32) {
        if self.words.len() + 1 < futex::WORDS_MAX {
            self.words.push((word, alive));
        } else {
            self.incomplete = true;
        }
    }

    /// Whether a watched peer has died. The kernel wakes one sleeper only, so the news is passed on.
    fn any_dead(&self) -> bool {
        let dead = self
            .words
            .iter()
            .find(|(word, alive)| word.load(Ordering::Relaxed) != *alive);
        if let Some((word, _)) = dead {
            futex::wake_all(word);
        }
        dead.is_some()
    }
}

/// Whether a dead peer would leave work undone: bounds a sleep where there is no death word.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Activity {
    /// Nothing is owed: the probe is asked every second.
    Idle,
    /// An answer is owed: the probe is asked every 100 ms.
    InFlight,
}

impl Activity {
    fn period(self) -> Duration {
        match self {
            Activity::Idle => Duration::from_secs(1),
            Activity::InFlight => Duration::from_millis(100),
        }
    }
}

/// Why a wait ended without what it waited for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum WaitError {
    /// The deadline passed. Nothing else has changed: the wait can be repeated.
    #[error("wait for the peer: the deadline passed")]
    Deadline,
    /// The probe says that a peer is dead, and a last look found nothing from it.
    #[error("wait for the peer: it died")]
    PeerDied,
}

/// What a waiter has done so far, for tests and statistics.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct WaitStats {
    /// Waits that ended while spinning.
    pub spun: u64,
    /// Waits that had to park at least once.
    pub parked: u64,
    /// Sleeps that ended by their period or deadline instead of by a ring.
    pub timed_out: u64,
}

/// One waiter's memory of how long spinning pays.
#[derive(Clone, Debug)]
pub struct Waiter {
    spin: SpinMemory,
    stats: WaitStats,
}

/// Looks between two readings of the clock in the second part.
const LOOKS_PER_CLOCK: u32 = 32;
/// Looks between giving a turn away and the next.
const LOOKS_PER_TURN: u32 = 64;
/// About what those and an unanswered offer of the core cost.
const TURN: Duration = Duration::from_nanos(500);
/// With death words a sleep needs no period; this one is a safety net.
const NET: Duration = Duration::from_secs(10);

impl Default for Waiter {
    fn default() -> Waiter {
        Waiter::new()
    }
}

impl Waiter {
    /// A waiter that has not learnt anything yet.
    #[must_use]
    pub fn new() -> Waiter {
        Waiter {
            spin: SpinMemory::new(),
            stats: WaitStats::default(),
        }
    }

    /// A waiter of a process that has just come up: see [`SpinMemory::of_newborn`].
    pub(crate) fn of_newborn() -> Waiter {
        Waiter {
            spin: SpinMemory::of_newborn(),
            stats: WaitStats::default(),
        }
    }

    /// What it has done so far.
    #[must_use]
    pub fn stats(&self) -> WaitStats {
        self.stats
    }

    /// See [`crate::Doorbell::wait`].
    #[inline]
    pub(crate) fn wait(
        &mut self,
        bell: &Bell,
        probe: &impl Probe,
        activity: Activity,
        deadline: Option<Instant>,
        mut ready: impl FnMut() -> bool,
    ) -> Result<(), WaitError> {
        for _ in 0..self.spin.bare_looks() {
            if ready() {
                self.stats.spun += 1;
                return Ok(());
            }
        }
        self.wait_longer(bell, probe, activity, deadline, &mut ready)
    }

    #[cold]
    fn wait_longer(
        &mut self,
        bell: &Bell,
        probe: &impl Probe,
        activity: Activity,
        deadline: Option<Instant>,
        ready: &mut impl FnMut() -> bool,
    ) -> Result<(), WaitError> {
        let budget = self.spin.budget();
        let spin = match bell.crowd().is_crowded() {
            true => make_room,
            false => spin,
        };
        if !budget.is_zero() && spin(budget, probe, deadline, ready) {
            self.spin.paid();
            self.stats.spun += 1;
            return Ok(());
        }
        self.spin.failed();
        self.stats.parked += 1;
        self.park_until(bell, probe, activity, deadline, ready)
    }

    fn park_until(
        &mut self,
        bell: &Bell,
        probe: &impl Probe,
        activity: Activity,
        deadline: Option<Instant>,
        ready: &mut impl FnMut() -> bool,
    ) -> Result<(), WaitError> {
        loop {
            let key = bell.prepare();
            if ready() {
                return Ok(());
            }
            let slept = park(bell, key, probe, activity, deadline);
            if slept == Slept::TimedOut {
                self.stats.timed_out += 1;
            }
            if ready() {
                return Ok(());
            }
            if slept == Slept::PeerDied {
                // What the peer published before it died counts: one look after knowing of its death.
                return if ready() {
                    Ok(())
                } else {
                    Err(WaitError::PeerDied)
                };
            }
            if deadline.is_some_and(|d| Instant::now() >= d) {
                return Err(WaitError::Deadline);
            }
        }
    }
}

/// The second part of a spin, with pauses and an eye on the clock. True when `ready`.
fn spin(
    budget: Duration,
    probe: &impl Probe,
    deadline: Option<Instant>,
    ready: &mut impl FnMut() -> bool,
) -> bool {
    let own_end = Instant::now() + budget;
    let end = deadline.map_or(own_end, |d| d.min(own_end));
    while Instant::now() < end && probe.alive() {
        for _ in 0..LOOKS_PER_CLOCK {
            if ready() {
                return true;
            }
            std::hint::spin_loop();
        }
    }
    false
}

/// The second part of a spin where a peer may need this very core: gives the turn away between looks. True when
/// `ready`.
///
/// The budget bounds what is burnt here, not what passes while others run: whoever had the core meanwhile used it.
fn make_room(
    budget: Duration,
    probe: &impl Probe,
    deadline: Option<Instant>,
    ready: &mut impl FnMut() -> bool,
) -> bool {
    for _ in 0..budget.div_duration_f32(TURN) as u32 {
        for _ in 0..LOOKS_PER_TURN {
            if ready() {
                return true;
            }
        }
        if !probe.alive() || deadline.is_some_and(|d| Instant::now() >= d) {
            return false;
        }
        std::thread::yield_now();
    }
    false
}

/// How one sleep ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Slept {
    LookAgain,
    PeerDied,
    TimedOut,
}

/// One sleep on a prepared bell, with the probe asked before and after.
pub(crate) fn park(
    bell: &Bell,
    key: Key,
    probe: &impl Probe,
    activity: Activity,
    deadline: Option<Instant>,
) -> Slept {
    let mut deaths = DeathWords::default();
    probe.death_words(&mut deaths);
    if !probe.alive() || deaths.any_dead() {
        return Slept::PeerDied;
    }
    let bounded = deaths.words.is_empty() || deaths.incomplete;
    let period = if bounded { activity.period() } else { NET };
    let left = deadline.map_or(period, |d| {
        d.saturating_duration_since(Instant::now()).min(period)
    });
    let woken = bell.sleep(key, &deaths.words, Some(left), activity.period());
    match woken {
        _ if !probe.alive() || deaths.any_dead() => Slept::PeerDied,
        futex::Woken::TimedOut => Slept::TimedOut,
        futex::Woken::LookAgain => Slept::LookAgain,
    }
}
