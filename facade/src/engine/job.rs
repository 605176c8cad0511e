//! Control requests on their way to a child and back.

use std::sync::{Arc, OnceLock};

use parking_lot::Mutex;

use super::later::Laters;
use crate::buffer::BufferCore;
use crate::control::{ControlReply, ControlRequest, FaultKind};
use crate::error::WorkerDied;

/// A control request to one child, and the place of its answer.
pub(crate) struct Job {
    pub(crate) line: usize,
    pub(crate) request: ControlRequest,
    /// The buffer that the request names, whose descriptor must go first.
    pub(crate) buffer: Option<Arc<BufferCore>>,
    outcome: OnceLock<JobOutcome>,
    after: Mutex<Option<After>>,
}

/// What is done with an outcome as soon as it is there. Called under core, which it must not take; what it has to tell is
/// told later.
type After = Box<dyn FnOnce(&JobOutcome, &mut Laters) + Send>;

impl std::fmt::Debug for Job {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Job")
            .field("line", &self.line)
            .field("request", &self.request)
            .field("outcome", &self.outcome)
            .finish_non_exhaustive()
    }
}

/// How a control request ended.
#[derive(Debug, Clone)]
pub(crate) enum JobOutcome {
    Reply(ControlReply),
    Died(WorkerDied),
    Protocol(String),
}

impl JobOutcome {
    /// Whether the child could not map the buffer that the request names.
    pub(super) fn is_unmapped(&self) -> bool {
        matches!(self, JobOutcome::Reply(ControlReply::Failed(error)) if error.kind == FaultKind::Mapping)
    }
}

impl Job {
    pub(crate) fn new(line: usize, request: ControlRequest) -> Arc<Self> {
        Self::make(line, request, None, None)
    }

    /// A request that names `buffer`.
    pub(crate) fn on_buffer(
        line: usize,
        request: ControlRequest,
        buffer: &Arc<BufferCore>,
    ) -> Arc<Self> {
        Self::make(line, request, Some(Arc::clone(buffer)), None)
    }

    /// A request that nobody waits for.
    pub(crate) fn with_after(
        line: usize,
        request: ControlRequest,
        after: impl FnOnce(&JobOutcome, &mut Laters) + Send + 'static,
    ) -> Arc<Self> {
        Self::make(line, request, None, Some(Box::new(after)))
    }

    fn make(
        line: usize,
        request: ControlRequest,
        buffer: Option<Arc<BufferCore>>,
        after: Option<After>,
    ) -> Arc<Self> {
        Arc::new(Self {
            line,
            request,
            buffer,
            outcome: OnceLock::new(),
            after: Mutex::new(after),
        })
    }

    pub(crate) fn is_done(&self) -> bool {
        self.outcome.get().is_some()
    }

    pub(crate) fn outcome(&self) -> Option<&JobOutcome> {
        self.outcome.get()
    }

    /// Sets the answer; the first one stays.
    pub(super) fn finish(&self, outcome: JobOutcome, later: &mut Laters) {
        let _ = self.outcome.set(outcome);
        let after = self.after.lock().take();
        if let (Some(after), Some(outcome)) = (after, self.outcome.get()) {
            after(outcome, later);
        }
    }
}
