//! Intersection and cover against the plain set of bytes.
//!
//! `TASKGRAPH_PAIRS` sets how many pairs are drawn at random; 100 000 where it is absent, in `ci` too.

use proptest::prelude::*;
use proptest::test_runner::{Config, TestRunner};

use super::{Difference, STEPS_MAX, View};
use crate::buffer::{BufferId, BufferKind};
use crate::dtype::DType;
use crate::tensor::Tensor;

const BUFFER: BufferId = BufferId::new(1, 1, 0, BufferKind::Shared);

/// Bytes of a buffer, one bit each.
#[derive(Clone, Debug, PartialEq)]
struct Bytes([u64; BYTES_MAX / 64]);

/// No view of these tests reaches further.
const BYTES_MAX: usize = 8192;

impl Bytes {
    /// Adds fewer than 64 bytes.
    fn insert(&mut self, bytes: std::ops::Range<u64>) {
        let (word, at) = (bytes.start as usize / 64, bytes.start % 64);
        let bits = u128::from((1u64 << (bytes.end - bytes.start)) - 1) << at;
        self.0[word] |= bits as u64;
        if bits >> 64 != 0 {
            self.0[word + 1] |= (bits >> 64) as u64;
        }
    }

    fn is_disjoint(&self, other: &Bytes) -> bool {
        self.0.iter().zip(&other.0).all(|(a, b)| a & b == 0)
    }

    fn is_superset(&self, other: &Bytes) -> bool {
        self.0.iter().zip(&other.0).all(|(a, b)| b & !a == 0)
    }

    /// The first byte, and the one behind the last.
    fn bounds(&self) -> Option<(u64, u64)> {
        let first = self.0.iter().position(|&word| word != 0)?;
        let last = self.0.iter().rposition(|&word| word != 0)?;
        let lo = 64 * first as u64 + u64::from(self.0[first].trailing_zeros());
        let hi = 64 * (last as u64 + 1) - u64::from(self.0[last].leading_zeros());
        Some((lo, hi))
    }
}

/// Every byte a tensor touches, element by element.
fn bytes(tensor: &Tensor) -> Bytes {
    let bits = tensor.dtype().bits();
    let mut all = Bytes([0; BYTES_MAX / 64]);
    let dims: Vec<_> = tensor
        .shape()
        .iter()
        .zip(tensor.strides())
        .map(|(&len, &stride)| (len, stride * bits))
        .collect();
    add(&mut all, &dims, 8 * tensor.byte_offset(), bits);
    all
}

/// Adds the elements of the dimensions that are left, the first of them at bit `first`.
fn add(all: &mut Bytes, dims: &[(u64, u64)], first: u64, bits: u64) {
    match dims.split_first() {
        None => all.insert(first / 8..(first + bits).div_ceil(8)),
        Some((&(len, stride), rest)) => {
            (0..len).for_each(|i| add(all, rest, first + i * stride, bits))
        }
    }
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

/// Tensors that are drawn together, each of which is paired with every other.
const DRAWN: usize = 8;
const PAIRS_DRAWN: u32 = (DRAWN * (DRAWN - 1) / 2) as u32;

/// Tiles of one row-major tensor.
fn tiles() -> impl Strategy<Value = Vec<Tensor>> {
    let tile = prop::collection::vec(op().prop_map(unstepped), 0..5);
    let shape = prop_oneof![
        Just(vec![16, 16]),
        Just(vec![4, 8, 8]),
        Just(vec![2, 2, 4, 4, 4])
    ];
    let tiles = prop::collection::vec(tile, DRAWN);
    (shape, dtype(), tiles).prop_map(|(shape, dtype, tiles)| {
        let whole = Tensor::contiguous(BUFFER, dtype, &shape, 4096).unwrap();
        let cut = |ops: &Vec<Op>| ops.iter().fold(whole, apply);
        tiles.iter().map(cut).collect()
    })
}

fn unstepped(op: Op) -> Op {
    match op {
        Op::Slice(dim, a, b, _) => Op::Slice(dim, a, b, 1),
        other => other,
    }
}

fn tensor() -> impl Strategy<Value = Tensor> {
    prop_oneof![3 => cut(), 1 => wild()]
}

fn pairs() -> u32 {
    std::env::var("TASKGRAPH_PAIRS")
        .ok()
        .and_then(|n| n.parse().ok())
        .unwrap_or(100_000)
}

/// Whether the search for a common byte ended before it gave up.
fn is_decided(a: &View, b: &View) -> bool {
    let mut search = Difference::of(a, b);
    search.is_reachable();
    search.steps <= STEPS_MAX
}

/// A tensor with its bytes and what the view of it says they are.
fn seen(tensor: &Tensor) -> (Bytes, View) {
    (bytes(tensor), tensor.view())
}

fn judge((bytes_a, a): &(Bytes, View), (bytes_b, b): &(Bytes, View)) -> Result<(), TestCaseError> {
    let really = !bytes_a.is_disjoint(bytes_b);
    let told = a.overlaps(b);
    prop_assert_eq!(told, b.overlaps(a));
    prop_assert!(told || !really, "an overlap was missed");
    if !a.is_bounding && !b.is_bounding && is_decided(a, b) {
        prop_assert_eq!(told, really, "disjoint views were taken for overlapping");
    }
    for (a, b, bytes_a, bytes_b) in [(a, b, bytes_a, bytes_b), (b, a, bytes_b, bytes_a)] {
        prop_assert!(!a.covers(b) || bytes_a.is_superset(bytes_b), "not covered");
    }
    Ok(())
}

/// Judges every pair.
fn judge_all(tensors: &[Tensor]) -> Result<(), TestCaseError> {
    let seen: Vec<_> = tensors.iter().map(seen).collect();
    for (at, a) in seen.iter().enumerate() {
        seen[at + 1..].iter().try_for_each(|b| judge(a, b))?;
    }
    Ok(())
}

#[track_caller]
fn check_all<T: std::fmt::Debug>(
    n_cases: u32,
    cases: impl Strategy<Value = T>,
    judge: impl Fn(T) -> Result<(), TestCaseError>,
) {
    let config = Config {
        cases: n_cases,
        failure_persistence: None,
        ..Config::default()
    };
    if let Err(error) = TestRunner::new(config).run(&cases, judge) {
        panic!("{error}");
    }
}

#[test]
fn every_pair_of_views_is_judged_as_its_bytes_say() {
    let drawn = prop::collection::vec(tensor(), DRAWN);
    check_all(pairs().div_ceil(PAIRS_DRAWN), drawn, |drawn| {
        judge_all(&drawn)
    });
}

#[test]
fn tiles_of_one_tensor_are_always_judged_exactly() {
    check_all(pairs().div_ceil(PAIRS_DRAWN), tiles(), |tiles| {
        judge_all(&tiles)?;
        let views: Vec<_> = tiles
            .iter()
            .map(Tensor::view)
            .filter(|view| !view.is_bounding)
            .collect();
        for (at, a) in views.iter().enumerate() {
            prop_assert!(views[at..].iter().all(|b| is_decided(a, b)), "gave up");
        }
        Ok(())
    });
}

#[test]
fn the_bounds_of_a_view_are_its_first_and_last_byte() {
    check_all(pairs() / 8, tensor(), |tensor| {
        let (bytes, view) = (bytes(&tensor), tensor.view());
        prop_assert_eq!(bytes.bounds().is_none(), view.is_empty());
        if let Some(bounds) = bytes.bounds() {
            prop_assert_eq!((view.lo(), view.hi()), bounds);
        }
        Ok(())
    });
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
