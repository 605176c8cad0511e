//! Two closers: one drives, the other is pinned to the attempt that it saw.

use super::{Fault, Verdict, World, spawn};
use crate::{
    close::{Claim, CloseError},
    sync::Ordering::Relaxed,
};

/// The number of the attempt that a verdict speaks of; a success does not say.
fn attempt_of(verdict: &Verdict) -> Option<u64> {
    match verdict {
        Err(CloseError::Teardown { attempt, .. } | CloseError::Abandoned { attempt }) => {
            Some(*attempt)
        }
        _ => None,
    }
}

/// Closes by hand, and checks that the verdict is that of the attempt that the claim was about.
fn close_pinned(world: &World) -> Verdict {
    match world.lifecycle.claim()? {
        Claim::Done => Ok(()),
        Claim::Drive(attempt) => attempt.drain(None)?.tear_down(&world.journal, None),
        Claim::Join(joined) => {
            let pinned = joined.number();
            let verdict = joined.wait(None);
            // The first attempt fails in these models, and every later one succeeds.
            assert_eq!(
                attempt_of(&verdict),
                (pinned == 1).then_some(1),
                "{verdict:?}"
            );
            verdict
        }
    }
}

/// A step that must not overlap with itself, fails once, and then succeeds.
fn push_step_that_fails_once(world: &std::sync::Arc<World>) {
    world.push(|world, nth| {
        assert_eq!(
            world.made.fetch_add(1, Relaxed),
            0,
            "two attempts run steps at once"
        );
        loom::thread::yield_now();
        world.made.fetch_sub(1, Relaxed);
        if nth == 1 { Err(Fault(1)) } else { Ok(()) }
    });
}

#[test]
fn loom_two_closers() {
    loom::model(|| {
        let world = World::ready();
        push_step_that_fails_once(&world);
        let other = spawn(&world, close_pinned);
        let mine = close_pinned(&world);
        let theirs = other.join().expect("no panic");

        match (&mine, &theirs) {
            (Err(mine), Err(theirs)) => {
                assert_eq!(mine, theirs, "pinned to one attempt, one verdict");
                assert_eq!(world.released(), 0);
            }
            (Ok(()), Err(_)) | (Err(_), Ok(())) => assert_eq!(world.released(), 1),
            (Ok(()), Ok(())) => panic!("the first attempt has failed for somebody"),
        }
    });
}

#[test]
fn loom_closer_joined_across_a_retry() {
    loom::model(|| {
        let world = World::ready();
        push_step_that_fails_once(&world);
        let joiner = spawn(&world, close_pinned);
        // At most three attempts of mine or theirs: the step fails in the first and succeeds in the second.
        let mut verdict = close_pinned(&world);
        while verdict.is_err() {
            verdict = close_pinned(&world);
        }
        let theirs = joiner.join().expect("no panic");
        assert!(
            theirs.is_ok() || attempt_of(&theirs) == Some(1),
            "{theirs:?}"
        );
        assert_eq!(world.released(), 1, "the step has succeeded exactly once");
        assert!(world.lifecycle.is_torn_down());
    });
}
