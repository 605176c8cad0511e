//! The life of a worker's tree: started whole or not at all, looked at, mended.

use std::cell::RefCell;
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::sync::Arc;
use std::time::{Duration, Instant};

use lifecycle::{Operation, Start, State};
use procfork::Origin;

use super::{Health, Worker};
use crate::config::{Config, NodeSpec};
use crate::ending;
use crate::error::{Error, StartCause, StartError, WorkerDied};
use crate::progress::{Board, StartProgress, Watcher};
use crate::start;
use crate::started::LOOK_PATIENCE;
use crate::tree::TreeNode;
use crate::tree_plan::{self, Plan};

static RESPAWN: Operation = Operation::new("start a dead worker again");

impl Worker {
    /// Starts the whole tree: afterwards every worker of it is ready, or an error tells the first cause and its place,
    /// and nothing is left of it.
    ///
    /// Called by several threads, one starts and all get the same outcome.
    ///
    /// # Errors
    ///
    /// [`Error::Start`]: a process could not be forked (for example because this one has other threads), a device could
    /// not be opened, a worker died, the limit passed, or a close came meanwhile. [`Error::State`] after a close.
    pub fn init(&self) -> Result<(), Error> {
        self.init_with(|_progress| {})
    }

    /// As [`Worker::init`], telling `observe` of each phase that a worker anywhere in the tree reaches, in the order of
    /// time: at most 20 ms after it was reached, and all of them before this returns.
    ///
    /// Called on this thread; not called where another thread has started the worker already. What is told is also in the
    /// log, as `tracing` events of level debug.
    ///
    /// ```no_run
    /// # fn main() -> Result<(), facade::Error> {
    /// let node = facade::Worker::node().chips(2).sub_workers(4).build()?;
    /// node.init_with(|progress| eprintln!("{progress}"))?;
    /// # node.close()
    /// # }
    /// ```
    ///
    /// # Errors
    ///
    /// As [`Worker::init`].
    pub fn init_with(&self, mut observe: impl FnMut(&StartProgress)) -> Result<(), Error> {
        let _span = tracing::info_span!("start", worker = %self.inner.path).entered();
        let limit = self.inner.spec.lock().limits.start;
        // Who waits for the outcome of another thread waits for its rollback, too.
        let patience = limit + self.inner.close_limit + ending::KILL_PATIENCE;
        match self.inner.life.start(Some(Instant::now() + patience)) {
            Start::Done(outcome) => outcome.map_err(|error| self.start_error(error, limit)),
            Start::Won(epoch) => self.build(epoch, limit, &mut observe),
        }
    }

    fn build(
        &self,
        epoch: lifecycle::Epoch<'_, Error>,
        limit: Duration,
        observe: &mut dyn FnMut(&StartProgress),
    ) -> Result<(), Error> {
        let deadline = Instant::now() + limit;
        let token = epoch.cancel_token();
        let cancelled = || token.is_cancelled();
        let built = AssertUnwindSafe(|| self.build_tree(deadline, limit, &cancelled, observe));
        let built = catch_unwind(built).unwrap_or_else(|payload| {
            // The observer's, or a subscriber's. Nothing of the tree stays behind it.
            self.roll_back(epoch.roll_back(&self.inner.journal, Some(self.cleanup_deadline())));
            resume_unwind(payload)
        });
        match built {
            Ok(()) => epoch.commit().map_err(|cancelled| {
                self.roll_back(
                    cancelled.roll_back(&self.inner.journal, Some(self.cleanup_deadline())),
                );
                self.start_error(lifecycle::StartError::Cancelled, limit)
            }),
            Err(error) => {
                self.roll_back(epoch.roll_back(&self.inner.journal, Some(self.cleanup_deadline())));
                let ended = epoch.fail(error);
                Err(self.start_error(ended, limit))
            }
        }
    }

    fn build_tree(
        &self,
        deadline: Instant,
        limit: Duration,
        cancelled: &dyn Fn() -> bool,
        observe: &mut dyn FnMut(&StartProgress),
    ) -> Result<(), Error> {
        let spec = self.inner.spec.lock().clone();
        spec.check_not_empty()?;
        // Only the winner of the start comes here, once.
        let _ = self.inner.home.set(Origin::here());
        let registry = Arc::new(self.inner.registry.lock().clone());
        let engine = self.engine()?;
        let table = engine.core().table().clone();
        let plan = Plan::new(&self.inner.path, &spec, registry, table);
        let board = self.board(&spec)?;
        let paths = tree_plan::all_paths(&self.inner.path, &spec);
        let watcher = Watcher::new(board.clone(), paths, observe);
        let start = start::Start {
            engine: &engine,
            plan,
            spec: &spec,
            deadline,
            limit,
            cancelled,
            board,
            watcher: Some(RefCell::new(watcher)),
        };
        let started = start.run(&self.inner.journal)?;
        let _ = self.inner.started.set(started);
        Ok(())
    }

    fn board(&self, spec: &NodeSpec) -> Result<Board, Error> {
        Board::create(spec.n_workers()).map_err(|error| {
            Error::from(StartError {
                worker: self.inner.path.to_string(),
                cause: StartCause::system(error),
            })
        })
    }

    fn roll_back(&self, outcome: Result<(), Vec<lifecycle::StepFailure<Error>>>) {
        match (outcome, self.inner.engine.get()) {
            (Ok(()), Some(engine)) => ending::forget_children(engine),
            (Ok(()), None) => {}
            (Err(left), _) => {
                tracing::error!(worker = %self.inner.path, ?left, "a failed start has left something for the close");
            }
        }
    }

    fn cleanup_deadline(&self) -> Instant {
        Instant::now() + self.inner.close_limit
    }

    fn start_error(&self, error: lifecycle::StartError<Error>, limit: Duration) -> Error {
        let cause = match error {
            lifecycle::StartError::Failed { cause } => return cause,
            lifecycle::StartError::Cancelled => StartCause::Cancelled,
            lifecycle::StartError::Abandoned => StartCause::Abandoned,
            lifecycle::StartError::Closed => return self.state_error("init", State::Closed).into(),
            lifecycle::StartError::Reentrant => {
                return self.state_error("init", State::Initializing).into();
            }
            _ => StartCause::Deadline {
                limit,
                waiting: Vec::new(),
            },
        };
        StartError {
            worker: self.inner.path.to_string(),
            cause,
        }
        .into()
    }

    /// What the tree is going to be, every default filled in; before and after `init`.
    #[must_use]
    pub fn config(&self) -> Config {
        Config::new(&self.inner.path, &self.inner.spec.lock())
    }

    /// What the started tree looks like, as every worker said of itself; workers that died meanwhile say how.
    ///
    /// A worker below that has children of its own is asked for them. One that is in a long task does not answer within 50 ms;
    /// what it said last stands for it then.
    ///
    /// # Errors
    ///
    /// [`Error::State`] before `init` has succeeded.
    pub fn tree(&self) -> Result<TreeNode, Error> {
        self.inner.need_home("show the tree")?;
        let started = self.started("show the tree")?;
        let state = self.state();
        let tree = match state {
            State::Ready => started.look(Instant::now() + LOOK_PATIENCE),
            _ => started.seen(),
        };
        Ok(TreeNode {
            state: format!("{state:?}").to_lowercase(),
            ..tree
        })
    }

    /// Whether the worker can be used, and who of its tree is dead.
    ///
    /// Asks the kernel for the end of every child, so an idle child's death is seen too; and workers below for theirs, as
    /// [`Worker::tree`] does.
    #[must_use]
    pub fn health(&self) -> Health {
        if !self.inner.is_home() {
            return Health::Copied;
        }
        match self.state() {
            State::New => Health::New,
            State::Initializing => Health::Starting,
            State::Failed => Health::Failed,
            State::Closed if self.inner.life.is_torn_down() => Health::Closed,
            State::Closed => Health::Closing,
            State::Ready => self.health_of_tree(),
        }
    }

    fn health_of_tree(&self) -> Health {
        let Some(started) = self.inner.started.get() else {
            return Health::Starting;
        };
        let tree = started.look(Instant::now() + LOOK_PATIENCE);
        let dead: Vec<WorkerDied> = tree.dead().into_iter().cloned().collect();
        match dead.is_empty() {
            true => Health::Ready,
            false => Health::Degraded { dead },
        }
    }

    /// Starts a dead worker again, by its path as [`Worker::tree`] and [`Health::Degraded`] name it; one further down is
    /// started by the worker above it, between two of its tasks.
    ///
    /// It has the callables as they are now, maps shared buffers again when tasks name them, and has no device memory: what it
    /// had is gone. A worker that did not come up is dead as before, and can be tried again.
    ///
    /// # Errors
    ///
    /// [`Error::Start`] when it did not come up within the start limit, [`Error::Alive`] when no dead worker has this path,
    /// [`Error::State`] unless this worker is ready.
    pub fn respawn(&self, path: &str) -> Result<(), Error> {
        let _lease = self.lease(&RESPAWN)?;
        let _turn = self.inner.changing.lock();
        let started = self.started(RESPAWN.name())?;
        let spec = self.inner.spec.lock().clone();
        let limit = spec.limits.start;
        started
            .respawn(path, &spec, Instant::now() + limit, limit)
            .map(drop)
    }
}
