//! Dense runs of views, against a walk over every element.

use rstest::rstest;
use taskgraph::{BufferId, BufferKind, DType, Tensor};

use super::{dense_bytes, runs};

fn whole(dtype: DType, shape: &[u64]) -> Tensor {
    let buffer = BufferId::new(1, 1, 0, BufferKind::Shared);
    Tensor::contiguous(buffer, dtype, shape, 1 << 20).unwrap()
}

/// Byte offsets of all elements, row-major.
fn elements(tensor: &Tensor) -> Vec<u64> {
    let bytes = tensor.dtype().bits() / 8;
    let mut offsets = vec![tensor.byte_offset()];
    for (len, stride) in tensor.shape().iter().zip(tensor.strides()) {
        offsets = offsets
            .iter()
            .flat_map(|start| (0..*len).map(move |i| start + i * stride * bytes))
            .collect();
    }
    offsets
}

#[rstest]
#[case::contiguous(whole(DType::F32, &[6, 7]), 1)]
#[case::rows(whole(DType::F32, &[6, 7]).slice(0, 2..5).unwrap(), 1)]
#[case::columns(whole(DType::F32, &[6, 7]).slice(1, 2..5).unwrap(), 6)]
#[case::transposed(whole(DType::U8, &[6, 7]).transpose(0, 1).unwrap(), 42)]
#[case::inner_block(whole(DType::I64, &[4, 5, 6]).slice(1, 1..3).unwrap(), 4)]
#[case::one_column(whole(DType::F16, &[6, 7]).slice(1, 3..4).unwrap(), 6)]
#[case::scalar(whole(DType::F64, &[]), 1)]
#[case::empty(whole(DType::F64, &[3, 0]), 1)]
fn runs_cover_the_elements_in_order(#[case] tensor: Tensor, #[case] n_runs: usize) {
    let runs = runs(&tensor).unwrap();
    let element = (tensor.dtype().bits() / 8) as usize;
    let covered: Vec<u64> = runs
        .starts
        .iter()
        .flat_map(|start| (0..runs.run_bytes / element).map(move |i| (start + i * element) as u64))
        .collect();
    assert_eq!(covered, elements(&tensor));
    assert_eq!(runs.starts.len(), n_runs);
    assert_eq!(dense_bytes(&tensor), Some((covered.len() * element) as u64));
}

#[test]
fn packed_elements_can_be_copied_side_by_side_only() {
    let packed = *DType::all().iter().find(|dtype| dtype.bits() < 8).unwrap();
    assert!(runs(&whole(packed, &[8, 8])).is_some());
    assert!(runs(&whole(packed, &[8, 8]).transpose(0, 1).unwrap()).is_none());
}
