//! Runs against walking every element.

use proptest::prelude::*;
use taskgraph::{BACKING_BYTES_MAX, BufferId, BufferKind, DType};

use super::*;

fn tensor(shape: &[u64], strides: &[u64]) -> Tensor {
    let buffer = BufferId::new(0, 0, 0, BufferKind::Device);
    Tensor::strided(buffer, DType::F32, 0, shape, strides, BACKING_BYTES_MAX).unwrap()
}

/// Positions of all elements, row-major, by the definition of strides.
fn positions(shape: &[u64], strides: &[u64]) -> Vec<usize> {
    let mut all = vec![0];
    for (len, stride) in shape.iter().zip(strides) {
        all = all
            .iter()
            .flat_map(|at| (0..*len).map(move |i| at + (i * stride) as usize))
            .collect();
    }
    all
}

#[test]
fn a_contiguous_tensor_is_one_run_and_a_tile_is_one_per_row() {
    let whole = Runs::of(&tensor(&[4, 8], &[8, 1]));
    assert_eq!((whole.len(), whole.offsets().count()), (32, 1));
    let tile = Runs::of(&tensor(&[3, 5], &[8, 1]));
    assert_eq!(
        (tile.len(), tile.offsets().collect::<Vec<_>>()),
        (5, vec![0, 8, 16])
    );
    let scalar = Runs::of(&tensor(&[], &[]));
    assert_eq!((scalar.len(), scalar.offsets().count()), (1, 1));
    assert_eq!(Runs::of(&tensor(&[0, 3], &[3, 1])).offsets().count(), 0);
}

proptest! {
    #[test]
    fn runs_cover_every_element_in_order(
        dims in prop::collection::vec((0_u64..5, 1_u64..7), 0..=5),
    ) {
        let (shape, strides): (Vec<u64>, Vec<u64>) = dims.into_iter().unzip();
        let runs = Runs::of(&tensor(&shape, &strides));
        let walked: Vec<usize> =
            runs.offsets().flat_map(|at| at..at + runs.len()).collect();
        prop_assert_eq!(walked, positions(&shape, &strides));
    }
}
