//! A replay among other tasks: one task to the outside, many to the workers.

use taskgraph::capture::Bindings;

use super::*;
use crate::support::Bench;

fn replay(bench: &mut Bench, definition: &Arc<Definition>, boundary: &[(u64, Tag)]) -> TaskId {
    let boundary = args(boundary);
    let binding = definition.bind(&boundary, &[]).unwrap();
    bench.graph.submit_graph(bench.run, &binding).unwrap()
}

/// x -> 0 -> 1 -> y, and 2 beside them.
fn diamond() -> Arc<Definition> {
    let boundary = [(1, Tag::InOut), (2, Tag::Output)];
    let tasks: [&[(u64, Tag)]; 3] = [
        &[(1, Tag::InOut)],
        &[(1, Tag::Input), (2, Tag::Output)],
        &[(1, Tag::Input)],
    ];
    definition(&boundary, &tasks)
}

#[test]
fn a_graph_takes_part_in_inference_through_its_boundary() {
    let mut bench = Bench::new(2, 0, Depth::One);
    let made = definition(
        &[(1, Tag::Input), (2, Tag::Output)],
        &[&[(1, Tag::Input), (2, Tag::Output)]],
    );
    let before = bench.on(0, &[(11, Tag::Output)]);
    let graph = replay(&mut bench, &made, &[(11, Tag::Input), (12, Tag::Output)]);
    let after = bench.on(0, &[(12, Tag::Input)]);
    let beside = bench.on(1, &[(13, Tag::Output)]);
    assert_eq!(bench.dispatch(), [before, beside]);
    assert_eq!(bench.graph.task_state(graph), State::Pending);
    let nodes = bench.ok(before);
    assert_eq!(nodes.len(), 1, "{nodes:?}");
    assert_eq!(bench.graph.node_of(nodes[0]), Some((graph, 0)));
    assert_eq!(bench.graph.task_state(graph), State::Running);
    assert_eq!(bench.ok(nodes[0]), [after]);
    assert_eq!(bench.end_of(graph), Some(TaskEnd::Completed));
}

#[test]
fn nodes_have_slots_only_while_they_are_ready_or_run() {
    let mut bench = Bench::new(1, 0, Depth::One);
    let chain: Vec<&[(u64, Tag)]> = vec![&[(1, Tag::InOut)]; 500];
    let made = definition(&[(1, Tag::InOut)], &chain);
    let graph = replay(&mut bench, &made, &[(5, Tag::InOut)]);
    assert_eq!(bench.graph.n_live_tasks(), 1);
    let mut node = bench.dispatch()[0];
    for number in 0..500 {
        assert_eq!(bench.graph.node_of(node), Some((graph, number)));
        assert_eq!(bench.graph.n_live_tasks(), 2);
        let next = bench.ok(node);
        node = next.first().copied().unwrap_or(node);
    }
    assert_eq!(bench.end_of(graph), Some(TaskEnd::Completed));
    assert_eq!(bench.graph.n_live_tasks(), 0);
    assert_eq!(bench.graph.node_of(node), None);
}

#[test]
fn a_run_counts_a_graph_as_one_task() {
    let mut bench = Bench::new(1, 0, Depth::One);
    let made = diamond();
    for at in 0..3 {
        replay(
            &mut bench,
            &made,
            &[(10 + at, Tag::InOut), (20 + at, Tag::Output)],
        );
    }
    bench.graph.seal(bench.run).unwrap();
    let mut ready = bench.dispatch();
    while let Some(task) = ready.pop() {
        ready.extend(bench.ok(task));
    }
    let outcome = bench.outcome();
    assert_eq!((outcome.completed, outcome.failed), (3, 0));
}

#[test]
fn every_replay_binds_its_own_buffers_and_scalars() {
    let mut boundary = args(&[(1, Tag::Input), (2, Tag::Output)]);
    boundary.scalar(1u32);
    let mut recorder = recorder(&boundary);
    let mut task = args(&[(1, Tag::Input), (2, Tag::Output)]);
    task.scalar(recorder.scalar(0).unwrap());
    on(&mut recorder, 0, &task).unwrap();
    let made = recorder.finish().unwrap();
    for (x, y, value) in [(3, 4, 7u32), (4, 3, 8), (1, 2, 9)] {
        let mut boundary = args(&[(x, Tag::Input), (y, Tag::Output)]);
        boundary.scalar(value);
        let bindings = Bindings {
            boundary: &boundary,
            heap: None,
        };
        let node = made.node(0);
        let tensors: Vec<_> = node
            .args(0)
            .map(|arg| made.tensor(&arg, &bindings).unwrap())
            .collect();
        assert_eq!(tensors, [tensor(x), tensor(y)]);
        let scalars: Vec<_> = node
            .scalars(0)
            .map(|it| made.scalar(it, &bindings).unwrap())
            .collect();
        assert_eq!(scalars, [Scalar::U32(value)]);
    }
}

#[test]
fn a_graph_waits_for_both_facts_whichever_comes_last() {
    for inputs_first in [true, false] {
        let mut bench = Bench::new(1, 0, Depth::One);
        let made = diamond();
        let before = bench.on(0, &[(11, Tag::Output)]);
        let boundary = args(&[(11, Tag::InOut), (12, Tag::Output)]);
        let binding = made.bind(&boundary, &[]).unwrap().prepared_later();
        let graph = bench.graph.submit_graph(bench.run, &binding).unwrap();
        bench.dispatch();
        if inputs_first {
            assert!(bench.ok(before).is_empty());
            bench.graph.prepared(graph).unwrap();
            assert_eq!(bench.dispatch().len(), 1);
        } else {
            bench.graph.prepared(graph).unwrap();
            assert!(bench.dispatch().is_empty());
            assert_eq!(bench.ok(before).len(), 1);
        }
        let again = bench.graph.prepared(graph);
        assert_eq!(again, Err(EventError::NotAwaited { task: graph }));
    }
}

#[test]
fn a_graph_without_tasks_ends_at_once() {
    let mut bench = Bench::new(1, 0, Depth::One);
    let made = definition(&[(1, Tag::InOut)], &[]);
    let graph = replay(&mut bench, &made, &[(4, Tag::InOut)]);
    let after = bench.on(0, &[(4, Tag::Input)]);
    assert_eq!(bench.dispatch(), [after]);
    assert_eq!(bench.end_of(graph), Some(TaskEnd::Completed));
}

#[test]
fn a_graph_is_started_however_few_slots_there_are() {
    let mut graph = Scheduler::new(Limits::default().tasks_max(2));
    graph.add_worker(WorkerKind::NextLevel, Depth::One).unwrap();
    let run = graph.begin_run();
    let wide: Vec<&[(u64, Tag)]> = vec![&[(1, Tag::Input)]; 20];
    let made = definition(&[(1, Tag::InOut)], &wide);
    let boundary = args(&[(1, Tag::InOut)]);
    for _ in 0..2 {
        graph
            .submit_graph(run, &made.bind(&boundary, &[]).unwrap())
            .unwrap();
    }
    let refused = graph.submit_graph(run, &made.bind(&boundary, &[]).unwrap());
    assert!(
        matches!(refused, Err(SubmitError::SlotsFull { tasks_max: 2, .. })),
        "{refused:?}"
    );
    let mut n_nodes = 0;
    while let Some(dispatch) = graph.next_dispatch() {
        graph.completed(dispatch.dispatch, Outcome::Ok).unwrap();
        n_nodes += 1;
    }
    assert_eq!(n_nodes, 40);
}

#[test]
fn two_replays_in_the_same_memory_run_one_after_the_other() {
    replays_in_the_same_memory(Inference::Automatic, false);
}

#[test]
fn no_scope_lets_two_replays_run_in_the_same_memory_at_once() {
    replays_in_the_same_memory(Inference::Manual, false);
}

#[test]
fn replays_that_are_ordered_by_hand_are_kept_apart_in_the_same_memory() {
    replays_in_the_same_memory(Inference::Automatic, true);
}

/// Two replays in one memory and one in another, in a scope or bound by hand.
#[track_caller]
fn replays_in_the_same_memory(scope: Inference, by_hand: bool) {
    let boundary = TaskArgs::new();
    let mut recorder = recorder(&boundary);
    let memory = recorder.alloc(DType::U8, &[100]).unwrap();
    let mut task = TaskArgs::new();
    task.tensor(memory, Tag::Output).unwrap();
    on(&mut recorder, 0, &task).unwrap();
    let made = Arc::new(recorder.finish().unwrap());
    let mut bench = Bench::new(2, 0, Depth::Two);
    bench.graph.begin_scope(bench.run, scope).unwrap();
    let size = made.heap_bytes();
    let heap = |id| {
        let buffer = BufferId::new(1, id, 0, BufferKind::Shared);
        Tensor::contiguous(buffer, DType::U8, &[size], size).unwrap()
    };
    let mut submit = |id| {
        let binding = made.bind(&boundary, &[]).unwrap().heap(&heap(id)).unwrap();
        let binding = if by_hand { binding.manual() } else { binding };
        bench.graph.submit_graph(bench.run, &binding).unwrap()
    };
    let (first, second, other) = (submit(50), submit(50), submit(51));
    let begun = bench.dispatch();
    let graphs: Vec<_> = begun
        .iter()
        .map(|&task| bench.graph.node_of(task).unwrap().0)
        .collect();
    assert_eq!(graphs, [first, other]);
    let next = bench.ok(begun[0]);
    assert_eq!(bench.graph.node_of(next[0]).unwrap().0, second);
}

#[test]
fn no_task_can_come_after_a_node() {
    let mut bench = Bench::new(1, 0, Depth::One);
    let made = diamond();
    replay(&mut bench, &made, &[(1, Tag::InOut), (2, Tag::Output)]);
    let node = bench.dispatch()[0];
    let after = [node];
    let spec = TaskSpec::new(Placement::On(WorkerId(0))).after(&after);
    let refused = bench.graph.submit(bench.run, &spec);
    assert_eq!(refused, Err(SubmitError::UnknownTask { task: node }));
}

#[test]
fn a_recorded_run_shows_a_graph_as_one_node() {
    let mut bench = Bench::new(1, 0, Depth::One);
    bench.graph.record(bench.run).unwrap();
    let made = diamond();
    replay(&mut bench, &made, &[(1, Tag::InOut), (2, Tag::Output)]);
    bench.on(0, &[(2, Tag::Input)]);
    let view = bench.graph.graph_view(bench.run).unwrap();
    assert_eq!(view.nodes()[0].target, GraphTarget::Graph(3));
    assert_eq!(
        view.edges(),
        [GraphEdge {
            from: 0,
            to: 1,
            is_data: true
        }]
    );
}
