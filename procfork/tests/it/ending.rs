//! Ending children that may not want to end.

use std::time::{Duration, Instant};

use procfork::{
    ChildStatus, Children, ExitCause, ForkOptions, Group, Pid, Signal, Stage, adopt_orphans, fork,
};

use crate::support::{Line, child, runs, sleep_for_ever, soon, until};

const LONG: Duration = Duration::from_secs(20);

fn ignore_sigterm() {
    // SAFETY: no function of ours.
    unsafe { libc::signal(libc::SIGTERM, libc::SIG_IGN) };
}

pub(crate) fn a_child_that_had_ended_needs_nothing() {
    let child = child("child", |_| 4);
    child.wait(soon()).unwrap();
    let ended = child.terminate(LONG).unwrap();
    assert_eq!(
        (ended.stage, ended.cause),
        (Stage::Ended, ExitCause::Exited(4))
    );
}

pub(crate) fn a_stopped_child_gets_to_handle_the_polite_request() {
    let child = child("child", |context| {
        let _ = context.parent.wait_gone(None);
    });
    child.signal(Signal::STOP).unwrap();
    until(|| child.status().unwrap() == ChildStatus::Stopped(Signal::STOP));
    let ended = child.terminate(LONG).unwrap();
    assert_eq!(ended.stage, Stage::Asked);
    assert_eq!(ended.cause.signal(), Some(Signal::TERM));
}

pub(crate) fn a_grace_period_without_end_is_one_that_nobody_lives_to_see() {
    let child = child("child", |context| {
        let _ = context.parent.wait_gone(None);
    });
    let ended = child.terminate(Duration::MAX).unwrap();
    assert_eq!(ended.stage, Stage::Asked);
}

pub(crate) fn a_child_that_ignores_the_request_is_killed_after_the_grace_period() {
    let line = Line::new();
    let child = fork(ForkOptions::new("stubborn").keep(line.fd()), |_| {
        ignore_sigterm();
        line.say("deaf");
        sleep_for_ever();
    });
    line.hear();
    let ended = child.unwrap().terminate(Duration::from_millis(20)).unwrap();
    assert_eq!(ended.stage, Stage::Killed);
    assert_eq!(ended.cause.signal(), Some(Signal::KILL));
}

/// The leader ends politely; what it leaves in its group does not outlive the call.
pub(crate) fn the_group_of_a_leader_goes_with_it() {
    adopt_orphans(true).unwrap();
    let line = Line::new();
    let leader = ForkOptions::new("leader").group(Group::New).keep(line.fd());
    let leader = fork(leader, |_| {
        let options = ForkOptions::new("stubborn")
            .death_signal(None)
            .keep(line.fd());
        let _stubborn = fork(options, |_| {
            ignore_sigterm();
            line.say(Pid::this());
            sleep_for_ever();
        });
        sleep_for_ever();
    });
    let (leader, stubborn) = (leader.unwrap(), line.hear_pid());
    let ended = leader.terminate(LONG).unwrap();
    assert_eq!(ended.cause.signal(), Some(Signal::TERM));
    until(|| !runs(stubborn));
}

fn crowd(count: usize, f: impl Fn(usize)) -> Children {
    let mut children = Children::new().unwrap();
    for index in 0..count {
        let options = ForkOptions::new(format!("child-{index}")).group(children.group());
        let child = fork(options, |context| {
            f(index);
            let _ = context.parent.wait_gone(None);
        });
        children.push(child.unwrap()).unwrap();
    }
    children
}

pub(crate) fn many_children_end_under_one_deadline() {
    let line = Line::new();
    let mut children = Children::new().unwrap();
    for index in 0..6 {
        let options = ForkOptions::new(format!("child-{index}")).group(children.group());
        let child = fork(options.keep(line.fd()), |context| {
            if index % 2 == 0 {
                ignore_sigterm();
            }
            line.say("up");
            let _ = context.parent.wait_gone(None);
        });
        children.push(child.unwrap()).unwrap();
    }
    (0..6).for_each(|_| drop(line.hear()));
    let closing = children.terminate(Duration::from_millis(50), soon());
    assert!(closing.survivors.is_empty() && children.is_empty());
    let stages: Vec<Stage> = closing.ended.iter().map(|ended| ended.stage).collect();
    let (killed, asked) = (Stage::Killed, Stage::Asked);
    assert_eq!(stages, [killed, asked, killed, asked, killed, asked]);
    assert!(
        closing
            .ended
            .iter()
            .all(|ended| procfork::ProcessInfo::of(ended.pid).is_err())
    );
}

pub(crate) fn all_children_of_a_tree_are_in_one_group() {
    let children = crowd(4, |_| ());
    let leader = children.iter().next().unwrap().pid();
    assert!(children.iter().all(|child| child.group() == Some(leader)));
    assert_eq!(children.group(), Group::Join(leader));
}

pub(crate) fn the_group_outlives_its_leader_for_as_long_as_a_member_proves_it() {
    let mut children = crowd(2, |_| ());
    let leader = children.iter().next().unwrap().pid();
    drop(children.remove(leader));
    assert_eq!(children.group(), Group::Join(leader));
    let _ = children.terminate(LONG, soon());
    assert_eq!(children.group(), Group::New);
}

pub(crate) fn an_end_is_reported_once_and_the_others_live() {
    let mut children = crowd(3, |_| ());
    assert!(children.poll_ended().unwrap().is_empty());
    let victim = children.iter().nth(1).unwrap();
    let pid = victim.pid();
    victim.signal(Signal::KILL).unwrap();
    victim.wait(soon()).unwrap();
    let ended = children.poll_ended().unwrap();
    assert_eq!(ended.len(), 1);
    assert_eq!((ended[0].0, ended[0].1.signal()), (pid, Some(Signal::KILL)));
    assert!(children.poll_ended().unwrap().is_empty());
    assert_eq!(children.signal_all(Signal::CONT), 2);
    assert!(!children.wait_all(Instant::now()).unwrap());
    let closing = children.terminate(LONG, soon());
    assert_eq!(closing.ended[1].stage, Stage::Ended);
}

/// A killed process with much memory takes the kernel a while; with a deadline that has passed it
/// is still there, is named, and a later attempt gets it.
pub(crate) fn a_survivor_is_named_and_a_later_attempt_ends_it() {
    let mut children = Children::new().unwrap();
    let line = Line::new();
    let child = fork(ForkOptions::new("heavy").keep(line.fd()), |context| {
        let memory = vec![1_u8; 300 << 20];
        line.say(
            memory
                .iter()
                .step_by(4096)
                .map(|byte| u64::from(*byte))
                .sum::<u64>(),
        );
        let _ = context.parent.wait_gone(None);
    });
    children.push(child.unwrap()).unwrap();
    line.hear();
    let closing = children.terminate(Duration::ZERO, Instant::now());
    assert_eq!(closing.survivors.len(), 1, "{closing:?}");
    assert_eq!(closing.survivors[0].name, "heavy");
    assert_eq!(children.len(), 1, "it stays journalled");
    let closing = children.terminate(Duration::ZERO, soon());
    assert!(closing.survivors.is_empty() && children.is_empty());
    assert!(
        closing.ended[0].cause.signal().is_some(),
        "of the request or of the kill"
    );
}
