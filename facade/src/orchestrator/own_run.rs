//! What an orchestration may ask of its own run: to keep its graph, and to be cancelled.

use super::Orchestrator;
use crate::run_graph::KeptGraph;
use crate::run_handle::RunCanceller;

impl Orchestrator<'_> {
    /// Keeps the graph of this run, of the tasks that are submitted from now on, to be looked at when the run is over;
    /// also when it fails. [`RunHandle::graph`](crate::RunHandle::graph) has it too.
    ///
    /// Costs two readings of the clock and some 200 bytes for each task, and tasks keep their slots until the run is
    /// over ([`WorkerBuilder::tasks_max`](crate::WorkerBuilder::tasks_max) is the most that it can have). Runs that do
    /// not ask pay nothing.
    ///
    /// ```no_run
    /// # fn show(node: &facade::Worker, f: &facade::FunctionHandle, x: &facade::Buffer<f32>) -> Result<(), facade::Error> {
    /// use facade::args;
    ///
    /// let kept = node.run(|orch| {
    ///     let kept = orch.keep_graph();
    ///     orch.submit_sub(f, args().inout(x))?;
    ///     orch.submit_sub(f, args().inout(x))?;
    ///     Ok(kept)
    /// })?;
    /// let graph = kept.get().expect("the run is over");
    /// std::fs::write("run.dot", graph.to_dot()).map_err(facade::Error::orchestration)?;
    /// assert_eq!(graph.critical_path().tasks.len(), 2);
    /// # Ok(())
    /// # }
    /// ```
    pub fn keep_graph(&mut self) -> KeptGraph {
        KeptGraph::new(self.engine.core().keep_graph(self.run))
    }

    /// What cancels this run, from inside of the orchestration or from any thread: see
    /// [`RunHandle::cancel`](crate::RunHandle::cancel). After that, submits are refused.
    #[must_use]
    pub fn canceller(&self) -> RunCanceller {
        RunCanceller::new(self.engine.weak(), self.run)
    }
}
