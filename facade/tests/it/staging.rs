//! Staging: the first tasks of the next run lie in the mailboxes of their workers before the present run has ended, and
//! none of them begins before that, whatever happens meanwhile.
//!
//! ```text
//!  run N     task at the gate ................ ends | fails | dies
//!  run N+1        built, first task staged     |----- begins here, or never
//! ```

use std::path::Path;
use std::time::{Duration, Instant};

use facade::{Args, Buffer, FunctionHandle, RunHandle, TaskResult, Worker, args};
use nix::sys::signal::Signal;

use crate::support::{Gate, builder, directory, failure, kill};

/// What a task does, by its first scalar: stands at the gate and goes on, stands there and fails, or goes on at once. Then
/// notes its second scalar in a list of its own worker's: the count, then the numbers.
fn note(gate: &Gate, args: &Args) -> TaskResult {
    let how = args.scalar::<u32>(0)?;
    if how != GO_ON {
        gate.stand();
    }
    if how == FAIL {
        return Err("it was told to".into());
    }
    let list = args.output::<u32>(0)?;
    list[0] += 1;
    list[list[0] as usize] = args.scalar::<u32>(1)?;
    Ok(())
}

const GO_ON: u32 = 0;
const STAND: u32 = 1;
const FAIL: u32 = 2;

fn tree(dir: &Path, sub_workers: u32) -> (Worker, FunctionHandle, Gate) {
    let gate = Gate::new(dir, "gate");
    let node = builder(0, sub_workers).build().unwrap();
    let inside = gate.clone();
    let note = node
        .register_fn("note", move |args| note(&inside, args))
        .unwrap();
    node.init().unwrap();
    (node, note, gate)
}

/// A run of one task that does `how` and notes `number` in `list`.
fn noting(
    node: &Worker,
    note: &FunctionHandle,
    list: &Buffer<u32>,
    (how, number): (u32, u32),
) -> RunHandle {
    let task = args().inout(list).scalar(how).scalar(number);
    node.submit(|orch| orch.submit_sub(note, task).map(drop))
        .unwrap()
}

fn staged(node: &Worker) -> u64 {
    node.stats().unwrap().staged_ahead
}

/// Waits until so many tasks were staged: whoever drives does it, a moment after the submit.
fn await_staged(node: &Worker, n: u64) {
    let deadline = Instant::now() + Duration::from_secs(10);
    while staged(node) < n {
        assert!(Instant::now() < deadline, "{} are staged", staged(node));
        std::thread::yield_now();
    }
    assert_eq!(staged(node), n);
}

pub(crate) fn the_first_task_of_the_next_run_is_staged_and_begins_when_the_run_has_ended() {
    let dir = directory();
    let (node, note, gate) = tree(dir.path(), 1);
    let (x, y) = (
        node.buffer::<u32>(8).unwrap(),
        node.buffer::<u32>(8).unwrap(),
    );
    let first = noting(&node, &note, &x, (STAND, 1));
    assert_eq!(staged(&node), 0);
    // Of another buffer, so that nothing but the run before it keeps it from beginning.
    let second = node
        .submit(|orch| {
            for n in 2..5_u32 {
                orch.submit_sub(&note, args().inout(&y).scalar(GO_ON).scalar(n))?;
            }
            Ok(())
        })
        .unwrap();
    await_staged(&node, 1);
    let third = noting(&node, &note, &x, (GO_ON, 5));
    assert_eq!(staged(&node), 1, "the run after the next one is not staged");
    assert!(!first.is_done() && !second.is_done());
    gate.open();
    [first, second, third]
        .iter()
        .for_each(|run| run.wait().unwrap());
    assert_eq!(x.to_vec().unwrap()[..4], [2, 1, 5, 0]);
    assert_eq!(y.to_vec().unwrap()[..5], [3, 2, 3, 4, 0]);
    node.close().unwrap();
}

pub(crate) fn a_run_that_is_given_up_takes_its_staged_task_along() {
    let dir = directory();
    let (node, note, gate) = tree(dir.path(), 1);
    let list = node.buffer::<u32>(8).unwrap();
    let lists: Vec<_> = (0..3).map(|_| node.buffer::<u32>(8).unwrap()).collect();
    let first = noting(&node, &note, &list, (STAND, 1));
    for (doomed, n) in lists.iter().zip(1..) {
        let outcome = node.submit(|orch| {
            orch.submit_sub(&note, args().inout(doomed).scalar(GO_ON).scalar(7_u32))?;
            await_staged(&node, n);
            orch.function("missing").map(drop)
        });
        assert!(outcome.is_err());
    }
    // Whatever was staged of them, nobody uses their buffers.
    lists.iter().for_each(|list| list.release().unwrap());
    let last = noting(&node, &note, &list, (GO_ON, 9));
    gate.open();
    first.wait().unwrap();
    last.wait().unwrap();
    assert_eq!(list.to_vec().unwrap()[..4], [2, 1, 9, 0]);
    node.close().unwrap();
}

pub(crate) fn a_staged_task_begins_although_the_run_before_it_failed() {
    let dir = directory();
    let (node, note, gate) = tree(dir.path(), 1);
    let (x, y) = (
        node.buffer::<u32>(8).unwrap(),
        node.buffer::<u32>(8).unwrap(),
    );
    let first = noting(&node, &note, &x, (FAIL, 1));
    let second = node
        .submit(|orch| {
            // Needs what the failing one writes: not ready, so it is not staged, and will be skipped.
            orch.submit_sub(&note, args().inout(&x).scalar(GO_ON).scalar(2_u32))?;
            let other = args().inout(&y).scalar(GO_ON).scalar(3_u32);
            orch.submit_sub(&note, other).map(drop)
        })
        .unwrap();
    await_staged(&node, 1);
    gate.open();
    assert_eq!(failure(first.wait()).failed, 1);
    let outcome = failure(second.wait());
    assert_eq!((outcome.failed, outcome.skipped), (0, 1));
    assert_eq!(y.to_vec().unwrap()[..3], [1, 3, 0]);
    node.close().unwrap();
}

pub(crate) fn what_was_staged_at_a_worker_that_dies_runs_at_another() {
    let dir = directory();
    let (node, note, gate) = tree(dir.path(), 2);
    let x = node.buffer::<u32>(8).unwrap();
    let lists: Vec<_> = (0..3).map(|_| node.buffer::<u32>(8).unwrap()).collect();
    let first = noting(&node, &note, &x, (STAND, 1));
    let at_the_gate = gate.reader_is_there();
    let second = node
        .submit(|orch| {
            lists.iter().try_for_each(|list| {
                let task = args().inout(list).scalar(GO_ON).scalar(2_u32);
                orch.submit_sub(&note, task).map(drop)
            })
        })
        .unwrap();
    // One at each worker.
    await_staged(&node, 2);
    let tree = node.tree().unwrap();
    let workers = node.stats().unwrap().workers;
    let busy = workers.iter().position(|load| load.in_flight > 0).unwrap();
    kill(tree.children[busy].pid, Signal::SIGKILL);
    let died = failure(first.wait());
    assert!(
        matches!(died.cause, facade::TaskCause::WorkerDied(_)),
        "{died}"
    );
    second.wait().unwrap();
    for list in &lists {
        assert_eq!(list.to_vec().unwrap()[..3], [1, 2, 0]);
    }
    drop(at_the_gate);
    node.close().unwrap();
}

pub(crate) fn what_was_staged_at_the_only_worker_fails_with_its_death_and_was_never_sent() {
    let dir = directory();
    let (node, note, gate) = tree(dir.path(), 1);
    let (x, y) = (
        node.buffer::<u32>(8).unwrap(),
        node.buffer::<u32>(8).unwrap(),
    );
    let first = noting(&node, &note, &x, (STAND, 1));
    let at_the_gate = gate.reader_is_there();
    let second = noting(&node, &note, &y, (GO_ON, 2));
    await_staged(&node, 1);
    kill(node.tree().unwrap().children[0].pid, Signal::SIGKILL);
    for run in [first, second] {
        let died = failure(run.wait());
        assert!(
            matches!(died.cause, facade::TaskCause::WorkerDied(_)),
            "{died}"
        );
    }
    assert_eq!(node.stats().unwrap().sent, 1);
    assert_eq!(y.to_vec().unwrap()[0], 0);
    drop(at_the_gate);
    node.close().unwrap();
}
