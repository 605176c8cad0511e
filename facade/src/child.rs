//! The other side: what a child process of a tree does from its birth to its end.
//!
//! ```text
//! main -> wait for a request ─┬─ control: Init, device memory, unmap ── answered, then wait again
//!                             ├─ task: decode, check, run ───────────── completed or failed, then wait again
//!                             ├─ shutdown ───────────────────────────── release everything, exit 0
//!                             └─ the parent died, or broke the protocol: leave at once
//! ```
//!
//! A child trusts nothing that it reads: frames are claims (module `wire`), buffers are mapped after their real size was
//! checked, tensors are validated against that size, device names against the child's own table. A panic of user code
//! becomes a typed error with its message and place; the child goes on.

mod chip;
mod imports;
mod node;
mod panics;
mod staging;
mod sub;

use std::sync::Arc;
use std::time::{Duration, Instant};

use device::{Digest, Platform, SimFault};
use mailbox::{ChildEnd, Control, NextError, Request, Task};
use procfork::{ChildContext, ParentWatch, Settings};
use serde::{Deserialize, Serialize};

use crate::activity;
use crate::agreement::{Change, Conclusion, Pending};
use crate::args::Args;
use crate::callable::{Body, Entry, Registry, WireRegistry};
use crate::config::{ChipOptions, NodeSpec, StartMode, platform_text};
use crate::control::{self, ControlReply, ControlRequest, FaultKind, RemoteError};
use crate::engine::ParentProbe;
use crate::logs::Voice;
use crate::outfit::Outfit;
use crate::progress::{Board, StartPhase};
use crate::tree::TreeNode;
use crate::wire;

use self::imports::{ImportError, Imports};

/// What a child is going to be.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub(crate) enum ChildRole {
    /// A chip worker on this device; `index` is its next-level index at its parent.
    Chip {
        #[serde(with = "platform_text")]
        platform: Platform,
        device: u32,
        index: u32,
        options: ChipOptions,
        faults: Vec<SimFault>,
    },
    /// A worker with a subtree of its own.
    Node(Box<NodeSpec>),
    /// A sub worker.
    Sub,
}

/// What a child is born with, besides its descriptors and the callables. Crosses to a spawned child as it is.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub(crate) struct Seat {
    pub(crate) path: String,
    pub(crate) role: ChildRole,
    /// The life that device memory of a chip worker belongs to.
    pub(crate) incarnation: u64,
    /// The limit of the whole start, for messages.
    pub(crate) limit: Duration,
    /// How its process was made.
    pub(crate) made: StartMode,
    /// What its process may use.
    pub(crate) settings: Settings,
    /// Its slot on the board of the start, and how many slots that has.
    pub(crate) slot: u32,
    pub(crate) n_slots: u32,
}

/// The name under which spawned children find their function.
pub(crate) const SPAWNED: &str = "facade: a worker of a tree";

procfork::register! {
    "facade: a worker of a tree" => spawned,
}

/// A child that was started by running the program again.
fn spawned(context: ChildContext) -> Result<(), String> {
    let (seat, wire): (Seat, WireRegistry) =
        control::decode(&context.args).map_err(|error| error.to_string())?;
    let registry = Registry::from_wire(&wire).map_err(|error| error.to_string())?;
    let mut context = context;
    let outfit = Outfit::received(std::mem::take(&mut context.fds), &seat)?;
    main(context, seat, Arc::new(registry), outfit)
}

/// Whether these bytes are what a spawned child gets.
#[cfg(any(test, fuzzing))]
pub(crate) fn is_seat(bytes: &[u8]) -> bool {
    control::decode::<(Seat, WireRegistry)>(bytes).is_ok()
}

impl Seat {
    /// The form in which a spawned child gets it, or the names of the callables that captured something.
    pub(crate) fn to_wire(&self, registry: &Registry) -> Result<Vec<u8>, Vec<String>> {
        Ok(control::encode(&(self, registry.to_wire()?)))
    }
}

/// What a role does with the requests that it gets.
trait Executor {
    /// Brings up what is below and around; the answer to `Init`.
    fn init(&mut self, until: Instant, board: &Board) -> Result<TreeNode, RemoteError>;

    /// Runs a task of a registered callable, which `digest` names. `accept` is called when it really begins.
    fn run(
        &mut self,
        digest: &Digest,
        entry: &Entry,
        args: &Args,
        accept: &mut dyn FnMut(),
    ) -> Result<(), RemoteError>;

    /// Makes sure that a change of the callables can be used, without using it. `entry` is what comes or goes.
    fn prepare(
        &mut self,
        _change: &Change,
        _digest: &Digest,
        _entry: &Entry,
        _until: Instant,
    ) -> Result<(), RemoteError> {
        Ok(())
    }

    /// Uses what was prepared: `registry` is the new one.
    fn commit(&mut self, _digest: &Digest, _registry: &Arc<Registry>) {}

    /// Forgets what was prepared.
    fn abort(&mut self, _digest: &Digest) {}

    /// How the subtree fares. Asked of workers with children only.
    fn look(&mut self, _until: Instant) -> Result<TreeNode, RemoteError> {
        Err(no_children())
    }

    /// Starts a dead worker of the subtree again. Asked of workers with children only.
    fn respawn(&mut self, _path: &str, _until: Instant) -> Result<TreeNode, RemoteError> {
        Err(no_children())
    }

    /// Serves a request about device memory; the buffer that it names is mapped already.
    fn memory(
        &mut self,
        request: &ControlRequest,
        buffer: Option<&crate::buffer::BufferCore>,
    ) -> Result<ControlReply, RemoteError>;

    /// Where buffers are at home that this process maps.
    fn adopt(
        &self,
        id: taskgraph::BufferId,
        segment: mailbox::Segment,
    ) -> Arc<crate::buffer::BufferCore>;

    /// Releases everything, before the process exits.
    fn close(&mut self);
}

/// The whole life of a child. Its result is the exit code.
pub(crate) fn main(
    context: ChildContext,
    seat: Seat,
    registry: Arc<Registry>,
    outfit: Outfit,
) -> Result<(), String> {
    panics::remember();
    let Outfit {
        channel,
        mailbox,
        board,
        feed,
    } = outfit;
    // Whatever this process forks is no party to its own mailbox.
    let end = mailbox
        .keep_from_forks()
        .and_then(|()| mailbox.into_child());
    let end = end.map_err(|error| control::chain(&error))?;
    board.note(StartPhase::Began);
    Voice::install(&seat.path, Arc::clone(&feed));
    let executor: Box<dyn Executor> = match &seat.role {
        ChildRole::Sub => Box::new(sub::SubWorker::new(&seat)),
        ChildRole::Chip {
            platform,
            device,
            index,
            options,
            faults,
        } => {
            let (registry, faults) = (Arc::clone(&registry), faults.clone());
            Box::new(chip::ChipWorker::new(
                &seat, registry, *platform, *device, *index, *options, faults,
            ))
        }
        ChildRole::Node(spec) => {
            let (registry, watch) = (Arc::clone(&registry), context.parent.clone());
            Box::new(node::NodeWorker::new(&seat, registry, spec, (watch, feed))?)
        }
    };
    let child = Child {
        seat,
        registry,
        pending: Pending::default(),
        board: Some(board),
        end,
        executor,
        imports: Imports::new(channel),
        watch: context.parent,
    };
    panics::as_last_words(|| child.serve())
}

struct Child {
    seat: Seat,
    registry: Arc<Registry>,
    pending: Pending,
    /// Until the start is over.
    board: Option<Board>,
    end: ChildEnd,
    executor: Box<dyn Executor>,
    imports: Imports,
    watch: ParentWatch,
}

impl Child {
    fn serve(mut self) -> Result<(), String> {
        loop {
            match self.end.next(&ParentProbe(&self.watch), None) {
                Ok(Request::Task(task)) => self.task(task)?,
                Ok(Request::Control(request)) => self.control(request)?,
                Ok(Request::Shutdown) => break,
                Err(NextError::Poisoned(poisoned)) => {
                    if !self.watch.is_alive_now() {
                        self.watch.leave();
                    }
                    return Err(poisoned.to_string());
                }
                Err(error) => return Err(error.to_string()),
            }
        }
        activity::say(&self.seat.path, None, "close");
        self.executor.close();
        Ok(())
    }

    fn task(&mut self, mut task: Task) -> Result<(), String> {
        let outcome = self.run(&mut task);
        let answer = outcome.map_err(|error| error.to_parts());
        let answered = match &answer {
            Ok(()) => self.end.complete(task, Ok(&[])),
            Err((code, message)) => self.end.complete(
                task,
                Err(mailbox::Failure {
                    code: *code,
                    message,
                }),
            ),
        };
        answered.map_err(|refused| control::chain(&refused))
    }

    fn run(&mut self, task: &mut Task) -> Result<(), RemoteError> {
        let path = &self.seat.path;
        let malformed =
            |reason: String| RemoteError::new(FaultKind::Arguments, path, "decode a task", reason);
        let claimed = wire::decode(task.payload()).map_err(|error| malformed(error.to_string()))?;
        let digest = claimed.digest;
        let entry = self.registry.find(&digest).ok_or_else(|| {
            malformed(format!("no callable with digest {digest:#} is registered"))
        })?;
        let run = Some(task.identity().run);
        let _busy = activity::while_doing(path, run, || operation(entry));
        let executor = &self.executor;
        let adopt = |id, segment| executor.adopt(id, segment);
        let args = self.imports.args(claimed, &adopt).map_err(|error| {
            let (kind, reason) = match error {
                ImportError::Invalid(reason) => (FaultKind::Arguments, reason),
                ImportError::Unmapped(reason) => (FaultKind::Mapping, reason),
            };
            let operation = format!(
                "take the arguments of {} `{}`",
                entry.body.kind().name(),
                entry.name
            );
            RemoteError::new(kind, path, operation, reason)
        })?;
        let end = &mut self.end;
        // A poisoned mailbox is found by the answer.
        let mut accept = || drop(end.accept(task));
        self.executor.run(&digest, entry, &args, &mut accept)
    }

    fn control(&mut self, request: Control) -> Result<(), String> {
        let reply = match control::decode(request.payload()) {
            Ok(message) => self
                .serve_control(&message)
                .unwrap_or_else(ControlReply::Failed),
            Err(error) => ControlReply::Failed(RemoteError::new(
                FaultKind::Arguments,
                &self.seat.path,
                "decode a control request",
                error.to_string(),
            )),
        };
        let bytes = control::encode(&reply);
        self.end
            .reply(request, Ok(&bytes))
            .map_err(|refused| control::chain(&refused))
    }

    /// Applies the settings, then brings up what is below and around.
    fn init(&mut self, until: Instant) -> Result<TreeNode, RemoteError> {
        let path = &self.seat.path;
        let _busy = activity::while_doing(path, None, || "start".to_owned());
        let failed = |operation: &str, message| {
            RemoteError::new(FaultKind::Runtime, path, operation, message)
        };
        let board = self.board.take();
        let board = board.ok_or_else(|| failed("start", "it was started before".to_owned()))?;
        let executor = &mut self.executor;
        let settings = &self.seat.settings;
        let start = || -> Result<TreeNode, RemoteError> {
            let applied = settings.apply();
            applied.map_err(|error| failed("apply its settings", error.to_string()))?;
            board.note(StartPhase::Configured);
            let node = executor.init(until, &board)?;
            let effective = settings.effective();
            Ok(TreeNode {
                made: Some(self.seat.made),
                settings: effective.map_err(|e| failed("read its settings back", e.to_string()))?,
                ..node
            })
        };
        let outcome =
            panics::caught(path, || "start".to_owned(), start).and_then(|started| started);
        board.note(match outcome {
            Ok(_) => StartPhase::Ready,
            Err(_) => StartPhase::Failed,
        });
        outcome
    }

    fn prepare(&mut self, change: &Change, until: Instant) -> Result<(), RemoteError> {
        let path = &self.seat.path;
        let failed = |message| RemoteError::new(FaultKind::Arguments, path, CHANGE, message);
        if self.pending.is_some() {
            return Err(failed("another change is not concluded".to_owned()));
        }
        let applied = change.apply(&self.registry);
        let (registry, digest) = applied.map_err(|error| failed(error.to_string()))?;
        // What goes is known before, what comes afterwards.
        let entry = self.registry.find(&digest).or(registry.find(&digest));
        let entry = entry.ok_or_else(|| failed(format!("no callable has digest {digest:#}")))?;
        let executor = &mut self.executor;
        let prepare = || executor.prepare(change, &digest, entry, until);
        panics::caught(path, || CHANGE.to_owned(), prepare)??;
        self.pending.keep(digest, registry);
        Ok(())
    }

    /// A conclusion of nothing is that of a change that could not be prepared here.
    fn conclude(&mut self, conclusion: Conclusion) {
        let Some((digest, registry)) = self.pending.take() else {
            return;
        };
        match conclusion {
            Conclusion::Commit => {
                self.executor.commit(&digest, &registry);
                self.registry = registry;
            }
            Conclusion::Abort => self.executor.abort(&digest),
        }
    }

    fn serve_control(&mut self, message: &ControlRequest) -> Result<ControlReply, RemoteError> {
        match message {
            ControlRequest::Init { until } => self.init(until.here()).map(ControlReply::Ready),
            ControlRequest::Look { until } => {
                self.executor.look(until.here()).map(ControlReply::Ready)
            }
            ControlRequest::Respawn { path, until } => {
                let respawned = self.executor.respawn(path, until.here());
                respawned.map(ControlReply::Ready)
            }
            ControlRequest::Prepare { change, until } => self
                .prepare(change, until.here())
                .map(|()| ControlReply::Done),
            ControlRequest::Conclude(conclusion) => {
                self.conclude(*conclusion);
                Ok(ControlReply::Done)
            }
            ControlRequest::Unmap { buffers } => {
                let executor = &self.executor;
                let adopt = |id, segment| executor.adopt(id, segment);
                let imports = &mut self.imports;
                buffers
                    .iter()
                    .for_each(|buffer| imports.forget(buffer.id(), &adopt));
                Ok(ControlReply::Done)
            }
            ControlRequest::CopyTo { buffer, .. }
            | ControlRequest::CopyFrom { buffer, .. }
            | ControlRequest::MapDomain { buffer, .. } => {
                let executor = &self.executor;
                let adopt = |id, segment| executor.adopt(id, segment);
                let core = self
                    .imports
                    .find(buffer.id(), message.use_of_buffer(), &adopt)
                    .map_err(|reason| {
                        let path = &self.seat.path;
                        RemoteError::new(FaultKind::Mapping, path, "map a buffer", reason)
                    })?;
                self.executor.memory(message, Some(&core))
            }
            ControlRequest::Malloc { .. }
            | ControlRequest::Free { .. }
            | ControlRequest::UnmapDomain { .. }
            | ControlRequest::MemoryReport => self.executor.memory(message, None),
        }
    }
}

/// A role without children was asked about them. The parent asks others only.
fn no_children() -> RemoteError {
    let reason = "this worker has no children".to_owned();
    RemoteError::new(FaultKind::Runtime, "", "look at its children", reason)
}

/// What a change of the callables is called in messages.
const CHANGE: &str = "change its callables";

/// A role was sent a callable of a kind that it does not run. The parent checks before it sends.
fn wrong_kind(path: &str, entry: &Entry, runs: &str) -> RemoteError {
    let operation = format!("run {} `{}`", entry.body.kind().name(), entry.name);
    RemoteError::new(
        FaultKind::Arguments,
        path,
        operation,
        format!("this worker runs {runs}"),
    )
}

/// A role without a device was asked for device memory. The parent checks before it sends.
fn no_device(path: &str) -> RemoteError {
    let reason = "this worker has no device".to_owned();
    RemoteError::new(FaultKind::Arguments, path, "use device memory", reason)
}

/// What a callable is called in messages, by its kind.
fn operation(entry: &Entry) -> String {
    let verb = match entry.body {
        Body::Chip(_) => "run chip callable",
        Body::Function(_) => "run function",
        Body::Orchestration(_) => "run orchestration",
    };
    format!("{verb} `{}`", entry.name)
}
