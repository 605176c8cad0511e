//! The codes of element types are a wire format: they must round-trip and stay dense.

use super::*;

#[test]
fn every_code_round_trips_and_no_other_code_decodes() {
    for &dtype in DType::all() {
        assert_eq!(DType::from_code(dtype.code()), Some(dtype));
    }
    let known = DType::all().len();
    let decoded = (0..=u8::MAX).filter_map(DType::from_code).count();
    assert_eq!(decoded, known);
    assert_eq!(DType::from_code(0), None);
}

#[test]
fn names_are_distinct() {
    let mut names: Vec<_> = DType::all().iter().map(|d| d.name()).collect();
    names.sort_unstable();
    names.dedup();
    assert_eq!(names.len(), DType::all().len());
}

#[test]
fn element_sizes_match_the_rust_types() {
    fn check<T: Element>() {
        assert_eq!(T::DTYPE.bits(), 8 * size_of::<T>() as u64);
    }
    check::<f64>();
    check::<f32>();
    check::<i8>();
    check::<u16>();
    check::<i32>();
    check::<u64>();
}
