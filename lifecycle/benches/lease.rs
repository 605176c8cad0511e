//! What admission costs, uncontended: the fast path that every operation of a worker takes.
//!
//! With `--json` the measures that `cargo xtask bench` collects, otherwise criterion's report.
#![expect(clippy::print_stdout, reason = "a bench prints its figures")]

use std::{
    hint::black_box,
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering},
    },
    time::Instant,
};

use criterion::{Criterion, criterion_group};
use lifecycle::{Lifecycle, Operation, Start};

static RUN: Operation = Operation::new("run");
static OTHER: Operation = Operation::new("other");

fn ready() -> Arc<Lifecycle<std::fmt::Error>> {
    let lifecycle = Arc::new(Lifecycle::new());
    match lifecycle.start(None) {
        Start::Won(epoch) => epoch.commit().expect("nobody closes"),
        Start::Done(_) => unreachable!("nobody else starts"),
    }
    lifecycle
}

fn lease_ns(c: &mut Criterion) {
    let word = AtomicU64::new(0);
    c.bench_function("lease_ns/floor_two_atomic_adds", |b| {
        b.iter(|| word.fetch_add(1, Ordering::AcqRel) + word.fetch_sub(1, Ordering::AcqRel));
    });
    let lifecycle = ready();
    c.bench_function("lease_ns/acquire_release", |b| {
        b.iter(|| drop(black_box(lifecycle.lease(&RUN))))
    });
    c.bench_function("lease_ns/nested_acquire_release", |b| {
        let _outer = lifecycle.lease(&OTHER);
        b.iter(|| drop(black_box(lifecycle.lease(&RUN))));
    });
    c.bench_function("lease_ns/owned_acquire_release", |b| {
        b.iter(|| drop(black_box(lifecycle.lease_owned(&RUN))));
    });
    let new = Lifecycle::<std::fmt::Error>::new();
    c.bench_function("lease_ns/refused", |b| {
        b.iter(|| drop(black_box(new.lease(&RUN))))
    });
}

criterion_group!(benches, lease_ns);

/// Batches, and calls per batch.
const BATCHES: usize = 301;
const CALLS: u32 = 2_000;

/// Nanoseconds of one call, over one batch.
fn batch(mut call: impl FnMut()) -> f64 {
    let start = Instant::now();
    (0..CALLS).for_each(|_| call());
    start.elapsed().as_nanos() as f64 / f64::from(CALLS)
}

/// The measures as one JSON array; the floor is taken in turns with the thing itself.
fn json() -> String {
    let (lifecycle, word) = (ready(), AtomicU64::new(0));
    let (mut lease, mut floor) = (Vec::new(), Vec::new());
    for _ in 0..BATCHES {
        lease.push(batch(|| drop(black_box(lifecycle.lease(&RUN)))));
        floor.push(batch(|| {
            black_box(word.fetch_add(1, Ordering::AcqRel));
            black_box(word.fetch_sub(1, Ordering::AcqRel));
        }));
    }
    lease.sort_by(f64::total_cmp);
    floor.sort_by(f64::total_cmp);
    let (value, min, reference) = (lease[BATCHES / 2], lease[0], floor[BATCHES / 2]);
    format!(
        r#"[{{"name": "lease_ns", "value": {value}, "unit": "ns", "min": {min}, "runs": {BATCHES}, "reference": {{"name": "two_atomic_adds", "value": {reference}}}}}]"#
    )
}

fn main() {
    if std::env::args().any(|arg| arg == "--json") {
        println!("{}", json());
        return;
    }
    benches();
    Criterion::default().configure_from_args().final_summary();
}
