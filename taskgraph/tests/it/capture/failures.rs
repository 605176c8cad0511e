//! Graphs that fail, are skipped, cancelled, or lose their workers.

use super::*;
use crate::support::Bench;

const BOUNDARY: [(u64, Tag); 3] = [(1, Tag::InOut), (2, Tag::Output), (3, Tag::Output)];

/// 0 -> 1 -> 2 by data, 3 beside them; on one worker.
fn chain_and_one() -> Arc<Definition> {
    let tasks: [&[(u64, Tag)]; 4] = [
        &[(1, Tag::InOut)],
        &[(1, Tag::Input), (2, Tag::Output)],
        &[(2, Tag::Input)],
        &[(3, Tag::Output)],
    ];
    definition(&BOUNDARY, &tasks)
}

fn replay(bench: &mut Bench, definition: &Arc<Definition>) -> TaskId {
    let boundary = args(&BOUNDARY);
    let binding = definition.bind(&boundary, &[]).unwrap();
    bench.graph.submit_graph(bench.run, &binding).unwrap()
}

fn node_failures(bench: &Bench) -> Vec<(u32, Failure)> {
    let failed = bench.effects.iter().filter_map(|effect| match *effect {
        Effect::NodeFailed { node, failure, .. } => Some((node, failure)),
        _ => None,
    });
    failed.collect()
}

#[test]
fn a_graph_fails_as_its_first_node_that_failed_when_all_have_ended() {
    let mut bench = Bench::new(2, 0, Depth::One);
    let graph = replay(&mut bench, &chain_and_one());
    let reader = bench.on(0, &[(2, Tag::Input)]);
    let other = bench.on(1, &[(9, Tag::Output)]);
    let begun = bench.dispatch();
    assert_eq!(begun[1], other);
    let first = begun[0];
    let beside = bench.fail(first);
    assert_eq!(
        bench.graph.node_of(beside[0]),
        Some((graph, 3)),
        "who needs no data of it runs"
    );
    assert_eq!(bench.end_of(graph), None);
    assert!(
        bench.ok(beside[0]).is_empty(),
        "who reads the graph's output never runs"
    );
    let failure = Failure::Reported { member: 0 };
    assert_eq!(bench.end_of(graph), Some(TaskEnd::Failed(failure)));
    assert_eq!(
        bench.end_of(reader),
        Some(TaskEnd::Skipped { cause: graph })
    );
    assert_eq!(node_failures(&bench), [(0, failure)]);
    bench.ok(other);
    bench.graph.seal(bench.run).unwrap();
    let outcome = bench.outcome();
    assert_eq!(outcome.cause, Some(graph));
    assert_eq!(
        (outcome.completed, outcome.failed, outcome.skipped),
        (1, 1, 1)
    );
}

#[test]
fn a_task_that_comes_after_the_failure_sees_it_too() {
    let mut bench = Bench::new(1, 0, Depth::One);
    let graph = replay(&mut bench, &chain_and_one());
    let first = bench.dispatch()[0];
    let beside = bench.fail(first)[0];
    bench.ok(beside);
    let late = bench.on(0, &[(2, Tag::Input)]);
    assert_eq!(bench.end_of(late), Some(TaskEnd::Skipped { cause: graph }));
    let later = replay(&mut bench, &chain_and_one());
    assert_eq!(
        bench.end_of(later),
        Some(TaskEnd::Skipped { cause: graph }),
        "its x is not there"
    );
    assert!(bench.dispatch().is_empty());
}

#[test]
fn a_graph_whose_input_failed_is_skipped_whole() {
    let mut bench = Bench::new(1, 0, Depth::One);
    let before = bench.on(0, &[(1, Tag::Output)]);
    let graph = replay(&mut bench, &chain_and_one());
    bench.dispatch();
    assert!(bench.fail(before).is_empty());
    assert_eq!(
        bench.end_of(graph),
        Some(TaskEnd::Skipped { cause: before })
    );
    bench.graph.seal(bench.run).unwrap();
    assert_eq!(bench.graph.n_live_tasks(), 0);
}

#[test]
fn a_cancelled_graph_ends_when_what_runs_of_it_has() {
    let mut bench = Bench::new(1, 0, Depth::One);
    let graph = replay(&mut bench, &chain_and_one());
    let waiting = replay(&mut bench, &chain_and_one());
    let first = bench.dispatch()[0];
    bench.graph.cancel(bench.run).unwrap();
    assert_eq!(bench.end_of(graph), None);
    assert!(bench.ok(first).is_empty());
    assert_eq!(bench.end_of(graph), Some(TaskEnd::Cancelled));
    assert_eq!(bench.end_of(waiting), Some(TaskEnd::Cancelled));
    assert_eq!(bench.outcome().cancelled, 2);
    assert_eq!(bench.graph.n_live_tasks(), 0);
}

#[test]
fn a_graph_that_is_ready_and_not_started_is_cancelled() {
    let mut bench = Bench::new(1, 0, Depth::One);
    let graph = replay(&mut bench, &chain_and_one());
    assert_eq!(bench.graph.task_state(graph), State::Ready);
    bench.graph.cancel(bench.run).unwrap();
    assert_eq!(bench.end_of(graph), Some(TaskEnd::Cancelled));
    assert!(bench.dispatch().is_empty());
}

#[test]
fn a_graph_that_was_never_prepared_ends_with_its_cancelled_run() {
    for input_runs in [false, true] {
        let mut bench = Bench::new(1, 0, Depth::One);
        let before = input_runs.then(|| {
            let before = bench.on(0, &[(1, Tag::Output)]);
            bench.dispatch();
            before
        });
        let boundary = args(&BOUNDARY);
        let made = chain_and_one();
        let binding = made.bind(&boundary, &[]).unwrap().prepared_later();
        let graph = bench.graph.submit_graph(bench.run, &binding).unwrap();
        bench.graph.cancel(bench.run).unwrap();
        let too_late = bench.graph.prepared(graph);
        assert_eq!(too_late, Err(EventError::NotAwaited { task: graph }));
        if let Some(before) = before {
            assert!(bench.ok(before).is_empty());
        }
        assert_eq!(bench.end_of(graph), Some(TaskEnd::Cancelled));
        assert_eq!(bench.outcome().cancelled, 1);
        assert_eq!(bench.graph.n_live_tasks(), 0);
    }
}

#[test]
fn a_graph_fails_with_the_worker_that_is_lost_under_it() {
    let mut bench = Bench::new(2, 0, Depth::One);
    let graph = replay(&mut bench, &chain_and_one());
    bench.dispatch();
    let worker = bench.next_level[0];
    bench.graph.worker_lost(worker).unwrap();
    assert!(bench.dispatch().is_empty());
    let lost = Failure::WorkerLost {
        worker,
        member: 0,
        accepted: false,
    };
    assert_eq!(bench.end_of(graph), Some(TaskEnd::Failed(lost)));
    let failed = node_failures(&bench);
    assert!(
        failed.contains(&(0, lost))
            && failed.contains(&(3, Failure::NoWorker { lost: Some(worker) })),
        "{failed:?}"
    );
    assert_eq!(failed.len(), 2, "the others were skipped: {failed:?}");
}

#[test]
fn a_chain_on_a_lost_worker_needs_no_deep_stack() {
    // Order edges only: every node fails by itself.
    let all = [(1, Tag::Output), (2, Tag::Output), (3, Tag::Output)];
    let tasks: Vec<&[(u64, Tag)]> = vec![&all; 100_000];
    let made = definition(&BOUNDARY, &tasks);
    let mut bench = Bench::new(1, 0, Depth::One);
    let graph = replay(&mut bench, &made);
    bench.dispatch();
    bench.graph.worker_lost(bench.next_level[0]).unwrap();
    assert!(matches!(bench.end_of(graph), Some(TaskEnd::Failed(_))));
    assert_eq!(
        bench.graph.n_live_tasks(),
        1,
        "the graph itself, until the run is over"
    );
}

#[test]
fn a_graph_is_refused_whose_worker_is_lost_or_is_none() {
    let mut bench = Bench::new(1, 1, Depth::One);
    let boundary = args(&BOUNDARY);
    let made = chain_and_one();
    bench.graph.worker_lost(bench.next_level[0]).unwrap();
    let worker = bench.next_level[0];
    let refused = bench
        .graph
        .submit_graph(bench.run, &made.bind(&boundary, &[]).unwrap());
    assert_eq!(refused, Err(SubmitError::WorkerLost { worker }));
    for worker in [1, 5] {
        let mut recorder = recorder(&boundary);
        on(&mut recorder, worker, &boundary).unwrap();
        let made = Arc::new(recorder.finish().unwrap());
        let refused = bench
            .graph
            .submit_graph(bench.run, &made.bind(&boundary, &[]).unwrap());
        let worker = WorkerId(worker);
        assert_eq!(refused, Err(SubmitError::NotNextLevel { worker }));
    }
    assert_eq!(bench.graph.n_live_tasks(), 0);
}

#[test]
fn groups_and_sub_tasks_are_nodes_too() {
    let boundary = TaskArgs::new();
    let mut recorder = recorder(&boundary);
    let (a, b) = (TaskArgs::new(), TaskArgs::new());
    let workers = [WorkerId(1), WorkerId(0)];
    let first = recorder
        .submit(&NodeSpec::new(0, Placement::Group(&workers), &[&a, &b]))
        .unwrap();
    let after = [first];
    let members = [&a];
    let spec = NodeSpec::new(1, Placement::SubGroup(2), &members);
    let second = recorder
        .submit(&NodeSpec {
            after: &after,
            ..spec
        })
        .unwrap();
    let made = Arc::new(recorder.finish().unwrap());
    assert_eq!(made.node(first).n_members(), 2);
    let mut bench = Bench::new(2, 2, Depth::One);
    let graph = bench
        .graph
        .submit_graph(bench.run, &made.bind(&boundary, &[]).unwrap())
        .unwrap();
    let group = bench.dispatch();
    assert_eq!(group.len(), 2);
    assert_eq!(bench.open[0].worker, WorkerId(1));
    assert!(bench.ok(group[0]).is_empty());
    let subs = bench.ok(group[1]);
    assert_eq!(subs.len(), 2);
    assert_eq!(bench.graph.node_of(subs[0]), Some((graph, second)));
    bench.fail(subs[0]);
    bench.ok(subs[1]);
    assert!(matches!(bench.end_of(graph), Some(TaskEnd::Failed(_))));
}

#[test]
fn a_graph_is_refused_while_nobody_is_left_that_one_of_its_nodes_could_run_on() {
    let mut bench = Bench::new(3, 0, Depth::One);
    let boundary = args(&[(1, Tag::InOut)]);
    let mut recorder = recorder(&boundary);
    for workers in [&[WorkerId(0), WorkerId(1)][..], &[WorkerId(1), WorkerId(2)]] {
        let members = [&boundary];
        let spec = NodeSpec::new(0, Placement::AnyOf(workers), &members);
        recorder.submit(&spec).unwrap();
    }
    let made = Arc::new(recorder.finish().unwrap());
    let submit = |bench: &mut Bench| {
        let binding = made.bind(&boundary, &[]).unwrap();
        bench.graph.submit_graph(bench.run, &binding)
    };
    bench.graph.worker_lost(WorkerId(0)).unwrap();
    submit(&mut bench).expect("of each pair one is left");
    bench.graph.worker_lost(WorkerId(1)).unwrap();
    let refused = submit(&mut bench);
    assert!(
        matches!(
            refused,
            Err(SubmitError::WorkerLost {
                worker: WorkerId(0 | 1)
            })
        ),
        "{refused:?}"
    );
    bench.graph.worker_back(WorkerId(1)).unwrap();
    submit(&mut bench).expect("it is back");
}
