//! The one word of an entry on which uses and releases meet.
//!
//! ```text
//!  63            32 31  28 27        0
//! +----------------+------+-----------+
//! |   generation   | state|   pins    |
//! +----------------+------+-----------+
//!
//!             publish              revoke (no pins)            vacate
//!   Vacant ------------> Live ----------------------> Revoked ---------> Vacant, generation + 1
//!                         | \                          ^   \
//!                         |  \ retire (pins)           |    \ native free failed
//!                         |   `---------> Retired -----'     `---------> Leaked (for ever)
//!                         |                  |   last unpin
//!                         | lose             | lose
//!                         +------------------+-------> Lost ---- last unpin, vacate ---> Vacant
//! ```
//!
//! Laws:
//! - Only `Live` takes new pins. A pin of generation *g* keeps the word at generation *g*.
//! - The fields of an entry (owner, base, extent) change only while it is `Vacant`, under the
//!   ledger's lock; so whoever holds a pin reads them as they were published.
//! - `Revoked` and `Leaked` have no pins; `Retired` and `Lost` have the pins they began with, and
//!   fewer.
//! - Every transition but pin and unpin is made under the ledger's lock.

use crate::sync::{AtomicU64, Ordering};

/// What an entry is at the moment.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u64)]
pub(crate) enum State {
    /// Not in use; the generation is the one that the next use will have.
    Vacant,
    /// In use: the only state in which a handle is worth something.
    Live,
    /// Released, but some that began before still use it.
    Retired,
    /// Out of use; the native free is going on.
    Revoked,
    /// The native free failed or was interrupted. Terminal.
    Leaked,
    /// Its worker is gone, some still believe to use it.
    Lost,
}

const STATES: [State; 6] = [
    State::Vacant,
    State::Live,
    State::Retired,
    State::Revoked,
    State::Leaked,
    State::Lost,
];

const STATE_SHIFT: u32 = 28;
const GENERATION_SHIFT: u32 = 32;
/// How many pins an entry can have at a time.
pub(crate) const PINS_MAX: u32 = (1 << STATE_SHIFT) - 1;

/// One reading of the word.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Snapshot(u64);

impl Snapshot {
    #[inline]
    pub(crate) fn new(generation: u32, state: State, pins: u32) -> Self {
        debug_assert!(pins <= PINS_MAX);
        let generation = u64::from(generation) << GENERATION_SHIFT;
        Self(generation | ((state as u64) << STATE_SHIFT) | u64::from(pins))
    }

    #[inline]
    pub(crate) fn generation(self) -> u32 {
        (self.0 >> GENERATION_SHIFT) as u32
    }

    pub(crate) fn state(self) -> State {
        STATES[(self.0 >> STATE_SHIFT) as usize & 0xf]
    }

    #[inline]
    pub(crate) fn pins(self) -> u32 {
        self.0 as u32 & PINS_MAX
    }

    /// Whether this is a live entry of that generation.
    #[inline]
    pub(crate) fn is_live(self, generation: u32) -> bool {
        self.apart_from_live(generation) == 0
    }

    /// Zero if this is a live entry of that generation, whatever its pins.
    #[inline]
    pub(crate) fn apart_from_live(self, generation: u32) -> u64 {
        (self.0 ^ Self::new(generation, State::Live, 0).0) & !u64::from(PINS_MAX)
    }

    /// Whether one more use of it can begin.
    #[inline]
    pub(crate) fn takes_pins(self, generation: u32) -> bool {
        self.is_live(generation) && self.pins() < PINS_MAX
    }

    fn with_state(self, state: State) -> Self {
        Self::new(self.generation(), state, self.pins())
    }
}

/// The word itself.
#[derive(Debug)]
pub(crate) struct Word(AtomicU64);

impl Word {
    /// A vacant word of the first generation.
    pub(crate) fn new() -> Self {
        Self(AtomicU64::new(Snapshot::new(1, State::Vacant, 0).0))
    }

    /// Acquire: pairs with the Release of `publish`, so the fields read after it are published.
    #[inline]
    pub(crate) fn load(&self) -> Snapshot {
        Snapshot(self.0.load(Ordering::Acquire))
    }

    /// For the second look of an unpinned reader; its Acquire loads of the fields come before.
    #[inline]
    pub(crate) fn load_again(&self) -> Snapshot {
        Snapshot(self.0.load(Ordering::Relaxed))
    }

    /// One more user of a live entry of `generation`; false when it is none.
    #[inline]
    pub(crate) fn pin(&self, generation: u32) -> bool {
        let mut seen = Snapshot(self.0.load(Ordering::Relaxed));
        loop {
            if !seen.takes_pins(generation) {
                return false;
            }
            // Acquire: pairs with the Release of `publish`.
            match self.0.compare_exchange_weak(
                seen.0,
                seen.0 + 1,
                Ordering::Acquire,
                Ordering::Relaxed,
            ) {
                Ok(_) => return true,
                Err(now) => seen = Snapshot(now),
            }
        }
    }

    /// One user fewer. Returns what is left.
    #[inline]
    pub(crate) fn unpin(&self) -> Snapshot {
        // Release: what the user did comes before the Acquire of `change` that revokes or
        // vacates. Acquire: the last user may vacate the entry itself.
        let order = if cfg!(weaken = "unpin_relaxed") {
            Ordering::Relaxed
        } else {
            Ordering::AcqRel
        };
        let before = Snapshot(self.0.fetch_sub(1, order));
        debug_assert!(before.pins() > 0, "an unpin without a pin: {before:?}");
        Snapshot(before.0 - 1)
    }

    /// `Vacant` to `Live`: the fields written before are what every reader will see.
    pub(crate) fn publish(&self, generation: u32) {
        debug_assert_eq!(self.load().state(), State::Vacant);
        // Release: pairs with the Acquire of `load` and `pin`.
        self.0.store(
            Snapshot::new(generation, State::Live, 0).0,
            Ordering::Release,
        );
    }

    /// `Live` without pins to `Revoked`, or the reading that forbade it.
    pub(crate) fn revoke(&self, generation: u32) -> Result<(), Snapshot> {
        let idle = Snapshot::new(generation, State::Live, 0);
        self.change(|seen| (seen == idle).then(|| seen.with_state(State::Revoked)))
            .map(drop)
    }

    /// `Live` to `Revoked` if nobody uses it, else to `Retired`; returns which.
    pub(crate) fn retire(&self, generation: u32) -> Result<State, Snapshot> {
        let to = |seen: Snapshot| {
            if seen.pins() == 0 {
                State::Revoked
            } else {
                State::Retired
            }
        };
        self.change(|seen| seen.is_live(generation).then(|| seen.with_state(to(seen))))
            .map(Snapshot::state)
    }

    /// `Revoked` back to `Live`: only for a release of several, refused half-way before any
    /// native call.
    pub(crate) fn reinstate(&self) {
        let revoked = |seen: Snapshot| seen.state() == State::Revoked;
        let back = self.change(|seen| revoked(seen).then(|| seen.with_state(State::Live)));
        debug_assert!(back.is_ok());
    }

    /// `Retired` without pins to `Revoked`. False when another has done it.
    pub(crate) fn revoke_retired(&self, generation: u32) -> bool {
        let idle = Snapshot::new(generation, State::Retired, 0);
        self.change(|seen| (seen == idle).then(|| seen.with_state(State::Revoked)))
            .is_ok()
    }

    /// `Live` or `Retired` to `Lost`, with the pins as they are. Returns the new reading.
    pub(crate) fn lose(&self) -> Result<Snapshot, Snapshot> {
        let losable = |seen: Snapshot| matches!(seen.state(), State::Live | State::Retired);
        self.change(|seen| losable(seen).then(|| seen.with_state(State::Lost)))
    }

    /// `Revoked` to `Leaked`.
    pub(crate) fn leak(&self) {
        let revoked = |seen: Snapshot| seen.state() == State::Revoked;
        let leaked = self.change(|seen| revoked(seen).then(|| seen.with_state(State::Leaked)));
        debug_assert!(leaked.is_ok());
    }

    /// `Revoked`, or `Lost` without pins, to `Vacant` of the next generation. False when there
    /// is no next one, and the entry must never be used again; or when another has done it.
    pub(crate) fn vacate(&self, generation: u32) -> bool {
        let done = |seen: Snapshot| {
            let over = matches!(seen.state(), State::Revoked | State::Lost);
            let mine = seen.generation() == generation && seen.pins() == 0 && over;
            let next = generation.checked_add(1)?;
            mine.then(|| Snapshot::new(next, State::Vacant, 0))
        };
        self.change(done).is_ok()
    }

    /// A vacant word of `generation` moves on, unused: a name that was set aside is spent.
    pub(crate) fn skip(&self, generation: u32) -> bool {
        let vacant = Snapshot::new(generation, State::Vacant, 0);
        let next = generation
            .checked_add(1)
            .map(|next| Snapshot::new(next, State::Vacant, 0));
        self.change(|seen| if seen == vacant { next } else { None })
            .is_ok()
    }

    /// A vacant word jumps ahead to `generation`: a mirror follows the numbering of its original.
    pub(crate) fn advance(&self, generation: u32) -> Result<(), Snapshot> {
        let ahead = |seen: Snapshot| {
            let behind = seen.state() == State::Vacant && seen.generation() <= generation;
            behind.then(|| Snapshot::new(generation, State::Vacant, 0))
        };
        self.change(ahead).map(drop)
    }

    /// Changes the word as `step` says; returns the new reading, or the one that it declined.
    fn change(&self, step: impl Fn(Snapshot) -> Option<Snapshot>) -> Result<Snapshot, Snapshot> {
        let mut seen = Snapshot(self.0.load(Ordering::Relaxed));
        loop {
            let Some(next) = step(seen) else {
                return Err(seen);
            };
            // Acquire: pairs with the Release of `unpin`, so that a native free comes after all
            // uses. Release: a later `load` that sees this sees what led to it.
            let order = if cfg!(weaken = "change_relaxed") {
                Ordering::Relaxed
            } else {
                Ordering::AcqRel
            };
            match self
                .0
                .compare_exchange_weak(seen.0, next.0, order, Ordering::Relaxed)
            {
                Ok(_) => return Ok(next),
                Err(now) => seen = Snapshot(now),
            }
        }
    }
}

#[cfg(all(test, not(loom)))]
mod tests;
