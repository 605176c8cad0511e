//! Tasks that run only if an element of a tensor says so, when its turn has come.
//!
//! The element is read on the chip, after the tasks that write it: it is an input of the task like
//! any other. A task that does not run counts as done, so whatever waits for it goes on.

use taskgraph::{DType, Tensor};

use crate::args::DeviceTensor;
use crate::error::OrchestrationError;

/// What an element has to be.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Condition {
    /// Any bit pattern that is not zero; a negative zero is zero.
    NonZero,
    /// Zero.
    Zero,
}

impl Condition {
    /// Its code in a recorded graph.
    pub(crate) fn code(self) -> u32 {
        self as u32
    }

    /// The condition with a code; [`Condition::NonZero`] for one that was never given out.
    pub(crate) fn of_code(code: u32) -> Self {
        if code == Condition::Zero as u32 {
            Condition::Zero
        } else {
            Condition::NonZero
        }
    }
}

/// An element and what it has to be.
#[derive(Clone, Debug)]
pub(crate) struct Predicate {
    /// The one element, as a tensor.
    pub(crate) element: DeviceTensor,
    pub(crate) condition: Condition,
}

impl Predicate {
    /// The element of `tensor` at `index`.
    pub(crate) fn new(
        tensor: &DeviceTensor,
        index: &[u64],
        condition: Condition,
    ) -> Result<Self, OrchestrationError> {
        let (rank, found) = (tensor.view.rank(), index.len());
        if rank != found {
            let problem = format!("a predicate gives {found} indices into a tensor of rank {rank}");
            return Err(OrchestrationError::Refused(problem));
        }
        if tensor.view.dtype().bits() < 8 {
            let problem = format!("a predicate reads whole bytes, not {}", tensor.view.dtype());
            return Err(OrchestrationError::Refused(problem));
        }
        let mut element = *tensor;
        for (dim, &at) in index.iter().enumerate() {
            element = element.slice(dim, at..at.saturating_add(1))?;
        }
        Ok(Self { element, condition })
    }
}

/// Whether an element of this type, as it lies in memory, fulfils the condition.
pub(crate) fn holds(condition: Condition, view: &Tensor, bytes: [u8; 8]) -> bool {
    let bits = view.dtype().bits();
    let value = u64::from_le_bytes(bits_of(bytes, bits));
    let sign = if is_float(view.dtype()) {
        1 << (bits - 1)
    } else {
        0
    };
    (value & !sign != 0) == (condition == Condition::NonZero)
}

/// The first `bits` of an element, the rest zero.
fn bits_of(mut bytes: [u8; 8], bits: u64) -> [u8; 8] {
    bytes[(bits / 8) as usize..].fill(0);
    bytes
}

fn is_float(dtype: DType) -> bool {
    matches!(
        dtype,
        DType::F64 | DType::F32 | DType::F16 | DType::Bf16 | DType::F8E4M3 | DType::F8E5M2
    )
}

#[cfg(test)]
mod tests;
