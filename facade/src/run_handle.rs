//! A submitted run, to be waited for.

use std::future::Future;
use std::pin::Pin;
use std::sync::{Arc, Weak};
use std::task::{Context, Poll};
use std::time::{Duration, Instant};

use procfork::Origin;
use taskgraph::RunId;

use crate::activity;
use crate::engine::{Engine, RunCell};
use crate::error::Error;
use crate::run_graph::RunGraph;

/// A run whose graph is built. Its tasks go on whether or not somebody waits; dropping the handle detaches the run.
///
/// Waiting is repeatable, by any number of threads, and everybody gets the same outcome. It can also be awaited.
#[must_use = "a run can fail, which only a wait tells"]
pub struct RunHandle {
    engine: Arc<Engine>,
    cell: Arc<RunCell>,
    run: RunId,
    origin: Origin,
}

/// Cancels one run, from any thread: see [`RunHandle::cancel`]. Keeps neither the run nor its worker.
#[derive(Clone)]
pub struct RunCanceller {
    engine: Weak<Engine>,
    run: RunId,
}

impl std::fmt::Debug for RunHandle {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("RunHandle")
            .field("done", &self.is_done())
            .finish()
    }
}

impl RunHandle {
    pub(crate) fn new(engine: Arc<Engine>, cell: Arc<RunCell>, run: RunId) -> Self {
        Self {
            engine,
            cell,
            run,
            origin: Origin::here(),
        }
    }

    /// Cancels the run: tasks that were not sent to a worker are dropped, those that were go on to their end, and then the
    /// run is over. False when it is over already, and nothing has changed then.
    ///
    /// Waiters are told [`TaskCause::Cancelled`](crate::TaskCause::Cancelled) and how many tasks had completed and how many
    /// never started, unless a task has failed, which is the cause then. Where every task had completed or was running
    /// already there is nothing to tell: the run ends as it would have.
    ///
    /// A run behind others is over at once; those are not affected.
    pub fn cancel(&self) -> bool {
        self.origin.is_here() && cancel(&self.engine, self.run)
    }

    /// What cancels this run, to be given to another thread.
    #[must_use]
    pub fn canceller(&self) -> RunCanceller {
        RunCanceller::new(Arc::downgrade(&self.engine), self.run)
    }

    /// The graph of the run when it is over, where its orchestration asked to
    /// [keep it](crate::Orchestrator::keep_graph).
    #[must_use]
    pub fn graph(&self) -> Option<Arc<RunGraph>> {
        self.cell.graph()
    }

    /// Whether the run is over.
    #[must_use]
    pub fn is_done(&self) -> bool {
        self.cell.is_done()
    }

    /// Waits until the run is over; the calling thread drives it meanwhile.
    ///
    /// # Errors
    ///
    /// [`Error::Run`] with the first root cause.
    pub fn wait(&self) -> Result<(), Error> {
        self.need_home()?;
        let what = || "wait for a submitted run".to_owned();
        let _busy = activity::while_doing(self.engine.path(), None, what);
        self.engine.wait_until(None, &|| self.cell.is_done());
        let owed = self.cell.given_back();
        owed.into_iter()
            .for_each(|owed| self.engine.await_given_back(owed));
        self.outcome().unwrap_or(Ok(()))
    }

    /// Waits until the run is over, at most for `limit`. `None` says that it is not; waiting can be repeated.
    ///
    /// # Errors
    ///
    /// As [`RunHandle::wait`].
    pub fn wait_for(&self, limit: Duration) -> Option<Result<(), Error>> {
        if let Err(copied) = self.need_home() {
            return Some(Err(copied));
        }
        // A limit beyond all time is none.
        let deadline = Instant::now().checked_add(limit);
        self.engine.wait_until(deadline, &|| self.cell.is_done());
        self.outcome()
    }

    /// In a forked copy nobody would ever tell of an end.
    fn need_home(&self) -> Result<(), Error> {
        if self.origin.is_here() || self.is_done() {
            return Ok(());
        }
        Err(Error::Copied {
            operation: "wait for a run",
            worker: self.engine.path().to_string(),
        })
    }

    fn outcome(&self) -> Option<Result<(), Error>> {
        self.cell
            .outcome()
            .map(|outcome| outcome.map_err(Error::from))
    }
}

impl RunCanceller {
    pub(crate) fn new(engine: Weak<Engine>, run: RunId) -> Self {
        Self { engine, run }
    }

    /// Cancels the run; false when it is over already. As [`RunHandle::cancel`].
    pub fn cancel(&self) -> bool {
        let engine = self.engine.upgrade();
        engine.is_some_and(|engine| cancel(&engine, self.run))
    }
}

impl std::fmt::Debug for RunCanceller {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_tuple("RunCanceller").field(&self.run).finish()
    }
}

fn cancel(engine: &Engine, run: RunId) -> bool {
    engine.change(|core| core.cancel(run))
}

impl Future for RunHandle {
    type Output = Result<(), Error>;

    /// The background driver advances an awaited run.
    fn poll(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Self::Output> {
        self.need_home()?;
        if self.cell.wake_when_done(cx.waker()) {
            return Poll::Pending;
        }
        Poll::Ready(self.outcome().unwrap_or(Ok(())))
    }
}
