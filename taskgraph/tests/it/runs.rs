//! Runs are admitted in order, end once, and can be cancelled.

use taskgraph::*;

use crate::support::{Bench, X};

#[test]
fn a_run_is_built_while_another_executes_and_starts_when_that_is_over() {
    let mut bench = Bench::new(2, 0, Depth::Two);
    let first = bench.run;
    let a = bench.on(0, &[(X, Tag::Output)]);
    bench.graph.seal(first).unwrap();
    bench.run = bench.graph.begin_run();
    let b = bench.on(1, &[]);
    let c = bench.on(0, &[(X, Tag::Input)]);
    assert_eq!(bench.dispatch(), [a]);
    assert_eq!(bench.graph.run_status(first), Some(RunStatus::Running));
    assert_eq!(bench.graph.run_status(bench.run), Some(RunStatus::Building));
    assert_eq!(bench.ok(a), [c, b]);
    bench.graph.seal(bench.run).unwrap();
    bench.ok(b);
    bench.ok(c);
    assert_eq!(bench.outcome().completed, 2);
}

#[test]
fn empty_runs_end_in_order() {
    let mut bench = Bench::new(1, 0, Depth::One);
    let first = bench.run;
    let second = bench.graph.begin_run();
    bench.graph.seal(second).unwrap();
    assert_eq!(bench.graph.next_effect(), None);
    bench.graph.seal(first).unwrap();
    assert_eq!(
        bench.graph.next_effect(),
        Some(Effect::RunFinished { run: first })
    );
    assert_eq!(
        bench.graph.next_effect(),
        Some(Effect::RunFinished { run: second })
    );
    assert_eq!(bench.graph.next_effect(), None);
}

#[test]
fn a_sealed_run_takes_no_task_and_a_released_one_is_forgotten() {
    let mut bench = Bench::new(1, 0, Depth::One);
    let run = bench.run;
    bench.graph.seal(run).unwrap();
    let spec = TaskSpec::new(Placement::On(bench.next_level[0]));
    assert_eq!(
        bench.graph.submit(run, &spec),
        Err(SubmitError::RunClosed { run })
    );
    bench.graph.release_run(run).unwrap();
    assert_eq!(bench.graph.run_status(run), None);
    assert_eq!(bench.graph.seal(run), Err(EventError::UnknownRun { run }));
}

#[test]
fn cancelling_drops_what_has_not_started_and_lets_the_rest_finish() {
    let mut bench = Bench::new(2, 1, Depth::One);
    let w = bench.next_level.clone();
    let running = bench.on(0, &[(X, Tag::Output)]);
    let pending = bench.on(0, &[(X, Tag::Input)]);
    let queued = bench.on(0, &[]);
    bench.dispatch();
    let group = bench.submit(Placement::Group(&[w[0], w[1]]), &[]);
    assert_eq!(bench.dispatch(), []);
    bench.graph.cancel(bench.run).unwrap();
    for task in [queued, group] {
        assert_eq!(bench.end_of(task), Some(TaskEnd::Cancelled));
    }
    let refused = bench
        .graph
        .submit(bench.run, &TaskSpec::new(Placement::Sub));
    assert_eq!(refused, Err(SubmitError::RunClosed { run: bench.run }));
    assert_eq!(bench.ok(running), []);
    assert_eq!(bench.end_of(pending), Some(TaskEnd::Cancelled));
    assert_eq!(
        (bench.outcome().completed, bench.outcome().cancelled),
        (1, 3)
    );
    bench.run = bench.graph.begin_run();
    let next = bench.on(0, &[(X, Tag::Input)]);
    assert_eq!(bench.dispatch(), [next]);
}

#[test]
fn a_run_takes_no_task_while_an_earlier_one_is_being_built() {
    let mut bench = Bench::new(1, 0, Depth::One);
    let (earlier, run) = (bench.run, bench.graph.begin_run());
    let spec = TaskSpec::new(Placement::On(bench.next_level[0]));
    let refused = bench.graph.submit(run, &spec);
    assert_eq!(refused, Err(SubmitError::EarlierRunOpen { run, earlier }));
    bench.graph.seal(earlier).unwrap();
    bench.graph.submit(run, &spec).unwrap();
}

#[test]
fn cancelling_a_run_that_waits_ends_it_before_its_turn() {
    let mut bench = Bench::new(1, 0, Depth::One);
    let a = bench.on(0, &[]);
    bench.graph.seal(bench.run).unwrap();
    let second = bench.graph.begin_run();
    let on = Placement::On(bench.next_level[0]);
    let b = bench.graph.submit(second, &TaskSpec::new(on)).unwrap();
    bench.dispatch();
    bench.graph.cancel(second).unwrap();
    assert_eq!(bench.end_of(b), Some(TaskEnd::Cancelled));
    assert!(matches!(
        bench.graph.run_status(second),
        Some(RunStatus::Done(_))
    ));
    let third = bench.graph.begin_run();
    let c = bench.graph.submit(third, &TaskSpec::new(on)).unwrap();
    assert_eq!(bench.ok(a), [c]);
}

#[test]
fn a_failure_poisons_a_later_run_that_was_built_on_its_data() {
    let mut bench = Bench::new(1, 0, Depth::One);
    let first = bench.run;
    let a = bench.on(0, &[(X, Tag::Output)]);
    bench.graph.seal(first).unwrap();
    bench.run = bench.graph.begin_run();
    let b = bench.on(0, &[(X, Tag::Input)]);
    bench.graph.seal(bench.run).unwrap();
    bench.dispatch();
    bench.fail(a);
    assert_eq!(bench.end_of(b), Some(TaskEnd::Skipped { cause: a }));
    assert_eq!(bench.outcome().cause, Some(a));
    bench.run = bench.graph.begin_run();
    let c = bench.on(0, &[(X, Tag::Input)]);
    assert_eq!(bench.dispatch(), [c]); // whoever saw the failure may go on
}

#[test]
fn a_full_arena_refuses_and_names_the_oldest_task() {
    let mut graph = Scheduler::new(Limits::default().tasks_max(2));
    let on = Placement::On(graph.add_worker(WorkerKind::NextLevel, Depth::One).unwrap());
    let run = graph.begin_run();
    let oldest = graph.submit(run, &TaskSpec::new(on)).unwrap();
    graph.submit(run, &TaskSpec::new(on)).unwrap();
    let refused = graph.submit(run, &TaskSpec::new(on));
    assert_eq!(
        refused,
        Err(SubmitError::SlotsFull {
            tasks_max: 2,
            oldest
        })
    );
    let dispatch = graph.next_dispatch().unwrap();
    graph.completed(dispatch.dispatch, Outcome::Ok).unwrap();
    graph.submit(run, &TaskSpec::new(on)).unwrap();
}
