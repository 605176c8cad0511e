//! Collectives over all the values that elements can have: negative ones, sums that wrap or round, NaN, infinities.

use std::fmt::Debug;

use facade::{AllReduce, Collectives, Element, Reduce, Worker, named};
use half::{bf16, f16};

use crate::support::builder;

const RANKS: usize = 5;
const LEN: usize = 203;

/// An element of any bits, and the reduction of two as the documentation of [`Reduce`] says it, by other means than the
/// kernels have: half-precision numbers in `f64`, integers in `i128`.
trait Any: Element + Debug {
    fn any(bits: u64) -> Self;
    fn reduced(self, other: Self, reduce: Reduce) -> Self;
    /// Equal but for the payload of a NaN and the sign of a zero, which no reduction promises.
    fn same(self, other: Self) -> bool;
}

macro_rules! any_integer {
    ($($rust:ty),*) => {$(
        impl Any for $rust {
            fn any(bits: u64) -> Self { bits as Self }
            fn reduced(self, other: Self, reduce: Reduce) -> Self {
                let (a, b) = (i128::from(self), i128::from(other));
                (match reduce {
                    Reduce::Sum => a + b,
                    Reduce::Min => if a < b { a } else { b },
                    _ => if a > b { a } else { b },
                }) as Self
            }
            fn same(self, other: Self) -> bool { self == other }
        }
    )*};
}
any_integer!(i64, i32, i16, i8, u64, u32, u16, u8);

/// Of a number and a NaN the number; a sum with a NaN is one.
fn reduced(a: f64, b: f64, reduce: Reduce) -> f64 {
    match (reduce, a.is_nan(), b.is_nan()) {
        (Reduce::Sum, ..) => a + b,
        (_, true, _) => b,
        (_, _, true) => a,
        (Reduce::Min, ..) => {
            if a < b {
                a
            } else {
                b
            }
        }
        _ => {
            if a > b {
                a
            } else {
                b
            }
        }
    }
}

macro_rules! any_float {
    ($($rust:ty: $from:expr, $to:expr);* $(;)?) => {$(
        impl Any for $rust {
            fn any(bits: u64) -> Self {
                // Every fifth is special; the others are of both signs and of sizes that round when added.
                let special = [f64::NAN, f64::INFINITY, f64::NEG_INFINITY, 0.0, -0.0];
                let number = f64::from((bits >> 8) as i16) * f64::powi(2.0, (bits >> 4 & 15) as i32 - 12);
                let value = if bits % 5 == 0 { special[(bits >> 40) as usize % 5] } else { number };
                $from(value)
            }
            fn reduced(self, other: Self, reduce: Reduce) -> Self {
                $from(reduced($to(self), $to(other), reduce))
            }
            fn same(self, other: Self) -> bool {
                let (a, b) = ($to(self), $to(other));
                a == b || a.is_nan() && b.is_nan()
            }
        }
    )*};
}
// A sum of two in f64, rounded once, is their rounded sum: 53 bits are more than twice 24 and two.
any_float! {
    f64: |value: f64| value, |value: f64| value;
    f32: |value: f64| value as f32, f64::from;
    f16: f16::from_f64, f16::to_f64;
    bf16: bf16::from_f64, bf16::to_f64;
}

fn inputs<T: Any>(seed: u64, len: usize) -> Vec<Vec<T>> {
    let mut state = seed;
    let mut next = || {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        T::any(state)
    };
    (0..RANKS)
        .map(|_| std::iter::repeat_with(&mut next).take(len).collect())
        .collect()
}

/// The reduction of one element over all ranks, from the rank `first` on and around: every rank must have these bits.
fn fold<T: Any>(inputs: &[Vec<T>], at: usize, first: usize, reduce: Reduce) -> T {
    let ranks = (0..RANKS).map(|rank| inputs[(first + rank) % RANKS][at]);
    ranks
        .reduce(|a, b| a.reduced(b, reduce))
        .expect("some ranks")
}

/// In which piece of a ring an element lies: the even shares of `LEN`, the first ones longer.
fn ring_piece(at: usize) -> usize {
    let (share, rest) = (LEN / RANKS, LEN % RANKS);
    let ends = |piece: usize| (piece + 1) * share + rest.min(piece + 1);
    (0..RANKS).find(|&piece| at < ends(piece)).expect("within")
}

fn check<T: Any>(node: &Worker, collectives: &Collectives, seed: u64) {
    let workers: Vec<u32> = (0..RANKS as u32).rev().collect();
    let whole = RANKS * LEN;
    let buffers = [
        named::<T>("x", LEN),
        named::<T>("y", LEN),
        named::<T>("long", whole),
    ];
    let domain = node
        .allocate_domain("values", &workers, 1 << 16, &buffers)
        .unwrap();
    let of = |name| domain.buffer::<T>(name).unwrap();
    let (x, y, long) = (of("x"), of("y"), of("long"));
    let (short, pieces) = (inputs::<T>(seed, LEN), inputs::<T>(!seed, whole));
    for rank in 0..RANKS {
        node.copy_to(x[rank], &short[rank]).unwrap();
        node.copy_to(long[rank], &pieces[rank]).unwrap();
    }
    let found = |what: String, expected: &dyn Fn(usize, usize) -> T| {
        for rank in 0..RANKS {
            let mut found = vec![T::any(1); LEN];
            node.copy_from(&mut found, y[rank]).unwrap();
            for (at, found) in found.into_iter().enumerate() {
                let expected = expected(rank, at);
                assert!(
                    found.same(expected),
                    "{what} of {}: rank {rank}, element {at} is {found:?}, not {expected:?}",
                    std::any::type_name::<T>()
                );
            }
        }
    };
    for reduce in [Reduce::Sum, Reduce::Min, Reduce::Max] {
        node.run(|orch| collectives.all_reduce(orch, &x, &y, reduce, AllReduce::OneShot))
            .unwrap();
        found(format!("one-shot {reduce:?}"), &|_, at| {
            fold(&short, at, 0, reduce)
        });
        node.run(|orch| collectives.all_reduce(orch, &x, &y, reduce, AllReduce::Ring))
            .unwrap();
        found(format!("ring {reduce:?}"), &|_, at| {
            fold(&short, at, ring_piece(at), reduce)
        });
        node.run(|orch| collectives.reduce_scatter(orch, &long, &y, reduce))
            .unwrap();
        found(format!("reduce-scatter {reduce:?}"), &|rank, at| {
            fold(&pieces, rank * LEN + at, 0, reduce)
        });
    }
    domain.release();
    assert!(domain.is_freed());
}

fn with_values(checks: &[fn(&Worker, &Collectives, u64)]) {
    let node = builder(RANKS as u32, 0).build().unwrap();
    let collectives = node.register_collectives().unwrap();
    node.init().unwrap();
    for seed in [0x9e37_79b9_7f4a_7c15, 0x2545_f491_4f6c_dd1d] {
        checks
            .iter()
            .for_each(|check| check(&node, &collectives, seed));
    }
    node.close().unwrap();
}

pub(crate) fn integers_of_any_sign_and_size_reduce_as_the_reference_and_wrap() {
    with_values(&[
        check::<i64>,
        check::<i32>,
        check::<i16>,
        check::<i8>,
        check::<u64>,
        check::<u32>,
        check::<u16>,
        check::<u8>,
    ]);
}

pub(crate) fn floats_round_after_each_addition_and_a_nan_is_in_sums_only() {
    with_values(&[check::<f64>, check::<f32>, check::<f16>, check::<bf16>]);
}
