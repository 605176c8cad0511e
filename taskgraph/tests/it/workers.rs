//! Staging, shared queues, and workers that are lost.

use taskgraph::*;

use crate::support::{Bench, X};

#[test]
fn a_task_is_staged_behind_another_of_the_same_worker() {
    let mut bench = Bench::new(1, 0, Depth::Two);
    let tasks: Vec<_> = (0..3).map(|_| bench.on(0, &[])).collect();
    assert_eq!(bench.dispatch(), tasks[..2]);
    assert_eq!(
        bench.open.iter().map(|d| d.staged).collect::<Vec<_>>(),
        [false, true]
    );
    assert_eq!(bench.ok(tasks[0]), [tasks[2]]);
}

#[test]
fn a_task_that_waits_for_the_running_one_is_not_staged() {
    let mut bench = Bench::new(1, 0, Depth::Two);
    let a = bench.on(0, &[(X, Tag::Output)]);
    let b = bench.on(0, &[(X, Tag::Input)]);
    assert_eq!(bench.dispatch(), [a]);
    assert_eq!(bench.ok(a), [b]);
}

#[test]
fn sub_tasks_are_staged_only_when_one_sub_worker_is_left() {
    let mut bench = Bench::new(0, 2, Depth::Two);
    let tasks: Vec<_> = (0..4).map(|_| bench.submit(Placement::Sub, &[])).collect();
    assert_eq!(bench.dispatch(), tasks[..2]);
    let lost = bench.open.remove(1).worker;
    bench.graph.worker_lost(lost).unwrap();
    assert_eq!(bench.dispatch(), [tasks[2]]);
    assert!(bench.open[1].staged);
}

#[test]
fn any_of_goes_to_the_first_worker_that_is_idle() {
    let mut bench = Bench::new(3, 0, Depth::Two);
    let w = bench.next_level.clone();
    let busy = bench.on(0, &[]);
    bench.dispatch();
    let any: Vec<_> = (0..3)
        .map(|_| bench.submit(Placement::AnyOf(&[w[0], w[1]]), &[]))
        .collect();
    assert_eq!(bench.dispatch(), [any[0]]);
    assert_eq!(bench.open[1].worker, w[1]);
    assert_eq!(bench.ok(busy), [any[1]]);
    assert_eq!(bench.ok(any[0]), [any[2]]);
}

#[test]
fn a_lost_worker_fails_what_was_on_it_and_what_only_it_could_run() {
    let mut bench = Bench::new(2, 0, Depth::Two);
    let running = bench.on(0, &[(X, Tag::Output)]);
    let staged = bench.on(0, &[]);
    let queued = bench.on(0, &[]);
    let dependent = bench.on(1, &[(X, Tag::Input)]);
    let healthy = bench.on(1, &[]);
    bench.dispatch();
    let (worker, dispatch) = (bench.open[0].worker, bench.open[0].dispatch);
    bench.graph.accepted(dispatch).unwrap();
    bench.graph.worker_lost(worker).unwrap();
    let lost = |accepted| {
        TaskEnd::Failed(Failure::WorkerLost {
            worker,
            member: 0,
            accepted,
        })
    };
    assert_eq!(bench.end_of(running), Some(lost(true)));
    assert_eq!(bench.end_of(staged), Some(lost(false)));
    assert_eq!(
        bench.end_of(queued),
        Some(TaskEnd::Failed(Failure::NoWorker { lost: Some(worker) }))
    );
    assert_eq!(
        bench.end_of(dependent),
        Some(TaskEnd::Skipped { cause: running })
    );
    let stale = bench.graph.completed(dispatch, Outcome::Ok);
    assert_eq!(stale, Err(EventError::StaleDispatch { dispatch }));
    let refused = bench
        .graph
        .submit(bench.run, &TaskSpec::new(Placement::On(worker)));
    assert_eq!(refused, Err(SubmitError::WorkerLost { worker }));
    assert_eq!(bench.graph.task_state(healthy), State::Running);
    bench.graph.worker_back(worker).unwrap();
    let again = bench.on(0, &[]);
    assert_eq!(bench.dispatch(), [again]);
}

#[test]
fn a_group_with_a_lost_member_fails_when_the_others_are_done() {
    let mut bench = Bench::new(3, 0, Depth::One);
    let w = bench.next_level.clone();
    let group = bench.submit(Placement::Group(&w), &[]);
    let waiting = bench.submit(Placement::Group(&[w[1], w[2]]), &[]);
    let single = bench.on(1, &[]);
    bench.dispatch();
    bench.graph.worker_lost(w[2]).unwrap();
    assert_eq!(bench.end_of(group), None);
    assert_eq!(
        bench.end_of(waiting),
        Some(TaskEnd::Failed(Failure::NoWorker { lost: Some(w[2]) }))
    );
    assert_eq!(bench.ok(group), []);
    assert_eq!(bench.ok(group), [single]);
    let lost = Failure::WorkerLost {
        worker: w[2],
        member: 2,
        accepted: false,
    };
    assert_eq!(bench.end_of(group), Some(TaskEnd::Failed(lost)));
}

/// TG-5: one queued behind one running, many times over; no wake is ever lost.
#[test]
fn no_queued_task_is_ever_forgotten() {
    let mut bench = Bench::new(1, 0, Depth::One);
    let mut running = bench.on(0, &[]);
    assert_eq!(bench.dispatch(), [running]);
    for _ in 0..10_000 {
        let queued = bench.on(0, &[]);
        assert_eq!(bench.dispatch(), []);
        assert_eq!(bench.ok(running), [queued]);
        running = queued;
    }
}

#[test]
fn a_task_that_comes_to_its_turn_when_its_worker_is_lost_says_who_that_was() {
    let mut bench = Bench::new(3, 2, Depth::One);
    let w = bench.next_level.clone();
    let first = bench.run;
    let running = bench.on(0, &[]);
    bench.dispatch();
    bench.graph.seal(first).unwrap();
    // The next run waits, and meanwhile those die that could run its tasks.
    bench.run = bench.graph.begin_run();
    let single = bench.on(1, &[]);
    let any = bench.submit(Placement::AnyOf(&[w[1], w[2]]), &[]);
    let group = bench.submit(Placement::Group(&[w[0], w[2]]), &[]);
    let subs = bench.submit(Placement::SubGroup(2), &[]);
    bench.graph.worker_lost(w[1]).unwrap();
    bench.graph.worker_lost(w[2]).unwrap();
    bench.graph.worker_lost(WorkerId(4)).unwrap();
    bench.ok(running);
    let lost = |worker| Some(TaskEnd::Failed(Failure::NoWorker { lost: Some(worker) }));
    assert_eq!(bench.end_of(single), lost(w[1]));
    assert_eq!(bench.end_of(any), lost(w[1]));
    assert_eq!(bench.end_of(group), lost(w[2]));
    assert_eq!(bench.end_of(subs), lost(WorkerId(4)));
}
