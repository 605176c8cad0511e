//! Teardown that is bound to a thread: run there, refused elsewhere with both names.

use std::{
    any::Any,
    cell::RefCell,
    collections::HashMap,
    error::Error,
    fmt,
    marker::PhantomData,
    thread::{self, ThreadId},
};

use crate::{
    held,
    sync::{Ordering, unmodelled::AtomicU64},
};

/// Names the thread that something belongs to.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Owner {
    id: ThreadId,
    name: String,
}

/// This thread may not do it; only its owner may.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct WrongThread {
    /// The thread that it belongs to.
    pub owner: Owner,
    /// The thread that tried.
    pub here: Owner,
}

/// A value that stays on the thread that made it, behind a handle that goes anywhere.
///
/// The value need not be `Send`: it lies in its thread's storage, and only [`with`](Self::with) on that thread reaches it.
/// Dropping the handle on its thread drops the value; dropping it elsewhere leaves the value until that thread ends.
#[derive(Debug)]
pub struct ThreadBound<T: 'static> {
    owner: Owner,
    id: u64,
    _value: PhantomData<fn(T) -> T>,
}

static NEXT_ID: AtomicU64 = AtomicU64::new(0);

std::thread_local! {
    /// The bound values of this thread; a value is out while `with` uses it.
    static VALUES: RefCell<HashMap<u64, Box<dyn Any>>> = RefCell::default();
}

impl Owner {
    /// The calling thread.
    pub fn here() -> Self {
        Self {
            id: thread::current().id(),
            name: held::this_thread(),
        }
    }

    /// Whether the calling thread is the owner.
    ///
    /// # Errors
    ///
    /// [`WrongThread`] if it is another one.
    pub fn check(&self) -> Result<(), WrongThread> {
        if thread::current().id() == self.id {
            return Ok(());
        }
        Err(WrongThread {
            owner: self.clone(),
            here: Self::here(),
        })
    }
}

impl<T: 'static> ThreadBound<T> {
    /// Binds `value` to the calling thread.
    pub fn new(value: T) -> Self {
        let id = NEXT_ID.fetch_add(1, Ordering::Relaxed);
        VALUES.with_borrow_mut(|values| values.insert(id, Box::new(value)));
        Self {
            owner: Owner::here(),
            id,
            _value: PhantomData,
        }
    }

    /// The thread it is bound to.
    pub fn owner(&self) -> &Owner {
        &self.owner
    }

    /// Gives the value to `work` on its own thread.
    ///
    /// # Errors
    ///
    /// [`WrongThread`] on every other thread; `work` is not called.
    ///
    /// # Panics
    ///
    /// When `work` asks for the same value again, or the thread's storage is being destroyed.
    pub fn with<R>(&self, work: impl FnOnce(&mut T) -> R) -> Result<R, WrongThread> {
        self.owner.check()?;
        let taken = VALUES.with_borrow_mut(|values| values.remove(&self.id));
        let mut lent = Lent {
            id: self.id,
            value: taken,
        };
        let value = lent
            .value
            .as_mut()
            .and_then(|value| value.downcast_mut::<T>());
        Ok(work(
            value.expect("a bound value is not used inside of its own use"),
        ))
    }
}

/// A value that is out of the table; it goes back even when its use panics.
struct Lent {
    id: u64,
    value: Option<Box<dyn Any>>,
}

impl Drop for Lent {
    fn drop(&mut self) {
        if let Some(value) = self.value.take() {
            VALUES.with_borrow_mut(|values| values.insert(self.id, value));
        }
    }
}

impl<T: 'static> Drop for ThreadBound<T> {
    fn drop(&mut self) {
        if self.owner.check().is_ok() {
            let value = VALUES.try_with(|values| values.borrow_mut().remove(&self.id));
            drop(value); // Outside of the borrow: dropping it may bind or drop other values.
        }
    }
}

impl fmt::Display for Owner {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "`{}` ({:?})", self.name, self.id)
    }
}

impl fmt::Display for WrongThread {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { owner, here } = self;
        write!(
            f,
            "touch what belongs to thread {owner} from thread {here}; do it on its own thread"
        )
    }
}

impl Error for WrongThread {}
