//! Arguments that are refused, and that a refusal changes nothing.

use std::num::NonZeroU32;

use super::*;
use crate::buffer::BufferKind;
use crate::capture::Recorder;
use crate::dtype::DType;

fn tensor(kind: BufferKind) -> Tensor {
    Tensor::contiguous(BufferId::new(1, 1, 0, kind), DType::F32, &[16, 16], 1024).unwrap()
}

fn shared() -> Tensor {
    tensor(BufferKind::Shared)
}

#[test]
fn one_tensor_may_be_read_and_written() {
    let mut args = TaskArgs::new();
    args.tensor(shared(), Tag::Input)
        .unwrap()
        .tensor(shared(), Tag::Output)
        .unwrap();
    assert_eq!(args.tensors().len(), 2);
}

#[test]
fn two_disjoint_tiles_may_be_written_and_overlapping_ones_may_not() {
    let x = shared();
    let mut args = TaskArgs::new();
    args.tensor(x.slice(1, 0..4).unwrap(), Tag::Output).unwrap();
    args.tensor(x.slice(1, 8..12).unwrap(), Tag::InOut).unwrap();
    let before = args.clone();
    let refused = args
        .tensor(x.slice(1, 3..5).unwrap(), Tag::OutputExisting)
        .map(drop);
    let (first, second, buffer) = (0, 2, x.buffer());
    assert_eq!(
        refused,
        Err(ArgsError::OverlappingWrites {
            first,
            second,
            buffer
        })
    );
    assert_eq!(args.tensors(), before.tensors());
    assert_eq!(args.accesses(), before.accesses());
}

#[test]
fn a_tensor_without_dependencies_may_overlap_anything() {
    let mut args = TaskArgs::new();
    args.tensor(shared(), Tag::NoDep)
        .unwrap()
        .tensor(shared(), Tag::Output)
        .unwrap();
    args.tensor(shared(), Tag::NoDep).unwrap();
    assert_eq!(args.accesses().len(), 3);
}

#[test]
fn writing_read_only_memory_is_refused() {
    let mut args = TaskArgs::new();
    let private = tensor(BufferKind::ForkPrivate);
    args.tensor(private, Tag::Input).unwrap();
    for tag in [Tag::Output, Tag::InOut, Tag::OutputExisting] {
        let refused = args.tensor(private, tag).map(drop);
        assert_eq!(
            refused,
            Err(ArgsError::ReadOnly {
                index: 1,
                buffer: private.buffer()
            })
        );
    }
}

#[test]
fn a_name_is_used_once_among_tensors_and_scalars() {
    let mut args = TaskArgs::new();
    args.named_tensor("x", shared(), Tag::Input).unwrap();
    args.named_scalar("n", 3u64).unwrap();
    args.scalar(1i32).scalar(2i32);
    let refused = args.named_scalar("x", 4u64).map(drop);
    assert_eq!(refused, Err(ArgsError::DuplicateName { name: "x".into() }));
    let refused = args
        .named_tensor(String::from("n"), shared(), Tag::Input)
        .map(drop);
    assert_eq!(refused, Err(ArgsError::DuplicateName { name: "n".into() }));
    assert_eq!((args.tensors().len(), args.scalars().len()), (1, 3));
}

#[test]
fn scalars_survive_the_wire_bit_by_bit() {
    let all = [
        Scalar::from(u64::MAX),
        Scalar::from(-1i64),
        Scalar::from(u32::MAX),
        Scalar::from(-2i32),
        Scalar::from(-0.5f64),
        Scalar::from(f32::MIN_POSITIVE),
        Scalar::from(true),
    ];
    for scalar in all {
        assert_eq!(
            Scalar::from_wire(scalar.code(), scalar.bits()),
            Some(scalar)
        );
    }
    assert_eq!(Scalar::from_wire(0, 0), None);
    assert_eq!(Scalar::from_wire(8, 0), None);
    assert_eq!(Scalar::from_wire(7, 2), None);
    assert_eq!(Scalar::from_wire(4, 1 << 32), None);
}

#[test]
fn a_boundary_scalar_that_was_given_to_a_task_can_be_passed_on() {
    let mut boundary = TaskArgs::new();
    boundary.scalar(7i32);
    let recorder = Recorder::new(NonZeroU32::MIN, &boundary, &[]).unwrap();
    let given = ScalarArg::of(recorder.scalar(0).unwrap());
    assert_eq!(given.to_send(), Scalar::I32(7));
    assert!(!format!("{given:?}").contains('7'), "{given:?}");
    let passed_on = ScalarArg::of(given.forwarded().unwrap());
    assert_eq!(
        (passed_on.value, passed_on.origin),
        (given.value, given.origin)
    );
    assert!(ScalarArg::of(7i32).forwarded().is_none());
    assert!(format!("{:?}", ScalarArg::of(7i32)).contains('7'));
    let eager = ScalarArg::of(BoundaryScalar::eager(Scalar::I32(7)));
    assert!(
        eager.forwarded().is_some(),
        "it may be passed on, in a body that is not recorded too"
    );
    assert!(!format!("{eager:?}").contains('7'), "{eager:?}");
}

#[test]
fn a_tensor_without_memory_is_an_output_and_nothing_else() {
    let none = Tensor::unbacked(0, DType::F32, &[4]).unwrap();
    for tag in [Tag::Input, Tag::InOut, Tag::OutputExisting, Tag::NoDep] {
        let refused = TaskArgs::new().tensor(none, tag).map(|_| ());
        assert_eq!(refused, Err(ArgsError::Unbacked { index: 0 }), "{tag:?}");
    }
    let mut args = TaskArgs::new();
    args.tensor(none, Tag::Output).unwrap();
    let twice = args.tensor(none, Tag::Output).map(|_| ());
    assert!(
        matches!(twice, Err(ArgsError::OverlappingWrites { .. })),
        "{twice:?}"
    );
    assert!(args.is_unbacked());
}

#[test]
fn an_output_is_backed_once_by_what_it_waits_for() {
    let none = Tensor::unbacked(0, DType::F32, &[4]).unwrap();
    let buffer = BufferId::new(1, 7, 0, BufferKind::Shared);
    let real = |shape: &[u64]| Tensor::contiguous(buffer, DType::F32, shape, 64).unwrap();
    let mut args = TaskArgs::new();
    args.tensor(real(&[8]).slice(0, 4..8).unwrap(), Tag::Output)
        .unwrap();
    args.tensor(none, Tag::Output).unwrap();
    assert_eq!(
        args.back(1, real(&[2, 2])),
        Err(ArgsError::NotBackable { index: 1 })
    );
    assert_eq!(
        args.back(0, real(&[4])),
        Err(ArgsError::NotBackable { index: 0 })
    );
    let over = real(&[8]).slice(0, 2..6).unwrap();
    assert!(matches!(
        args.back(1, over),
        Err(ArgsError::OverlappingWrites {
            first: 0,
            second: 1,
            ..
        })
    ));
    assert!(args.is_unbacked());
    args.back(1, real(&[4])).unwrap();
    assert!(!args.is_unbacked());
    assert_eq!(
        args.back(1, real(&[4])),
        Err(ArgsError::NotBackable { index: 1 })
    );
}
