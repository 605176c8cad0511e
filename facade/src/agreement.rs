//! A change of the callables of a started tree, agreed on by every process concerned: all of them make it, or none does.
//!
//! ```text
//!             parent                                  each child concerned (a worker does the same below it)
//!   new registry, not published
//!   Prepare(change)  --- one control request each --> checks, loads kernels, keeps the change aside
//!                    <-- Done, or why not ---------
//!   all Done:   Commit  --------------------------->  uses it from its next request on
//!               publish: submits find it
//!   one failed: Abort to those that have prepared ->  forgets it
//!               the error of the first that failed
//! ```
//!
//! A child serves a control request between two tasks, so a change waits for the tasks that run. A child that is dead is
//! left out: when it is started again it gets the callables as they are then. A commit cannot be refused; a child that dies
//! in it is dead, as ever. One that breaks the protocol in it, or does not answer for a long time, makes the parent take the
//! change back where it was committed or may still be.
//!
//! # Races considered
//!
//! - *A close meanwhile.* The change is a leased operation: a close waits for its end, or it finds the worker closed.
//! - *Two changes.* One at a time per tree: the root holds a lock for as long as it takes.
//! - *A run meanwhile.* It submits by the registry that it began with. A callable comes for runs that begin later; before
//!   one goes, the root waits until no graph is being built, and refuses while an unfinished task may name it.
//! - *A respawn meanwhile.* It takes the same lock.

use std::sync::Arc;
use std::time::{Duration, Instant};

use device::Digest;
use serde::{Deserialize, Serialize};

use crate::callable::{Body, Registry};
use crate::clock::WireInstant;
use crate::control::{ControlReply, ControlRequest, RemoteError};
use crate::engine::{Engine, Job, JobOutcome, Line, LineKind};
use crate::error::{AgreeCause, CallableError};
use crate::remake::Maker;

/// What changes.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) enum Change {
    /// A callable comes.
    Add { name: String, maker: Maker },
    /// A callable goes.
    Remove { digest: [u8; 32] },
}

/// How a prepared change ends.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) enum Conclusion {
    Commit,
    Abort,
}

impl Change {
    /// The registry after the change, and the digest of what came or went.
    pub(crate) fn apply(&self, registry: &Registry) -> Result<(Registry, Digest), CallableError> {
        let mut changed = registry.clone();
        let digest = match self {
            Change::Add { name, maker } => changed.insert_made(name, maker)?,
            Change::Remove { digest } => {
                let digest = Digest(*digest);
                changed.remove(&digest);
                digest
            }
        };
        Ok((changed, digest))
    }

    /// Whether a child of this kind could be asked to run a callable of this body: only such children take part.
    fn concerns(body: &Body, kind: LineKind) -> bool {
        match (body, kind) {
            (_, LineKind::Node)
            | (Body::Chip(_), LineKind::Chip)
            | (Body::Function(_), LineKind::Sub) => true,
            (_, LineKind::Chip | LineKind::Sub) => false,
        }
    }
}

/// One level's part in an agreement.
pub(crate) struct Round<'a> {
    engine: &'a Arc<Engine>,
    lines: Vec<usize>,
    /// Of all children.
    paths: Vec<String>,
    limit: Duration,
    deadline: Instant,
}

impl<'a> Round<'a> {
    /// The living children that a callable of this body concerns.
    pub(crate) fn new(
        engine: &'a Arc<Engine>,
        kinds: impl Iterator<Item = LineKind>,
        body: &Body,
        limit: Duration,
        deadline: Instant,
    ) -> Self {
        let (alive, paths): (Vec<bool>, Vec<String>) = {
            let lines = engine.claim_lines();
            let one = |line: &Line| (line.died.is_none(), line.path.to_string());
            lines.all.iter().map(one).unzip()
        };
        let lines = kinds.enumerate().filter(|(index, kind)| {
            Change::concerns(body, *kind) && alive.get(*index).copied().unwrap_or(false)
        });
        Self {
            engine,
            lines: lines.map(|(index, _)| index).collect(),
            paths,
            limit,
            deadline,
        }
    }

    /// Has every child prepare the change; where one cannot, the others forget it.
    pub(crate) fn prepare(&self, change: &Change) -> Result<(), AgreeCause> {
        let asked = ControlRequest::Prepare {
            change: change.clone(),
            until: WireInstant::of(self.deadline),
        };
        let jobs = self.post(&self.lines, &asked);
        let refused = |job: &Arc<Job>| job.is_done() && self.failure(job).is_some();
        // The first refusal ends the wait.
        let over = || jobs.iter().all(|job| job.is_done()) || jobs.iter().any(refused);
        self.engine.wait_until(Some(self.deadline), &over);
        let first = jobs.iter().find(|job| refused(job));
        let first = first.or_else(|| jobs.iter().find(|job| !job.is_done()));
        let Some(cause) = first.and_then(|job| self.failure(job)) else {
            return Ok(());
        };
        // A child that has not answered may still prepare; the request to forget it comes after. Nobody waits for that: what a
        // child is asked next comes behind it.
        let others = jobs
            .iter()
            .filter(|job| self.failure(job).is_none() || !job.is_done());
        let others: Vec<usize> = others.map(|job| job.line).collect();
        self.post(&others, &ControlRequest::Conclude(Conclusion::Abort));
        Err(cause)
    }

    /// Has every child forget a change that all have prepared.
    pub(crate) fn abort(&self) {
        let abort = ControlRequest::Conclude(Conclusion::Abort);
        self.ask(&self.lines, &abort, self.patience());
    }

    /// Has every child use a change that all have prepared; `back` undoes it.
    pub(crate) fn commit(&self, back: Option<&Change>) -> Result<(), AgreeCause> {
        let commit = ControlRequest::Conclude(Conclusion::Commit);
        let jobs = self.ask(&self.lines, &commit, self.patience());
        let broken = jobs.iter().find_map(|job| match self.failure(job) {
            // It will have what the others have when it is started again.
            Some(AgreeCause::Died(_)) | None => None,
            Some(cause) => Some(cause),
        });
        match (broken, back) {
            (Some(cause), Some(back)) => {
                // One that has not answered may still commit; the way back comes after.
                let others = jobs
                    .iter()
                    .filter(|job| self.failure(job).is_none() || !job.is_done());
                self.take_back(&others.map(|job| job.line).collect::<Vec<_>>(), back);
                Err(cause)
            }
            // There is no way back for what only a fork could copy: those that have committed stand, and so does the change.
            (Some(cause), None) => {
                tracing::error!(%cause, "a worker does not follow a change of the callables");
                Ok(())
            }
            (None, _) => Ok(()),
        }
    }

    fn take_back(&self, lines: &[usize], back: &Change) {
        let prepare = ControlRequest::Prepare {
            change: back.clone(),
            until: WireInstant::of(self.patience()),
        };
        self.ask(lines, &prepare, self.patience());
        let commit = ControlRequest::Conclude(Conclusion::Commit);
        self.ask(lines, &commit, self.patience());
    }

    /// Sends a request to some children.
    fn post(&self, lines: &[usize], request: &ControlRequest) -> Vec<Arc<Job>> {
        let job = |line: &usize| Job::new(*line, request.clone());
        let jobs: Vec<Arc<Job>> = lines.iter().map(job).collect();
        self.engine.post(&jobs);
        jobs
    }

    /// Sends a request to some children and waits for all answers, or for the deadline.
    fn ask(&self, lines: &[usize], request: &ControlRequest, deadline: Instant) -> Vec<Arc<Job>> {
        let jobs = self.post(lines, request);
        let all = || jobs.iter().all(|job| job.is_done());
        self.engine.wait_until(Some(deadline), &all);
        jobs
    }

    /// What has been prepared is concluded even if the limit has passed meanwhile.
    fn patience(&self) -> Instant {
        self.deadline.max(Instant::now() + COMMIT_PATIENCE)
    }

    /// Why a child did not do what it was asked.
    fn failure(&self, job: &Job) -> Option<AgreeCause> {
        let worker = || self.paths[job.line].clone();
        match job.outcome() {
            Some(JobOutcome::Reply(ControlReply::Done)) => None,
            Some(JobOutcome::Reply(ControlReply::Failed(remote))) => {
                Some(AgreeCause::Remote(remote.clone()))
            }
            Some(JobOutcome::Died(died)) => Some(AgreeCause::Died(died.clone())),
            Some(JobOutcome::Protocol(reason)) => Some(AgreeCause::Protocol {
                worker: worker(),
                reason: reason.clone(),
            }),
            Some(JobOutcome::Reply(other)) => Some(AgreeCause::Protocol {
                worker: worker(),
                reason: format!("the unexpected answer {other:?}"),
            }),
            None => Some(AgreeCause::Deadline {
                worker: worker(),
                limit: self.limit,
            }),
        }
    }
}

/// How long children may take to conclude what they have prepared, which costs them nothing.
const COMMIT_PATIENCE: Duration = Duration::from_secs(10);

/// A change that a process has prepared and not concluded.
#[derive(Default)]
pub(crate) struct Pending(Option<(Digest, Arc<Registry>)>);

impl Pending {
    /// Keeps a prepared change aside.
    pub(crate) fn keep(&mut self, digest: Digest, registry: Registry) {
        self.0 = Some((digest, Arc::new(registry)));
    }

    /// Whether there is one.
    pub(crate) fn is_some(&self) -> bool {
        self.0.is_some()
    }

    /// Takes it out, to be concluded.
    pub(crate) fn take(&mut self) -> Option<(Digest, Arc<Registry>)> {
        self.0.take()
    }
}

/// The failure below as the one that asked is told of it.
pub(crate) fn as_remote(cause: AgreeCause, path: &str, operation: &str) -> RemoteError {
    use crate::control::FaultKind;
    match cause {
        AgreeCause::Remote(remote) => remote,
        AgreeCause::Died(died) => {
            let message = died.to_string();
            RemoteError::new(FaultKind::WorkerDied, died.worker, operation, message)
        }
        other => RemoteError::new(FaultKind::Runtime, path, operation, other.to_string()),
    }
}
