//! The outcome of one run, shared by everybody who waits for it.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, OnceLock};
use std::task::Waker;

use lifecycle::OwnedLease;
use parking_lot::Mutex;
use tracing::Span;

use super::reclaim::Owed;
use crate::error::{Error, RunError};
use crate::run_graph::RunGraph;

/// What becomes of a run: nothing yet, or its one outcome for ever.
#[derive(Debug)]
pub(crate) struct RunCell {
    outcome: OnceLock<Result<(), RunError>>,
    /// Where somebody asked for it.
    graph: OnceLock<Arc<RunGraph>>,
    done: AtomicBool,
    wakers: Mutex<Vec<Waker>>,
    /// Keeps the worker from being torn down under the run, whether or not somebody waits for it.
    lease: Mutex<Option<OwnedLease<Error>>>,
    /// Open until the run is over.
    span: Mutex<Span>,
    /// The requests by which the device memory goes that it was the last to use.
    owed: Arc<Owed>,
}

impl RunCell {
    /// A run that goes on, shown by `span`.
    pub(crate) fn new(span: Span) -> Self {
        Self {
            outcome: OnceLock::new(),
            graph: OnceLock::new(),
            done: AtomicBool::new(false),
            wakers: Mutex::default(),
            lease: Mutex::default(),
            span: Mutex::new(span),
            owed: Arc::default(),
        }
    }

    /// What happens while its graph is built is inside of it.
    pub(crate) fn span(&self) -> Span {
        self.span.lock().clone()
    }

    pub(crate) fn owed(&self) -> Arc<Owed> {
        Arc::clone(&self.owed)
    }

    /// Whether the run is over. One load; for wait loops.
    pub(crate) fn is_done(&self) -> bool {
        // Acquire: partner of the release in `finish`, so that the outcome is seen.
        self.done.load(Ordering::Acquire)
    }

    pub(crate) fn outcome(&self) -> Option<Result<(), RunError>> {
        self.outcome.get().cloned()
    }

    /// The graph of a run that is over, where it was kept.
    pub(crate) fn graph(&self) -> Option<Arc<RunGraph>> {
        self.graph.get().cloned()
    }

    /// Before the run is over.
    pub(crate) fn keep_graph(&self, graph: RunGraph) {
        // A run ends once, so there is none before.
        let _ = self.graph.set(Arc::new(graph));
    }

    /// Keeps a lease until the run is over.
    pub(crate) fn keep(&self, lease: OwnedLease<Error>) {
        *self.lease.lock() = Some(lease);
    }

    /// Publishes the outcome; who is to be woken now. The first outcome stays.
    #[must_use]
    pub(crate) fn finish(&self, outcome: Result<(), RunError>) -> Vec<Waker> {
        // An error only says that there was an outcome before.
        let _ = self.outcome.set(outcome);
        let wakers = {
            let mut wakers = self.wakers.lock();
            self.done.store(true, Ordering::Release);
            std::mem::take(&mut *wakers)
        };
        drop(self.lease.lock().take());
        *self.span.lock() = Span::none();
        wakers
    }

    /// Wakes `waker` when the run is over; false when it is over already.
    pub(crate) fn wake_when_done(&self, waker: &Waker) -> bool {
        let mut wakers = self.wakers.lock();
        if self.done.load(Ordering::Relaxed) {
            return false;
        }
        if !wakers.iter().any(|known| known.will_wake(waker)) {
            wakers.push(waker.clone());
        }
        true
    }
}
