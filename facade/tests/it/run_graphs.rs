//! The graph of a run, kept to be looked at.

use facade::{Args, GraphTarget, TaskEnd, TaskResult, args, fresh};

use crate::support::{Gate, builder, directory, failure, nothing};

pub(crate) fn a_kept_graph_has_names_edges_ends_times_and_its_critical_path() {
    let dir = directory();
    let gate = Gate::new(dir.path(), "gate");
    let node = builder(0, 2).build().unwrap();
    let inside = gate.clone();
    let slow = node
        .register_fn("slow", move |_| {
            inside.stand();
            Ok(())
        })
        .unwrap();
    let quick = node.register_fn("quick", nothing).unwrap();
    node.init().unwrap();
    let (x, y) = (
        node.buffer::<u32>(4).unwrap(),
        node.buffer::<u32>(4).unwrap(),
    );
    let run = node
        .submit(|orch| {
            assert!(orch.keep_graph().get().is_none(), "the run is not over");
            let made = fresh::<u32>(4)?;
            orch.submit_sub(&slow, args().output(&x))?;
            orch.submit_sub(&quick, args().output(&y).output(&made))?;
            orch.submit_sub(&quick, args().input(&x).input(&made))?;
            orch.submit_sub(&quick, args().output(&x)).map(|_| ())
        })
        .unwrap();
    // The first task is the last one of the first two to end.
    let held = gate.reader_is_there();
    while node.stats().unwrap().tasks_completed == 0 {
        let _ = run.wait_for(std::time::Duration::from_millis(1));
    }
    drop(held);
    run.wait().unwrap();
    let graph = run.graph().unwrap();
    let nodes = graph.view().nodes();
    let names: Vec<_> = nodes
        .iter()
        .map(|node| graph.name(node.task).unwrap())
        .collect();
    assert_eq!(names, ["slow", "quick", "quick", "quick"]);
    assert!(
        nodes
            .iter()
            .all(|node| node.end == Some(TaskEnd::Completed))
    );
    assert!(
        nodes
            .iter()
            .all(|node| node.time_ns.is_some_and(|(begin, end)| begin <= end))
    );
    let edges: Vec<_> = graph
        .view()
        .edges()
        .iter()
        .map(|e| (e.from, e.to, e.is_data))
        .collect();
    assert_eq!(
        edges,
        [(0, 2, true), (0, 3, false), (1, 2, true), (2, 3, false)]
    );
    let path = graph.critical_path().tasks;
    assert_eq!(path, [nodes[0].task, nodes[2].task, nodes[3].task]);
    let profile = graph.profile().unwrap();
    assert!(profile.critical_ns <= profile.makespan_ns && profile.scheduling_share < 1.0);
    assert!(graph.to_dot().starts_with("digraph run {") && graph.to_dot().contains("slow"));
    let json: serde_json::Value = serde_json::from_str(&graph.to_json()).unwrap();
    assert_eq!(json["nodes"].as_array().unwrap().len(), 4);
    assert_eq!(json["edges"][0], serde_json::json!([0, 2, "data"]));
    node.close().unwrap();
}

pub(crate) fn a_failed_and_a_cancelled_run_leave_their_graphs_too() {
    let node = builder(0, 1).build().unwrap();
    let bad = node
        .register_fn("bad", |_: &Args| -> TaskResult { Err("no".into()) })
        .unwrap();
    let nothing = node.register_fn("nothing", nothing).unwrap();
    node.init().unwrap();
    let x = node.buffer::<u32>(4).unwrap();
    let mut kept = None;
    failure(node.run(|orch| {
        kept = Some(orch.keep_graph());
        orch.submit_sub(&bad, args().output(&x))?;
        orch.submit_sub(&nothing, args().input(&x))?;
        orch.submit_sub_group(&nothing, vec![args()])
    }));
    let graph = kept.unwrap().get().unwrap();
    let ends: Vec<_> = graph
        .view()
        .nodes()
        .iter()
        .map(|node| node.end.unwrap())
        .collect();
    assert!(matches!(
        ends[..],
        [
            TaskEnd::Failed(_),
            TaskEnd::Skipped { .. },
            TaskEnd::Completed
        ]
    ));
    assert!(graph.view().nodes()[1].time_ns.is_none(), "it never ran");
    assert_eq!(graph.view().nodes()[2].target, GraphTarget::Subs(1));
    let run = node
        .submit(|orch| {
            orch.keep_graph();
            orch.canceller().cancel();
            Ok(())
        })
        .unwrap();
    failure(run.wait());
    let graph = run.graph().unwrap();
    assert!(graph.view().nodes().is_empty() && graph.profile().is_none());
    // Who does not ask gets none.
    let run = node
        .submit(|orch| orch.submit_sub(&nothing, args()).map(|_| ()))
        .unwrap();
    run.wait().unwrap();
    assert!(run.graph().is_none());
    node.close().unwrap();
}

pub(crate) fn a_replayed_graph_is_one_node_with_the_time_of_all_of_its_tasks() {
    let node = builder(0, 1).build().unwrap();
    node.register_fn("nothing", nothing).unwrap();
    node.init().unwrap();
    let x = node.buffer::<u32>(4).unwrap();
    let kept = node
        .run(|orch| {
            let kept = orch.keep_graph();
            for _ in 0..2 {
                orch.graph("three", args().inout(&x), |g, a| {
                    let nothing = g.function("nothing")?;
                    for _ in 0..3 {
                        g.submit_sub(&nothing, args().inout(&a.tensor(0)?))?;
                    }
                    Ok(())
                })?;
            }
            Ok(kept)
        })
        .unwrap();
    let graph = kept.get().unwrap();
    let nodes = graph.view().nodes();
    assert_eq!(nodes.len(), 2);
    assert!(
        nodes
            .iter()
            .all(|node| node.target == GraphTarget::Graph(3))
    );
    let (first, second) = (nodes[0].time_ns.unwrap(), nodes[1].time_ns.unwrap());
    assert!(
        first.0 < first.1 && first.1 <= second.0,
        "{first:?} {second:?}"
    );
    node.close().unwrap();
}
