//! The admission word: one atomic that holds a [`Snapshot`] and moves it by [`Snapshot::step`].
//!
//! Orderings, and who pairs with whom:
//!
//! | move | ordering | pairs with | so that |
//! | --- | --- | --- | --- |
//! | `Commit` | release | `Acquire` | an admitted operation sees all that the start has built |
//! | `Acquire` | acquire | `Commit` | (the other half) |
//! | `Release` | release | `Teardown` | a teardown step sees all that the operations did |
//! | `EndStart` | release | `Teardown` | a teardown step sees all that a cancelled start did |
//! | `Teardown` | acquire | `Release`, `EndStart` | (the other half) |
//!
//! Every move is a read-modify-write, so each continues the release sequences of the moves before it:
//! `Teardown` synchronises with *every* earlier `Release`, not only with the last one.
//! The remaining moves happen under the lifecycle's lock and need no more than atomicity.

use crate::{
    state::{Event, Snapshot, Step},
    sync::{AtomicU64, Ordering},
    weaken,
};

/// The shared word.
#[derive(Debug)]
pub(crate) struct Word(AtomicU64);

impl Word {
    /// A word at [`Snapshot::NEW`].
    pub(crate) fn new() -> Self {
        Self(AtomicU64::new(Snapshot::NEW.bits()))
    }

    /// The position now.
    #[inline]
    pub(crate) fn load(&self) -> Snapshot {
        // Acquire: pairs with the release of Commit, for callers that look at the state and then at
        // what the start has built.
        Snapshot::from_bits(self.0.load(Ordering::Acquire))
    }

    /// Moves by `event` and returns the new position, or the position that refused it.
    ///
    /// # Panics
    ///
    /// When the table says [`Step::Never`]: a token was used after its end, which the types rule out.
    #[inline]
    pub(crate) fn apply(&self, event: Event) -> Result<Snapshot, Snapshot> {
        // Relaxed: only a guess for the exchange below, which carries the ordering.
        let mut bits = self.0.load(Ordering::Relaxed);
        if let Some(next) = self.apply_weakened(event, bits) {
            return Ok(next);
        }
        loop {
            let now = Snapshot::from_bits(bits);
            let next = match now.step(event) {
                Step::To(next) => next,
                Step::Refused => return Err(now),
                Step::Never => never(event, now),
            };
            match self.0.compare_exchange_weak(
                bits,
                next.bits(),
                ordering_of(event),
                Ordering::Relaxed, // A failed guess is looked at again, never acted on.
            ) {
                Ok(_) => return Ok(next),
                Err(found) => bits = found,
            }
        }
    }

    /// The faults of [`weaken`] that act without deciding, or decide before they act; nothing in a normal build.
    #[inline]
    fn apply_weakened(&self, event: Event, bits: u64) -> Option<Snapshot> {
        let now = match event {
            Event::Acquire if weaken::ADMIT_IN_TWO_STEPS => Snapshot::from_bits(bits),
            Event::Commit if weaken::COMMIT_BLINDLY => Snapshot::INITIALIZING,
            _ => return None,
        };
        let Step::To(next) = now.step(event) else {
            return None;
        };
        if event == Event::Commit {
            self.0.store(next.bits(), Ordering::SeqCst);
        } else {
            self.0.fetch_add(next.bits() - bits, Ordering::SeqCst);
        }
        Some(next)
    }
}

/// The table of the module's documentation.
#[inline]
fn ordering_of(event: Event) -> Ordering {
    match event {
        Event::Acquire => weaken::ADMIT,
        Event::Release => weaken::RELEASE,
        Event::Commit => weaken::COMMIT,
        Event::Teardown => weaken::TEARDOWN,
        _ => Ordering::AcqRel,
    }
}

#[cold]
#[inline(never)]
fn never(event: Event, now: Snapshot) -> ! {
    panic!("lifecycle token used after its end: {event:?} at {now:?}")
}
