//! Which calls fit a recorded one.

use taskgraph::capture::MismatchKind;

use super::*;

/// A tensor of a buffer of 4096 bytes.
fn view(id: u64, dtype: DType, offset: u64, shape: &[u64], strides: &[u64]) -> Tensor {
    let buffer = BufferId::new(1, id, 0, BufferKind::Shared);
    Tensor::strided(buffer, dtype, offset, shape, strides, 4096).unwrap()
}

fn plain(id: u64, offset: u64) -> Tensor {
    view(id, DType::F32, offset, &[4, 4], &[4, 1])
}

fn call(tensors: &[(Tensor, Tag)], scalars: &[Scalar]) -> TaskArgs {
    let mut args = TaskArgs::new();
    for &(tensor, tag) in tensors {
        args.tensor(tensor, tag).unwrap();
    }
    scalars.iter().for_each(|&scalar| {
        args.scalar(scalar);
    });
    args
}

/// What differs between a recorded call and another, if anything.
#[track_caller]
fn check(recorded: &TaskArgs, other: &TaskArgs, expected: Option<(MismatchKind, Option<usize>)>) {
    let mut recorder = recorder(recorded);
    on(&mut recorder, 0, recorded).unwrap();
    let definition = Arc::new(recorder.finish().unwrap());
    let found = definition.bind(other, &[]).err();
    assert_eq!(
        found.map(|found| (found.kind, found.index)),
        expected,
        "{found:?}"
    );
}

#[test]
fn addresses_and_values_of_scalars_may_change() {
    let recorded = call(
        &[(plain(1, 0), Tag::Input), (plain(2, 0), Tag::Output)],
        &[Scalar::U32(1)],
    );
    let other = call(
        &[(plain(8, 64), Tag::Input), (plain(9, 640), Tag::Output)],
        &[Scalar::U32(7)],
    );
    check(&recorded, &other, None);
    let swapped = call(
        &[(plain(2, 0), Tag::Input), (plain(1, 0), Tag::Output)],
        &[Scalar::U32(1)],
    );
    check(&recorded, &swapped, None);
    let in_one_pool = call(
        &[(plain(5, 0), Tag::Input), (plain(5, 64), Tag::Output)],
        &[Scalar::U32(1)],
    );
    check(&recorded, &in_one_pool, None);
}

#[test]
fn everything_else_of_a_tensor_is_part_of_the_contract() {
    let recorded = call(&[(plain(1, 0), Tag::Input)], &[]);
    let of = |tensor| call(&[(tensor, Tag::Input)], &[]);
    for (other, kind) in [
        (
            of(view(1, DType::F32, 0, &[4, 5], &[5, 1])),
            MismatchKind::Shape,
        ),
        (of(view(1, DType::F32, 0, &[4], &[1])), MismatchKind::Shape),
        (
            of(view(1, DType::F32, 0, &[4, 4], &[8, 1])),
            MismatchKind::Strides,
        ),
        (
            of(view(1, DType::I32, 0, &[4, 4], &[4, 1])),
            MismatchKind::DType,
        ),
        (
            call(&[(plain(1, 0), Tag::InOut)], &[]),
            MismatchKind::Direction,
        ),
    ] {
        check(&recorded, &other, Some((kind, Some(0))));
    }
    let device = BufferId::new(1, 1, 0, BufferKind::Device);
    let device = Tensor::contiguous(device, DType::F32, &[4, 4], 64).unwrap();
    check(
        &recorded,
        &of(device),
        Some((MismatchKind::Memory, Some(0))),
    );
}

#[test]
fn a_missing_or_extra_argument_is_no_fit() {
    let recorded = call(&[(plain(1, 0), Tag::Input)], &[Scalar::U32(1)]);
    let no_tensor = call(&[], &[Scalar::U32(1)]);
    check(&recorded, &no_tensor, Some((MismatchKind::Tensors, None)));
    let two = call(
        &[(plain(1, 0), Tag::Input)],
        &[Scalar::U32(1), Scalar::U32(1)],
    );
    check(&recorded, &two, Some((MismatchKind::Scalars, None)));
    let other_type = call(&[(plain(1, 0), Tag::Input)], &[Scalar::I32(1)]);
    check(
        &recorded,
        &other_type,
        Some((MismatchKind::ScalarType, Some(0))),
    );
}

#[test]
fn tensors_must_share_the_same_bytes_again() {
    let apart = call(
        &[(plain(1, 0), Tag::Input), (plain(2, 0), Tag::Output)],
        &[],
    );
    let same = call(
        &[(plain(1, 0), Tag::Input), (plain(1, 0), Tag::Output)],
        &[],
    );
    let shifted = call(
        &[(plain(1, 0), Tag::Input), (plain(1, 16), Tag::Output)],
        &[],
    );
    let moved = call(
        &[(plain(3, 512), Tag::Input), (plain(3, 528), Tag::Output)],
        &[],
    );
    let overlap = Some((MismatchKind::Overlap, Some(1)));
    check(&apart, &same, overlap);
    check(&same, &apart, overlap);
    check(&same, &shifted, overlap);
    check(&shifted, &same, overlap);
    check(&shifted, &moved, None);
}

#[test]
fn columns_that_interleave_are_apart() {
    let column = |id, at: u64| view(id, DType::F32, 4 * at, &[4], &[4]);
    let recorded = call(
        &[(column(1, 0), Tag::InOut), (column(1, 1), Tag::InOut)],
        &[],
    );
    let other = call(
        &[(column(1, 2), Tag::InOut), (column(2, 2), Tag::InOut)],
        &[],
    );
    check(&recorded, &other, None);
}

#[test]
fn places_are_compared_as_the_caller_numbers_them() {
    let recorded = call(&[(plain(1, 0), Tag::Input)], &[]);
    let made = Arc::new(
        Recorder::new(FIRST, &recorded, &[3])
            .unwrap()
            .finish()
            .unwrap(),
    );
    assert!(made.bind(&recorded, &[3]).is_ok());
    let elsewhere = made.bind(&recorded, &[4]).unwrap_err();
    assert_eq!(elsewhere.kind, MismatchKind::Place);
    assert_eq!(
        elsewhere.to_string(),
        "the place of a tensor differs from the recorded call: recorded 3, found 4, at argument 0"
    );
}

#[test]
fn intermediate_memory_must_be_large_enough_and_aligned() {
    let boundary = TaskArgs::new();
    let mut recorder = recorder(&boundary);
    recorder.alloc(DType::F32, &[40]).unwrap();
    let made = Arc::new(recorder.finish().unwrap());
    assert_eq!(made.heap_bytes(), 192);
    let memory = |offset, bytes| view(1, DType::U8, offset, &[bytes], &[1]);
    for (offset, bytes, is_good) in [
        (0, 192, true),
        (64, 200, true),
        (0, 191, false),
        (32, 192, false),
    ] {
        let bound = made
            .bind(&boundary, &[])
            .unwrap()
            .heap(&memory(offset, bytes));
        assert_eq!(bound.is_ok(), is_good, "{bytes} bytes at {offset}");
    }
}
