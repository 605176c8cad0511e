//! The journal: what must be released, in which order, and what is still left of it.
//!
//! A [`Step`] is pushed when a resource comes into being, and leaves when its release has *succeeded*; never before.
//! A run takes the steps last in, first out, runs each of them once, and goes on after a failure: errors accumulate, and
//! what failed or panicked stays for the next run.
//! A step that says it [uses](Step::using) an earlier one keeps that one from running while it is left itself: the
//! shared memory of a process that would not die stays mapped until it is dead.

use std::{
    any::Any,
    borrow::Cow,
    error::Error,
    fmt,
    panic::{self, AssertUnwindSafe},
    time::Instant,
};

use crate::{
    owner::{ThreadBound, WrongThread},
    sync::{self, Mutex},
    weaken,
};

#[cfg(all(test, not(loom)))]
mod tests;

/// The steps that are left, newest last. Shared by reference; each method locks for a moment, never while a step runs.
pub struct Journal<C>(Mutex<Entries<C>>);

/// How to release one thing.
pub struct Step<C> {
    name: Cow<'static, str>,
    uses: Vec<StepId>,
    work: Work<C>,
}

/// Names a step in its journal. Never used again for another one.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct StepId(u64);

/// A step that is left, and why.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct StepFailure<C> {
    /// The step's name.
    pub step: String,
    /// Why it is left.
    pub cause: StepCause<C>,
}

/// Why a step is left.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum StepCause<C> {
    /// It was not run: this later step uses it and is left too.
    HeldBack {
        /// The name of the later step.
        by: String,
    },
    /// It panicked with this message.
    Panicked {
        /// The payload, where it was text.
        message: String,
    },
    /// It said that it could not.
    Refused {
        /// The step's own error.
        cause: C,
    },
    /// It was not run: another thread is running it now.
    Running,
    /// It was not run: it belongs to another thread.
    WrongThread(WrongThread),
}

struct Entries<C> {
    next_id: u64,
    runs: u64,
    left: Vec<Entry<C>>,
}

struct Entry<C> {
    id: StepId,
    name: Cow<'static, str>,
    uses: Vec<StepId>,
    /// `None` while it runs.
    work: Option<Work<C>>,
    /// The number of the run that tried it last.
    tried: u64,
}

/// A release that says for itself why it could not.
type Work<C> = Box<dyn FnMut(Option<Instant>) -> Result<(), StepCause<C>> + Send>;

/// A step that was taken out to be run.
struct Taken<C> {
    id: StepId,
    name: Cow<'static, str>,
    work: Work<C>,
}

impl<C: 'static> Step<C> {
    /// A step that any thread may run.
    ///
    /// `release` gets the deadline of the run (`None`: no limit), and bounds its own waiting by it; it is called even when the
    /// deadline has passed, since most releases need no time.
    /// It is called until it succeeds once, so after an error or a panic it must be fit to be called again.
    pub fn new(
        name: impl Into<Cow<'static, str>>,
        mut release: impl FnMut(Option<Instant>) -> Result<(), C> + Send + 'static,
    ) -> Self {
        let work: Work<C> = Box::new(move |deadline| {
            release(deadline).map_err(|cause| StepCause::Refused { cause })
        });
        Self {
            name: name.into(),
            uses: Vec::new(),
            work,
        }
    }

    /// A step that only the calling thread may run; what it captures need not be `Send`.
    ///
    /// A run on another thread leaves it, as [`StepCause::WrongThread`].
    /// When its thread ends first, its captures are dropped there and the step can never run: [`Journal::forget`] it.
    pub fn here(
        name: impl Into<Cow<'static, str>>,
        release: impl FnMut(Option<Instant>) -> Result<(), C> + 'static,
    ) -> Self {
        let bound = ThreadBound::new(release);
        let work: Work<C> = Box::new(move |deadline| {
            let said = bound
                .with(|release| release(deadline))
                .map_err(StepCause::WrongThread)?;
            said.map_err(|cause| StepCause::Refused { cause })
        });
        Self {
            name: name.into(),
            uses: Vec::new(),
            work,
        }
    }

    /// Says that this step's resource needs that of `earlier`: while this one is left, that one is not released.
    #[must_use]
    pub fn using(mut self, earlier: StepId) -> Self {
        self.uses.push(earlier);
        self
    }
}

impl<C> Journal<C> {
    /// An empty journal.
    pub fn new() -> Self {
        Self(Mutex::new(Entries {
            next_id: 0,
            runs: 0,
            left: Vec::new(),
        }))
    }

    /// Adds a step. Push it as soon as its resource exists.
    pub fn push(&self, step: Step<C>) -> StepId {
        let mut entries = sync::lock(&self.0);
        let id = StepId(entries.next_id);
        entries.next_id += 1;
        let Step { name, uses, work } = step;
        entries.left.push(Entry {
            id,
            name,
            uses,
            work: Some(work),
            tried: 0,
        });
        id
    }

    /// Runs one step now, for a resource that is released before the rest.
    ///
    /// A step that has left already is no error: it was released.
    ///
    /// # Errors
    ///
    /// The step stays, for the reason given.
    pub fn release(&self, id: StepId, deadline: Option<Instant>) -> Result<(), StepFailure<C>> {
        let taken = sync::lock(&self.0).take(id); // Not in the match, which would hold the lock.
        match taken {
            None => Ok(()),
            Some(Err(failure)) => Err(failure),
            Some(Ok(taken)) => self.run(taken, deadline),
        }
    }

    /// Takes a step out without running it: its resource has gone another way. Returns whether it was there.
    ///
    /// A step that is running just now stays until that run has ended, and is not taken out.
    pub fn forget(&self, id: StepId) -> bool {
        let forgotten = sync::lock(&self.0).remove(id);
        forgotten.is_some() // Its captures are dropped after the lock.
    }

    /// The names of the steps that are left, in the order in which a run takes them.
    pub fn left(&self) -> Vec<String> {
        let entries = sync::lock(&self.0);
        entries
            .left
            .iter()
            .rev()
            .map(|entry| entry.name.clone().into_owned())
            .collect()
    }

    /// Runs everything that is left; the caller vouches that nothing is in use any more.
    pub(crate) fn run_all(&self, deadline: Option<Instant>) -> Result<(), Vec<StepFailure<C>>> {
        let run = sync::lock(&self.0).begin_run();
        let mut failures = Vec::new();
        loop {
            let next = sync::lock(&self.0).take_next(run); // Not in the match, which would hold the lock.
            match next {
                None if failures.is_empty() => return Ok(()),
                None => return Err(failures),
                Some(Err(failure)) => failures.push(failure),
                Some(Ok(taken)) => failures.extend(self.run(taken, deadline).err()),
            }
        }
    }

    /// Runs a step that was taken out, and puts it back unless it has succeeded.
    fn run(&self, mut taken: Taken<C>, deadline: Option<Instant>) -> Result<(), StepFailure<C>> {
        let cause = match panic::catch_unwind(AssertUnwindSafe(|| (taken.work)(deadline))) {
            Ok(Ok(())) => {
                let finished = sync::lock(&self.0).finish(taken.id);
                drop(finished);
                return Ok(());
            }
            Ok(Err(cause)) => cause,
            Err(payload) => StepCause::Panicked {
                message: message_of(&*payload),
            },
        };
        let Taken { id, name, work } = taken;
        sync::lock(&self.0).put_back(id, work);
        Err(StepFailure {
            step: name.into_owned(),
            cause,
        })
    }
}

impl<C> Entries<C> {
    fn begin_run(&mut self) -> u64 {
        self.runs += 1;
        self.runs
    }

    /// Takes the newest step that this run has not tried.
    fn take_next(&mut self, run: u64) -> Option<Result<Taken<C>, StepFailure<C>>> {
        let entry = self.left.iter_mut().rev().find(|entry| entry.tried < run)?;
        entry.tried = run;
        let id = entry.id;
        self.take(id)
    }

    /// Takes the work of a step out of its entry, which stays; `None` for a step that has left.
    fn take(&mut self, id: StepId) -> Option<Result<Taken<C>, StepFailure<C>>> {
        let user = self.left.iter().find(|entry| entry.uses.contains(&id));
        let held_back = user.map(|user| StepCause::HeldBack {
            by: user.name.clone().into_owned(),
        });
        let index = self.left.iter().position(|entry| entry.id == id)?;
        let entry = &mut self.left[index];
        let name = entry.name.clone();
        let refuse = |cause| {
            Some(Err(StepFailure {
                step: name.clone().into_owned(),
                cause,
            }))
        };
        if let Some(cause) = held_back {
            return refuse(cause);
        }
        let Some(work) = entry.work.take() else {
            return refuse(StepCause::Running);
        };
        if weaken::FORGET_EARLY {
            self.left.remove(index);
        }
        Some(Ok(Taken { id, name, work }))
    }

    fn put_back(&mut self, id: StepId, work: Work<C>) {
        if let Some(entry) = self.left.iter_mut().find(|entry| entry.id == id) {
            entry.work = Some(work);
        }
    }

    /// Removes a step that has succeeded.
    fn finish(&mut self, id: StepId) -> Option<Entry<C>> {
        let index = self.left.iter().position(|entry| entry.id == id)?;
        Some(self.left.remove(index))
    }

    /// Removes a step that is not running.
    fn remove(&mut self, id: StepId) -> Option<Entry<C>> {
        let index = self
            .left
            .iter()
            .position(|entry| entry.id == id && entry.work.is_some())?;
        Some(self.left.remove(index))
    }
}

fn message_of(payload: &(dyn Any + Send)) -> String {
    let text = payload
        .downcast_ref::<&str>()
        .map(|text| (*text).to_owned());
    let text = text.or_else(|| payload.downcast_ref::<String>().cloned());
    text.unwrap_or_else(|| "a payload that is not text".to_owned())
}

impl<C> Default for Journal<C> {
    fn default() -> Self {
        Self::new()
    }
}

impl<C> fmt::Debug for Journal<C> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Journal").field(&self.left()).finish()
    }
}

impl<C> fmt::Debug for Step<C> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Step")
            .field("name", &self.name)
            .field("uses", &self.uses)
            .finish()
    }
}

impl<C> fmt::Display for StepFailure<C> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "release `{}`: ", self.step)?;
        match &self.cause {
            StepCause::HeldBack { by } => {
                write!(f, "held back while `{by}` is left, which uses it")
            }
            StepCause::Panicked { message } => write!(f, "its step panicked: {message}"),
            StepCause::Refused { .. } => f.write_str("its step has failed"),
            StepCause::Running => f.write_str("another thread is releasing it now"),
            StepCause::WrongThread(wrong) => write!(f, "{wrong}"),
        }
    }
}

impl<C: Error + 'static> Error for StepFailure<C> {
    fn source(&self) -> Option<&(dyn Error + 'static)> {
        match &self.cause {
            StepCause::Refused { cause } => Some(cause),
            _ => None,
        }
    }
}
