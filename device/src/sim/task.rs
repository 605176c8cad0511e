//! A live core task as the engine keeps it, and what it needs to be executed.

use smallvec::SmallVec;
use taskgraph::{Access, Scalar, Tag};

use super::body::SimCallable;
use super::memory::{Guard, first_bytes};
use crate::context::{CoreTensor, Place};
use crate::error::KernelError;
use crate::predicate::{Condition, holds};

/// A task with its arguments, in the storage of its slot of the graph.
#[derive(Debug, Default)]
pub(crate) struct CoreTask {
    /// Position in the order of submission.
    pub(crate) number: u64,
    pub(crate) kernel_idx: usize,
    pub(crate) n_blocks: u32,
    pub(crate) tensors: Vec<CoreTensor>,
    pub(crate) scalars: SmallVec<[Scalar; 4]>,
    pub(crate) predicate: Option<(CoreTensor, Condition)>,
    /// Whether nothing may run beside a block of it.
    pub(crate) is_alone: bool,
    /// What is behind the tensors that it writes, each with its position; empty where the compiler
    /// keeps the kernel inside its tensors.
    pub(crate) guards: SmallVec<[(usize, Guard); 2]>,
}

impl CoreTask {
    /// Whether the task's predicate lets it run; to be asked when its inputs are ready.
    pub(crate) fn is_wanted(&self) -> bool {
        let holds = |(element, condition): (CoreTensor, Condition)| {
            holds(condition, &element.view, first_bytes(&element))
        };
        self.predicate.is_none_or(holds)
    }

    /// Restores every guard that was overwritten; the position of the first tensor with one.
    pub(crate) fn mend_guards(&self) -> Option<usize> {
        let mut first = None;
        for (idx, guard) in self.guards.iter().filter(|(_, guard)| !guard.is_intact()) {
            guard.restore();
            first.get_or_insert(*idx);
        }
        first
    }

    /// Runs one block.
    pub(crate) fn execute(&self, loaded: &SimCallable, block: u32) -> Result<(), KernelError> {
        let (tensors, scalars) = (&self.tensors[..], &self.scalars[..]);
        let n_blocks = self.n_blocks;
        loaded.execute(
            self.kernel_idx,
            Place {
                tensors,
                scalars,
                block,
                n_blocks,
            },
        )
    }
}

/// Whether a task touches what the graph does not order, or has several blocks and reads what it
/// writes under another name: then nothing may run beside a block of it.
pub(crate) fn is_alone(accesses: &[Access], n_blocks: u32) -> bool {
    if accesses.iter().any(|access| access.tag == Tag::NoDep) {
        return true;
    }
    let written = || {
        accesses
            .iter()
            .enumerate()
            .filter(|(_, access)| access.tag.writes())
    };
    let overlaps = |(at, written): (usize, &Access)| {
        let others = accesses
            .iter()
            .enumerate()
            .filter(move |(other, _)| *other != at);
        others
            .map(|(_, other)| other)
            .any(|other| written.buffer == other.buffer && written.view.overlaps(&other.view))
    };
    n_blocks > 1 && written().any(overlaps)
}
