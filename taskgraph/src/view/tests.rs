//! Intersection and cover against the plain set of bytes.
//!
//! `TASKGRAPH_PAIRS` sets the number of random pairs (100 000 in `ci`).

use std::collections::BTreeSet;

use proptest::prelude::*;
use proptest::test_runner::{Config, TestRunner};

use crate::buffer::{BufferId, BufferKind};
use crate::dtype::DType;
use crate::tensor::Tensor;

const BUFFER: BufferId = BufferId::new(1, 1, 0, BufferKind::Shared);

/// Every byte a tensor touches, element by element.
fn bytes(tensor: &Tensor) -> BTreeSet<u64> {
    let bits = tensor.dtype().bits();
    let mut firsts = vec![8 * tensor.byte_offset()];
    for (&len, &stride) in tensor.shape().iter().zip(tensor.strides()) {
        firsts = firsts
            .iter()
            .flat_map(|first| (0..len).map(move |i| first + i * stride * bits))
            .collect();
    }
    firsts
        .iter()
        .flat_map(|first| first / 8..(first + bits).div_ceil(8))
        .collect()
}

/// A step on the way from a whole matrix to a view of it.
#[derive(Clone, Debug)]
enum Op {
    Slice(usize, u64, u64, u64),
    Transpose(usize, usize),
}

fn apply(tensor: Tensor, op: &Op) -> Tensor {
    let rank = tensor.rank();
    let changed = match *op {
        Op::Slice(dim, a, b, step) => {
            let (dim, len) = (dim % rank, tensor.shape()[dim % rank]);
            let (a, b) = (a % (len + 1), b % (len + 1));
            tensor.slice_step(dim, a.min(b)..a.max(b), step)
        }
        Op::Transpose(a, b) => tensor.transpose(a % rank, b % rank),
    };
    // A packed view that would start inside a byte is refused; the view before it will do.
    changed.unwrap_or(tensor)
}

fn op() -> impl Strategy<Value = Op> {
    prop_oneof![
        4 => (0..5usize, 0..20u64, 0..20u64, 1..4u64).prop_map(|(d, a, b, s)| Op::Slice(d, a, b, s)),
        1 => (0..5usize, 0..5usize).prop_map(|(a, b)| Op::Transpose(a, b)),
    ]
}

fn dtype() -> impl Strategy<Value = DType> {
    prop_oneof![
        Just(DType::F32),
        Just(DType::U8),
        Just(DType::I4),
        Just(DType::F64)
    ]
}

/// A view cut out of a row-major tensor.
fn cut() -> impl Strategy<Value = Tensor> {
    let shape = prop_oneof![
        Just(vec![16, 16]),
        Just(vec![256]),
        Just(vec![4, 8, 8]),
        Just(vec![2, 2, 4, 4, 4]),
        prop::collection::vec(1..7u64, 1..4),
    ];
    (shape, dtype(), prop::collection::vec(op(), 0..5)).prop_map(|(shape, dtype, ops)| {
        let whole = Tensor::contiguous(BUFFER, dtype, &shape, 4096).unwrap();
        ops.iter().fold(whole, apply)
    })
}

/// A view with any strides, elements that overlap included.
fn wild() -> impl Strategy<Value = Tensor> {
    let dims = prop::collection::vec((0..6u64, 1..30u64), 0..=4);
    (dims, dtype(), 0..30u64).prop_map(|(dims, dtype, at)| {
        let (shape, strides): (Vec<_>, Vec<_>) = dims.into_iter().unzip();
        Tensor::strided(BUFFER, dtype, at * dtype.align(), &shape, &strides, 1 << 20).unwrap()
    })
}

fn tensor() -> impl Strategy<Value = Tensor> {
    prop_oneof![3 => cut(), 1 => wild()]
}

fn pairs() -> u32 {
    std::env::var("TASKGRAPH_PAIRS")
        .ok()
        .and_then(|n| n.parse().ok())
        .unwrap_or(4_000)
}

#[test]
fn every_pair_of_views_is_judged_as_its_bytes_say() {
    let mut runner = TestRunner::new(Config {
        cases: pairs(),
        ..Config::default()
    });
    let result = runner.run(&(tensor(), tensor()), |(a, b)| {
        let (bytes_a, bytes_b) = (bytes(&a), bytes(&b));
        let (view_a, view_b) = (a.view(), b.view());
        let really = !bytes_a.is_disjoint(&bytes_b);
        let told = view_a.overlaps(&view_b);
        prop_assert_eq!(told, view_b.overlaps(&view_a));
        prop_assert!(told || !really, "an overlap was missed");
        if !view_a.is_bounding && !view_b.is_bounding {
            prop_assert_eq!(told, really, "disjoint views were taken for overlapping");
        }
        if view_a.covers(&view_b) {
            prop_assert!(bytes_a.is_superset(&bytes_b), "not covered");
        }
        Ok(())
    });
    if let Err(error) = result {
        panic!("{error}");
    }
}

#[test]
fn the_bounds_of_a_view_are_its_first_and_last_byte() {
    let mut runner = TestRunner::new(Config {
        cases: pairs() / 8,
        ..Config::default()
    });
    let result = runner.run(&tensor(), |tensor| {
        let (bytes, view) = (bytes(&tensor), tensor.view());
        prop_assert_eq!(bytes.is_empty(), view.is_empty());
        if let (Some(&first), Some(&last)) = (bytes.first(), bytes.last()) {
            prop_assert_eq!((view.lo(), view.hi()), (first, last + 1));
        }
        Ok(())
    });
    if let Err(error) = result {
        panic!("{error}");
    }
}

fn matrix() -> Tensor {
    Tensor::contiguous(BUFFER, DType::F32, &[16, 16], 1024).unwrap()
}

#[track_caller]
fn check(a: Tensor, b: Tensor, overlaps: bool) {
    assert_eq!(a.view().overlaps(&b.view()), overlaps);
    assert_eq!(b.view().overlaps(&a.view()), overlaps);
    assert_eq!(
        !bytes(&a).is_disjoint(&bytes(&b)),
        overlaps,
        "the row itself is wrong"
    );
}

#[test]
fn slices_of_one_matrix_meet_only_where_they_share_an_element() {
    let x = matrix();
    let rows = |a, b| x.slice(0, a..b).unwrap();
    let columns = |a, b| x.slice(1, a..b).unwrap();
    check(rows(0, 1), rows(1, 2), false);
    check(columns(0, 4), columns(8, 12), false);
    check(columns(0, 5), columns(4, 8), true);
    check(columns(0, 4), columns(4, 8), false);
    check(rows(3, 4), columns(3, 4), true);
    check(
        x.transpose(0, 1).unwrap().slice(0, 0..4).unwrap(),
        columns(4, 8),
        false,
    );
    check(
        x.transpose(0, 1).unwrap().slice(0, 0..5).unwrap(),
        columns(4, 8),
        true,
    );
    let even = x.slice_step(0, 0..16, 2).unwrap();
    let odd = x.slice_step(0, 1..16, 2).unwrap();
    check(even, odd, false);
    check(even, x.slice_step(0, 0..16, 3).unwrap(), true);
    let flat = x.reshape(&[256]).unwrap();
    check(flat.slice(0, 20..24).unwrap(), columns(0, 4), false);
    check(flat.slice(0, 20..33).unwrap(), columns(0, 4), true);
    check(columns(4, 4), x, false);
}

#[test]
fn a_transposed_view_is_the_same_set() {
    let x = matrix();
    assert_eq!(x.view(), x.transpose(0, 1).unwrap().view());
    let tile = x.slice(0, 2..5).unwrap().slice(1, 3..9).unwrap();
    assert_eq!(tile.view(), tile.transpose(0, 1).unwrap().view());
}

#[test]
fn a_tile_covers_its_own_tiles_only() {
    let x = matrix();
    let tile = |r: std::ops::Range<u64>, c: std::ops::Range<u64>| {
        x.slice(0, r).unwrap().slice(1, c).unwrap().view()
    };
    assert!(tile(0..8, 0..8).covers(&tile(2..4, 3..5)));
    assert!(tile(0..8, 0..8).covers(&tile(0..8, 0..8)));
    assert!(!tile(0..8, 0..8).covers(&tile(2..4, 7..9)));
    assert!(!tile(0..8, 0..8).covers(&tile(7..9, 3..5)));
    assert!(x.view().covers(&tile(7..9, 3..5)));
}

#[test]
fn a_pair_that_cannot_be_decided_cheaply_is_taken_as_overlapping() {
    // Coprime strides without any nesting: more candidates than the search may look at.
    let wild = |offset: u64, strides: &[u64]| {
        let shape = vec![100; strides.len()];
        Tensor::strided(BUFFER, DType::U8, offset, &shape, strides, 1 << 20)
            .unwrap()
            .view()
    };
    let a = wild(0, &[1013, 1009, 997, 991]);
    let b = wild(1, &[983, 977, 971, 967]);
    assert!(a.overlaps(&b));
}
