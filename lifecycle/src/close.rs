//! Closing: a commitment that is claimed once, driven by attempts, and never taken back.
//!
//! 1. *Claim.* Publishes Closed, cancels a start in progress. Admission is over for good.
//! 2. *Drain.* Waits until no lease and no start is alive, within one budget.
//! 3. *Teardown.* Runs the journal. Everything is released, or what is left stays for the next attempt.
//!
//! One thread drives an attempt; whoever closes meanwhile is pinned to *that* attempt and gets its verdict.
//! An attempt that ends without success is incomplete, and the next close drives a new one from step 2.

use std::{
    error::Error,
    fmt,
    marker::PhantomData,
    sync::{Arc, OnceLock},
    time::Instant,
};

use crate::{
    held::{self, Holder, Kind, Mark, OnThisThread},
    journal::{Journal, StepFailure},
    lifecycle::{Lifecycle, Slow},
    operation::Operation,
    start::StartError,
    state::{Closing, Event, Snapshot},
    sync::MutexGuard,
    weaken,
};

/// The name under which a thread is inside a close.
static CLOSE: Operation = Operation::new("close");

/// What [`Lifecycle::claim`] gives.
#[derive(Debug)]
#[must_use = "a claim is a duty: drive it, or wait for who does"]
pub enum Claim<'a, C> {
    /// This caller drives a new attempt.
    Drive(Attempt<'a, C>),
    /// Somebody else drives; this caller gets the verdict of that attempt and no other.
    Join(Joined<'a, C>),
    /// A close has succeeded before; nothing is left to do.
    Done,
}

/// A close attempt that waits for what is still alive. Dropping it gives the attempt up, and a later close drives on.
#[must_use = "dropping it gives the attempt up"]
#[derive(Debug)]
pub struct Attempt<'a, C>(Driving<'a, C>);

/// Proof that no lease and no start is alive, nor ever will be. Dropping it gives the attempt up.
#[must_use = "dropping it gives the attempt up"]
#[derive(Debug)]
pub struct Drained<'a, C>(Driving<'a, C>);

/// A closer that waits for somebody else's attempt.
#[must_use = "it does nothing unless it waits"]
#[derive(Debug)]
pub struct Joined<'a, C> {
    lifecycle: &'a Lifecycle<C>,
    pinned: Arc<Pinned<C>>,
}

/// Why a close has not succeeded. The state is Closed all the same, and a later close drives on.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum CloseError<C> {
    /// The thread that drove the attempt left without a verdict: it panicked or dropped the attempt.
    Abandoned {
        /// The number of the attempt, from one.
        attempt: u64,
    },
    /// The budget is used up.
    Incomplete {
        /// The number of the attempt, from one.
        attempt: u64,
        /// What it still waits for.
        waiting_for: WaitingFor,
    },
    /// This thread is inside the lifecycle that it wants to close; waiting would be waiting for itself.
    ///
    /// Nothing has changed: the close was not claimed.
    Reentrant {
        /// The operation that the thread is inside of.
        inside: &'static str,
    },
    /// Everything has ended, but not everything could be released.
    Teardown {
        /// The number of the attempt, from one.
        attempt: u64,
        /// The steps that are left, in the order in which they were tried.
        failures: Arc<[StepFailure<C>]>,
    },
}

/// What an incomplete close waits for.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum WaitingFor {
    /// Operations that were admitted and have not ended.
    Leases {
        /// How many.
        count: u64,
        /// Their names, as far as they were known at that instant.
        holders: Vec<Holder>,
    },
    /// The start that was cancelled and has not ended.
    Start,
    /// Another closer's teardown steps.
    Teardown,
}

/// One attempt, as those who joined it see it.
#[derive(Debug)]
pub(crate) struct Pinned<C> {
    number: u64,
    verdict: OnceLock<Result<(), CloseError<C>>>,
}

/// The driver's side of an attempt; ends it as abandoned unless it was settled.
struct Driving<'a, C> {
    lifecycle: &'a Lifecycle<C>,
    pinned: Arc<Pinned<C>>,
    _inside: Mark,
    _here: OnThisThread,
}

impl<C: Clone> Lifecycle<C> {
    /// Closes: claims, drains until `deadline` (`None`: however long it takes), and runs `journal`.
    ///
    /// From the first call on the state is Closed. Concurrent calls join the attempt at work and get the same verdict, or
    /// [`CloseError::Incomplete`] when their own deadline passes first.
    /// After a success, further calls return `Ok` at once.
    ///
    /// The deadline bounds the waiting for leases and for a cancelled start, and is handed to every step; steps bound themselves.
    ///
    /// # Errors
    ///
    /// See [`CloseError`].
    pub fn close(
        &self,
        deadline: Option<Instant>,
        journal: &Journal<C>,
    ) -> Result<(), CloseError<C>> {
        match self.claim()? {
            Claim::Done => Ok(()),
            Claim::Drive(attempt) => attempt.drain(deadline)?.tear_down(journal, deadline),
            Claim::Join(joined) => joined.wait(deadline),
        }
    }

    /// Only claims: for a closer that does something of its own between the steps.
    ///
    /// # Errors
    ///
    /// [`CloseError::Reentrant`], before anything has changed.
    pub fn claim(&self) -> Result<Claim<'_, C>, CloseError<C>> {
        if let Some(inside) = held::inside(self.key) {
            return Err(CloseError::Reentrant { inside });
        }
        let slow = self.lock();
        let current = slow.attempt.clone();
        match (self.word.apply(Event::Claim), current) {
            (Ok(now), _) => Ok(Claim::Drive(self.begin_attempt(slow, now))),
            (Err(now), Some(pinned)) if now.closing() != Closing::Done => {
                if weaken::CLAIM_TWICE {
                    return Ok(Claim::Drive(self.begin_attempt(slow, now)));
                }
                Ok(Claim::Join(Joined {
                    lifecycle: self,
                    pinned,
                }))
            }
            (Err(_), _) => Ok(Claim::Done),
        }
    }

    fn begin_attempt<'a>(
        &'a self,
        mut slow: MutexGuard<'a, Slow<C>>,
        now: Snapshot,
    ) -> Attempt<'a, C> {
        slow.attempts += 1;
        let pinned = Arc::new(Pinned {
            number: slow.attempts,
            verdict: OnceLock::new(),
        });
        slow.attempt = Some(Arc::clone(&pinned));
        if now.is_start_alive() {
            slow.outcome.get_or_insert(Err(StartError::Cancelled));
        }
        let starter = slow.cancel.take();
        self.notify(); // Those who wait for the start have an outcome now.
        drop(slow);
        let inside = held::mark(self.key, Kind::Inside, &CLOSE);
        let driving = Driving {
            lifecycle: self,
            pinned,
            _inside: inside,
            _here: PhantomData,
        };
        // Last, so that a hook that panics finds an attempt that ends as abandoned.
        if let Some(starter) = starter {
            starter.cancel();
        }
        Attempt(driving)
    }
}

impl<'a, C> Attempt<'a, C> {
    /// The number of this attempt, from one.
    pub fn number(&self) -> u64 {
        self.0.pinned.number
    }

    /// Waits until no lease and no start is alive, at the latest until `deadline` (`None`: for ever).
    ///
    /// # Errors
    ///
    /// [`CloseError::Incomplete`]: the attempt is over, everybody who joined it gets this error, and a later close drives on.
    pub fn drain(self, deadline: Option<Instant>) -> Result<Drained<'a, C>, CloseError<C>>
    where
        C: Clone,
    {
        let Self(driving) = self;
        let lifecycle = driving.lifecycle;
        let mut slow = lifecycle.lock();
        while let Err(now) = lifecycle.word.apply(Event::Teardown) {
            match lifecycle.wait(slow, deadline) {
                Ok(guard) => slow = guard,
                Err(guard) => {
                    let waiting_for = lifecycle.waiting_for(now);
                    let error = CloseError::Incomplete {
                        attempt: driving.pinned.number,
                        waiting_for,
                    };
                    driving.settle(guard, Event::Suspend, Err(error.clone()));
                    return Err(error);
                }
            }
        }
        drop(slow);
        Ok(Drained(driving))
    }
}

impl<C> Drained<'_, C> {
    /// Runs every step of `journal`, last in, first out, and ends the attempt.
    ///
    /// # Errors
    ///
    /// [`CloseError::Teardown`] with what is left; a later close tries that again, and only that.
    pub fn tear_down(
        self,
        journal: &Journal<C>,
        deadline: Option<Instant>,
    ) -> Result<(), CloseError<C>>
    where
        C: Clone,
    {
        let Self(driving) = self;
        let attempt = driving.pinned.number;
        let verdict = journal
            .run_all(deadline)
            .map_err(|failures| CloseError::Teardown {
                attempt,
                failures: failures.into(),
            });
        let event = if verdict.is_ok() {
            Event::Finish
        } else {
            Event::Suspend
        };
        driving.settle(driving.lifecycle.lock(), event, verdict.clone());
        verdict
    }
}

impl<C> Driving<'_, C> {
    /// Ends the attempt with its one verdict.
    fn settle(
        &self,
        slow: MutexGuard<'_, Slow<C>>,
        event: Event,
        verdict: Result<(), CloseError<C>>,
    ) {
        let first = self.pinned.verdict.set(verdict).is_ok();
        debug_assert!(first, "an attempt is settled once");
        let ended = self.lifecycle.word.apply(event);
        debug_assert!(ended.is_ok(), "the driving attempt can always end");
        self.lifecycle.notify();
        drop(slow);
    }
}

impl<C> Drop for Driving<'_, C> {
    fn drop(&mut self) {
        if self.pinned.verdict.get().is_none() && !weaken::NO_VERDICT_ON_UNWIND {
            let abandoned = CloseError::Abandoned {
                attempt: self.pinned.number,
            };
            self.settle(self.lifecycle.lock(), Event::Suspend, Err(abandoned));
        }
    }
}

impl<C: Clone> Joined<'_, C> {
    /// The number of the attempt that this closer is pinned to, from one.
    pub fn number(&self) -> u64 {
        self.pinned.number
    }

    /// Waits for the verdict of the attempt, at the latest until `deadline` (`None`: for ever).
    ///
    /// # Errors
    ///
    /// The attempt's own error, or [`CloseError::Incomplete`] when `deadline` passes before there is one.
    pub fn wait(self, deadline: Option<Instant>) -> Result<(), CloseError<C>> {
        let mut slow = self.lifecycle.lock();
        loop {
            if let Some(verdict) = self.attempt(&slow).verdict.get() {
                return verdict.clone();
            }
            slow = self
                .lifecycle
                .wait(slow, deadline)
                .map_err(|_| self.out_of_time())?;
        }
    }

    fn attempt(&self, slow: &Slow<C>) -> Arc<Pinned<C>> {
        match &slow.attempt {
            Some(latest) if weaken::JOIN_LATEST => Arc::clone(latest),
            _ => Arc::clone(&self.pinned),
        }
    }

    fn out_of_time(&self) -> CloseError<C> {
        let waiting_for = self.lifecycle.waiting_for(self.lifecycle.word.load());
        CloseError::Incomplete {
            attempt: self.pinned.number,
            waiting_for,
        }
    }
}

impl<C> fmt::Debug for Driving<'_, C> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Driving")
            .field("attempt", &self.pinned.number)
            .finish_non_exhaustive()
    }
}

impl<C> fmt::Display for CloseError<C> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Abandoned { attempt } => write!(
                f,
                "close: the thread that drove attempt {attempt} left without a verdict; \
                 close again to drive on"
            ),
            Self::Incomplete {
                attempt,
                waiting_for,
            } => write!(
                f,
                "close within its budget: attempt {attempt} still waits for {waiting_for}; \
                 close again to drive on"
            ),
            Self::Reentrant { inside } => write!(
                f,
                "close: this thread is inside `{inside}` and would wait for itself; \
                 return from it first, or close from another thread"
            ),
            Self::Teardown { attempt, failures } => {
                write!(
                    f,
                    "close: attempt {attempt} could not release {} step(s)",
                    failures.len()
                )?;
                failures
                    .iter()
                    .try_for_each(|failure| write!(f, "; {failure}"))?;
                f.write_str("; close again to try these again")
            }
        }
    }
}

impl<C: Error + 'static> Error for CloseError<C> {
    fn source(&self) -> Option<&(dyn Error + 'static)> {
        match self {
            Self::Teardown { failures, .. } => failures.iter().find_map(Error::source),
            _ => None,
        }
    }
}

impl fmt::Display for WaitingFor {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Leases { count, holders } => {
                write!(f, "{count} lease(s)")?;
                holders
                    .iter()
                    .try_for_each(|holder| write!(f, ", {holder}"))
            }
            Self::Start => f.write_str("the start that it has cancelled"),
            Self::Teardown => f.write_str("teardown steps that another thread runs"),
        }
    }
}
