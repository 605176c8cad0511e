//! A tree whose engines write what their tasks did into files.

use std::path::PathBuf;

use serde::{Deserialize, Serialize};

use super::{NodeSpec, WorkerBuilder};

/// A directory for traces.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct TraceTo {
    pub(crate) dir: PathBuf,
}

impl WorkerBuilder {
    /// Traces the tasks of this worker's graph and of those of all workers below it, as
    /// [`Observe::Trace`](crate::Observe::Trace) does: each of them writes a file into `dir` when it closes, in the format of
    /// [`Trace::write_json`](crate::Trace::write_json). Times count on the monotonic clock of the machine, so that files of
    /// several workers and trees can be laid beside each other.
    ///
    /// The directory is made if it is not there. A file that cannot be written is logged, and fails nothing; a worker that is
    /// killed writes none.
    pub fn trace_to(mut self, dir: impl Into<PathBuf>) -> Self {
        self.spec.trace = Some(TraceTo { dir: dir.into() });
        self
    }
}

impl NodeSpec {
    /// This worker as a child of `parent`: traced if that is.
    pub(crate) fn below(&self, parent: &NodeSpec) -> NodeSpec {
        let trace = self.trace.clone().or_else(|| parent.trace.clone());
        NodeSpec {
            trace,
            ..self.clone()
        }
    }
}
