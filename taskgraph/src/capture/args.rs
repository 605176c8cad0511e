//! Where the arguments of a node come from, and what they are in one replay.

use super::definition::Definition;
use crate::args::{Scalar, Tag, TaskArgs};
use crate::tensor::{Tensor, TensorError};

/// Where a tensor argument comes from.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ArgSource {
    /// A tensor of the boundary, as it is.
    Boundary {
        /// Which one.
        index: u32,
    },
    /// A view of a tensor of the boundary.
    View {
        /// Which one.
        index: u32,
        /// Bytes from the first element of that tensor to the first of the view.
        offset: u64,
    },
    /// Intermediate memory.
    Internal {
        /// Which allocation.
        allocation: u32,
        /// Bytes from the begin of the allocation to the first element.
        offset: u64,
    },
    /// A whole allocation that this node is the first to use, and overwrites.
    OwnOutput {
        /// Which allocation.
        allocation: u32,
    },
}

impl ArgSource {
    /// The tensor of the boundary that it is a part of; `None` for intermediate memory.
    pub fn boundary(&self) -> Option<u32> {
        match *self {
            ArgSource::Boundary { index } | ArgSource::View { index, .. } => Some(index),
            ArgSource::Internal { .. } | ArgSource::OwnOutput { .. } => None,
        }
    }
}

/// A tensor argument of a node.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct NodeArg {
    /// Where it comes from.
    pub source: ArgSource,
    /// What the node does to it.
    pub tag: Tag,
    pub(super) geometry: u32,
}

/// Where a scalar argument comes from.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum ScalarSource {
    /// The same value in every replay.
    Constant(Scalar),
    /// A scalar of the boundary, by position.
    Boundary(u32),
}

/// What the sources of a definition are in one replay.
#[derive(Clone, Copy, Debug)]
pub struct Bindings<'a> {
    /// The boundary, as it was [bound](Definition::bind).
    pub boundary: &'a TaskArgs,
    /// Intermediate memory, [`heap_bytes`](Definition::heap_bytes) or more.
    pub heap: Option<Tensor>,
}

/// Why an argument has no tensor. With a boundary that was bound this cannot happen.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum ResolveError {
    /// The boundary has fewer tensors or scalars.
    #[error("the boundary has no {kind} {index}")]
    Missing {
        /// `tensor` or `scalar`.
        kind: &'static str,
        /// The position.
        index: u32,
    },
    /// There is no intermediate memory.
    #[error("the graph uses intermediate memory, and none was given")]
    NoHeap,
    /// The argument does not lie inside what it is a part of.
    #[error(transparent)]
    Tensor(#[from] TensorError),
}

impl Definition {
    /// What a tensor argument is in one replay. Costs no search and no allocation.
    ///
    /// # Errors
    /// When the bindings are not those of a boundary that was bound.
    pub fn tensor(&self, arg: &NodeArg, bindings: &Bindings<'_>) -> Result<Tensor, ResolveError> {
        let base = |index: u32| {
            let found = bindings.boundary.tensors().get(index as usize);
            let kind = "tensor";
            found
                .map(|arg| &arg.tensor)
                .ok_or(ResolveError::Missing { kind, index })
        };
        match arg.source {
            ArgSource::Boundary { index } => base(index).copied(),
            ArgSource::View { index, offset } => self.part(arg, base(index)?, offset),
            ArgSource::Internal { allocation, offset } => {
                self.intermediate(arg, allocation, offset, bindings)
            }
            ArgSource::OwnOutput { allocation } => self.intermediate(arg, allocation, 0, bindings),
        }
    }

    /// What a scalar argument is in one replay.
    ///
    /// # Errors
    /// When the boundary has no such scalar.
    pub fn scalar(
        &self,
        source: ScalarSource,
        bindings: &Bindings<'_>,
    ) -> Result<Scalar, ResolveError> {
        match source {
            ScalarSource::Constant(value) => Ok(value),
            ScalarSource::Boundary(index) => {
                let found = bindings.boundary.scalars().get(index as usize);
                let kind = "scalar";
                found
                    .map(|arg| arg.value)
                    .ok_or(ResolveError::Missing { kind, index })
            }
        }
    }

    fn intermediate(
        &self,
        arg: &NodeArg,
        allocation: u32,
        offset: u64,
        bindings: &Bindings<'_>,
    ) -> Result<Tensor, ResolveError> {
        let heap = bindings.heap.as_ref().ok_or(ResolveError::NoHeap)?;
        let start = self.allocation(allocation).unwrap_or_default().start;
        self.part(arg, heap, start + offset)
    }

    /// The geometry of an argument, so many bytes behind the first element of `base`.
    ///
    /// # Errors
    /// When it does not lie inside the backing of `base`.
    pub fn part(&self, arg: &NodeArg, base: &Tensor, offset: u64) -> Result<Tensor, ResolveError> {
        let geometry = self.geometry(arg.geometry);
        let byte_offset = base.byte_offset().checked_add(offset);
        Ok(Tensor::strided(
            base.buffer(),
            geometry.dtype(),
            byte_offset.ok_or(TensorError::Overflow)?,
            geometry.shape(),
            geometry.strides(),
            base.backing_bytes(),
        )?)
    }
}
