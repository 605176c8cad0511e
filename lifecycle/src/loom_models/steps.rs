//! A teardown step that panics, under two closers.

use std::panic;

use super::{Verdict, World, spawn};
use crate::{
    close::CloseError,
    journal::{StepCause, StepFailure},
};

fn is_panic(failure: &StepFailure<super::Fault>) -> bool {
    matches!(&failure.cause, StepCause::Panicked { message } if message == "staged")
}

/// Whether a verdict is that of the attempt in which the step has panicked.
fn names_the_panic(verdict: &Verdict) -> bool {
    match verdict {
        Err(CloseError::Teardown {
            attempt: 1,
            failures,
        }) => failures.iter().all(is_panic),
        _ => false,
    }
}

#[test]
fn loom_panicking_teardown_step() {
    loom::model(|| {
        let world = World::ready();
        world.push(|_, nth| {
            if nth == 1 {
                // Unwinds without the panic hook, which would print in every interleaving.
                panic::resume_unwind(Box::new("staged"));
            }
            Ok(())
        });
        let other = spawn(&world, World::close);
        let mine = world.close();
        let theirs = other.join().expect("the panic stays in its step");
        assert!(mine.is_ok() || names_the_panic(&mine), "{mine:?}");
        assert!(theirs.is_ok() || names_the_panic(&theirs), "{theirs:?}");
        assert!(
            mine.is_err() || theirs.is_err(),
            "somebody hears of the panic"
        );

        // Whatever happened, the step is still owed until it has succeeded, once.
        assert_eq!(world.close(), Ok(()));
        assert_eq!(world.released(), 1);
        assert!(world.journal.left().is_empty());
    });
}
