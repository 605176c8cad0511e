//! Under the standard harness: a test runs in a thread of a process whose `main` is not ours.

#![expect(
    unsafe_code,
    reason = "what the linker collects lies in a section of its own"
)]

use std::time::{Duration, Instant};

use crate::{ChildContext, ExitCause, ForkOptions, StartError, exit_code, fork, spawn};

crate::register! {
    "unit::sum" => sum,
    "unit::idle" => idle,
}

fn sum(context: ChildContext) -> u8 {
    context.args.iter().sum()
}

fn idle(context: ChildContext) {
    let _ = context.parent.wait_gone(None);
}

fn soon() -> Instant {
    Instant::now() + Duration::from_secs(20)
}

#[test]
fn a_registered_function_runs_in_a_child_of_a_thread() {
    let child = spawn(ForkOptions::new("sum"), "unit::sum", &[1, 2, 39]).unwrap();
    assert_eq!(
        child.wait(soon()).unwrap(),
        ExitCause::Exited(42),
        "{:?}",
        child.last_words()
    );
    let refused = fork(ForkOptions::new("forked"), |_| ()).unwrap_err();
    assert!(
        matches!(refused, StartError::OtherThreads { .. }),
        "this is why: {refused}"
    );
}

#[test]
fn a_child_outlives_the_thread_that_spawned_it() {
    let spawner = std::thread::spawn(|| spawn(ForkOptions::new("idle"), "unit::idle", &[]));
    let child = spawner.join().unwrap().unwrap();
    // A second child is up after the first thread has ended; the first one must be, too.
    let other = spawn(ForkOptions::new("sum"), "unit::sum", &[7]).unwrap();
    assert_eq!(other.wait(soon()).unwrap(), ExitCause::Exited(7));
    assert_eq!(child.try_wait().unwrap(), None);
    let ended = child.terminate(Duration::from_secs(20)).unwrap();
    assert_ne!(ended.cause, ExitCause::Exited(exit_code::ORPHANED));
}
