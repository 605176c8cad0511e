//! A failure reaches what needs its data, with its root cause, and nothing else.

use taskgraph::*;

use crate::support::{Bench, X};

const Y: u64 = 2;
const Z: u64 = 3;
const FAILED: TaskEnd = TaskEnd::Failed(Failure::Reported { member: 0 });

#[test]
fn a_failure_skips_its_dependents_and_spares_the_rest() {
    let mut bench = Bench::new(2, 0, Depth::One);
    let a = bench.on(0, &[(X, Tag::Output)]);
    let b = bench.on(0, &[(X, Tag::Input), (Y, Tag::Output)]);
    let c = bench.on(0, &[(Y, Tag::Input)]);
    let other = bench.on(1, &[(Z, Tag::Output)]);
    bench.graph.seal(bench.run).unwrap();
    assert_eq!(bench.dispatch(), [a, other]);
    assert_eq!(bench.fail(a), []);
    assert_eq!(bench.end_of(a), Some(FAILED));
    assert_eq!(bench.end_of(b), Some(TaskEnd::Skipped { cause: a }));
    assert_eq!(bench.end_of(c), Some(TaskEnd::Skipped { cause: a }));
    assert_eq!(bench.end_of(other), None);
    bench.ok(other);
    let outcome = bench.outcome();
    assert_eq!(
        (outcome.cause, outcome.failed, outcome.skipped),
        (Some(a), 1, 2)
    );
    assert_eq!(bench.graph.n_live_tasks(), 0);
}

/// TG-5: P fails, C comes later, S is healthy and long; the next submission does not wait for S.
#[test]
fn a_consumer_submitted_after_the_failure_is_skipped_and_submits_go_on() {
    let mut bench = Bench::new(2, 0, Depth::One);
    let p = bench.on(0, &[(X, Tag::Output)]);
    let s = bench.on(1, &[(Y, Tag::Output)]);
    bench.dispatch();
    bench.fail(p);
    let c = bench.on(0, &[(X, Tag::Input)]);
    assert_eq!(bench.end_of(c), Some(TaskEnd::Skipped { cause: p }));
    let next = bench.on(0, &[(Z, Tag::Output)]);
    assert_eq!(bench.dispatch(), [next]);
    assert_eq!(bench.graph.task_state(s), State::Running);
    bench.graph.seal(bench.run).unwrap();
    bench.ok(next);
    bench.ok(s);
    assert_eq!(bench.end_of(s), Some(TaskEnd::Completed));
    assert_eq!(bench.outcome().cause, Some(p));
}

#[test]
fn whoever_only_reuses_the_memory_of_a_failed_task_still_runs() {
    let mut bench = Bench::new(2, 0, Depth::One);
    let reader = bench.on(0, &[(X, Tag::Input)]);
    let overwrite = bench.on(1, &[(X, Tag::Output)]);
    let consumer = bench.on(1, &[(X, Tag::Input)]);
    bench.dispatch();
    assert_eq!(bench.fail(reader), [overwrite]);
    assert_eq!(bench.ok(overwrite), [consumer]);
}

#[test]
fn a_skipped_task_ends_only_after_all_it_waited_for() {
    let mut bench = Bench::new(2, 0, Depth::One);
    let slow = bench.on(0, &[(X, Tag::Input)]);
    let bad = bench.on(1, &[(Y, Tag::Output)]);
    let both = bench.on(1, &[(Y, Tag::Input), (X, Tag::InOut)]);
    bench.dispatch();
    bench.fail(bad);
    assert_eq!(bench.end_of(both), None);
    // Without the wait this one would find no reader of X and overtake it.
    let overwrite = bench.on(1, &[(X, Tag::Output)]);
    assert_eq!(bench.dispatch(), []);
    assert_eq!(bench.ok(slow), [overwrite]);
    assert_eq!(bench.end_of(both), Some(TaskEnd::Skipped { cause: bad }));
}

#[test]
fn the_first_failure_of_a_run_is_its_cause() {
    let mut bench = Bench::new(2, 0, Depth::One);
    let a = bench.on(0, &[]);
    let b = bench.on(1, &[]);
    bench.graph.seal(bench.run).unwrap();
    bench.dispatch();
    bench.fail(b);
    bench.fail(a);
    assert_eq!(
        (bench.outcome().cause, bench.outcome().failed),
        (Some(b), 2)
    );
}

#[test]
fn after_a_failed_task_means_skipped() {
    let mut bench = Bench::new(1, 0, Depth::One);
    let a = bench.on(0, &[]);
    bench.dispatch();
    bench.fail(a);
    let spec = TaskSpec::new(Placement::On(bench.next_level[0]));
    let b = bench.graph.submit(bench.run, &spec.after(&[a])).unwrap();
    assert_eq!(bench.end_of(b), Some(TaskEnd::Skipped { cause: a }));
}
