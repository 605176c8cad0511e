//! The board beside a feed's pipe: what the reader asks for, and what the writers have told.
//!
//! ```text
//!  word  0  wanted   written by the reader alone
//!       16  told     records written or lost: raised by every writer, last of all
//!       17  lost     those that were lost
//! ```
//!
//! `told` is what publishes: whoever sees a count finds the records that it counts, in the pipe or among the
//! lost. It is only ever raised by an addition, so the second writer's count publishes what the first one
//! did as well.

use crate::sync::{OBSERVE, Ordering, PUBLISH};
use crate::words::Words;

const WANTED: usize = 0;
/// A pair of cache lines away, since writers change it.
const TOLD: usize = 16;
const LOST: usize = 17;
/// Words of a board.
pub(crate) const WORDS: usize = 18;

/// Partner: the load in [`Board::told`]. By itself, so that a model can show that it is needed here.
const TELL: Ordering = if cfg!(weaken = "told") {
    Ordering::Relaxed
} else {
    PUBLISH
};

/// The words of a board.
#[derive(Clone, Debug)]
pub(crate) struct Board(Words);

impl Board {
    /// A view of [`WORDS`] words.
    pub(crate) fn new(words: Words) -> Board {
        Board(words)
    }

    /// Says what is asked for.
    pub(crate) fn ask_for(&self, wanted: u64) {
        let word = &self.0.as_slice()[WANTED];
        // Relaxed: a hint that orders nothing. Loaded first, to leave the line in the writers' caches.
        if word.load(Ordering::Relaxed) != wanted {
            word.store(wanted, Ordering::Relaxed);
        }
    }

    /// What is asked for.
    #[inline]
    pub(crate) fn wanted(&self) -> u64 {
        // Relaxed: a hint, see `ask_for`.
        self.0.as_slice()[WANTED].load(Ordering::Relaxed)
    }

    /// Counts a record that is in the pipe.
    pub(crate) fn tell_sent(&self) {
        self.0.as_slice()[TOLD].fetch_add(1, TELL);
    }

    /// Counts a record that is lost.
    pub(crate) fn tell_lost(&self) {
        // Relaxed: published by the count that follows.
        self.0.as_slice()[LOST].fetch_add(1, Ordering::Relaxed);
        self.0.as_slice()[TOLD].fetch_add(1, TELL);
    }

    /// Records told of so far. Partner: the additions with [`TELL`].
    #[inline]
    pub(crate) fn told(&self) -> u64 {
        self.0.as_slice()[TOLD].load(OBSERVE)
    }

    /// Records lost so far: at least those that the last [`Board::told`] has counted.
    pub(crate) fn lost(&self) -> u64 {
        // Relaxed: ordered after the load in `told`.
        self.0.as_slice()[LOST].load(Ordering::Relaxed)
    }
}
