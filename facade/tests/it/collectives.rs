//! Collectives against a reference on the host: every kind, over sizes, numbers of ranks and element types.

use std::fmt::Debug;

use facade::{
    AllReduce, Collectives, Domain, DomainError, Element, Error, Orchestrator, Reduce, Symmetric,
    Worker, args, named, on,
};
use half::{bf16, f16};
use proptest::prelude::*;
use proptest::test_runner::{Config, TestRunner};

use crate::support::{INCREMENT, builder};

/// Small numbers, so that sums of eight ranks are exact in every element type, in any order.
trait Small: Element + PartialEq + Debug {
    fn small(value: u8) -> Self;
    fn value(self) -> f64;
}

macro_rules! small {
    ($($rust:ty),*) => {$(
        impl Small for $rust {
            fn small(value: u8) -> Self { value as $rust }
            fn value(self) -> f64 { self as f64 }
        }
    )*};
}
small!(f64, f32, i64, i32, i16, i8, u64, u32, u16, u8);

macro_rules! small_half {
    ($($rust:ty),*) => {$(
        impl Small for $rust {
            fn small(value: u8) -> Self { Self::from_f32(f32::from(value)) }
            fn value(self) -> f64 { self.to_f64() }
        }
    )*};
}
small_half!(f16, bf16);

/// A tree of eight chips, used by all cases of a test.
struct World {
    node: Worker,
    collectives: Collectives,
}

impl World {
    fn new() -> Self {
        let node = builder(8, 0).build().unwrap();
        let collectives = node.register_collectives().unwrap();
        node.init().unwrap();
        Self { node, collectives }
    }

    /// Fills `x` of each rank, lets `body` submit, and reads `y` of each rank.
    fn run<T: Small>(
        &self,
        case: &Case,
        x: &Symmetric<T>,
        y: &Symmetric<T>,
        body: impl FnOnce(&mut Orchestrator<'_>) -> Result<(), Error>,
    ) -> Vec<Vec<T>> {
        for rank in 0..case.ranks {
            let values = case.input::<T>(rank, x.len());
            self.node.copy_to(x[rank], &values).unwrap();
        }
        self.node.run(body).unwrap();
        let read = |of| {
            let mut values = vec![T::small(0); y.len()];
            self.node.copy_from(&mut values, of).unwrap();
            values
        };
        y.iter().map(read).collect()
    }

    fn domain<T: Small>(&self, case: &Case, x: usize, y: usize) -> Domain {
        // Ranks are not the numbers of the chips.
        let workers: Vec<u32> = (0..case.ranks as u32).rev().collect();
        let buffers = [named::<T>("x", x), named::<T>("y", y)];
        let bytes = ((x + y) * size_of::<T>() + 1024) as u64;
        self.node
            .allocate_domain("case", &workers, bytes, &buffers)
            .unwrap()
    }
}

#[derive(Debug, Clone)]
struct Case {
    ranks: usize,
    /// Elements of a piece.
    len: usize,
    dtype: usize,
    reduce: Reduce,
    seed: u64,
}

impl Case {
    fn input<T: Small>(&self, rank: usize, len: usize) -> Vec<T> {
        let mut state = self.seed ^ (rank as u64 + 1).wrapping_mul(0x9e37_79b9_7f4a_7c15);
        let next = std::iter::repeat_with(|| {
            state = state
                .wrapping_mul(6_364_136_223_846_793_005)
                .wrapping_add(1);
            T::small((state >> 33) as u8 % 8)
        });
        next.take(len).collect()
    }

    /// What every rank puts in, as numbers.
    fn inputs<T: Small>(&self, len: usize) -> Vec<Vec<f64>> {
        let of = |rank| self.input::<T>(rank, len).into_iter().map(T::value);
        (0..self.ranks).map(|rank| of(rank).collect()).collect()
    }

    /// The reduction of all ranks.
    fn reduced<T: Small>(&self, len: usize) -> Vec<f64> {
        let inputs = self.inputs::<T>(len);
        let of = |at: usize| {
            let values = inputs.iter().map(|input| input[at]);
            match self.reduce {
                Reduce::Sum => values.sum(),
                Reduce::Min => values.fold(f64::INFINITY, f64::min),
                _ => values.fold(f64::NEG_INFINITY, f64::max),
            }
        };
        (0..len).map(of).collect()
    }
}

fn case() -> impl Strategy<Value = Case> {
    let reduce = prop_oneof![Just(Reduce::Sum), Just(Reduce::Min), Just(Reduce::Max)];
    let len = prop_oneof![8 => 0_usize..20, 3 => 100_usize..1000, 1 => 4090_usize..4200];
    (1_usize..=8, len, 0_usize..12, reduce, any::<u64>()).prop_map(
        |(ranks, len, dtype, reduce, seed)| Case {
            ranks,
            len,
            dtype,
            reduce,
            seed,
        },
    )
}

#[track_caller]
fn same<T: Small>(case: &Case, found: &[Vec<T>], expected: impl Fn(usize, usize) -> f64) {
    for (rank, values) in found.iter().enumerate() {
        for (at, value) in values.iter().enumerate() {
            assert_eq!(
                value.value(),
                expected(rank, at),
                "rank {rank}, element {at} of {case:?}"
            );
        }
    }
}

fn all_reduces<T: Small>(world: &World, case: &Case) {
    let len = case.len;
    let reduced = case.reduced::<T>(len);
    let expected = |_: usize, at: usize| reduced[at];
    let domain = world.domain::<T>(case, len, len);
    let (x, y) = (
        domain.buffer::<T>("x").unwrap(),
        domain.buffer::<T>("y").unwrap(),
    );
    for how in [AllReduce::Ring, AllReduce::OneShot] {
        let found = world.run(case, &x, &y, |orch| {
            world.collectives.all_reduce(orch, &x, &y, case.reduce, how)
        });
        same(case, &found, expected);
    }
    let found = world.run(case, &x, &x, |orch| {
        let ring = AllReduce::Ring;
        world
            .collectives
            .all_reduce(orch, &x, &x, case.reduce, ring)
    });
    same(case, &found, expected);
    domain.release();
}

fn scatters<T: Small>(world: &World, case: &Case) {
    let (piece, whole) = (case.len, case.len * case.ranks);
    let domain = world.domain::<T>(case, whole, piece);
    let (x, y) = (
        domain.buffer::<T>("x").unwrap(),
        domain.buffer::<T>("y").unwrap(),
    );
    let found = world.run(case, &x, &y, |orch| {
        world.collectives.reduce_scatter(orch, &x, &y, case.reduce)
    });
    let reduced = case.reduced::<T>(whole);
    same(case, &found, |rank, at| reduced[rank * piece + at]);
    domain.release();
}

fn gathers<T: Small>(world: &World, case: &Case) {
    let (piece, whole) = (case.len, case.len * case.ranks);
    let domain = world.domain::<T>(case, piece, whole);
    let (x, y) = (
        domain.buffer::<T>("x").unwrap(),
        domain.buffer::<T>("y").unwrap(),
    );
    let found = world.run(case, &x, &y, |orch| {
        world.collectives.all_gather(orch, &x, &y)
    });
    let inputs = case.inputs::<T>(piece);
    same(case, &found, |_, at| inputs[at / piece][at % piece]);
    domain.release();
}

fn exchanges<T: Small>(world: &World, case: &Case) {
    let (piece, whole) = (case.len, case.len * case.ranks);
    let domain = world.domain::<T>(case, whole, whole);
    let (x, y) = (
        domain.buffer::<T>("x").unwrap(),
        domain.buffer::<T>("y").unwrap(),
    );
    let found = world.run(case, &x, &y, |orch| {
        world.collectives.all_to_all(orch, &x, &y)
    });
    let inputs = case.inputs::<T>(whole);
    same(case, &found, |rank, at| {
        inputs[at / piece][rank * piece + at % piece]
    });
    let root = case.seed as usize % case.ranks;
    let found = world.run(case, &x, &x, |orch| {
        world.collectives.broadcast(orch, &x, root)
    });
    same(case, &found, |_, at| inputs[root][at]);
    domain.release();
}

/// Runs a check over random cases, with the element type of each.
fn over_cases(cases: u32, checks: [fn(&World, &Case); 12]) {
    let world = World::new();
    let config = Config {
        cases,
        failure_persistence: None,
        ..Config::default()
    };
    TestRunner::new(config)
        .run(&case(), |case| {
            checks[case.dtype](&world, &case);
            Ok(())
        })
        .unwrap_or_else(|error| panic!("{error}"));
    let report = world.node.memory_report().unwrap();
    assert!(
        report
            .chips
            .iter()
            .all(|of| of.usage.as_ref().is_ok_and(|of| of.windows == 0))
    );
    world.node.close().unwrap();
}

macro_rules! of_every_type {
    ($check:ident) => {
        [
            $check::<f64>,
            $check::<f32>,
            $check::<f16>,
            $check::<bf16>,
            $check::<i64>,
            $check::<i32>,
            $check::<i16>,
            $check::<i8>,
            $check::<u64>,
            $check::<u32>,
            $check::<u16>,
            $check::<u8>,
        ]
    };
}

pub(crate) fn an_all_reduce_equals_the_reference_however_it_is_done() {
    over_cases(30, of_every_type!(all_reduces));
}

pub(crate) fn a_reduce_scatter_equals_the_reference() {
    over_cases(24, of_every_type!(scatters));
}

pub(crate) fn an_all_gather_equals_the_reference() {
    over_cases(24, of_every_type!(gathers));
}

pub(crate) fn an_all_to_all_and_a_broadcast_equal_the_reference() {
    over_cases(24, of_every_type!(exchanges));
}

pub(crate) fn collectives_follow_each_other_and_other_tasks_without_a_barrier() {
    let node = builder(4, 0).build().unwrap();
    let collectives = node.register_collectives().unwrap();
    let increment = node.register_chip(&INCREMENT).unwrap();
    node.init().unwrap();
    let domain = node
        .allocate_domain("d", &[3, 1, 0, 2], 1 << 16, &[named::<f32>("x", 1000)])
        .unwrap();
    let x = domain.buffer::<f32>("x").unwrap();
    let mut expected = 0.0_f32;
    node.run(|orch| {
        let found = orch.collectives()?;
        for round in 0..6 {
            for (rank, of) in x.iter().enumerate() {
                // Not always on the chip whose memory it is.
                let chip = domain.worker((rank + round) % 4).unwrap();
                orch.submit_next_level(&increment, args().inout(&of), on(chip))?;
            }
            found.all_reduce(orch, &x, &x, Reduce::Sum, AllReduce::Ring)?;
            expected = (expected + 1.0) * 4.0;
        }
        collectives.barrier(orch, &domain)
    })
    .unwrap();
    for of in x.iter() {
        let mut back = [0.0_f32; 1000];
        node.copy_from(&mut back, of).unwrap();
        assert_eq!(back, [expected; 1000]);
    }
    node.close().unwrap();
}

pub(crate) fn buffers_that_do_not_fit_a_collective_are_refused_and_nothing_is_submitted() {
    let node = builder(2, 0).build().unwrap();
    let collectives = node.register_collectives().unwrap();
    node.init().unwrap();
    let buffers = [named::<i32>("x", 10), named::<i32>("y", 10)];
    let domain = node.allocate_domain("d", &[0, 1], 4096, &buffers).unwrap();
    let other = node.allocate_domain("e", &[0, 1], 4096, &buffers).unwrap();
    let (x, y) = (
        domain.buffer::<i32>("x").unwrap(),
        domain.buffer::<i32>("y").unwrap(),
    );
    let z = other.buffer::<i32>("y").unwrap();
    let before = node.memory_report().unwrap();
    let mut texts = Vec::new();
    node.run(|orch| {
        let (short, tail) = (x.slice(0..4)?, x.slice(6..10)?);
        let middle = x.slice(2..6)?;
        let sum = Reduce::Sum;
        let mut note = |refused: Result<(), Error>| match refused {
            Err(Error::Domain(error @ DomainError::Collective { .. })) => {
                texts.push(error.to_string());
            }
            other => panic!("{other:?}"),
        };
        note(collectives.all_reduce(orch, &x, &z, sum, AllReduce::Ring));
        note(collectives.all_reduce(orch, &x, &short, sum, AllReduce::Ring));
        note(collectives.all_reduce(orch, &x, &x, sum, AllReduce::OneShot));
        note(collectives.all_reduce(orch, &short, &middle, sum, AllReduce::Ring));
        note(collectives.all_gather(orch, &tail, &y));
        note(collectives.reduce_scatter(orch, &y, &tail, sum));
        note(collectives.all_to_all(orch, &x.slice(0..5)?, &y.slice(0..5)?));
        note(collectives.broadcast(orch, &x, 2));
        // Halves of one buffer do not overlap.
        collectives.all_reduce(orch, &short, &tail, sum, AllReduce::OneShot)?;
        Ok(())
    })
    .unwrap();
    let runs = node.memory_report().unwrap().chip(0).unwrap().device_calls;
    assert_eq!(
        runs,
        before.chip(0).unwrap().device_calls + 1,
        "a refused task ran"
    );
    insta::assert_snapshot!(texts.join("\n"));
    domain.release();
    let released = node.run(|orch| collectives.barrier(orch, &domain));
    assert!(
        matches!(released, Err(Error::Domain(DomainError::Released { .. }))),
        "{released:?}"
    );
    node.close().unwrap();
}
