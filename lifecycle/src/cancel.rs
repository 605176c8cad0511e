//! Telling a start that it must stop: a flag, a wait and hooks that interrupt whatever it blocks in.

use std::{
    fmt,
    panic::{self, AssertUnwindSafe},
    sync::Arc,
    time::Instant,
};

use crate::{
    sync::{self, AtomicBool, Condvar, Mutex, Ordering},
    weaken,
};

/// Says whether a close has cancelled the start that this token came from.
///
/// Clones are the same token; hand them to the threads and probes that a start waits in.
#[derive(Clone)]
pub struct CancelToken(Arc<Shared>);

struct Shared {
    cancelled: AtomicBool,
    hooks: Mutex<Hooks>,
    changed: Condvar,
}

/// What to run when the cancellation comes.
#[derive(Default)]
struct Hooks {
    next_id: u64,
    waiting: Vec<(u64, Box<dyn FnOnce() + Send>)>,
}

/// A registered hook; dropping it takes the hook back, unless it is running or has run.
#[must_use = "dropping it takes the hook back"]
pub struct CancelHook {
    token: CancelToken,
    id: u64,
}

impl CancelToken {
    pub(crate) fn new() -> Self {
        Self(Arc::new(Shared {
            cancelled: AtomicBool::new(false),
            hooks: Mutex::new(Hooks::default()),
            changed: Condvar::new(),
        }))
    }

    /// Whether the start was cancelled. Costs one load; once true it stays true.
    pub fn is_cancelled(&self) -> bool {
        // Acquire: pairs with the release in `cancel`, so that the state is seen as Closed too.
        self.0.cancelled.load(Ordering::Acquire)
    }

    /// Blocks until the start is cancelled, at the latest until `deadline`; `None` waits for ever.
    ///
    /// Returns whether it was cancelled.
    pub fn wait(&self, deadline: Option<Instant>) -> bool {
        let mut hooks = sync::lock(&self.0.hooks);
        while !self.is_cancelled() {
            match sync::wait(&self.0.changed, hooks, deadline) {
                Ok(guard) => hooks = guard,
                Err(_) => return false,
            }
        }
        true
    }

    /// Runs `wake` once when the cancellation comes, or at once if it has come already.
    ///
    /// For a start that blocks outside of this crate: the hook writes to the descriptor or rings the bell that it waits for.
    /// It runs on the closing thread, before the close begins to wait, so it must be short and must not block.
    pub fn on_cancel(&self, wake: impl FnOnce() + Send + 'static) -> CancelHook {
        let mut hooks = sync::lock(&self.0.hooks);
        let id = hooks.next_id;
        hooks.next_id += 1;
        if self.is_cancelled() {
            drop(hooks);
            wake();
        } else {
            hooks.waiting.push((id, Box::new(wake)));
        }
        CancelHook {
            token: self.clone(),
            id,
        }
    }

    /// Sets the flag, wakes the waiters and runs the hooks.
    pub(crate) fn cancel(&self) {
        if weaken::CANCEL_WITHOUT_LOCK {
            self.0.cancelled.store(true, Ordering::Release);
            self.0.changed.notify_all();
        }
        let mut hooks = sync::lock(&self.0.hooks);
        // Release: pairs with the acquire in `is_cancelled`.
        // Under the lock: a waiter has either seen the flag or is inside its wait, where the notification reaches it.
        self.0.cancelled.store(true, Ordering::Release);
        let due = std::mem::take(&mut hooks.waiting);
        if !weaken::CANCEL_WITHOUT_LOCK {
            self.0.changed.notify_all();
        }
        drop(hooks);
        run_all(due.into_iter().map(|(_, wake)| wake));
    }
}

/// Runs every hook, and only then goes on with the panic of the first that panicked.
fn run_all(hooks: impl Iterator<Item = Box<dyn FnOnce() + Send>>) {
    let run = |hook: Box<dyn FnOnce() + Send>| panic::catch_unwind(AssertUnwindSafe(hook)).err();
    let panics: Vec<_> = hooks.filter_map(run).collect();
    if let Some(first) = panics.into_iter().next() {
        panic::resume_unwind(first);
    }
}

impl Drop for CancelHook {
    fn drop(&mut self) {
        let mut hooks = sync::lock(&self.token.0.hooks);
        let index = hooks.waiting.iter().position(|(id, _)| *id == self.id);
        let removed = index.map(|index| hooks.waiting.swap_remove(index));
        drop(hooks);
        drop(removed); // Its captures are dropped outside of the lock.
    }
}

impl fmt::Debug for CancelToken {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("CancelToken")
            .field("is_cancelled", &self.is_cancelled())
            .finish()
    }
}

impl fmt::Debug for CancelHook {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("CancelHook")
            .field("id", &self.id)
            .finish_non_exhaustive()
    }
}
