//! Cancel against commit, and cancel against a start that blocks.

use std::sync::Arc;

use super::{World, spawn};
use crate::{
    start::{Start, StartError},
    state::State,
    sync::{AtomicU64, Ordering::Relaxed},
};

#[test]
fn loom_cancel_against_commit() {
    loom::model(|| {
        let world = World::new();
        let Start::Won(epoch) = world.lifecycle.start(None) else {
            panic!("nobody else starts")
        };
        let closer = spawn(&world, World::close);
        let token = epoch.cancel_token();
        let committed = epoch.commit().map_err(StartError::from);

        // Exactly one of the two was first, and the close succeeds either way.
        assert_eq!(closer.join().expect("no panic"), Ok(()));
        assert_eq!(
            world.lifecycle.state(),
            State::Closed,
            "Ready came back after Closed"
        );
        assert!(world.lifecycle.is_torn_down());
        assert_eq!(token.is_cancelled(), committed.is_err());
    });
}

#[test]
fn loom_cancel_against_a_blocked_start() {
    loom::model(|| {
        let world = World::new();
        let starter = spawn(&world, |world| match world.lifecycle.start(None) {
            Start::Won(epoch) => {
                assert!(epoch.cancel_token().wait(None));
                assert!(epoch.is_cancelled());
                epoch.commit().map_err(StartError::from)
            }
            Start::Done(outcome) => outcome,
        });
        assert_eq!(world.close(), Ok(()));
        let outcome = starter.join().expect("no panic");
        assert!(
            matches!(outcome, Err(StartError::Cancelled | StartError::Closed)),
            "{outcome:?}"
        );
    });
}

#[test]
fn loom_cancel_against_a_hook() {
    loom::model(|| {
        let world = World::new();
        let Start::Won(epoch) = world.lifecycle.start(None) else {
            panic!("nobody else starts")
        };
        let closer = spawn(&world, World::close);
        let token = epoch.cancel_token();
        let rung = Arc::new(AtomicU64::new(0));
        let bell = Arc::clone(&rung);
        let hook = token.on_cancel(move || {
            bell.fetch_add(1, Relaxed);
        });
        drop(epoch);
        assert_eq!(closer.join().expect("no panic"), Ok(()));
        drop(hook);
        // Cancelled while the epoch lived: rung once. Otherwise the start was over: never.
        assert_eq!(rung.load(Relaxed), u64::from(token.is_cancelled()));
    });
}
