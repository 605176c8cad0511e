//! Critical paths, profiles and texts of small graphs.

use super::*;

fn task(slot: u32) -> TaskId {
    TaskId {
        slot,
        generation: 0,
    }
}

/// `0 -> {1, 2} -> 3`, on worker 0.
fn diamond() -> GraphView {
    let mut recording = Recording::default();
    for slot in 0..4 {
        recording.add_task(task(slot), &Placement::On(WorkerId(0)), Vec::new());
    }
    for (from, to, why) in [
        (0, 1, Why::Order),
        (0, 1, Why::Data),
        (0, 2, Why::Data),
        (1, 3, Why::Data),
        (2, 3, Why::Order),
    ] {
        recording.add_edge(task(from), task(to), why);
    }
    recording.add_edge(task(77), task(3), Why::Data); // of another run
    recording.end_task(task(0), TaskEnd::Completed);
    recording.view()
}

#[test]
fn edges_are_told_once_and_data_wins() {
    let edges: Vec<_> = diamond()
        .edges()
        .iter()
        .map(|e| (e.from, e.to, e.is_data))
        .collect();
    assert_eq!(
        edges,
        [(0, 1, true), (0, 2, true), (1, 3, true), (2, 3, false)]
    );
}

#[test]
fn the_critical_path_is_the_costliest_chain() {
    let costs = [1, 5, 7, 2];
    let path = diamond().critical_path(|node| costs[node.task.slot as usize]);
    assert_eq!(
        path,
        CriticalPath {
            tasks: vec![task(0), task(2), task(3)],
            cost: 10
        }
    );
    assert_eq!(
        GraphView::default().critical_path(|_| 1),
        CriticalPath::default()
    );
    let free = diamond().critical_path(|_| 0);
    assert_eq!(free.cost, 0);
}

#[test]
fn a_profile_tells_tasks_from_the_time_between_them() {
    let mut view = diamond();
    assert_eq!(view.profile(), None);
    view.add_times([
        (task(0), 0, 10),
        (task(1), 20, 30),
        (task(2), 20, 60),
        (task(3), 80, 100),
    ]);
    let profile = view.profile().expect("all times are known");
    assert_eq!((profile.makespan_ns, profile.critical_ns), (100, 70));
    assert!((profile.scheduling_share - 0.3).abs() < 1e-9);
}

#[test]
fn dot_has_every_task_and_edge_and_quotes_what_must_be_quoted() {
    let mut view = diamond();
    view.add_times([(task(0), 0, 10)]);
    let dot = view.to_dot(|node| format!("a \"{}\"", node.task.slot));
    assert!(dot.starts_with("digraph run {\n"));
    assert!(dot.contains(
        "n0 [label=\"a \\\"0\\\"\\ntask 0.0, worker 0, 10 ns\", penwidth=3, style=filled, \
         fillcolor=palegreen];"
    ));
    assert!(dot.contains("n1 [label=\"a \\\"1\\\"\\ntask 1.0, worker 0\", penwidth="));
    assert!(dot.contains("n0 -> n1 [style=solid, penwidth="));
    assert!(dot.contains("n2 -> n3 [style=dashed, penwidth="));
}

#[test]
fn json_has_every_task_and_edge() {
    let mut recording = Recording::default();
    let workers = [WorkerId(2), WorkerId(1)];
    recording.add_task(task(0), &Placement::Group(&workers), Vec::new());
    recording.add_task(task(1), &Placement::SubGroup(3), Vec::new());
    recording.add_edge(task(0), task(1), Why::Order);
    recording.end_task(task(0), TaskEnd::Cancelled);
    let mut view = recording.view();
    view.add_times([(task(1), 3, 4)]);
    let json = view.to_json(|_| "tab\there".to_owned());
    assert_eq!(
        json,
        "{\"nodes\":[{\"label\":\"tab here\",\"slot\":0,\"generation\":0,\
         \"target\":{\"all_of\":[2,1]},\"end\":\"cancelled\"},\
         {\"label\":\"tab here\",\"slot\":1,\"generation\":0,\"target\":{\"subs\":3},\"end\":null,\
         \"begin_ns\":3,\"end_ns\":4}],\"edges\":[[0,1,\"order\"]]}\n"
    );
}
