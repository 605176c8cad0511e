//! The graph of a recorded run, drawn from what was inferred.

use taskgraph::*;

use crate::support::{Bench, X};

const Y: u64 = 2;

#[test]
fn a_recorded_run_shows_edges_from_tasks_that_ended_long_ago() {
    let mut bench = Bench::new(1, 0, Depth::One);
    bench.graph.record(bench.run).unwrap();
    let write = bench.on(0, &[(X, Tag::Output)]);
    bench.dispatch();
    bench.ok(write);
    let read = bench.on(0, &[(X, Tag::Input), (Y, Tag::Output)]);
    let overwrite = bench.on(0, &[(X, Tag::Output)]);
    bench.dispatch();
    bench.fail(read);
    bench.graph.seal(bench.run).unwrap();
    bench.ok(overwrite);
    let view = bench.graph.graph_view(bench.run).unwrap();
    let nodes: Vec<_> = view.nodes().iter().map(|node| node.task).collect();
    assert_eq!(nodes, [write, read, overwrite]);
    let edges: Vec<_> = view
        .edges()
        .iter()
        .map(|e| (e.from, e.to, e.is_data))
        .collect();
    assert_eq!(edges, [(0, 1, true), (0, 2, false), (1, 2, false)]);
    assert_eq!(view.nodes()[0].end, Some(TaskEnd::Completed));
    assert!(matches!(view.nodes()[1].end, Some(TaskEnd::Failed(_))));
    let path = view.critical_path(|_| 1);
    assert_eq!((path.tasks, path.cost), (vec![write, read, overwrite], 3));
    assert_eq!(bench.graph.n_live_tasks(), 0);
    bench.graph.release_run(bench.run).unwrap();
    assert_eq!(bench.graph.graph_view(bench.run), None);
}

#[test]
fn a_run_that_is_not_recorded_has_no_view() {
    let mut bench = Bench::new(1, 0, Depth::One);
    bench.on(0, &[(X, Tag::Output)]);
    assert_eq!(bench.graph.graph_view(bench.run), None);
}
