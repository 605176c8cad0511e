//! What a submit and a completion cost.
//!
//! `cargo bench -p taskgraph --bench submit -- [--json] [--rounds=N] [NAME…]`, a `NAME` being one of the measures
//! in the manifest or the first part of one. Every measure is the median over `runs` repetitions in
//! one process, after one that only warms up, so tables have their size and memory is mapped. What
//! must not grow with the number of tasks or views has the smallest number as its reference.
//! Nothing here asserts a time.

#![expect(
    clippy::print_stdout,
    reason = "a bench program reports on its standard output"
)]

mod counting;
mod report;
mod workloads;

use report::{Measure, Report};
use workloads::Timed;

fn main() {
    let mut report = Report::from_args();
    time(&mut report, "submit_0", 1001, || {
        workloads::submit_independent(100)
    });
    time(&mut report, "submit_2", 1001, || {
        workloads::submit_with_two_dependencies(100)
    });
    time(&mut report, "complete", 1001, || {
        workloads::complete_with_two_dependents(100)
    });
    scaling(&mut report);
    live_views(&mut report, "rows", workloads::Views::of_rows);
    live_views(&mut report, "columns", workloads::Views::of_columns);
    for shape in ["chain", "independent", "in_in_out"] {
        time(&mut report, &format!("whole_task/{shape}"), 11, || {
            workloads::whole(shape, 100_000)
        });
    }
    if report.is_wanted("graph_memory") {
        let bytes = workloads::memory_per_task(100_000);
        report.add(Measure::new("graph_memory", "bytes", vec![bytes]));
    }
    report.print();
}

/// However many tasks are live, in 64 chains.
fn scaling(report: &mut Report) {
    let mut few = None;
    for (tasks, runs) in [(1_000, 101), (100_000, 11), (1_000_000, 3)] {
        let name = format!("submit_scaling/tasks={tasks}");
        let mut graph = workloads::Chains::new(64);
        let taken = measure(report, &name, runs, || graph.submit(tasks));
        add_beside_first(report, taken, &mut few, "tasks=1000");
    }
}

/// However many views of one buffer live tasks touch.
fn live_views(report: &mut Report, cut: &str, views_of: fn(u64) -> workloads::Views) {
    let mut one = None;
    for n in [1, 100, 10_000] {
        let mut graph = views_of(n);
        let name = format!("live_views/{cut}={n}");
        let taken = measure(report, &name, 21, || graph.submit());
        add_beside_first(report, taken, &mut one, &format!("{cut}=1"));
    }
}

fn time(report: &mut Report, name: &str, runs: usize, once: impl FnMut() -> Timed) {
    if let Some(taken) = measure(report, name, runs, once) {
        report.add(taken);
    }
}

/// Nanoseconds per operation of `runs` repetitions after one to warm up, when that is wanted.
fn measure(
    report: &Report,
    name: &str,
    runs: usize,
    mut once: impl FnMut() -> Timed,
) -> Option<Measure> {
    if !report.is_wanted(name) {
        return None;
    }
    let mut operations = u64::from(once().operations);
    let mut per_operation = |timed: Timed| {
        operations += u64::from(timed.operations);
        timed.elapsed.as_nanos() as f64 / f64::from(timed.operations)
    };
    let figures = (0..report.rounds(runs)).map(|_| per_operation(once()));
    let mut measure = Measure::new(name, "ns", figures.collect());
    measure.operations = operations;
    Some(measure)
}

/// Adds a measure of a series, with the first of the series as its reference.
fn add_beside_first(
    report: &mut Report,
    taken: Option<Measure>,
    first: &mut Option<f64>,
    first_name: &str,
) {
    let Some(mut taken) = taken else {
        return;
    };
    match *first {
        None => *first = Some(taken.median()),
        Some(median) => taken.reference = Some((first_name.to_owned(), median)),
    }
    report.add(taken);
}
