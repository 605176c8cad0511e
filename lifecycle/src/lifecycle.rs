//! [`Lifecycle`]: the admission word, and the slow half that starts and closes wait on.

use std::{fmt, sync::Arc, time::Instant};

use crate::{
    cancel::CancelToken,
    close::{Pinned, WaitingFor},
    held,
    start::StartError,
    state::{Closing, Snapshot, State},
    sync::{self, Condvar, Mutex, MutexGuard},
    word::Word,
};

/// Who may use a thing now, and when it may be torn down.
///
/// `C` is the cause of a failed start or teardown step, kept and handed to everybody who asks; where the real error
/// cannot be cloned, `Arc<Error>` can.
///
/// Share it by reference or in an `Arc`. Dropping it does nothing: what is not closed is not torn down.
pub struct Lifecycle<C> {
    pub(crate) word: Word,
    /// Tells this lifecycle's marks from others' in the threads' records.
    pub(crate) key: u64,
    slow: Mutex<Slow<C>>,
    changed: Condvar,
}

/// What is decided at most a few times in a life. Every move of the word but acquire and release is made under its lock.
pub(crate) struct Slow<C> {
    /// How the start ended; set once, by whichever comes first: commit, failure, abandonment, close.
    pub(crate) outcome: Option<Result<(), StartError<C>>>,
    /// Interrupts a start in progress.
    pub(crate) cancel: Option<CancelToken>,
    /// The newest close attempt.
    pub(crate) attempt: Option<Arc<Pinned<C>>>,
    /// How many attempts were claimed.
    pub(crate) attempts: u64,
}

impl<C> Lifecycle<C> {
    /// A lifecycle in [`State::New`].
    pub fn new() -> Self {
        let slow = Slow {
            outcome: None,
            cancel: None,
            attempt: None,
            attempts: 0,
        };
        Self {
            word: Word::new(),
            key: held::new_key(),
            slow: Mutex::new(slow),
            changed: Condvar::new(),
        }
    }

    /// Who is admitted now. Costs one load; by the time the caller looks, only `Closed` is certain to hold still.
    #[inline]
    pub fn state(&self) -> State {
        self.word.load().state()
    }

    /// How many leases are alive now.
    pub fn leases(&self) -> u64 {
        self.word.load().leases()
    }

    /// Whether a close has succeeded: nothing is alive and every teardown step has run.
    ///
    /// [`State::Closed`] alone says only that a close was claimed.
    pub fn is_torn_down(&self) -> bool {
        self.word.load().closing() == Closing::Done
    }

    pub(crate) fn lock(&self) -> MutexGuard<'_, Slow<C>> {
        sync::lock(&self.slow)
    }

    /// Waits until something has changed; `Err` when `deadline` has passed.
    pub(crate) fn wait<'g>(
        &self,
        slow: MutexGuard<'g, Slow<C>>,
        deadline: Option<Instant>,
    ) -> Result<MutexGuard<'g, Slow<C>>, MutexGuard<'g, Slow<C>>> {
        sync::wait(&self.changed, slow, deadline)
    }

    /// Wakes everybody who waits, to look again.
    pub(crate) fn notify(&self) {
        self.changed.notify_all();
    }

    /// What a close at position `now` has to wait for.
    pub(crate) fn waiting_for(&self, now: Snapshot) -> WaitingFor {
        match now.leases() {
            0 if now.is_start_alive() => WaitingFor::Start,
            0 => WaitingFor::Teardown,
            count => WaitingFor::Leases {
                count,
                holders: held::holders(self.key),
            },
        }
    }
}

impl<C> Default for Lifecycle<C> {
    fn default() -> Self {
        Self::new()
    }
}

impl<C> fmt::Debug for Lifecycle<C> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Lifecycle").field(&self.word.load()).finish()
    }
}
