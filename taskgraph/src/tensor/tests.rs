//! Bounds, overflow, and the wire form against arbitrary bytes.

use proptest::prelude::*;

use super::*;
use crate::buffer::BufferKind;

const BUFFER: BufferId = BufferId::new(7, 3, 1, BufferKind::Shared);

fn matrix() -> Tensor {
    Tensor::contiguous(BUFFER, DType::F32, &[16, 16], 1024).unwrap()
}

#[test]
fn a_contiguous_tensor_fills_its_bytes() {
    let x = matrix();
    assert_eq!(x.strides(), [16, 1]);
    assert_eq!(x.footprint(), 0..1024);
    assert_eq!(x.num_elements(), 256);
    assert!(x.is_contiguous());
}

#[test]
fn a_shape_larger_than_the_backing_is_refused() {
    let refused = Tensor::contiguous(BUFFER, DType::F32, &[16, 17], 1024);
    let expected = TensorError::OutOfBounds {
        buffer: BUFFER,
        end: 1088,
        backing_bytes: 1024,
    };
    assert_eq!(refused, Err(expected));
}

#[test]
fn packed_elements_take_half_a_byte() {
    let x = Tensor::contiguous(BUFFER, DType::I4, &[3, 3], 5).unwrap();
    assert_eq!(x.footprint(), 0..5);
    assert!(Tensor::contiguous(BUFFER, DType::I4, &[3, 3], 4).is_err());
    let refused = x.slice(0, 1..2);
    assert_eq!(
        refused,
        Err(TensorError::SubByteOffset {
            element: 3,
            dtype: DType::I4
        })
    );
    assert_eq!(x.slice(0, 2..3).unwrap().footprint(), 3..5);
}

#[test]
fn slices_keep_their_place_in_the_backing() {
    let tile = matrix().slice(0, 2..5).unwrap().slice(1, 4..8).unwrap();
    assert_eq!(tile.shape(), [3, 4]);
    assert_eq!(tile.byte_offset(), (2 * 16 + 4) * 4);
    assert_eq!(tile.footprint(), 144..(4 * 16 + 8) * 4);
    assert!(!tile.is_contiguous());
    assert_eq!(tile.reshape(&[12]), Err(TensorError::NotContiguous));
    assert!(matrix().slice(0, 2..5).unwrap().is_contiguous());
}

#[test]
fn slices_outside_a_dimension_are_refused() {
    let x = matrix();
    assert_eq!(
        x.slice(2, 0..1),
        Err(TensorError::NoSuchDim { dim: 2, rank: 2 })
    );
    let bad = TensorError::BadRange {
        dim: 1,
        start: 3,
        end: 17,
        len: 16,
    };
    assert_eq!(x.slice(1, 3..17), Err(bad));
    assert_eq!(
        x.slice_step(1, 0..4, 0),
        Err(TensorError::ZeroStep { dim: 1 })
    );
    let huge = x.slice_step(1, 0..1, u64::MAX);
    assert_eq!(huge.unwrap().shape(), [16, 1]);
    let overflow = x.slice_step(0, 0..1, u64::MAX);
    assert_eq!(overflow, Err(TensorError::Overflow));
}

#[test]
fn an_empty_slice_touches_nothing_even_at_the_end() {
    let none = matrix().slice(0, 16..16).unwrap();
    assert!(none.is_empty() && none.footprint().is_empty());
    assert_eq!(none.num_elements(), 0);
}

#[test]
fn reshape_keeps_the_elements_or_refuses() {
    let x = matrix();
    assert_eq!(x.reshape(&[4, 64]).unwrap().strides(), [64, 1]);
    assert_eq!(
        x.reshape(&[4, 65]),
        Err(TensorError::ElementCount { from: 256, to: 260 })
    );
    let rank = x.reshape(&[1, 1, 1, 1, 16, 16]);
    assert_eq!(rank, Err(TensorError::Rank { rank: 6 }));
}

/// TG-3: extents that wrap round in 64 bits must never look small.
#[test]
fn giant_shapes_and_strides_are_refused_by_name() {
    let wrapping = [
        (vec![(1 << 31) + 1], vec![1 << 31]),
        (vec![(1 << 32) + 1], vec![1 << 32]),
        (vec![(1 << 63) + 1], vec![1 << 62]),
        (vec![3, 3], vec![1 << 63, 1 << 63]),
        (vec![u64::MAX], vec![u64::MAX]),
        (vec![2, (1 << 62) + 1], vec![1, 1]),
    ];
    for (shape, strides) in wrapping {
        let refused = Tensor::strided(BUFFER, DType::F32, 8, &shape, &strides, 4);
        assert_eq!(refused, Err(TensorError::Overflow), "{shape:?} {strides:?}");
    }
    let overflow = Tensor::contiguous(BUFFER, DType::U8, &[1 << 40, 1 << 40, 0], 4);
    assert_eq!(overflow, Err(TensorError::Overflow));
}

#[test]
fn a_descriptor_that_claims_more_than_the_object_has_is_refused() {
    let raw = matrix().to_raw();
    assert_eq!(raw.validate(1024), Ok(matrix()));
    assert_eq!(raw.validate(4096), Ok(matrix()));
    let refused = raw.validate(1023);
    assert_eq!(
        refused,
        Err(TensorError::BackingClaim {
            claimed: 1024,
            real: 1023
        })
    );
}

#[test]
fn a_descriptor_with_garbage_in_unused_bytes_is_refused() {
    let mut raw = matrix().to_raw();
    raw.unused[5] = 1;
    assert_eq!(raw.validate(1024), Err(TensorError::UnusedNotZero));
    let mut raw = matrix().to_raw();
    raw.strides[2] = 1;
    assert_eq!(raw.validate(1024), Err(TensorError::UnusedNotZero));
    let mut raw = matrix().to_raw();
    raw.rank = 6;
    assert_eq!(raw.validate(1024), Err(TensorError::Rank { rank: 6 }));
}

proptest! {
    /// TG-3: whatever the bytes, a descriptor that passes lies inside the backing.
    #[test]
    fn random_descriptors_never_pass_with_a_footprint_outside(
        words in prop::array::uniform16(prop_oneof![0..20u64, any::<u64>(), Just(1 << 31)]),
        backing in prop_oneof![0..5_000u64, any::<u64>()],
    ) {
        let raw: RawTensor = bytemuck::cast(words);
        if let Ok(tensor) = raw.validate(backing) {
            let footprint = tensor.footprint();
            prop_assert!(footprint.start <= footprint.end);
            prop_assert!(tensor.is_empty() || footprint.end <= backing);
        }
    }

    /// Likewise for descriptors that are nearly right.
    #[test]
    fn damaged_descriptors_never_pass_with_a_footprint_outside(
        shape in prop::collection::vec(0..9u64, 0..=5),
        damage in prop::collection::vec((0..128usize, any::<u8>()), 0..4),
    ) {
        let whole = Tensor::contiguous(BUFFER, DType::Bf16, &shape, 1 << 20).unwrap();
        let mut raw = whole.to_raw();
        for (at, byte) in damage {
            bytemuck::bytes_of_mut(&mut raw)[at] = byte;
        }
        if let Ok(tensor) = raw.validate(1 << 20) {
            prop_assert!(tensor.is_empty() || tensor.footprint().end <= 1 << 20);
            prop_assert_eq!(tensor.to_raw(), raw);
        }
    }
}

proptest! {
    /// Dense tensors take a short way to their view; it leads to the same place.
    #[test]
    fn the_view_of_a_dense_tensor_is_that_of_its_strides(
        shape in prop::collection::vec(0_u64..6, 0..=RANK_MAX),
        from in 0_u64..4,
        packed in any::<bool>(),
    ) {
        let dtype = if packed { DType::I4 } else { DType::F32 };
        let whole = Tensor::contiguous(BUFFER, dtype, &shape, 1 << 16).unwrap();
        let mut views = vec![whole];
        if let Some(&len) = shape.first() {
            views.extend(whole.slice(0, from.min(len)..len));
            views.extend(whole.transpose(0, shape.len() - 1));
        }
        for x in views {
            let expected = View::of(x.byte_offset(), x.shape(), x.strides(), dtype.bits());
            prop_assert_eq!(x.view(), expected, "{:?}", x);
        }
    }
}
