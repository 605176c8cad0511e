//! Walking a strided tensor as runs of elements that lie side by side.

use taskgraph::{RANK_MAX, Tensor};

/// The runs of a tensor, in row-major order.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Runs {
    /// Dimensions that are walked, outermost first.
    shape: [u64; RANK_MAX],
    strides: [u64; RANK_MAX],
    rank: usize,
    len: usize,
}

impl Runs {
    pub(crate) fn of(view: &Tensor) -> Self {
        let (mut shape, mut strides) = ([1; RANK_MAX], [0; RANK_MAX]);
        let mut rank = view.rank();
        shape[..rank].copy_from_slice(view.shape());
        strides[..rank].copy_from_slice(view.strides());
        let mut len = 1;
        while rank > 0 && (strides[rank - 1] == len || shape[rank - 1] == 1) {
            len *= shape[rank - 1];
            rank -= 1;
        }
        Self {
            shape,
            strides,
            rank,
            len: len as usize,
        }
    }

    /// Elements of one run; at least 1, so that a slice can be cut by it.
    pub(crate) fn len(&self) -> usize {
        self.len.max(1)
    }

    /// Where each run begins, in elements from the first one.
    pub(crate) fn offsets(&self) -> impl Iterator<Item = usize> {
        let Self {
            shape,
            strides,
            rank,
            len,
        } = *self;
        let count: u64 = if len == 0 {
            0
        } else {
            shape[..rank].iter().product()
        };
        (0..count).map(move |run| {
            let mut rest = run;
            let mut offset = 0;
            for dim in (0..rank).rev() {
                offset += rest % shape[dim] * strides[dim];
                rest /= shape[dim];
            }
            offset as usize
        })
    }
}

#[cfg(test)]
mod tests;
