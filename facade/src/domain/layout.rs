//! How a window is split into named buffers: the same in every rank.

use taskgraph::DType;

use super::DeviceName;
use crate::control::WireWindow;
use crate::element::Element;
use crate::error::DomainError;

/// Every buffer of a window begins at a multiple of this many bytes, as allocations do.
const ALIGNMENT: u64 = 512;

/// A buffer of each window, as a domain is asked for it: see [`named`].
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct NamedBuffer {
    name: String,
    dtype: DType,
    n_elements: u64,
    /// Set when the window is laid out.
    offset: u64,
}

/// A buffer of `n_elements` in each window of a domain, found again by its name.
///
/// ```
/// # use facade::{Orchestrator, Error, named};
/// # fn example(orch: &mut Orchestrator<'_>) -> Result<(), Error> {
/// let domain = orch.allocate_domain("ffn", &[0, 1], 1 << 20, &[named::<f32>("partial", 1024)])?;
/// let partial = domain.buffer::<f32>("partial")?;
/// orch.copy_to(partial[1], &[0.5; 1024])?; // into the window of rank 1
/// # Ok(())
/// # }
/// ```
#[must_use]
pub fn named<T: Element>(name: &str, n_elements: usize) -> NamedBuffer {
    NamedBuffer {
        name: name.to_owned(),
        dtype: T::DTYPE,
        n_elements: n_elements as u64,
        offset: 0,
    }
}

impl NamedBuffer {
    pub(super) fn dtype(&self) -> DType {
        self.dtype
    }

    pub(super) fn offset(&self) -> u64 {
        self.offset
    }

    pub(super) fn n_elements(&self) -> u64 {
        self.n_elements
    }

    /// The end of the buffer, when it begins at `offset`.
    fn end(&self, offset: u64) -> Option<u64> {
        let bytes = self.n_elements.checked_mul(self.dtype.bits())?.div_ceil(8);
        offset.checked_add(bytes)
    }
}

/// A checked split of a window.
#[derive(Debug, Clone)]
pub(super) struct Layout {
    window_bytes: u64,
    buffers: Vec<NamedBuffer>,
}

impl Layout {
    pub(super) fn new(
        domain: &str,
        window_bytes: u64,
        buffers: &[NamedBuffer],
    ) -> Result<Self, DomainError> {
        let mut laid = Vec::with_capacity(buffers.len());
        let mut needed = Some(0_u64);
        for (idx, buffer) in buffers.iter().enumerate() {
            if buffers[..idx].iter().any(|other| other.name == buffer.name) {
                let (domain, buffer) = (domain.to_owned(), buffer.name.clone());
                return Err(DomainError::BufferTwice { domain, buffer });
            }
            let offset = needed.and_then(|end| end.checked_next_multiple_of(ALIGNMENT));
            needed = offset.and_then(|offset| buffer.end(offset));
            laid.push(NamedBuffer {
                offset: offset.unwrap_or(u64::MAX),
                ..buffer.clone()
            });
        }
        let fits = needed.is_some_and(|needed| needed <= window_bytes && window_bytes > 0);
        if !fits {
            return Err(DomainError::Window {
                domain: domain.to_owned(),
                needed: needed.unwrap_or(u64::MAX),
                alignment: ALIGNMENT,
                window_bytes,
            });
        }
        Ok(Self {
            window_bytes,
            buffers: laid,
        })
    }

    pub(super) fn window_bytes(&self) -> u64 {
        self.window_bytes
    }

    pub(super) fn find(&self, name: &str) -> Option<&NamedBuffer> {
        self.buffers.iter().find(|buffer| buffer.name == name)
    }

    pub(super) fn names(&self) -> Vec<String> {
        self.buffers
            .iter()
            .map(|buffer| buffer.name.clone())
            .collect()
    }

    /// A window of `rank`, as a child is told of it.
    pub(super) fn wire_window(
        &self,
        name: DeviceName,
        root: DeviceName,
        rank: usize,
        is_home: bool,
        stride: u64,
    ) -> WireWindow {
        WireWindow {
            name,
            root,
            offset: rank as u64 * stride,
            bytes: self.window_bytes,
            is_home,
        }
    }
}

#[cfg(test)]
mod tests;
