//! Scopes: brackets in a run that say how long intermediate memory is wanted.
//!
//! A run has a scope of depth 0 of its own, from its begin until it is sealed or cancelled. Inside of
//! it scopes nest. A tensor that is allocated belongs to the innermost scope; it can be named by tasks
//! until that ends, and its memory comes back when the scope and all tasks that name it have ended.
//! Slots of tasks are not held by scopes at all: a task that has ended gives its slot back.

use smallvec::SmallVec;

use super::Scheduler;
use super::spec::{Inference, SubmitError};
use crate::args::Access;
use crate::dtype::DType;
use crate::heap::{AllocError, BlockId};
use crate::ids::{RunId, TaskId};
use crate::slot::State;
use crate::tensor::{Tensor, bytes_of, row_major};

/// The deepest that scopes nest inside of a run, not counting the run itself.
pub const SCOPES_MAX: usize = 64;

/// Why a scope neither began nor ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum ScopeError {
    /// Scopes nest no deeper.
    #[error("cannot begin a scope in {run}: {SCOPES_MAX} are open already, one inside the other")]
    TooDeep {
        /// The run.
        run: RunId,
    },
    /// There is no scope to end.
    #[error("cannot end a scope in {run}: none is open")]
    NotOpen {
        /// The run.
        run: RunId,
    },
    /// The run takes nothing, or nothing yet.
    #[error(transparent)]
    Refused(#[from] SubmitError),
}

/// One open scope.
#[derive(Clone, Copy, Debug, Default)]
struct Scope {
    /// The block that was allocated last; it leads to the others.
    newest: Option<BlockId>,
    inference: Inference,
}

/// The open scopes of a run, the outermost being the run itself.
#[derive(Debug)]
pub(super) struct Scopes {
    open: SmallVec<[Scope; 4]>,
    /// That of the innermost one.
    inference: Inference,
}

impl Default for Scopes {
    fn default() -> Scopes {
        Scopes {
            open: SmallVec::from_slice(&[Scope::default()]),
            inference: Inference::Automatic,
        }
    }
}

impl Scopes {
    /// How the innermost scope finds edges.
    #[inline]
    pub(super) fn inference(&self) -> Inference {
        self.inference
    }

    fn enter(&mut self, inference: Inference) {
        self.inference = inference;
        self.open.push(Scope {
            newest: None,
            inference,
        });
    }

    /// Leaves the innermost scope, which is not the run itself.
    fn leave(&mut self) -> Scope {
        let ended = self.open.pop().unwrap_or_default();
        self.inference = self
            .open
            .last()
            .map_or(Inference::Automatic, |scope| scope.inference);
        ended
    }
}

impl Scheduler {
    /// Begins a scope inside the innermost one of the run and returns its depth, 1 for the first.
    ///
    /// In a scope that is [`Inference::Manual`], or inside of one, every task is submitted as manual.
    ///
    /// # Errors
    /// When [`SCOPES_MAX`] are open, or the run is not being built.
    pub fn begin_scope(&mut self, run: RunId, inference: Inference) -> Result<usize, ScopeError> {
        self.runs.check_building(run)?;
        let scopes = &mut self.runs.of_task(run.into()).scopes;
        if scopes.open.len() > SCOPES_MAX {
            return Err(ScopeError::TooDeep { run });
        }
        let is_manual = scopes.inference() == Inference::Manual;
        let inference = if is_manual {
            Inference::Manual
        } else {
            inference
        };
        scopes.enter(inference);
        Ok(scopes.open.len() - 1)
    }

    /// How the innermost scope of a run finds edges; automatically when there is no such run.
    pub fn inference(&mut self, run: RunId) -> Inference {
        self.runs
            .get_mut(run)
            .map_or(Inference::Automatic, |run| run.scopes.inference())
    }

    /// Ends the innermost scope of the run. Its memory comes back as its tasks end.
    ///
    /// # Errors
    /// When no scope is open, or the run is not being built.
    pub fn end_scope(&mut self, run: RunId) -> Result<(), ScopeError> {
        self.runs.check_building(run)?;
        let scopes = &mut self.runs.of_task(run.into()).scopes;
        if scopes.open.len() < 2 {
            return Err(ScopeError::NotOpen { run });
        }
        let ended = scopes.leave();
        self.ledger.heap.leave_scope(ended.newest);
        Ok(())
    }

    /// A row-major tensor of this shape in memory of the innermost scope of the run, uninitialized.
    ///
    /// # Errors
    /// When the run is not being built, or there is no such tensor, or no memory: see [`AllocError`]
    /// for what helps.
    pub fn alloc(&mut self, run: RunId, dtype: DType, shape: &[u64]) -> Result<Tensor, AllocError> {
        self.runs.check_building(run)?;
        let (strides, rank) = (row_major(shape)?, shape.len());
        let bytes = bytes_of(dtype, shape)?;
        let scopes = &mut self.runs.of_task(run.into()).scopes.open;
        let depth = scopes.len() - 1;
        let heap = &mut self.ledger.heap;
        let block = match heap.alloc(bytes, depth, scopes[depth].newest) {
            Ok(block) => block,
            Err((error, in_the_way)) => return Err(self.name_blocker(error, in_the_way)),
        };
        scopes[depth].newest = Some(block.id);
        Ok(Tensor::strided(
            block.buffer,
            dtype,
            block.offset,
            shape,
            &strides[..rank],
            block.ring_bytes,
        )?)
    }

    /// Takes an [`alloc`](Scheduler::alloc) back: the newest one of the innermost scope, when no task has named it.
    /// Of any other tensor it says `false`, and nothing has changed.
    pub fn take_back(&mut self, run: RunId, tensor: &Tensor) -> bool {
        let Ok(Some(block)) = self.ledger.heap.block(&tensor.buffer()) else {
            return false;
        };
        let scopes = self
            .runs
            .get_mut(run)
            .and_then(|run| run.scopes.open.last_mut());
        match scopes.filter(|scope| scope.newest == Some(block)) {
            Some(scope) if !self.ledger.heap.is_used(block) => {
                scope.newest = self.ledger.heap.leave_block(block);
                true
            }
            _ => false,
        }
    }

    /// Makes sure that the task in the error is one that lives: the last one that came to use the block in the way
    /// may have ended before others.
    fn name_blocker(&mut self, mut error: AllocError, block: Option<BlockId>) -> AllocError {
        let named = match &mut error {
            AllocError::Full { blocker, .. } => Some(blocker),
            AllocError::Exhausted { task, .. } => task.as_mut(),
            _ => None,
        };
        let Some((named, block)) = named.zip(block) else {
            return error;
        };
        if !self.uses(named.slot, block) {
            let mut slots = self.arena.live_slots();
            if let Some(user) = slots.find(|&slot| self.uses(slot, block)) {
                *named = self.arena.id(user);
                self.ledger.heap.set_user(block, *named);
            }
        }
        error
    }

    fn uses(&self, slot: u32, block: BlockId) -> bool {
        let slot = &self.arena[slot];
        slot.state() != State::Free && self.ledger.holds(slot.records, block)
    }

    /// Tasks of the run name their memory no more.
    pub(super) fn leave_all_scopes(&mut self, run: RunId) {
        let scopes = &mut self.runs.of_task(run.into()).scopes;
        scopes.inference = Inference::Automatic;
        for scope in scopes.open.drain(..) {
            self.ledger.heap.leave_scope(scope.newest);
        }
    }

    /// Checks that every block that a task names may still be named.
    pub(super) fn check_blocks<'a>(
        &self,
        accesses: impl Iterator<Item = &'a Access>,
    ) -> Result<(), SubmitError> {
        let blocks = accesses.map(|access| self.ledger.heap.block(&access.buffer));
        let ended = blocks.filter_map(Result::err).next();
        ended.map_or(Ok(()), |buffer| {
            Err(SubmitError::MemoryReclaimed { buffer })
        })
    }

    /// A task uses the blocks that it names until it ends, whatever it does with them.
    pub(super) fn hold_blocks<'a>(
        &mut self,
        slot: u32,
        task: TaskId,
        accesses: impl Iterator<Item = &'a Access>,
    ) {
        let mut records = self.arena[slot].records;
        for access in accesses {
            if let Ok(Some(block)) = self.ledger.heap.block(&access.buffer) {
                self.ledger.hold(slot, task, &mut records, block);
            }
        }
        self.arena[slot].records = records;
    }
}
