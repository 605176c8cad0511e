//! The cores of a simulated chip: the handshake of each, and the scheduler thread that it belongs to.
//!
//! A *cluster* is one AIC core with its two AIV cores. Scheduler threads share the clusters evenly, and
//! a core talks to its own scheduler thread only, through its handshake:
//!
//! ```text
//!            give                    answer                     take
//!   Free ------------> Given ---------------------> Answered ----------> Free
//!        the scheduler       the core has executed            the scheduler
//!        thread hands        the block; a core that           thread has seen it
//!        a block over        hangs stays here
//! ```
//!
//! A MIX block needs a cluster whose three cores are free, and holds all three until it has ended. So a
//! core executes one block at a time, whatever shapes are in flight.
//!
//! Cores are taken in turn, not lowest first: work is spread as on a chip, where every core polls for
//! itself.

use crate::kernel::CoreType;
use crate::platform::CoreCounts;

/// Where the handshake of a core stands.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Hand {
    Free,
    Given,
    Answered,
}

/// All cores of a chip.
#[derive(Debug)]
pub(crate) struct Cores {
    aic: Vec<Hand>,
    aiv: Vec<Hand>,
    /// The core of each shape that is tried first.
    next: [usize; 3],
    schedulers: usize,
}

impl Cores {
    /// Free cores, shared by so many scheduler threads (at least one, at most one per cluster).
    pub(crate) fn new(counts: CoreCounts, schedulers: usize) -> Self {
        let (aic, aiv) = (counts.aic.into(), counts.aiv.into());
        Self {
            aic: vec![Hand::Free; aic],
            aiv: vec![Hand::Free; aiv],
            next: [0; 3],
            schedulers: schedulers.clamp(1, aic),
        }
    }

    /// A new run begins: all cores are free, and the first ones come first.
    pub(crate) fn reset(&mut self) {
        self.aic.fill(Hand::Free);
        self.aiv.fill(Hand::Free);
        self.next = [0; 3];
    }

    /// Gives a block to the next free core of a shape; its number, or `None` while there is none.
    pub(crate) fn give(&mut self, shape: CoreType) -> Option<u16> {
        let count = self.count(shape);
        let first = self.next[shape as usize];
        let in_turn = (first..count).chain(0..first);
        let found = in_turn.into_iter().find(|idx| self.is_free(shape, *idx))?;
        self.next[shape as usize] = (found + 1) % count;
        self.step(shape, found, Hand::Free, Hand::Given);
        Some(found as u16)
    }

    /// The core has executed its block.
    pub(crate) fn answer(&mut self, shape: CoreType, idx: u16) {
        self.step(shape, idx.into(), Hand::Given, Hand::Answered);
    }

    /// The scheduler thread has seen the answer.
    pub(crate) fn take(&mut self, shape: CoreType, idx: u16) {
        self.step(shape, idx.into(), Hand::Answered, Hand::Free);
    }

    /// The scheduler thread of a core.
    pub(crate) fn scheduler(&self, shape: CoreType, idx: u16) -> u16 {
        let cluster = match shape {
            CoreType::Aiv => usize::from(idx) / 2,
            CoreType::Aic | CoreType::Mix => idx.into(),
        };
        (cluster * self.schedulers / self.aic.len()) as u16
    }

    /// How many scheduler threads there are.
    pub(crate) fn schedulers(&self) -> u16 {
        self.schedulers as u16
    }

    fn count(&self, shape: CoreType) -> usize {
        match shape {
            CoreType::Aiv => self.aiv.len(),
            CoreType::Aic | CoreType::Mix => self.aic.len(),
        }
    }

    fn is_free(&self, shape: CoreType, idx: usize) -> bool {
        let vectors = || self.aiv[2 * idx..2 * idx + 2].iter();
        match shape {
            CoreType::Aic => self.aic[idx] == Hand::Free,
            CoreType::Aiv => self.aiv[idx] == Hand::Free,
            CoreType::Mix => {
                self.aic[idx] == Hand::Free && vectors().all(|hand| *hand == Hand::Free)
            }
        }
    }

    /// Moves the handshakes of what a block runs on.
    fn step(&mut self, shape: CoreType, idx: usize, from: Hand, to: Hand) {
        let one = |hand: &mut Hand| {
            assert_eq!(*hand, from, "{shape} core {idx}");
            *hand = to;
        };
        match shape {
            CoreType::Aic => one(&mut self.aic[idx]),
            CoreType::Aiv => one(&mut self.aiv[idx]),
            CoreType::Mix => {
                one(&mut self.aic[idx]);
                self.aiv[2 * idx..2 * idx + 2].iter_mut().for_each(one);
            }
        }
    }
}

#[cfg(test)]
mod tests;
