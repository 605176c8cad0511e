//! Guards: who holds the lines without driving, and who wants to drive.
//!
//! Whoever finds the lines taken sleeps under core. So whoever lets go of them does it under core, and hands over to a
//! sleeper: a guard that drops the lines in another way loses a wake-up.

use std::ops::{Deref, DerefMut};
use std::sync::atomic::Ordering;
use std::task::Waker;

use parking_lot::MutexGuard;

use super::{Core, Engine, Lines};

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
        self.lines.as_ref().expect("taken on drop only")
    }
}

impl DerefMut for HeldLines<'_> {
    fn deref_mut(&mut self) -> &mut Lines {
        self.lines.as_mut().expect("taken on drop only")
    }
}

impl Drop for HeldLines<'_> {
    fn drop(&mut self) {
        let core = self.engine.core.lock();
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
        self.0.hand_over(&self.0.core.lock());
    }
}

impl Engine {
    /// Lets go of core, then wakes who awaits a run that is over: a waker is the user's code, and may come back here.
    pub(super) fn let_go(&self, mut core: MutexGuard<'_, Core>) {
        let wakers = std::mem::take(&mut core.wakers);
        drop(core);
        wakers.into_iter().for_each(Waker::wake);
    }
}
