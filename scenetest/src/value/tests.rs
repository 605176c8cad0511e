//! Reading and poisoning elements.

use super::*;

const READABLE: [DType; 12] = [
    DType::F64,
    DType::F32,
    DType::F16,
    DType::Bf16,
    DType::I64,
    DType::I32,
    DType::I16,
    DType::I8,
    DType::U64,
    DType::U32,
    DType::U16,
    DType::U8,
];

#[test]
fn poison_is_recognised_in_every_type() {
    for dtype in READABLE {
        let reader = Reader::of(dtype).expect("readable");
        let mut elements = vec![0; 4 * reader.bytes];
        assert!(!reader.is_poison(&elements[..reader.bytes]), "{dtype:?}");
        reader.poison(&mut elements);
        assert!(
            elements
                .chunks(reader.bytes)
                .all(|one| reader.is_poison(one)),
            "{dtype:?}"
        );
    }
}

#[test]
fn poisoned_floats_are_no_numbers() {
    for dtype in &READABLE[..4] {
        let reader = Reader::of(*dtype).expect("readable");
        let mut element = vec![0; reader.bytes];
        reader.poison(&mut element);
        assert!(reader.value(&element).is_nan(), "{dtype:?}");
    }
}

#[test]
fn the_ends_of_the_integers_are_exact() {
    let reader = Reader::of(DType::U64).expect("readable");
    let (max, less) = (u64::MAX.to_le_bytes(), (u64::MAX - 1).to_le_bytes());
    assert_eq!(reader.value(&max).distance(reader.value(&less)), Some(1.0));
    let reader = Reader::of(DType::I64).expect("readable");
    let far = reader
        .value(&i64::MIN.to_le_bytes())
        .distance(reader.value(&i64::MAX.to_le_bytes()));
    assert_eq!(far, Some(u64::MAX as f64));
}

#[test]
fn packed_types_cannot_be_read() {
    assert!(Reader::of(DType::I4).is_none());
}
