//! Windows that fit their buffers, and windows that do not.

use super::*;

fn layout(window_bytes: u64, buffers: &[NamedBuffer]) -> Result<Layout, DomainError> {
    Layout::new("d", window_bytes, buffers)
}

#[test]
fn buffers_lie_one_after_the_other_each_at_an_aligned_offset() {
    let buffers = [
        named::<u8>("a", 1),
        named::<f64>("b", 100),
        named::<u8>("none", 0),
        named::<f32>("c", 128),
    ];
    let laid = layout(2048 + 512, &buffers).unwrap();
    let offset = |name| laid.find(name).unwrap().offset();
    assert_eq!(
        [offset("a"), offset("b"), offset("none"), offset("c")],
        [0, 512, 1536, 1536]
    );
    assert!(layout(2047, &buffers).is_err());
    assert!(layout(2048, &buffers).is_ok());
}

#[test]
fn what_does_not_fit_overflows_or_is_named_twice_is_refused() {
    assert!(matches!(
        layout(0, &[]),
        Err(DomainError::Window { needed: 0, .. })
    ));
    let huge = [named::<f64>("a", usize::MAX)];
    assert!(matches!(
        layout(u64::MAX, &huge),
        Err(DomainError::Window {
            needed: u64::MAX,
            ..
        })
    ));
    let long = [named::<u8>("a", usize::MAX), named::<u8>("b", 1)];
    assert!(matches!(
        layout(1 << 40, &long),
        Err(DomainError::Window {
            needed: u64::MAX,
            ..
        })
    ));
    let twice = [named::<u8>("a", 1), named::<u8>("a", 1)];
    assert!(matches!(
        layout(4096, &twice),
        Err(DomainError::BufferTwice { .. })
    ));
}
