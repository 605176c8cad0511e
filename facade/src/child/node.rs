//! A worker below another: runs orchestrations over a tree of its own.

use std::sync::Arc;
use std::time::{Duration, Instant};

use device::Digest;
use lifecycle::{Journal, Lifecycle};
use mailbox::{FeedWriter, Segment};
use procfork::ParentWatch;
use taskgraph::BufferId;

use crate::agreement::{Change, Round, as_remote};
use crate::args::Args;
use crate::buffer::BufferCore;
use crate::callable::{Body, Entry, Registry};
use crate::config::NodeSpec;
use crate::control::{ControlReply, ControlRequest, FaultKind, RemoteError, chain};
use crate::engine::Engine;
use crate::error::{Error, RunError, StartCause, StateError, TaskCause};
use crate::progress::Board;
use crate::start::Start;
use crate::started::Started;
use crate::tree::TreeNode;
use crate::tree_plan::Plan;
use crate::worker::run_on;

use super::{CHANGE, Executor, Seat, no_device, operation, panics, wrong_kind};

pub(super) struct NodeWorker {
    path: String,
    spec: NodeSpec,
    registry: Arc<Registry>,
    limit: Duration,
    engine: Arc<Engine>,
    life: Lifecycle<Error>,
    journal: Journal<Error>,
    started: Option<Started>,
    /// Of the callable whose coming or going is prepared.
    body: Option<Body>,
}

impl NodeWorker {
    pub(super) fn new(
        seat: &Seat,
        registry: Arc<Registry>,
        spec: &NodeSpec,
        above: (ParentWatch, Arc<FeedWriter>),
    ) -> Result<Self, String> {
        let engine = Engine::new(&seat.path, &spec.limits, Some(above))
            .map_err(|error| error.to_string())?;
        Ok(Self {
            path: seat.path.clone(),
            spec: spec.clone(),
            registry,
            limit: seat.limit,
            engine,
            life: Lifecycle::new(),
            journal: Journal::new(),
            started: None,
            body: None,
        })
    }

    fn start(&self, until: Instant, board: &Board) -> Result<Started, Error> {
        let table = self.engine.core().table().clone();
        let plan = Plan::new(&self.path, &self.spec, Arc::clone(&self.registry), table);
        // One start in a life: the parent sends one `Init`.
        let lifecycle::Start::Won(epoch) = self.life.start(None) else {
            return Err(StateError::new("start", &self.path, self.life.state()).into());
        };
        let start = Start {
            engine: &self.engine,
            plan,
            spec: &self.spec,
            deadline: until,
            limit: self.limit,
            cancelled: &|| false,
            board: board.clone(),
            watcher: None,
        };
        match start.run(&self.journal) {
            Ok(started) => {
                epoch
                    .commit()
                    .map_err(|_| StateError::new("start", &self.path, self.life.state()))?;
                Ok(started)
            }
            Err(error) => {
                // Said first, and cleaned up when the parent has closed the mailbox: a child that hangs must not delay
                // the first cause. The journal is run by the close.
                epoch.fail(error.clone());
                Err(error)
            }
        }
    }

    fn conclude(&mut self, conclude: impl FnOnce(&Round<'_>)) {
        if let (Some(started), Some(body)) = (&self.started, self.body.take()) {
            let (engine, kinds) = (&started.engine, started.plan.kinds());
            conclude(&Round::new(
                engine,
                kinds,
                &body,
                self.limit,
                Instant::now(),
            ));
        }
    }

    fn close_deadline(&self) -> Instant {
        Instant::now() + self.spec.limits.close
    }
}

impl Executor for NodeWorker {
    fn init(&mut self, until: Instant, board: &Board) -> Result<TreeNode, RemoteError> {
        match self.start(until, board) {
            Ok(started) => {
                let tree = started.seen();
                self.started = Some(started);
                Ok(tree)
            }
            Err(error) => Err(first_cause(&self.path, "start", &error)),
        }
    }

    fn run(
        &mut self,
        _digest: &Digest,
        entry: &Entry,
        args: &Args,
        accept: &mut dyn FnMut(),
    ) -> Result<(), RemoteError> {
        let Body::Orchestration(orchestration) = &entry.body else {
            return Err(wrong_kind(&self.path, entry, "orchestrations"));
        };
        let Some(started) = &self.started else {
            let reason = "it has not been started";
            return Err(RemoteError::new(
                FaultKind::Runtime,
                &self.path,
                operation(entry),
                reason,
            ));
        };
        accept();
        let call = || {
            run_on(&started.engine, &started.plan, |orch| {
                orchestration(orch, args)
            })
        };
        panics::caught(&self.path, || operation(entry), call)?
            .map_err(|error| first_cause(&self.path, &operation(entry), &error))
    }

    fn prepare(
        &mut self,
        change: &Change,
        _digest: &Digest,
        entry: &Entry,
        until: Instant,
    ) -> Result<(), RemoteError> {
        let Some(started) = &self.started else {
            return Ok(());
        };
        let round = Round::new(
            &started.engine,
            started.plan.kinds(),
            &entry.body,
            self.limit,
            until,
        );
        let prepared = round.prepare(change);
        prepared.map_err(|cause| as_remote(cause, &self.path, CHANGE))?;
        self.body = Some(entry.body.clone());
        Ok(())
    }

    fn commit(&mut self, _digest: &Digest, registry: &Arc<Registry>) {
        self.conclude(|round| {
            // Without a way back nothing is refused; a worker that broke here is found when it is sent something next.
            let _ = round.commit(None);
        });
        if let Some(started) = &self.started {
            started.plan.set_registry(Arc::clone(registry));
        }
    }

    fn abort(&mut self, _digest: &Digest) {
        self.conclude(|round| round.abort());
    }

    fn look(&mut self, until: Instant) -> Result<TreeNode, RemoteError> {
        let own = RemoteError::new(FaultKind::Runtime, &self.path, "look", "it is not started");
        Ok(self.started.as_ref().ok_or(own)?.look(until))
    }

    fn respawn(&mut self, path: &str, until: Instant) -> Result<TreeNode, RemoteError> {
        let operation = format!("start worker `{path}` again");
        let own = RemoteError::new(
            FaultKind::Runtime,
            &self.path,
            &*operation,
            "it is not started",
        );
        let started = self.started.as_ref().ok_or(own)?;
        started
            .respawn(path, &self.spec, until, self.limit)
            .map_err(|error| first_cause(&self.path, &operation, &error))
    }

    fn memory(
        &mut self,
        _request: &ControlRequest,
        _buffer: Option<&BufferCore>,
    ) -> Result<ControlReply, RemoteError> {
        Err(no_device(&self.path))
    }

    fn adopt(&self, id: BufferId, segment: Segment) -> Arc<BufferCore> {
        self.engine.adopt_buffer(id, segment)
    }

    fn close(&mut self) {
        if let Err(left) = self.life.close(Some(self.close_deadline()), &self.journal) {
            tracing::error!(
                worker = self.path,
                ?left,
                "not everything could be released"
            );
        }
    }
}

/// What a worker above is told of a failure here: where it happened first and why, not the way it came.
fn first_cause(path: &str, operation: &str, error: &Error) -> RemoteError {
    if let Some(remote) = error.remote() {
        return remote.clone();
    }
    if let Some(died) = error.worker_died() {
        let message = died.to_string();
        return RemoteError::new(FaultKind::WorkerDied, &*died.worker, operation, message);
    }
    if let Error::Run(RunError {
        cause: TaskCause::Panicked(message),
        ..
    }) = error
    {
        return RemoteError::new(FaultKind::Panicked, path, operation, message);
    }
    if let Error::Start(start) = error {
        let kind = match start.cause {
            StartCause::Deadline { .. } => FaultKind::Deadline,
            _ => FaultKind::Runtime,
        };
        return RemoteError::new(kind, &*start.worker, operation, start.cause.to_string());
    }
    RemoteError::new(FaultKind::Returned, path, operation, chain(error))
}
