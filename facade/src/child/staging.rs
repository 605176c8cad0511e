//! Copies between a view of shared memory and dense device memory.
//!
//! A device tensor is dense, whatever the view on the host: elements in row-major order, nothing between them. So two
//! tasks that write disjoint tiles of one buffer never write each other's bytes back.

use taskgraph::Tensor;

/// Dense runs of a view: how many bytes lie side by side, and where each run begins on the host.
pub(super) struct Runs {
    /// Bytes of one run.
    pub(super) run_bytes: usize,
    /// Byte offsets in the backing, in row-major order.
    pub(super) starts: Vec<usize>,
}

/// Bytes of the dense form of a view.
pub(super) fn dense_bytes(tensor: &Tensor) -> Option<u64> {
    Some(
        tensor
            .num_elements()
            .checked_mul(tensor.dtype().bits())?
            .div_ceil(8),
    )
}

/// Splits a validated view into its dense runs. `None` for elements smaller than a byte that do not lie side by side,
/// or a view that is too large for this process.
pub(super) fn runs(tensor: &Tensor) -> Option<Runs> {
    let bits = tensor.dtype().bits();
    let offset = usize::try_from(tensor.byte_offset()).ok()?;
    if tensor.is_contiguous() {
        return Some(Runs {
            run_bytes: usize::try_from(dense_bytes(tensor)?).ok()?,
            starts: vec![offset],
        });
    }
    if !bits.is_multiple_of(8) {
        return None;
    }
    let element = usize::try_from(bits / 8).ok()?;
    let (shape, strides) = (tensor.shape(), tensor.strides());
    // The last dimensions, as far as they are dense, form the run.
    let (mut outer, mut run) = (shape.len(), 1_u64);
    while outer > 0 && (strides[outer - 1] == run || shape[outer - 1] == 1) {
        run = run.checked_mul(shape[outer - 1])?;
        outer -= 1;
    }
    let mut starts = vec![offset];
    for dim in 0..outer {
        let step = usize::try_from(strides[dim]).ok()?.checked_mul(element)?;
        let len = usize::try_from(shape[dim]).ok()?;
        starts = starts
            .iter()
            .flat_map(|start| (0..len).map(move |i| start + i * step))
            .collect();
    }
    Some(Runs {
        run_bytes: usize::try_from(run).ok()?.checked_mul(element)?,
        starts,
    })
}

#[cfg(test)]
mod tests;
