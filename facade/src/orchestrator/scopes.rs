//! Scopes and intermediate tensors.

use std::sync::Arc;

use taskgraph::{AllocError, DType, Inference, TaskId, Tensor};

use super::{Orchestrator, byte_size};
use crate::args::Backing;
use crate::buffer::View;
use crate::element::Element;
use crate::engine::Core;
use crate::error::{BufferError, Error, Name, SubmitError};

impl Orchestrator<'_> {
    /// An intermediate tensor of `n_elements` in the innermost scope, for tasks to write and others to read.
    ///
    /// What it holds at first is undefined: whatever was in that memory before. Tasks can name it until its scope ends,
    /// and its memory comes back when the scope and all tasks that name it have ended. The memory comes from a ring for
    /// scopes of this depth (0, which is the run itself, 1, 2, and deeper), whose size [`WorkerBuilder::heap`] sets.
    ///
    /// Waits while tasks that are going to end are in the way of the memory, and executes them meanwhile. Costs no system
    /// call once the ring has been used that far.
    ///
    /// [`WorkerBuilder::heap`]: crate::WorkerBuilder::heap
    ///
    /// # Errors
    ///
    /// [`Error::Buffer`] when the tensor cannot fit: it is larger than its ring, or a scope that is still open holds what
    /// it would need; the error says which, and names a task that uses it. Also when the machine has no memory left.
    pub fn alloc<T: Element>(&mut self, n_elements: usize) -> Result<View<T>, Error> {
        byte_size::<T>(n_elements)?;
        let (tensor, backing) = self.allocate(T::DTYPE, n_elements as u64)?;
        Ok(View::backed(backing, tensor))
    }

    /// A tensor in memory of the innermost scope, and that memory.
    pub(super) fn allocate(
        &mut self,
        dtype: DType,
        n_elements: u64,
    ) -> Result<(Tensor, Backing), Error> {
        if let Some(recording) = &mut self.recording {
            let tensor = recording.alloc(dtype, n_elements)?;
            return Ok((tensor, Backing::Recorded));
        }
        let is_full = |error: &AllocError| matches!(error, AllocError::Full { .. });
        let allocated = self.engine.attempt(is_full, |core| {
            core.graph.alloc(self.run, dtype, &[n_elements])
        });
        let tensor = allocated.map_err(|source| self.not_allocated(source))?;
        match self.engine.back(&tensor) {
            Ok(core) => Ok((tensor, Backing::Shared(core))),
            Err(error) => {
                self.unallocate(&tensor);
                Err(error.into())
            }
        }
    }

    /// Takes an allocation back that no task names, the newest of its scope.
    pub(super) fn unallocate(&mut self, tensor: &Tensor) {
        // A recording has no memory; there, and in a run that was cancelled meanwhile, there is nothing to take back.
        if self.recording.is_none() {
            self.engine.core().graph.take_back(self.run, tensor);
        }
    }

    /// Calls `body` in a scope: intermediate tensors that it allocates are its own, and their memory comes back when it
    /// has ended and the tasks that name them have.
    ///
    /// A scope is no barrier: its tasks may still run when this returns. Scopes nest up to 64 deep. Slots of tasks need no
    /// scope, they come back as tasks end.
    ///
    /// # Errors
    ///
    /// What `body` returns; [`Error::Submit`] when scopes are nested too deep, and then `body` is not called.
    pub fn scope<R>(
        &mut self,
        body: impl FnOnce(&mut Orchestrator<'_>) -> Result<R, Error>,
    ) -> Result<R, Error> {
        self.bracket(Inference::Automatic, body)
    }

    /// A [`scope`](Orchestrator::scope) in which no order is inferred: only [`ArgList::after`] orders its tasks, and tasks
    /// after it do not see what they touch.
    ///
    /// [`ArgList::after`]: crate::ArgList::after
    ///
    /// # Errors
    ///
    /// As [`Orchestrator::scope`].
    pub fn manual_scope<R>(
        &mut self,
        body: impl FnOnce(&mut Orchestrator<'_>) -> Result<R, Error>,
    ) -> Result<R, Error> {
        self.bracket(Inference::Manual, body)
    }

    /// How the innermost scope of the run finds edges.
    pub(crate) fn inference(&self) -> Inference {
        self.engine.core().graph.inference(self.run)
    }

    fn bracket<R>(
        &mut self,
        inference: Inference,
        body: impl FnOnce(&mut Orchestrator<'_>) -> Result<R, Error>,
    ) -> Result<R, Error> {
        if let Some(recording) = &mut self.recording {
            let outer = recording.enter(inference);
            let result = body(self);
            if let Some(recording) = &mut self.recording {
                recording.leave(outer);
            }
            return result;
        }
        let begun = self.engine.core().graph.begin_scope(self.run, inference);
        begun.map_err(|reason| SubmitError::Scope { reason })?;
        let result = body(self);
        // An error says that the run was cancelled, which has ended its scopes.
        let _ = self.engine.core().graph.end_scope(self.run);
        result
    }

    fn not_allocated(&self, reason: AllocError) -> Error {
        if let AllocError::Refused(_) = reason {
            let callable = Name::from("alloc");
            return SubmitError::Cancelled { callable }.into();
        }
        let blocker = match reason {
            AllocError::Exhausted { task, .. } => task,
            _ => None,
        };
        let core = self.engine.core();
        let blocker = blocker.and_then(|task| describe(&core, task));
        let worker = self.engine.path().to_string();
        BufferError::Intermediate {
            worker,
            reason,
            blocker,
        }
        .into()
    }
}

/// A live task as its user calls it.
fn describe(core: &Core, task: TaskId) -> Option<String> {
    let callable = Arc::clone(&core.task(task)?.callable);
    Some(format!("`{callable}` ({task})"))
}
