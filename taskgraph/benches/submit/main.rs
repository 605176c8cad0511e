//! What a submit and a completion cost.
//!
//! `cargo bench -p taskgraph --bench submit -- [--json] [NAME…]`, a `NAME` being one of the measures
//! in the manifest or the first part of one. Every measure is the median over `runs` repetitions in
//! one process, after one that only warms up, so tables have their size and memory is mapped.
//! Nothing here asserts a time.

#![expect(
    clippy::print_stdout,
    reason = "a bench program reports on its standard output"
)]

mod report;
mod workloads;

use report::Report;

fn main() {
    let mut report = Report::from_args();
    report.time("submit_0", 1001, || workloads::submit_independent(100));
    report.time("submit_2", 1001, || {
        workloads::submit_with_two_dependencies(100)
    });
    report.time("complete", 1001, || {
        workloads::complete_with_two_dependents(100)
    });
    for (tasks, runs) in [(1_000, 101), (100_000, 11), (1_000_000, 3)] {
        let name = format!("submit_scaling/tasks={tasks}");
        let mut graph = workloads::Chains::new(64);
        report.time(&name, runs, || graph.submit(tasks));
    }
    for views in [1, 100, 10_000] {
        let mut graph = workloads::Views::of_rows(views);
        report.time(&format!("live_views/rows={views}"), 21, || graph.submit());
        let mut graph = workloads::Views::of_columns(views);
        report.time(&format!("live_views/columns={views}"), 21, || {
            graph.submit()
        });
    }
    for shape in ["chain", "independent", "in_in_out"] {
        report.time(&format!("whole_task/{shape}"), 11, || {
            workloads::whole(shape, 100_000)
        });
    }
    report.value("graph_memory", "bytes", || {
        workloads::memory_per_task(100_000)
    });
    report.print();
}
