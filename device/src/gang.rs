//! Cores that run one block together: what each of them holds, and the barrier between them.
//!
//! A MIX block runs on one AIC and two AIV cores. What a core touches is recorded as a *loan*;
//! loans that overlap are refused, unless both only read. All loans end when the barrier opens:
//! after it, any core may take what another one wrote. So two cores that touch the same between two
//! barriers are told so, whatever their timing was.
//!
//! A core that ends never comes to a barrier again: whoever waits there, or comes later, gets an
//! error instead of waiting for ever.

use std::sync::{Condvar, Mutex, MutexGuard, PoisonError};

use smallvec::SmallVec;

use crate::error::KernelError;
use crate::kernel::Lane;

/// Bytes of host memory that a slice or a copy covers.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Loan {
    pub(crate) start: usize,
    pub(crate) end: usize,
    pub(crate) exclusive: bool,
}

impl Loan {
    fn conflicts(&self, other: &Loan) -> bool {
        let overlap = self.start < other.end && other.start < self.end;
        overlap && (self.exclusive || other.exclusive)
    }
}

/// The loans of a block.
#[derive(Debug, Default)]
pub(crate) struct Loans {
    slices: SmallVec<[(Lane, Loan); 4]>,
    /// Copies that are over for the lane that made them, and still keep the other lanes off.
    copies: Vec<(Lane, Loan)>,
}

impl Loans {
    /// Records a slice, unless it conflicts with another one.
    pub(crate) fn lend(&mut self, lane: Lane, loan: Loan) -> bool {
        let lent = self.permits(lane, loan);
        if lent {
            self.slices.push((lane, loan));
        }
        lent
    }

    /// Whether a slice or copy of this lane would conflict with nothing.
    pub(crate) fn permits(&self, lane: Lane, loan: Loan) -> bool {
        let by_slice = self.slices.iter().any(|(_, other)| other.conflicts(&loan));
        let others = self.copies.iter().filter(|(owner, _)| *owner != lane);
        !by_slice
            && !others
                .map(|(_, other)| other)
                .any(|other| other.conflicts(&loan))
    }

    pub(crate) fn clear(&mut self) {
        self.slices.clear();
        self.copies.clear();
    }
}

/// The cores of one block of a MIX task.
#[derive(Debug)]
pub(crate) struct Gang {
    state: Mutex<State>,
    changed: Condvar,
}

#[derive(Debug, Default)]
struct State {
    loans: Loans,
    /// How many wait at the barrier.
    arrived: usize,
    /// Counts the barriers that opened.
    generation: u64,
    /// The first core that ended.
    ended: Option<Lane>,
}

impl Gang {
    pub(crate) fn new() -> Self {
        Self {
            state: Mutex::default(),
            changed: Condvar::new(),
        }
    }

    pub(crate) fn lend(&self, lane: Lane, loan: Loan) -> bool {
        self.state().loans.lend(lane, loan)
    }

    /// Records that this lane copies: it keeps the other lanes off until the next barrier.
    pub(crate) fn lend_copy(&self, lane: Lane, loan: Loan) -> bool {
        let loans = &mut self.state().loans;
        let permitted = loans.permits(lane, loan);
        if permitted {
            loans.copies.push((lane, loan));
        }
        permitted
    }

    /// Waits for the other lanes; the last one ends all loans.
    pub(crate) fn sync(&self, lane: Lane) -> Result<(), KernelError> {
        let mut state = self.state();
        state.arrived += 1;
        if state.arrived == Lane::MIX.len() {
            state.arrived = 0;
            state.generation += 1;
            state.loans.clear();
            self.changed.notify_all();
            return Ok(());
        }
        let generation = state.generation;
        while state.generation == generation {
            if let Some(ended) = state.ended {
                state.arrived -= 1;
                return Err(KernelError::Gang { lane, ended });
            }
            state = self
                .changed
                .wait(state)
                .unwrap_or_else(PoisonError::into_inner);
        }
        Ok(())
    }

    /// This lane has ended and will come to no further barrier.
    pub(crate) fn end(&self, lane: Lane) {
        let mut state = self.state();
        state.ended.get_or_insert(lane);
        self.changed.notify_all();
    }

    /// The state; a panic of another lane leaves it whole, because no code of a kernel runs under
    /// the lock.
    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
