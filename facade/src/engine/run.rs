//! The outcome of one run, shared by everybody who waits for it.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, OnceLock};
use std::task::Waker;

use lifecycle::OwnedLease;
use parking_lot::Mutex;
use tracing::Span;

use super::later::Laters;
use super::reclaim::Owed;
use crate::error::{Error, RunError};
use crate::run_graph::RunGraph;

/// What becomes of a run: nothing yet, or its one outcome for ever.
#[derive(Debug)]
pub(crate) struct RunCell {
    /// Empty where the run went well.
    failure: OnceLock<RunError>,
    /// Where somebody asked for it.
    graph: OnceLock<Arc<RunGraph>>,
    done: AtomicBool,
    open: Mutex<Open>,
    /// The requests by which the device memory goes that it was the last to use; none where it used none.
    owed: OnceLock<Arc<Owed>>,
}

/// What a run has until it is over.
#[derive(Debug, Default)]
struct Open {
    wakers: Vec<Waker>,
    /// Keeps the worker from being torn down under the run, whether or not somebody waits for it.
    lease: Option<OwnedLease<Error>>,
    span: Option<Span>,
}

impl RunCell {
    /// A run that goes on, shown by `span`. A lease is kept until it is over.
    pub(crate) fn new(span: &Span, lease: Option<OwnedLease<Error>>) -> Arc<Self> {
        let span = (!span.is_disabled()).then(|| span.clone());
        let wakers = Vec::new();
        Arc::new(Self {
            failure: OnceLock::new(),
            graph: OnceLock::new(),
            done: AtomicBool::new(false),
            open: Mutex::new(Open {
                wakers,
                lease,
                span,
            }),
            owed: OnceLock::new(),
        })
    }

    /// Where requests are entered that are owed to this run. Under core.
    pub(super) fn owed(&self) -> Arc<Owed> {
        Arc::clone(self.owed.get_or_init(Arc::default))
    }

    /// The requests that are owed to this run, when it is over; mostly none.
    pub(crate) fn given_back(&self) -> Option<&Owed> {
        self.owed.get().map(|owed| &**owed)
    }

    /// Whether the run is over. One load; for wait loops.
    #[inline]
    pub(crate) fn is_done(&self) -> bool {
        // Acquire: partner of the release in `finish`, so that a failure is seen.
        self.done.load(Ordering::Acquire)
    }

    /// The outcome of a run that is over.
    pub(crate) fn outcome(&self) -> Option<Result<(), RunError>> {
        let failure = self.is_done().then(|| self.failure.get().cloned())?;
        Some(failure.map_or(Ok(()), Err))
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

    /// Publishes the outcome. The first one stays. Who awaits it is woken later.
    pub(super) fn finish(&self, outcome: Result<(), RunError>, later: &mut Laters) {
        let open = {
            let mut open = self.open.lock();
            // Relaxed: written under this lock only.
            if self.done.load(Ordering::Relaxed) {
                return;
            }
            if let Err(failure) = outcome {
                // It is set once, under this lock.
                let _ = self.failure.set(failure);
            }
            self.done.store(true, Ordering::Release);
            std::mem::take(&mut *open)
        };
        open.wakers.into_iter().for_each(|waker| later.wake(waker));
        drop(open.lease);
        open.span.into_iter().for_each(|span| later.end(span));
    }

    /// Wakes `waker` when the run is over; false when it is over already.
    pub(crate) fn wake_when_done(&self, waker: &Waker) -> bool {
        // Cloned, compared and dropped outside of the lock, as far as that goes: a waker is code of the executor's.
        let waker = waker.clone();
        let mut open = self.open.lock();
        if self.done.load(Ordering::Relaxed) {
            return false;
        }
        if !open.wakers.iter().any(|known| known.will_wake(&waker)) {
            open.wakers.push(waker);
        }
        true
    }
}
