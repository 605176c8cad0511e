//! A worker whose children were brought up: its picture of the tree, and the restart of dead workers anywhere below.
//!
//! A worker knows how its own children fare, and asks those that have children of their own. One that is in a long task
//! answers after it; what it said last stands until then.

use std::sync::Arc;
use std::time::{Duration, Instant};

use parking_lot::Mutex;

use crate::clock::WireInstant;
use crate::config::NodeSpec;
use crate::control::{ControlReply, ControlRequest};
use crate::engine::{Engine, Job, JobOutcome, LineKind};
use crate::error::{Error, StartCause, StartError, WorkerDied};
use crate::progress::Board;
use crate::start::Start;
use crate::tree::TreeNode;
use crate::tree_plan::Plan;

/// A worker whose children are ready.
pub(crate) struct Started {
    pub(crate) engine: Arc<Engine>,
    pub(crate) plan: Plan,
    /// As it was seen last.
    tree: Mutex<TreeNode>,
    /// By line: the question that was not answered in time. Asked once, however often somebody looks.
    looks: Mutex<Vec<Option<Arc<Job>>>>,
}

impl Started {
    pub(crate) fn new(engine: Arc<Engine>, plan: Plan, tree: TreeNode) -> Self {
        let looks = Mutex::new(vec![None; tree.children.len()]);
        Self {
            engine,
            plan,
            tree: Mutex::new(tree),
            looks,
        }
    }

    /// The tree as it was seen last.
    pub(crate) fn seen(&self) -> TreeNode {
        self.tree.lock().clone()
    }

    /// The tree as it is now, as far as workers below answer until then.
    pub(crate) fn look(&self, until: Instant) -> TreeNode {
        // Who drives just now looks for deaths by itself.
        if let Some(mut lines) = self.engine.try_lines() {
            let children = self.engine.children.read();
            self.engine.bury_dead(&children, &mut lines);
            while lines.has_dying() && Instant::now() < until {
                self.engine.bury_dead(&children, &mut lines);
            }
        }
        let asked = self.ask_workers(until);
        let all = || asked.iter().all(|job| job.is_done());
        self.engine.wait_until(Some(until), &all);
        let mut tree = self.tree.lock();
        for job in &asked {
            if let Some(JobOutcome::Reply(ControlReply::Ready(node))) = job.outcome() {
                let before = &tree.children[job.line];
                tree.children[job.line] = TreeNode {
                    // What its parent knows of it, and it does not say.
                    made: before.made,
                    settings: before.settings.clone(),
                    ..node.clone()
                };
            }
        }
        for died in self.engine.core().dead() {
            let mut children = tree.children.iter_mut();
            if let Some(child) = children.find(|child| child.path == died.worker) {
                child.end(&died);
            }
        }
        tree.clone()
    }

    /// Asks the living children that have children of their own.
    fn ask_workers(&self, until: Instant) -> Vec<Arc<Job>> {
        let request = ControlRequest::Look {
            until: WireInstant::of(until),
        };
        let dead = self.engine.core().dead();
        let is_dead = |line: usize| {
            let path = self.plan.path_of(line as u32);
            dead.iter().any(|died| died.worker == path)
        };
        let mut looks = self.looks.lock();
        let kinds = self.plan.kinds().enumerate();
        let nodes = kinds.filter(|(line, kind)| *kind == LineKind::Node && !is_dead(*line));
        let mut asked = Vec::new();
        for (line, _) in nodes {
            let open = looks[line].take().filter(|job| !job.is_done());
            let job = open.unwrap_or_else(|| {
                let job = Job::new(line, request.clone());
                self.engine.post(std::slice::from_ref(&job));
                job
            });
            looks[line] = Some(Arc::clone(&job));
            asked.push(job);
        }
        asked
    }

    /// Starts the dead worker `path` again: a child of this one, or one further down, by asking the worker above it.
    pub(crate) fn respawn(
        &self,
        path: &str,
        spec: &NodeSpec,
        until: Instant,
        limit: Duration,
    ) -> Result<TreeNode, Error> {
        let tree = self.look(until.min(Instant::now() + LOOK_PATIENCE));
        if !tree.dead().iter().any(|died| died.worker == path) {
            return Err(alive(path, &tree));
        }
        let index = tree.children.iter().position(|child| {
            let below = path.strip_prefix(&child.path);
            below.is_some_and(|rest| rest.is_empty() || rest.starts_with('/'))
        });
        match index {
            Some(index) if tree.children[index].path == path => {
                self.respawn_child(index, spec, until, limit)
            }
            Some(index) => self.respawn_below(index, path, until, limit),
            None => Err(alive(path, &tree)),
        }
    }

    fn respawn_child(
        &self,
        index: usize,
        spec: &NodeSpec,
        until: Instant,
        limit: Duration,
    ) -> Result<TreeNode, Error> {
        let board = Board::create(spec.n_workers());
        let start = Start {
            engine: &self.engine,
            plan: self.plan.clone(),
            spec,
            deadline: until,
            limit,
            cancelled: &|| false,
            board: board.map_err(|error| self.error(StartCause::system(error)))?,
            watcher: None,
        };
        let node = start.respawn(index)?;
        self.tree.lock().children[index] = node.clone();
        Ok(node)
    }

    fn respawn_below(
        &self,
        index: usize,
        path: &str,
        until: Instant,
        limit: Duration,
    ) -> Result<TreeNode, Error> {
        let request = ControlRequest::Respawn {
            path: path.to_owned(),
            until: WireInstant::of(until),
        };
        let job = Job::new(index, request);
        self.engine.post(std::slice::from_ref(&job));
        // It answers by that time, or a little later.
        let patience = until + LOOK_PATIENCE;
        self.engine.wait_until(Some(patience), &|| job.is_done());
        let cause = match job.outcome() {
            Some(JobOutcome::Reply(ControlReply::Ready(node))) => {
                self.engine.claim_lines().all[index].note_below(node);
                return Ok(node.clone());
            }
            Some(JobOutcome::Reply(ControlReply::Failed(remote))) => {
                StartCause::Remote(remote.clone())
            }
            Some(JobOutcome::Died(died)) => StartCause::Died(died.clone()),
            Some(JobOutcome::Protocol(reason)) => {
                StartCause::system(std::io::Error::other(reason.clone()))
            }
            Some(JobOutcome::Reply(other)) => {
                let text = format!("the unexpected answer {other:?}");
                StartCause::system(std::io::Error::other(text))
            }
            None => StartCause::Deadline {
                limit,
                waiting: Vec::new(),
            },
        };
        let worker = path.to_owned();
        Err(StartError { worker, cause }.into())
    }

    fn error(&self, cause: StartCause) -> Error {
        let worker = self.engine.path().to_string();
        StartError { worker, cause }.into()
    }
}

/// How long workers below may take to answer a look.
pub(crate) const LOOK_PATIENCE: Duration = Duration::from_millis(50);

fn alive(path: &str, tree: &TreeNode) -> Error {
    Error::Alive {
        worker: path.to_owned(),
        dead: tree
            .dead()
            .into_iter()
            .map(|died| died.worker.clone())
            .collect(),
    }
}

impl TreeNode {
    /// Every dead worker of this subtree whose end is known; what was below one is gone with it.
    #[must_use]
    pub fn dead(&self) -> Vec<&WorkerDied> {
        match &self.died {
            Some(died) => vec![died],
            None => self.children.iter().flat_map(TreeNode::dead).collect(),
        }
    }

    /// Its process has ended, and everything below it.
    fn end(&mut self, died: &WorkerDied) {
        self.state = died.cause.to_string();
        self.died = Some(died.clone());
        for child in &mut self.children {
            child.end_with_parent();
        }
    }

    fn end_with_parent(&mut self) {
        "gone with the worker above it".clone_into(&mut self.state);
        self.children.iter_mut().for_each(TreeNode::end_with_parent);
    }
}
