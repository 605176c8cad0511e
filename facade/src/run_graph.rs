//! The graph of a run that is over: what followed what, what it took, and what took the time.

use std::fmt;
use std::sync::Arc;

use hashbrown::HashMap;
use taskgraph::{CriticalPath, GraphNode, GraphView, Profile, TaskId};

use crate::engine::{KeptRun, RunCell};
use crate::error::Name;

/// The tasks of a run, what each waited for, how it ended, and when it ran, if it did.
///
/// Kept where an orchestration asks for it: [`Orchestrator::keep_graph`](crate::Orchestrator::keep_graph).
#[derive(Debug, Clone)]
pub struct RunGraph {
    view: GraphView,
    names: HashMap<TaskId, Name>,
}

impl RunGraph {
    pub(crate) fn new(mut view: GraphView, kept: KeptRun) -> Self {
        let times = kept.times.into_iter();
        view.add_times(times.map(|(task, (begin, end))| (task, begin, end)));
        let names = kept.names;
        Self { view, names }
    }

    /// The nodes, with targets, ends and times, and the edges. Times are nanoseconds since the worker was made, from
    /// when a task was seen to have begun, or was sent to a worker that was free, until its end was seen.
    #[must_use]
    pub fn view(&self) -> &GraphView {
        &self.view
    }

    /// The callable of a task; the name of the graph for a replayed graph.
    #[must_use]
    pub fn name(&self, task: TaskId) -> Option<&str> {
        self.names.get(&task).map(|name| &**name)
    }

    /// The chain of tasks that took the longest one after the other: no schedule of this graph is faster.
    #[must_use]
    pub fn critical_path(&self) -> CriticalPath {
        self.view.critical_path(GraphNode::duration_ns)
    }

    /// How long the run took from the first begin to the last end, and how much of it was not on the critical path: waiting
    /// for workers, and the scheduler. `None` when no task ran.
    #[must_use]
    pub fn profile(&self) -> Option<Profile> {
        self.view.profile()
    }

    /// In the DOT language, for Graphviz: solid edges for data, dashed ones where memory is used again, colours for ends,
    /// the critical path drawn thick.
    #[must_use]
    pub fn to_dot(&self) -> String {
        self.view.to_dot(|node| self.label(node))
    }

    /// As one JSON object: [`GraphView::to_json`].
    #[must_use]
    pub fn to_json(&self) -> String {
        self.view.to_json(|node| self.label(node))
    }

    fn label(&self, node: &GraphNode) -> String {
        self.name(node.task).unwrap_or("task").to_owned()
    }
}

/// Where the graph of a run will be found when the run is over.
#[derive(Clone)]
pub struct KeptGraph {
    cell: Option<Arc<RunCell>>,
}

impl KeptGraph {
    pub(crate) fn new(cell: Option<Arc<RunCell>>) -> Self {
        Self { cell }
    }

    /// The graph; `None` before the run is over, or when it was over already when it was asked for.
    #[must_use]
    pub fn get(&self) -> Option<Arc<RunGraph>> {
        self.cell.as_ref()?.graph()
    }
}

impl fmt::Debug for KeptGraph {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let is_there = self.get().is_some();
        f.debug_struct("KeptGraph")
            .field("there", &is_there)
            .finish()
    }
}
