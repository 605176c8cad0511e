//! Elements of every width and kind against zero.

use super::*;
use crate::chip::DeviceAddress;

#[track_caller]
fn check(dtype: DType, bytes: &[u8], is_zero: bool) {
    let view = DeviceTensor::contiguous(DeviceAddress(0), dtype, &[])
        .unwrap()
        .view;
    // What lies behind the element does not count.
    let mut memory = [0xFF; 8];
    memory[..bytes.len()].copy_from_slice(bytes);
    assert_eq!(
        holds(Condition::Zero, &view, memory),
        is_zero,
        "{dtype} {bytes:?}"
    );
    assert_eq!(
        holds(Condition::NonZero, &view, memory),
        !is_zero,
        "{dtype} {bytes:?}"
    );
}

#[test]
fn an_element_is_compared_with_zero_by_its_type() {
    check(DType::Bool, &[0], true);
    check(DType::Bool, &[1], false);
    check(DType::I32, &0_i32.to_le_bytes(), true);
    check(DType::I32, &i32::MIN.to_le_bytes(), false);
    check(DType::F32, &(-0.0_f32).to_le_bytes(), true);
    check(DType::F32, &f32::MIN_POSITIVE.to_le_bytes(), false);
    check(DType::Bf16, &0x8000_u16.to_le_bytes(), true);
    check(DType::U64, &(1_u64 << 63).to_le_bytes(), false);
    check(DType::F64, &(-0.0_f64).to_le_bytes(), true);
}

#[test]
fn an_index_that_is_not_one_element_is_refused() {
    let flags = DeviceTensor::contiguous(DeviceAddress(0), DType::I32, &[2, 3]).unwrap();
    assert!(Predicate::new(&flags, &[1, 2], Condition::Zero).is_ok());
    assert!(Predicate::new(&flags, &[1], Condition::Zero).is_err());
    assert!(Predicate::new(&flags, &[1, 3], Condition::Zero).is_err());
    assert!(Predicate::new(&flags, &[u64::MAX, 0], Condition::Zero).is_err());
    let packed = DeviceTensor::contiguous(DeviceAddress(0), DType::I4, &[2]).unwrap();
    assert!(Predicate::new(&packed, &[0], Condition::Zero).is_err());
}
