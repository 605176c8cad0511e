//! Why tasks fail, and groups wait: what is kept and said of it.

use std::sync::Arc;

use taskgraph::{Failure, RunId, TaskId};

use super::{Core, KeptFailure, TaskFailure};
use crate::error::{Name, TaskCause};

impl Core {
    /// Keeps why a task failed; the first cause stays.
    pub(crate) fn note_failure(&mut self, task: TaskId, worker: &Name, cause: TaskCause) {
        let Some((record, task, node)) = self.record_of(task) else {
            return;
        };
        let of = (task, record.run, record.callable_of(node));
        self.keep_failure(of, worker, cause);
    }

    fn keep_failure(
        &mut self,
        (task, run, callable): (TaskId, RunId, Name),
        worker: &Name,
        cause: TaskCause,
    ) {
        let failure = TaskFailure {
            callable,
            worker: Arc::clone(worker),
            cause,
        };
        let kept = KeptFailure {
            failure,
            run,
            until: None,
        };
        self.failures.entry(task).or_insert(kept);
    }

    /// Keeps that a task, or a node of a graph, failed because a worker was lost.
    pub(super) fn note_loss(&mut self, task: TaskId, node: Option<u32>, failure: Failure) {
        let worker = match failure {
            Failure::WorkerLost { worker, .. } => Some(worker),
            // The graph may be dealing with the loss just now, or the task has come to its turn after it.
            Failure::NoWorker { lost } => lost,
            _ => return,
        };
        let Some(record) = self.task(task) else {
            return;
        };
        let of = (task, record.run, record.callable_of(node));
        let unknown = || {
            let reason = "no living worker is left that could run it".to_owned();
            (Arc::clone(&self.path), TaskCause::Poisoned(reason))
        };
        let loss = worker.and_then(|worker| self.losses.get(&worker)).cloned();
        let (path, cause) = loss.unwrap_or_else(unknown);
        self.keep_failure(of, &path, cause);
    }

    pub(super) fn group_stalled(&mut self, group: TaskId, idle: taskgraph::WorkerId) {
        let name_of = |task| {
            let (record, _, node) = self.record_of(task)?;
            Some(record.callable_of(node))
        };
        let name = name_of(group);
        let blockers = self.graph.blockers(group);
        let blockers: Vec<String> = blockers
            .iter()
            .filter_map(|(worker, task)| Some(format!("`{}` on {worker}", name_of(*task)?)))
            .collect();
        self.later.tell(move || {
            let group = name.as_deref();
            tracing::warn!(group, %idle, ?blockers, "a group holds a worker idle");
        });
    }
}
