//! Outputs without a backing: a submit that allocates what its task brings into being.

use smallvec::SmallVec;

use super::Scheduler;
use super::spec::TaskSpec;
use crate::args::TaskArgs;
use crate::buffer::BufferKind;
use crate::heap::AllocError;
use crate::ids::{RunId, TaskId};
use crate::tensor::Tensor;

/// Arguments that were given memory: where they stand, what stood there, and what stands there now.
type Backed = SmallVec<[(usize, Tensor, Tensor); 2]>;

impl Scheduler {
    /// Adds a task as [`submit`](Scheduler::submit) does, and allocates its outputs [without
    /// memory](Tensor::unbacked) in the innermost scope of the run.
    ///
    /// `args` are the arguments of the task, whatever `spec` says of them. Afterwards they hold the tensors that
    /// were allocated, for the worker and for later tasks; each lives as if [`alloc`](Scheduler::alloc) had made it.
    ///
    /// # Errors
    /// As [`alloc`](Scheduler::alloc) and [`submit`](Scheduler::submit), whose refusal is
    /// [`AllocError::Refused`]. Nothing has changed then, neither here nor in `args`.
    pub fn submit_outputs(
        &mut self,
        run: RunId,
        spec: &TaskSpec<'_>,
        args: &mut TaskArgs,
    ) -> Result<TaskId, AllocError> {
        let mut backed = Backed::new();
        let submitted = self
            .back_outputs(run, args, &mut backed)
            .and_then(|()| Ok(self.submit(run, &spec.args(args))?));
        if submitted.is_err() {
            self.unback_outputs(run, args, backed);
        }
        submitted
    }

    fn back_outputs(
        &mut self,
        run: RunId,
        args: &mut TaskArgs,
        backed: &mut Backed,
    ) -> Result<(), AllocError> {
        for at in 0..args.tensors().len() {
            let old = args.tensors()[at].tensor;
            if old.buffer().kind == BufferKind::Unbacked {
                let new = self.alloc(run, old.dtype(), old.shape())?;
                args.replace(at, new);
                backed.push((at, old, new));
            }
        }
        Ok(())
    }

    fn unback_outputs(&mut self, run: RunId, args: &mut TaskArgs, backed: Backed) {
        for (at, old, new) in backed.into_iter().rev() {
            self.take_back(run, &new);
            args.replace(at, old);
        }
    }
}
