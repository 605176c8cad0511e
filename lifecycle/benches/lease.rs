//! What admission costs, uncontended: the fast path that every operation of a worker takes.

use std::{
    hint::black_box,
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering},
    },
};

use criterion::{Criterion, criterion_group, criterion_main};
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
criterion_main!(benches);
