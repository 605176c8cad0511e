//! Leases: an operation is admitted, works, and leaves; the close waits for it.

use std::{error::Error, fmt, marker::PhantomData, sync::Arc};

use crate::{
    held::{self, Kind, Mark, OnThisThread},
    lifecycle::Lifecycle,
    operation::Operation,
    state::{Event, State},
    weaken,
};

/// An admitted operation of one thread. While it lives, no teardown step runs.
///
/// It stays on the thread that took it, so that a close from that thread can be refused instead of waiting for itself.
/// For an operation that outlives a call or changes threads, take an [`OwnedLease`].
///
/// ```compile_fail,E0277
/// fn moves_to_threads<T: Send>() {}
/// moves_to_threads::<lifecycle::Lease<'static, std::fmt::Error>>();
/// ```
#[must_use = "dropping it ends the operation"]
pub struct Lease<'a, C> {
    mark: Option<Mark>,
    lifecycle: &'a Lifecycle<C>,
    _here: OnThisThread,
}

/// An admitted operation that belongs to no thread: it can be stored, sent, and dropped anywhere.
///
/// Its holder is not "inside": a close on the holder's thread waits for the lease within its budget, like any other close.
/// Code that does the operation's work on some thread says so with [`enter`](Self::enter); a close from in there is refused.
#[must_use = "dropping it ends the operation"]
pub struct OwnedLease<C> {
    mark: Option<Mark>,
    lifecycle: Arc<Lifecycle<C>>,
}

/// While it lives, its thread is inside the operation of an [`OwnedLease`].
#[must_use = "dropping it leaves the operation"]
pub struct Entered<'a> {
    _mark: Option<Mark>,
    _lease: PhantomData<&'a ()>,
    _here: OnThisThread,
}

/// The operation was not admitted, because the state is not Ready.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Refused {
    /// The operation that asked.
    pub operation: &'static str,
    /// The state that refused it.
    pub state: State,
}

impl<C> Lifecycle<C> {
    /// Admits `operation`, or refuses at once unless the state is [`State::Ready`]. Never waits.
    ///
    /// Costs one atomic read-modify-write, and another one when the lease is dropped; takes no lock.
    ///
    /// # Errors
    ///
    /// [`Refused`] with the state found.
    #[inline]
    pub fn lease(&self, operation: &Operation) -> Result<Lease<'_, C>, Refused> {
        let mark = self.admit(Kind::Lease, operation)?;
        Ok(Lease {
            mark: Some(mark),
            lifecycle: self,
            _here: PhantomData,
        })
    }

    /// Like [`lease`](Self::lease), for an operation that outlives the borrow or changes threads.
    ///
    /// Costs the reference count of the `Arc` in addition.
    ///
    /// # Errors
    ///
    /// [`Refused`] with the state found.
    #[inline]
    pub fn lease_owned(self: &Arc<Self>, operation: &Operation) -> Result<OwnedLease<C>, Refused> {
        let mark = self.admit(Kind::Owned, operation)?;
        Ok(OwnedLease {
            mark: Some(mark),
            lifecycle: Arc::clone(self),
        })
    }

    #[inline]
    fn admit(&self, kind: Kind, operation: &Operation) -> Result<Mark, Refused> {
        match self.word.apply(Event::Acquire) {
            Ok(_) => Ok(held::mark(self.key, kind, operation)),
            Err(now) => Err(Refused {
                operation: operation.name(),
                state: now.state(),
            }),
        }
    }

    /// Ends one admitted operation. The mark goes first: what is named is admitted.
    #[inline]
    fn dismiss(&self, mark: &mut Option<Mark>) {
        drop(mark.take());
        let Ok(now) = self.word.apply(Event::Release) else {
            return;
        };
        if now.state() == State::Closed && now.leases() == 0 {
            self.wake_drain();
        }
    }

    /// The last lease is gone and a close may wait for that.
    ///
    /// Under the lock: the drain has either seen the zero or is inside its wait, where the notification reaches it.
    #[cold]
    fn wake_drain(&self) {
        let guard = (!weaken::WAKE_WITHOUT_LOCK).then(|| self.lock());
        self.notify();
        drop(guard);
    }
}

impl<C> OwnedLease<C> {
    /// Says that this thread works for the operation until the guard is dropped.
    ///
    /// A close on this thread is then refused as [`Reentrant`](crate::CloseError::Reentrant), instead of waiting for itself.
    pub fn enter(&self) -> Entered<'_> {
        Entered {
            _mark: self.mark.as_ref().map(Mark::enter),
            _lease: PhantomData,
            _here: PhantomData,
        }
    }

    /// The lifecycle that admitted it.
    pub fn lifecycle(&self) -> &Arc<Lifecycle<C>> {
        &self.lifecycle
    }
}

impl<C> Drop for Lease<'_, C> {
    #[inline]
    fn drop(&mut self) {
        self.lifecycle.dismiss(&mut self.mark);
    }
}

impl<C> Drop for OwnedLease<C> {
    #[inline]
    fn drop(&mut self) {
        self.lifecycle.dismiss(&mut self.mark);
    }
}

impl<C> fmt::Debug for Lease<'_, C> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Lease").field(self.lifecycle).finish()
    }
}

impl<C> fmt::Debug for OwnedLease<C> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("OwnedLease").field(&self.lifecycle).finish()
    }
}

impl fmt::Debug for Entered<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Entered")
    }
}

impl fmt::Display for Refused {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (found, advice) = match self.state {
            State::New => ("not started yet", "start it first"),
            State::Initializing => ("still starting", "wait for its start to end"),
            State::Ready => ("ready by now", "ask again"),
            State::Failed => (
                "its start has failed",
                "see the start's error, close it, make a new one",
            ),
            State::Closed => ("closed for good", "make a new one"),
        };
        write!(
            f,
            "admit `{}`: {found} (state {}); {advice}",
            self.operation, self.state
        )
    }
}

impl Error for Refused {}
