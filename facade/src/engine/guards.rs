//! Guards: who holds the lines without driving, and who wants to drive.
//!
//! Whoever finds the lines taken sleeps under core. So whoever lets go of them does it under core, and hands over to a
//! sleeper: a guard that drops the lines in another way loses a wake-up.

use std::ops::{Deref, DerefMut};
use std::sync::atomic::Ordering;
use std::time::Instant;

use parking_lot::{Condvar, MutexGuard};

use super::{Core, Engine, Lines};

/// Core for a moment. When it is dropped, core is free first, and then what came up under it is done ([`Laters`](super::Laters)):
/// code of the user's, which may take its time and call this engine.
pub(crate) struct HeldCore<'a>(Option<MutexGuard<'a, Core>>);

impl<'a> HeldCore<'a> {
    #[inline]
    pub(super) fn new(core: MutexGuard<'a, Core>) -> Self {
        Self(Some(core))
    }

    /// Sleeps on `wake`, core being free meanwhile. True at the deadline.
    pub(super) fn sleep(&mut self, wake: &Condvar, deadline: Option<Instant>) -> bool {
        let core = self.0.as_mut().expect(DROPPED);
        match deadline {
            Some(deadline) => wake.wait_until(core, deadline).timed_out(),
            None => {
                wake.wait(core);
                false
            }
        }
    }
}

const DROPPED: &str = "taken on drop only";

impl Deref for HeldCore<'_> {
    type Target = Core;

    #[inline]
    fn deref(&self) -> &Core {
        self.0.as_ref().expect(DROPPED)
    }
}

impl DerefMut for HeldCore<'_> {
    #[inline]
    fn deref_mut(&mut self) -> &mut Core {
        self.0.as_mut().expect(DROPPED)
    }
}

impl Drop for HeldCore<'_> {
    #[inline]
    fn drop(&mut self) {
        let later = self.0.as_mut().and_then(|core| core.later.take());
        self.0 = None;
        if let Some(later) = later {
            later.run();
        }
    }
}

/// The lines for a moment, while nobody drives. Not to be dropped while core is held.
pub(crate) struct HeldLines<'a> {
    lines: Option<MutexGuard<'a, Lines>>,
    engine: &'a Engine,
}

impl<'a> HeldLines<'a> {
    pub(super) fn new(lines: MutexGuard<'a, Lines>, engine: &'a Engine) -> Self {
        Self {
            lines: Some(lines),
            engine,
        }
    }
}

impl Deref for HeldLines<'_> {
    type Target = Lines;

    fn deref(&self) -> &Lines {
        self.lines.as_ref().expect(DROPPED)
    }
}

impl DerefMut for HeldLines<'_> {
    fn deref_mut(&mut self) -> &mut Lines {
        self.lines.as_mut().expect(DROPPED)
    }
}

impl Drop for HeldLines<'_> {
    fn drop(&mut self) {
        let core = self.engine.core();
        self.lines = None;
        self.engine.hand_over(&core);
    }
}

/// The lines, taken from whoever drove; they go back to somebody when this is dropped.
pub(crate) struct ClaimedLines<'a> {
    // First, so that the claim is over when the lines are handed over.
    _claim: Claim<'a>,
    lines: HeldLines<'a>,
}

struct Claim<'a>(&'a Engine);

impl Drop for Claim<'_> {
    fn drop(&mut self) {
        self.0.claims.fetch_sub(1, Ordering::Release);
    }
}

impl<'a> ClaimedLines<'a> {
    pub(super) fn new(engine: &'a Engine) -> Self {
        // Release: partner of the acquire in `is_claimed`.
        engine.claims.fetch_add(1, Ordering::Release);
        let claim = Claim(engine);
        engine.doorbell.ring();
        Self {
            _claim: claim,
            lines: HeldLines::new(engine.lines.lock(), engine),
        }
    }
}

impl Deref for ClaimedLines<'_> {
    type Target = Lines;

    fn deref(&self) -> &Lines {
        &self.lines
    }
}

impl DerefMut for ClaimedLines<'_> {
    fn deref_mut(&mut self) -> &mut Lines {
        &mut self.lines
    }
}

/// Counts a waiter that wants the drive, for as long as it waits.
pub(super) struct Wanted<'a>(&'a Engine);

impl<'a> Wanted<'a> {
    pub(super) fn new(engine: &'a Engine) -> Self {
        // Release: partner of the acquire in `drive_in_background`.
        engine.wanted.fetch_add(1, Ordering::Release);
        if engine.lines.is_locked() {
            engine.doorbell.ring();
        }
        Self(engine)
    }
}

impl Drop for Wanted<'_> {
    /// First not wanted any more, then the hand-over: the background driver looks at both. Also after a mere sleep, which
    /// may have used up a hand-over that was meant to find a driver.
    fn drop(&mut self) {
        self.0.wanted.fetch_sub(1, Ordering::Release);
        self.0.hand_over(&self.0.core());
    }
}
