//! Start against close, and start against start.

use std::sync::Arc;

use super::{Fault, WORK, World, spawn};
use crate::{
    start::{Start, StartError},
    state::State,
    sync::{AtomicU64, Ordering::Relaxed},
};

/// Builds, if it wins, and commits; returns whether it won, and the outcome.
fn build(world: &World) -> (bool, Result<(), StartError<Fault>>) {
    match world.lifecycle.start(None) {
        Start::Done(outcome) => (false, outcome),
        Start::Won(epoch) => {
            world.made.store(1, Relaxed);
            (true, epoch.commit().map_err(StartError::from))
        }
    }
}

#[test]
fn loom_start_against_close() {
    loom::model(|| {
        let world = World::new();
        let seen = Arc::new(AtomicU64::new(0));
        let step_saw = Arc::clone(&seen);
        world.push(move |world, _| {
            step_saw.store(world.made.load(Relaxed), Relaxed);
            Ok(())
        });
        let starter = spawn(&world, build);
        assert_eq!(world.close(), Ok(()));
        let (won, outcome) = starter.join().expect("no panic");

        // The starter has ended before the step, committed or cancelled, and the step saw what it built.
        assert_eq!(seen.load(Relaxed), u64::from(won));
        assert!(won || outcome == Err(StartError::Closed), "{outcome:?}");
        assert_eq!(world.lifecycle.state(), State::Closed);
        assert!(world.lifecycle.lease(&WORK).is_err(), "closed for good");
    });
}

#[test]
fn loom_start_against_start() {
    loom::model(|| {
        let world = World::new();
        let other = spawn(&world, build);
        let (won, outcome) = build(&world);
        let (other_won, other_outcome) = other.join().expect("no panic");
        assert!(won != other_won, "one epoch, one winner");
        assert_eq!((outcome, other_outcome), (Ok(()), Ok(())));
    });
}

#[test]
fn loom_start_against_start_against_close() {
    let mut model = loom::model::Builder::new();
    model.preemption_bound = Some(3); // Three threads and a lock: unbounded takes too long.
    model.check(|| {
        let world = World::new();
        let first = spawn(&world, build);
        let second = spawn(&world, build);
        assert_eq!(world.close(), Ok(()));
        let outcomes = [first, second].map(|thread| thread.join().expect("no panic"));

        let won = outcomes.iter().filter(|(won, _)| *won).count();
        let committed = outcomes
            .iter()
            .filter(|(won, outcome)| *won && outcome.is_ok())
            .count();
        assert!(won <= 1, "one epoch: {outcomes:?}");
        for (_, outcome) in &outcomes {
            // Whoever hears of a success hears of the same one.
            assert!(outcome.is_err() || committed == 1, "{outcomes:?}");
        }
        assert_eq!(world.lifecycle.state(), State::Closed);
    });
}
