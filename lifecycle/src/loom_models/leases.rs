//! Lease against close, and lease against commit.

use std::sync::Arc;

use super::{WORK, World, spawn};
use crate::{
    start::Start,
    state::State,
    sync::{AtomicU64, Ordering::Relaxed},
};

/// Works under a lease, if admitted; returns whether it was.
fn operate(world: &World) -> bool {
    let Ok(lease) = world.lifecycle.lease(&WORK) else {
        return false;
    };
    let made = world.made.load(Relaxed);
    world.made.store(made + 1, Relaxed);
    drop(lease);
    true
}

#[test]
fn loom_lease_against_close() {
    loom::model(|| {
        let world = World::ready();
        let seen = Arc::new(AtomicU64::new(0));
        let step_saw = Arc::clone(&seen);
        world.push(move |world, _| {
            step_saw.store(world.made.load(Relaxed), Relaxed);
            Ok(())
        });
        let operation = spawn(&world, operate);
        assert_eq!(world.close(), Ok(()));
        let admitted = operation.join().expect("no panic");

        // Whoever was admitted has ended before the step, and the step saw what it did.
        assert_eq!(seen.load(Relaxed), u64::from(admitted));
        assert_eq!(world.released(), 1);
        assert_eq!(world.lifecycle.state(), State::Closed);
        assert!(!operate(&world), "closed for good");
    });
}

#[test]
fn loom_lease_against_commit() {
    loom::model(|| {
        let world = World::new();
        let operation = spawn(&world, |world| {
            // Admitted means: all that the start has built is there.
            let lease = world.lifecycle.lease(&WORK);
            lease.is_err() || world.made.load(Relaxed) == 1
        });
        let Start::Won(epoch) = world.lifecycle.start(None) else {
            panic!("nobody else starts")
        };
        world.made.store(1, Relaxed);
        epoch.commit().expect("nobody closes");
        assert!(
            operation.join().expect("no panic"),
            "admitted to something half built"
        );
    });
}
