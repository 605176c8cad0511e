//! Starting: one caller wins the epoch and builds; everybody else gets the same outcome.

use std::{error::Error, fmt, marker::PhantomData, time::Instant};

use crate::{
    cancel::CancelToken,
    held::{self, Kind, Mark, OnThisThread},
    journal::{Journal, StepFailure},
    lifecycle::{Lifecycle, Slow},
    operation::Operation,
    state::{Event, State},
    sync::MutexGuard,
    weaken,
};

/// The name under which a thread is inside a start.
static START: Operation = Operation::new("start");

/// What [`Lifecycle::start`] gives.
#[derive(Debug)]
pub enum Start<'a, C> {
    /// This caller builds, and must end the epoch.
    Won(Epoch<'a, C>),
    /// Somebody else has built, or has tried: the one outcome that everybody gets.
    Done(Result<(), StartError<C>>),
}

/// The right and the duty to build what the lifecycle guards.
///
/// End it with [`commit`](Self::commit) or [`fail`](Self::fail). Dropping it, in a panic too, abandons the start: the
/// lifecycle is Failed.
/// It stays on its thread, so that a close from inside the start can be refused.
///
/// ```compile_fail,E0277
/// fn moves_to_threads<T: Send>() {}
/// moves_to_threads::<lifecycle::Epoch<'static, std::fmt::Error>>();
/// ```
#[must_use = "dropping it abandons the start"]
pub struct Epoch<'a, C> {
    lifecycle: &'a Lifecycle<C>,
    token: CancelToken,
    live: bool,
    _inside: Mark,
    _here: OnThisThread,
}

/// A close came before the commit: Ready was not and will not be published.
///
/// The close waits until this value is dropped, so undo first what the start has built, or leave it to the journal.
#[must_use = "the close waits until this is dropped"]
pub struct Cancelled<'a, C>(Epoch<'a, C>);

/// How a start ended that did not reach Ready.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum StartError<C> {
    /// The starter left without a result: it returned early or panicked.
    Abandoned,
    /// A close was claimed during the start.
    Cancelled,
    /// A close was claimed before this call.
    Closed,
    /// The starter gave this cause.
    Failed {
        /// The first cause, the same for everybody.
        cause: C,
    },
    /// This thread is inside the start that it asks for; waiting would be waiting for itself.
    Reentrant,
    /// The start still goes on, but this caller's own deadline has passed.
    StillStarting,
}

impl<C: Clone> Lifecycle<C> {
    /// Begins the start, or waits for the one that has begun, at the latest until `deadline` (`None`: for ever).
    ///
    /// There is one start in a life. Callers that come later get its outcome at once.
    /// The deadline bounds the waiting only; the winner's own work is the winner's to bound.
    pub fn start(&self, deadline: Option<Instant>) -> Start<'_, C> {
        let mut slow = self.lock();
        if self.word.apply(Event::Start).is_err() {
            return Start::Done(self.outcome(slow, deadline));
        }
        let token = CancelToken::new();
        slow.cancel = Some(token.clone());
        drop(slow);
        let inside = held::mark(self.key, Kind::Inside, &START);
        Start::Won(Epoch {
            lifecycle: self,
            token,
            live: true,
            _inside: inside,
            _here: PhantomData,
        })
    }

    fn outcome(
        &self,
        mut slow: MutexGuard<'_, Slow<C>>,
        deadline: Option<Instant>,
    ) -> Result<(), StartError<C>> {
        if self.state() == State::Closed {
            return Err(StartError::Closed);
        }
        if self.state() == State::Initializing && held::inside(self.key).is_some() {
            return Err(StartError::Reentrant);
        }
        loop {
            if let Some(outcome) = &slow.outcome {
                return outcome.clone();
            }
            slow = self
                .wait(slow, deadline)
                .map_err(|_| StartError::StillStarting)?;
        }
    }
}

impl<C> Lifecycle<C> {
    /// Ends the start with `outcome`, unless a close has decided it before.
    fn end_start(&self, outcome: StartError<C>) -> MutexGuard<'_, Slow<C>> {
        let mut slow = self.lock();
        slow.outcome.get_or_insert(Err(outcome));
        slow.cancel = None;
        let ended = self.word.apply(Event::EndStart);
        debug_assert!(ended.is_ok(), "a live epoch can always end");
        self.notify();
        slow
    }
}

impl<'a, C> Epoch<'a, C> {
    /// Publishes Ready, unless a close was claimed since the start began; both are one decision on one word.
    ///
    /// # Errors
    ///
    /// [`Cancelled`], which still holds the epoch: the close goes on once it is dropped.
    pub fn commit(mut self) -> Result<(), Cancelled<'a, C>> {
        let mut slow = self.lifecycle.lock();
        if self.lifecycle.word.apply(Event::Commit).is_err() {
            drop(slow);
            return Err(Cancelled(self));
        }
        slow.outcome = Some(Ok(()));
        slow.cancel = None;
        if !weaken::COMMIT_SILENTLY {
            self.lifecycle.notify();
        }
        self.live = false;
        Ok(())
    }

    /// Ends the start as Failed with its first cause, and returns the error that every caller of `start` gets.
    ///
    /// That is [`StartError::Cancelled`] if a close was claimed before: then the cancellation was first.
    pub fn fail(mut self, cause: C) -> StartError<C>
    where
        C: Clone,
    {
        self.live = false;
        let slow = self.lifecycle.end_start(StartError::Failed { cause });
        match &slow.outcome {
            Some(Err(error)) => error.clone(),
            _ => StartError::Cancelled,
        }
    }

    /// Whether a close was claimed: the rest of the start is in vain.
    pub fn is_cancelled(&self) -> bool {
        self.lifecycle.state() == State::Closed
    }

    /// A token to hand to threads, probes and waits of this start, so that a close interrupts them.
    pub fn cancel_token(&self) -> CancelToken {
        self.token.clone()
    }

    /// Undoes what the start has journalled so far, last in, first out; see [`Journal`].
    ///
    /// Safe here as it is in a close: before Ready, nobody holds a lease.
    /// What fails stays in the journal, for the close.
    ///
    /// # Errors
    ///
    /// The steps that are left, with what each of them said.
    pub fn roll_back(
        &self,
        journal: &Journal<C>,
        deadline: Option<Instant>,
    ) -> Result<(), Vec<StepFailure<C>>> {
        journal.run_all(deadline)
    }
}

impl<C> Cancelled<'_, C> {
    /// See [`Epoch::roll_back`].
    ///
    /// # Errors
    ///
    /// The steps that are left, with what each of them said.
    pub fn roll_back(
        &self,
        journal: &Journal<C>,
        deadline: Option<Instant>,
    ) -> Result<(), Vec<StepFailure<C>>> {
        self.0.roll_back(journal, deadline)
    }
}

impl<C> Drop for Epoch<'_, C> {
    fn drop(&mut self) {
        if self.live {
            drop(self.lifecycle.end_start(StartError::Abandoned));
        }
    }
}

/// Ends the epoch: the close that has cancelled it goes on.
impl<C> From<Cancelled<'_, C>> for StartError<C> {
    fn from(_: Cancelled<'_, C>) -> Self {
        Self::Cancelled
    }
}

impl<C> fmt::Debug for Epoch<'_, C> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Epoch").field(self.lifecycle).finish()
    }
}

impl<C> fmt::Debug for Cancelled<'_, C> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Cancelled").field(&self.0).finish()
    }
}

impl<C> fmt::Display for Cancelled<'_, C> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        StartError::<C>::Cancelled.fmt(f)
    }
}

impl<C> Error for Cancelled<'_, C> {}

impl<C> fmt::Display for StartError<C> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Abandoned => {
                "start: the starter left without a result, by a panic or an early return; \
                 close this and make a new one"
            }
            Self::Cancelled => "start: a close was claimed before it was complete; make a new one",
            Self::Closed => "start: closed for good; make a new one",
            Self::Failed { .. } => "start: a step of it has failed; close this and make a new one",
            Self::Reentrant => {
                "start: this thread is inside that start and would wait for itself; \
                 return from it first"
            }
            Self::StillStarting => {
                "wait for the start: it goes on, but the caller's deadline has passed; \
                 wait longer, or close to cancel it"
            }
        })
    }
}

impl<C: Error + 'static> Error for StartError<C> {
    fn source(&self) -> Option<&(dyn Error + 'static)> {
        match self {
            Self::Failed { cause } => Some(cause),
            _ => None,
        }
    }
}
