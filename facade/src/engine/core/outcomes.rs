//! What becomes of a run: its outcome, and the graph that somebody asked to keep.

use std::sync::Arc;

use taskgraph::{RunId, RunOutcome, RunStatus};

use super::{Core, TaskFailure};
use crate::engine::RunCell;
use crate::error::{Name, RunError, TaskCause};
use crate::run_graph::RunGraph;

impl Core {
    /// Keeps the graph of a run from now on, for whoever has the cell of the run.
    pub(crate) fn keep_graph(&mut self, run: RunId) -> Option<Arc<RunCell>> {
        let (cell, _) = self.runs.get(&run)?;
        self.graph.record(run).ok()?;
        self.observer.kept.begin(run);
        Some(Arc::clone(cell))
    }

    pub(super) fn run_finished(&mut self, run: RunId) {
        let status = self.graph.run_status(run);
        if let Some((cell, waiting)) = self.runs.remove(&run) {
            self.reclaim_after(run, &cell);
            self.count_detached(waiting, -1);
            self.publish_graph(run, &cell);
            if let Some(RunStatus::Done(outcome)) = status {
                self.observer.run_ended(outcome.is_ok());
                cell.finish(self.run_result(&outcome), &mut self.later);
            }
        }
        // The run is known, since it has just been reported.
        let _ = self.graph.release_run(run);
        self.forget_failures(run);
        self.progress = true;
    }

    fn publish_graph(&mut self, run: RunId, cell: &RunCell) {
        let Some(kept) = self.observer.kept.end(run) else {
            return;
        };
        if let Some(view) = self.graph.graph_view(run) {
            cell.keep_graph(RunGraph::new(view, kept));
        }
    }

    fn run_result(&self, outcome: &RunOutcome) -> Result<(), RunError> {
        if outcome.is_ok() {
            return Ok(());
        }
        let failure = outcome
            .cause
            .and_then(|task| self.failures.get(&task))
            .map(|kept| kept.failure.clone());
        let failure = failure.unwrap_or_else(|| TaskFailure {
            callable: Name::from("run"),
            worker: Arc::clone(&self.path),
            cause: TaskCause::Cancelled,
        });
        Err(RunError {
            task: failure.callable.to_string(),
            worker: failure.worker.to_string(),
            cause: failure.cause,
            completed: outcome.completed,
            failed: outcome.failed,
            skipped: outcome.skipped,
            cancelled: outcome.cancelled,
        })
    }
}
