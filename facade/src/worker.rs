//! The worker: registers callables, starts its tree, runs graphs, closes.

mod life;
mod registration;
mod watch;

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::{Arc, OnceLock};
use std::time::{Duration, Instant};

use lifecycle::{Journal, Lifecycle, Operation, State};
use parking_lot::Mutex;
use procfork::Origin;

use crate::activity;
use crate::buffer::Buffer;
use crate::callable::Registry;
use crate::config::{Level, NodeSpec, WorkerBuilder};
use crate::control::panic_message;
use crate::element::Element;
use crate::ending::{self, Ending};
use crate::engine::Engine;
use crate::error::{
    CloseError, Error, Name, RunError, StartError, StateError, TaskCause, WorkerDied,
};
use crate::orchestrator::{Orchestrator, byte_size};
use crate::run_handle::RunHandle;
use crate::started::Started;
use crate::tree_plan::Plan;

static RUN: Operation = Operation::new("run");
static CREATE_BUFFER: Operation = Operation::new("create a buffer");
pub(crate) static MEMORY: Operation = Operation::new("use device memory");

/// What [`Worker::health`] finds.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub enum Health {
    /// `init` has not been called.
    New,
    /// `init` goes on.
    Starting,
    /// Every worker below is alive.
    Ready,
    /// Some are dead; operations on the others go on.
    Degraded {
        /// Who, and how they ended.
        dead: Vec<WorkerDied>,
    },
    /// `init` failed; nothing of the tree is left.
    Failed,
    /// A close has begun and not finished.
    Closing,
    /// This process is a forked copy of the one that started the tree; nothing of it is here.
    Copied,
    /// Nothing is left.
    Closed,
}

/// How long `Drop` of an unclosed worker may take.
const DROP_BUDGET: Duration = Duration::from_secs(2);

/// One engine at one level of a tree, with its children.
///
/// Use it from any number of threads. Close it: a worker that is dropped unclosed closes within two seconds and says
/// so in the log.
///
/// ```text
/// build -> New -- init --> Ready -- close --> Closed
///                   '--> Failed -- close -->'
/// ```
///
/// # Fork or spawn
///
/// A small process with one thread forks its children; a large one, or one with several threads, starts its own program
/// again for each of them, which needs callables that captured nothing ([`StartMode`](crate::StartMode)).
/// Otherwise `init` refuses, and names the threads and the callables.
pub struct Worker {
    inner: Arc<Inner>,
}

pub(crate) struct Inner {
    spec: Mutex<NodeSpec>,
    path: Name,
    close_limit: Duration,
    life: Arc<Lifecycle<Error>>,
    /// The process that starts the tree, or has started it.
    home: OnceLock<Origin>,
    journal: Journal<Error>,
    registry: Mutex<Registry>,
    /// Held while the callables of the started tree change, or a worker of it is started again.
    changing: Mutex<()>,
    engine: OnceLock<Arc<Engine>>,
    started: OnceLock<Started>,
}

impl std::fmt::Debug for Worker {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Worker")
            .field("path", &self.inner.path)
            .field("state", &self.state())
            .finish()
    }
}

impl Worker {
    /// Begins the specification of a worker.
    pub fn node() -> WorkerBuilder {
        WorkerBuilder::new()
    }

    pub(crate) fn new(spec: NodeSpec) -> Self {
        let inner = Inner {
            path: Name::from(spec.own_name()),
            close_limit: spec.limits.close,
            life: Arc::new(Lifecycle::new()),
            home: OnceLock::new(),
            journal: Journal::new(),
            registry: Mutex::new(Registry::new(crate::incarnation::draw())),
            changing: Mutex::default(),
            engine: OnceLock::new(),
            started: OnceLock::new(),
            spec: Mutex::new(spec),
        };
        Self {
            inner: Arc::new(inner),
        }
    }

    /// The level in the tree; a label.
    #[must_use]
    pub fn level(&self) -> Level {
        self.inner
            .spec
            .lock()
            .level()
            .expect("a checked specification has a level")
    }

    /// The name, which is the head of every path below.
    #[must_use]
    pub fn name(&self) -> &str {
        &self.inner.path
    }

    /// Whether it can be used now.
    #[must_use]
    pub fn state(&self) -> State {
        self.inner.life.state()
    }

    /// Adds a worker below this one, with a subtree of its own. Before [`Worker::init`]. Returns its next-level index.
    ///
    /// # Errors
    ///
    /// [`Error::Config`] where the tree would be wrong with it, and then it is as it was; [`Error::State`] after `init`.
    pub fn add_worker(&self, child: WorkerBuilder) -> Result<u32, Error> {
        // Looked at under the lock, which a start takes after it has left `New`.
        let mut spec = self.inner.spec.lock();
        self.need_new("add a worker")?;
        let mut grown = spec.clone();
        grown.children.push(child.into_spec()?);
        grown.check()?;
        *spec = grown;
        Ok((spec.devices.len() + spec.children.len() - 1) as u32)
    }

    fn need_new(&self, operation: &'static str) -> Result<(), StateError> {
        match self.state() {
            State::New => Ok(()),
            state => Err(self.state_error(operation, state)),
        }
    }

    /// What this worker and all below it are to be, as far as it is known by now.
    pub(crate) fn spec(&self) -> NodeSpec {
        self.inner.spec.lock().clone()
    }

    fn state_error(&self, operation: &'static str, state: State) -> StateError {
        StateError::new(operation, &self.inner.path, state)
    }

    /// The callables as they are now.
    pub(crate) fn callables(&self) -> Arc<Registry> {
        match self.inner.started.get() {
            Some(started) => started.plan.registry(),
            None => Arc::new(self.inner.registry.lock().clone()),
        }
    }

    /// The engine, made when it is first needed: a buffer may come before `init`.
    pub(crate) fn engine(&self) -> Result<Arc<Engine>, Error> {
        if let Some(engine) = self.inner.engine.get() {
            return Ok(Arc::clone(engine));
        }
        let made = Engine::new(&self.inner.path, &self.inner.spec.lock().limits, None).map_err(
            |cause| {
                Error::from(StartError {
                    worker: self.inner.path.to_string(),
                    cause,
                })
            },
        )?;
        Ok(Arc::clone(self.inner.engine.get_or_init(|| made)))
    }

    pub(crate) fn started(&self, operation: &'static str) -> Result<&Started, StateError> {
        self.inner
            .started
            .get()
            .ok_or_else(|| self.state_error(operation, self.state()))
    }

    pub(crate) fn lease(
        &self,
        operation: &Operation,
    ) -> Result<lifecycle::Lease<'_, Error>, Error> {
        self.inner.need_home(operation.name())?;
        let lease = self.inner.life.lease(operation);
        lease.map_err(|refused| self.state_error(operation.name(), refused.state).into())
    }

    /// Creates a shared buffer of `n_elements`, all zero. Before or after `init`.
    ///
    /// Its pages are reserved now: a machine without memory is an error here, not a crash later.
    ///
    /// # Errors
    ///
    /// [`Error::Buffer`] when the size is zero or the memory cannot be had; [`Error::State`] after a close.
    pub fn buffer<T: Element>(&self, n_elements: usize) -> Result<Buffer<T>, Error> {
        self.inner.need_home(CREATE_BUFFER.name())?;
        if !matches!(self.state(), State::New | State::Ready) {
            return Err(self.state_error(CREATE_BUFFER.name(), self.state()).into());
        }
        let bytes = byte_size::<T>(n_elements)?;
        Buffer::new(self.engine()?.create_buffer(bytes)?, n_elements)
    }

    /// Creates a shared buffer with these elements.
    ///
    /// # Errors
    ///
    /// As [`Worker::buffer`].
    pub fn buffer_from<T: Element>(&self, elements: &[T]) -> Result<Buffer<T>, Error> {
        let buffer = self.buffer(elements.len())?;
        buffer.copy_from(elements)?;
        Ok(buffer)
    }

    /// Creates a shared buffer of so many bytes, all zero: as [`Worker::buffer`] of `u8`.
    ///
    /// # Errors
    ///
    /// As [`Worker::buffer`].
    pub fn create_buffer(&self, bytes: usize) -> Result<Buffer<u8>, Error> {
        self.buffer(bytes)
    }

    /// Runs an orchestration to its end: builds its graph, executes it, and returns what the orchestration returned.
    ///
    /// Tasks start while others are still submitted. Between submits the run is not advanced by anybody but other waiters,
    /// so an orchestration that blocks delays what depends on ended tasks; it names data and waits for nothing. Graphs are
    /// built one after the other; runs of several threads take turns.
    ///
    /// # Errors
    ///
    /// What the orchestration returned as an error, or [`Error::Run`] with the first root cause of its tasks; a panic of
    /// the orchestration is [`TaskCause::Panicked`]. Tasks that had started are waited for in any case. [`Error::State`]
    /// unless the worker is ready.
    pub fn run<R>(
        &self,
        orchestration: impl FnOnce(&mut Orchestrator<'_>) -> Result<R, Error>,
    ) -> Result<R, Error> {
        let _lease = self.lease(&RUN)?;
        let started = self.started(RUN.name())?;
        run_on(&started.engine, &started.plan, orchestration)
    }

    /// Submits an orchestration and returns once its graph is built; its tasks go on.
    ///
    /// # Errors
    ///
    /// As [`Worker::run`] while building; how the tasks fared is what [`RunHandle::wait`] tells.
    pub fn submit(
        &self,
        orchestration: impl FnOnce(&mut Orchestrator<'_>) -> Result<(), Error>,
    ) -> Result<RunHandle, Error> {
        self.inner.need_home(RUN.name())?;
        let lease = self.inner.life.lease_owned(&RUN);
        let lease = lease.map_err(|refused| self.state_error(RUN.name(), refused.state))?;
        let started = self.started(RUN.name())?;
        started.engine.ensure_background()?;
        begin_build(&started.engine, "submit")?;
        let span = started.engine.run_span();
        let (run, cell) = started.engine.begin_run(&span, Some(lease));
        let handle = RunHandle::new(Arc::clone(&started.engine), cell, run);
        let mut orchestrator = Orchestrator::new(&started.engine, &started.plan, run);
        let built =
            span.in_scope(|| build(&started.engine, run, || orchestration(&mut orchestrator)));
        if let Err(error) = built {
            // What had started is waited for; how it ended does not matter any more.
            let _ = handle.wait();
            return Err(error);
        }
        Ok(handle)
    }

    /// Closes the worker and ends its tree, within the limit given to the builder.
    ///
    /// Operations that run go on to their end first. A close that did not finish is an error that says what is left, and
    /// another close drives on. After a success, further calls return `Ok` at once.
    ///
    /// # Errors
    ///
    /// [`Error::Close`].
    pub fn close(&self) -> Result<(), Error> {
        self.inner.close(self.inner.close_limit)
    }

    /// Closes, and does not take no for an answer: operations that have not ended after `patience` fail with the death of the
    /// workers that they wait for, since the whole tree is killed then. For a tree in which something hangs.
    ///
    /// Where the operations end in time this is [`Worker::close`]. May be called from any thread, also while others wait for
    /// runs of this worker.
    ///
    /// # Errors
    ///
    /// [`Error::Close`] from inside an operation of this worker, and where a killed process did not vanish.
    pub fn end(&self, patience: Duration) -> Result<(), Error> {
        match self.inner.close(patience) {
            Err(Error::Close(left)) if left.is_incomplete() => {
                tracing::warn!(worker = %self.inner.path, %left, "its workers are killed now");
                self.inner.end_by_force();
                self.inner.close(ending::KILL_PATIENCE)
            }
            closed => closed,
        }
    }
}

impl Inner {
    /// Whether the tree is this process's, or none was started.
    pub(crate) fn is_home(&self) -> bool {
        self.home.get().is_none_or(|home| home.is_here())
    }

    pub(crate) fn need_home(&self, operation: &'static str) -> Result<(), Error> {
        if self.is_home() {
            return Ok(());
        }
        let worker = self.path.to_string();
        Err(Error::Copied { operation, worker })
    }

    fn close(&self, budget: Duration) -> Result<(), Error> {
        self.need_home("close")?;
        let closed = self
            .life
            .close(Some(Instant::now() + budget), &self.journal);
        closed.map_err(|reason| {
            let worker = self.path.to_string();
            CloseError {
                worker,
                reason: Arc::new(reason),
            }
            .into()
        })
    }
}

impl Inner {
    /// Operations are still open, and nobody could close again: what runs fails with the death of its worker.
    fn end_by_force(&self) {
        if let Some(engine) = self.engine.get()
            && let Err(left) = ending::end_children(engine, Ending::AT_ONCE, None)
        {
            tracing::error!(worker = %self.path, %left, "something is left of a dropped worker");
        }
    }
}

impl Drop for Inner {
    fn drop(&mut self) {
        if self.life.state() == State::New {
            return;
        }
        if !self.is_home() {
            // The copy of an engine speaks for memory and descriptors that have come to be others' here.
            std::mem::forget(self.engine.take());
            return;
        }
        let unclosed = self.life.state() != State::Closed;
        match self.close(DROP_BUDGET) {
            Ok(()) if unclosed => {
                tracing::warn!(worker = %self.path, "dropped unclosed; it was closed now")
            }
            Ok(()) => {}
            Err(error) => {
                tracing::error!(worker = %self.path, %error, "dropped unclosed; its workers are ended now");
                self.end_by_force();
            }
        }
    }
}

/// Runs an orchestration on an engine to its end.
pub(crate) fn run_on<R>(
    engine: &Engine,
    plan: &Plan,
    orchestration: impl FnOnce(&mut Orchestrator<'_>) -> Result<R, Error>,
) -> Result<R, Error> {
    begin_build(engine, "run")?;
    let span = engine.run_span();
    let (run, cell) = engine.begin_run(&span, None);
    let _inside = span.enter();
    let _busy = activity::while_doing(engine.path(), Some(run.0), || {
        "build and drive a run".to_owned()
    });
    let mut orchestrator = Orchestrator::new(engine, plan, run);
    let built = build(engine, run, || orchestration(&mut orchestrator));
    engine.wait_until(None, &|| cell.is_done());
    cell.given_back()
        .into_iter()
        .for_each(|owed| engine.await_given_back(owed));
    let outcome = cell.outcome().unwrap_or(Ok(()));
    let value = built?;
    outcome?;
    Ok(value)
}

/// Waits for the turn to build a graph.
fn begin_build(engine: &Engine, operation: &'static str) -> Result<(), Error> {
    if engine.begin_build() {
        return Ok(());
    }
    Err(Error::Reentrant {
        operation,
        worker: engine.path().to_string(),
    })
}

/// Calls an orchestration and seals its run, or cancels it on an error or a panic.
fn build<R>(
    engine: &Engine,
    run: taskgraph::RunId,
    orchestration: impl FnOnce() -> Result<R, Error>,
) -> Result<R, Error> {
    let built = catch_unwind(AssertUnwindSafe(orchestration)).unwrap_or_else(|payload| {
        Err(RunError {
            task: "orchestration".to_owned(),
            worker: engine.path().to_string(),
            cause: TaskCause::Panicked(panic_message(&*payload)),
            completed: 0,
            failed: 1,
            skipped: 0,
            cancelled: 0,
        }
        .into())
    });
    engine.change(|core| {
        if built.is_err() {
            core.cancel(run);
        }
        core.seal(run);
        engine.end_build(core);
    });
    built
}
