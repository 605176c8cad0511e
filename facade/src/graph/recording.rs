//! A body while it is recorded: what an orchestrator does with tasks instead of submitting them.

use std::num::NonZeroU32;
use std::panic::Location;
use std::sync::Arc;

use smallvec::SmallVec;
use taskgraph::capture::{BoundaryScalar, Definition, NodeSpec, NotRecordable, Recorder};
use taskgraph::{DType, Inference, Placement, TaskArgs, TaskId, Tensor};

use super::{GraphCache, Keeps, Ticket};
use crate::callable::{Callee, Registry};
use crate::error::{BufferError, Error, Name, SubmitError};
use crate::orchestrator::TaskHandle;

/// One recording.
#[derive(Debug)]
pub(crate) struct Recording {
    number: NonZeroU32,
    recorder: Box<Recorder>,
    n_scalars: usize,
    /// The names of the callables, as the recorder numbers them.
    names: Vec<Name>,
    /// Why it cannot be replayed, and where that was found; the first reason stays.
    refusal: Option<(NotRecordable, &'static Location<'static>)>,
    /// Of the innermost scope: manual inside of one that is.
    inference: Inference,
}

impl Recording {
    /// Begins one, in the memory of the last one where that is free.
    pub(crate) fn begin(
        graphs: &GraphCache,
        ticket: &Ticket<'_>,
        boundary: &TaskArgs,
        places: &[u32],
        inference: Inference,
    ) -> Result<Self, NotRecordable> {
        let number = ticket.number();
        let recorder = match graphs.take_recorder() {
            Some(mut kept) => {
                kept.begin(number, boundary, places)?;
                kept
            }
            None => Box::new(Recorder::new(number, boundary, places)?),
        };
        Ok(Self {
            number,
            recorder,
            n_scalars: boundary.scalars().len(),
            names: Vec::new(),
            refusal: None,
            inference,
        })
    }

    /// The scalars of the boundary.
    pub(crate) fn scalars(&self) -> impl Iterator<Item = BoundaryScalar> + '_ {
        (0..self.n_scalars).filter_map(|index| self.recorder.scalar(index))
    }

    pub(crate) fn refusal(&self) -> Option<(NotRecordable, &'static Location<'static>)> {
        self.refusal
    }

    /// Begins a scope, and says what [`leave`](Recording::leave) goes back to. Memory of a replay is that of the whole
    /// graph, so a scope decides only how edges are found.
    pub(crate) fn enter(&mut self, inference: Inference) -> Inference {
        let outer = self.inference;
        if inference == Inference::Manual {
            self.inference = inference;
        }
        outer
    }

    pub(crate) fn leave(&mut self, outer: Inference) {
        self.inference = outer;
    }

    /// Intermediate memory of every replay.
    pub(crate) fn alloc(&mut self, dtype: DType, n_elements: u64) -> Result<Tensor, BufferError> {
        self.recorder
            .alloc(dtype, &[n_elements])
            .map_err(BufferError::View)
    }

    /// Takes down a task.
    pub(crate) fn submit(
        &mut self,
        callee: &Callee<'_>,
        placement: Placement<'_>,
        order: &[TaskHandle],
        members: &[&TaskArgs],
        place: &'static Location<'static>,
    ) -> Result<TaskHandle, Error> {
        let number = self.recorder.callable(&callee.digest.0);
        if number as usize == self.names.len() {
            self.names.push(Arc::clone(callee.name));
        }
        let after: SmallVec<[u32; 4]> = order
            .iter()
            .map(|task| task.node_of(self.number).unwrap_or(u32::MAX))
            .collect();
        let spec = NodeSpec {
            after: &after,
            inference: self.inference,
            ..NodeSpec::new(number, placement, members)
        };
        match self.recorder.submit(&spec) {
            Ok(node) => Ok(TaskHandle::node(self.number, node)),
            Err(reason) => {
                self.refusal = self.refusal.or(Some((reason, place)));
                let callable = Arc::clone(callee.name);
                Err(SubmitError::NotRecordable { callable, reason }.into())
            }
        }
    }

    /// The definition, and what it keeps alive; or why it cannot be replayed after all.
    pub(crate) fn finish(
        mut self,
        graphs: &GraphCache,
        name: &Name,
        registry: &Arc<Registry>,
    ) -> Result<(Definition, Keeps), NotRecordable> {
        let keeps = Keeps::new(name, self.names, registry);
        let definition = self.recorder.finish();
        graphs.keep_recorder(self.recorder);
        Ok((definition?, keeps))
    }
}

impl TaskHandle {
    /// A node of the recording with this number.
    pub(crate) fn node(recording: NonZeroU32, node: u32) -> Self {
        let id = TaskId {
            slot: node,
            generation: 0,
        };
        let recording = Some(recording);
        Self {
            id,
            worker: 0,
            recording,
        }
    }

    /// Which node of a recording it is.
    pub(crate) fn node_of(&self, recording: NonZeroU32) -> Option<u32> {
        (self.recording == Some(recording)).then_some(self.id.slot)
    }
}
