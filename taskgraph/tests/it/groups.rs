//! Groups start whole, are not overtaken, and end once.

use taskgraph::*;

use crate::support::{Bench, X};

#[test]
fn a_group_runs_on_all_its_workers_at_once_and_ends_once() {
    let mut bench = Bench::new(3, 0, Depth::Two);
    let targets = [bench.next_level[2], bench.next_level[0]];
    let group = bench.submit(Placement::Group(&targets), &[(X, Tag::Output)]);
    let reader = bench.on(1, &[(X, Tag::Input)]);
    assert_eq!(bench.dispatch(), [group, group]);
    let members: Vec<_> = bench.open.iter().map(|d| (d.worker, d.member)).collect();
    assert_eq!(members, [(targets[0], 0), (targets[1], 1)]);
    assert_eq!(bench.ok(group), []);
    assert_eq!(bench.end_of(group), None);
    assert_eq!(bench.ok(group), [reader]);
    assert_eq!(bench.end_of(group), Some(TaskEnd::Completed));
}

#[test]
fn the_first_member_failure_is_kept_and_the_others_finish() {
    let mut bench = Bench::new(3, 0, Depth::One);
    let targets = bench.next_level.clone();
    let group = bench.submit(Placement::Group(&targets), &[]);
    bench.dispatch();
    let members = bench.open.clone();
    bench
        .graph
        .completed(members[1].dispatch, Outcome::Failed)
        .unwrap();
    bench
        .graph
        .completed(members[0].dispatch, Outcome::Failed)
        .unwrap();
    assert_eq!(bench.end_of(group), None);
    bench
        .graph
        .completed(members[2].dispatch, Outcome::Ok)
        .unwrap();
    let first = TaskEnd::Failed(Failure::Reported { member: 1 });
    assert_eq!(bench.end_of(group), Some(first));
}

/// TG-5: singles for w0 come without end; the group starts after what was on w0 already.
#[test]
fn a_ready_group_is_not_overtaken_by_singles_and_holds_up_nobody_else() {
    let mut bench = Bench::new(3, 0, Depth::Two);
    let running = bench.on(0, &[]);
    let staged = bench.on(0, &[]);
    let late: Vec<_> = (0..10).map(|_| bench.on(0, &[])).collect();
    assert_eq!(bench.dispatch(), [running, staged]);
    let targets = [bench.next_level[0], bench.next_level[1]];
    let group = bench.submit(Placement::Group(&targets), &[]);
    let held = bench.on(1, &[]);
    let elsewhere = bench.on(2, &[]);
    assert_eq!(bench.dispatch(), [elsewhere]);
    assert_eq!(bench.ok(running), []);
    assert_eq!(bench.ok(staged), [group, group, late[0], held]);
}

#[test]
fn an_older_single_has_its_turn_between_two_groups() {
    let mut bench = Bench::new(2, 0, Depth::One);
    let targets = bench.next_level.clone();
    let mut all = Vec::new();
    for _ in 0..3 {
        all.push((
            bench.on(0, &[]),
            bench.submit(Placement::Group(&targets), &[]),
        ));
    }
    assert_eq!(bench.dispatch(), [all[0].1, all[0].1]);
    assert_eq!(bench.ok(all[0].1), [all[0].0]);
    assert_eq!(bench.ok(all[0].1), []);
    assert_eq!(bench.ok(all[0].0), [all[1].1, all[1].1]);
}

#[test]
fn a_stalled_group_is_reported_once_with_who_blocks_it() {
    let mut bench = Bench::new(2, 0, Depth::One);
    let slow = bench.on(1, &[]);
    bench.dispatch();
    let targets = [bench.next_level[0], bench.next_level[1]];
    let group = bench.submit(Placement::Group(&targets), &[]);
    bench.on(0, &[]);
    bench.on(0, &[]);
    bench.dispatch();
    let effects: Vec<_> = std::iter::from_fn(|| bench.graph.next_effect()).collect();
    assert_eq!(
        effects,
        [Effect::GroupStalled {
            group,
            idle: targets[0]
        }]
    );
    assert_eq!(bench.graph.blockers(group).as_slice(), [(targets[1], slow)]);
}

#[test]
fn groups_on_other_workers_pass_a_group_that_waits() {
    let mut bench = Bench::new(4, 0, Depth::One);
    let w = bench.next_level.clone();
    let slow = bench.on(1, &[]);
    bench.dispatch();
    let waits = bench.submit(Placement::Group(&[w[0], w[1]]), &[]);
    let passes = bench.submit(Placement::Group(&[w[2], w[3]]), &[]);
    let behind = bench.submit(Placement::Group(&[w[3], w[0]]), &[]);
    assert_eq!(bench.dispatch(), [passes, passes]);
    assert_eq!(bench.ok(passes), []);
    assert_eq!(bench.ok(passes), []);
    assert_eq!(bench.ok(slow), [waits, waits]);
    assert_eq!(bench.ok(waits), [behind, behind]);
}

#[test]
fn a_group_of_sub_workers_takes_the_idle_ones_and_holds_them_until_it_is_whole() {
    let mut bench = Bench::new(0, 3, Depth::Two);
    let long: Vec<_> = (0..2).map(|_| bench.submit(Placement::Sub, &[])).collect();
    assert_eq!(bench.dispatch(), long);
    let group = bench.submit(Placement::SubGroup(2), &[]);
    let single = bench.submit(Placement::Sub, &[]);
    assert_eq!(bench.dispatch(), []);
    assert_eq!(bench.ok(long[0]), [group, group]);
    assert_eq!(bench.ok(long[1]), [single]);
}

#[test]
fn a_group_must_name_distinct_workers() {
    let mut bench = Bench::new(2, 0, Depth::One);
    let worker = bench.next_level[0];
    let targets = [worker, worker];
    let spec = TaskSpec::new(Placement::Group(&targets));
    let refused = bench.graph.submit(bench.run, &spec);
    assert_eq!(refused, Err(SubmitError::DuplicateMember { worker }));
    let refused = bench
        .graph
        .submit(bench.run, &TaskSpec::new(Placement::Group(&[])));
    assert_eq!(refused, Err(SubmitError::NoTargets));
    let refused = bench
        .graph
        .submit(bench.run, &TaskSpec::new(Placement::SubGroup(1)));
    assert_eq!(
        refused,
        Err(SubmitError::TooFewSubWorkers { wanted: 1, live: 0 })
    );
}
