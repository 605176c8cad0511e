//! Every text that a user can see, as it reads after "failed to".

use std::error::Error;

use lifecycle::{CloseError, Journal, Start, StartError, Step};

use crate::fixture::{Fault, RUN, SUBMIT, new, now, ready, within_deadline};

#[track_caller]
fn check(error: &dyn Error, expected: &str) {
    assert_eq!(error.to_string(), expected);
}

#[test]
fn refusals_name_the_operation_the_state_and_the_way_out() {
    within_deadline(|| {
        let lifecycle = new();
        let refused = || lifecycle.lease(&RUN).map(drop).expect_err("not ready");
        check(
            &refused(),
            "admit `run`: not started yet (state new); start it first",
        );
        let Start::Won(epoch) = lifecycle.start(None) else {
            panic!("nobody else starts")
        };
        check(
            &refused(),
            "admit `run`: still starting (state initializing); wait for its start to end",
        );
        drop(epoch);
        check(
            &refused(),
            "admit `run`: its start has failed (state failed); see the start's error, close it, make a new one",
        );
        lifecycle
            .close(None, &Journal::new())
            .expect("nothing is left");
        check(
            &refused(),
            "admit `run`: closed for good (state closed); make a new one",
        );
    });
}

#[test]
fn start_errors_say_who_ended_the_start() {
    within_deadline(|| {
        let texts = [
            (
                StartError::Abandoned,
                "start: the starter left without a result, by a panic or an early return; \
             close this and make a new one",
            ),
            (
                StartError::Cancelled,
                "start: a close was claimed before it was complete; make a new one",
            ),
            (StartError::Closed, "start: closed for good; make a new one"),
            (
                StartError::Failed { cause: Fault("E7") },
                "start: a step of it has failed; close this and make a new one",
            ),
            (
                StartError::Reentrant,
                "start: this thread is inside that start and would wait for itself; \
             return from it first",
            ),
            (
                StartError::StillStarting,
                "wait for the start: it goes on, but the caller's deadline has passed; \
             wait longer, or close to cancel it",
            ),
        ];
        for (error, expected) in texts {
            check(&error, expected);
        }
        let failed = StartError::Failed { cause: Fault("E7") };
        assert_eq!(
            failed.source().map(ToString::to_string).as_deref(),
            Some("E7")
        );
    });
}

#[test]
fn an_incomplete_close_names_whom_it_waits_for() {
    within_deadline(|| {
        let lifecycle = ready();
        let run = lifecycle.lease_owned(&RUN).expect("ready");
        let submit = lifecycle.lease_owned(&SUBMIT).expect("ready");
        let error = lifecycle
            .close(now(), &Journal::new())
            .expect_err("both are alive");
        check(
            &error,
            "close within its budget: attempt 1 still waits for 2 lease(s), `run` (taken on thread test), \
             `submit` (taken on thread test); close again to drive on",
        );
        drop((run, submit));
    });
}

#[test]
fn a_failed_teardown_lists_what_is_left_and_why() {
    within_deadline(|| {
        let lifecycle = ready();
        let journal = Journal::new();
        let segment = journal.push(Step::new("segment", |_| Ok(())));
        journal.push(Step::new("child 0", |_| Err(Fault("alive"))).using(segment));
        journal.push(Step::new("thread", |_| {
            std::panic::resume_unwind(Box::new("staged"))
        }));
        let error = lifecycle.close(None, &journal).expect_err("two steps fail");
        check(
            &error,
            "close: attempt 1 could not release 3 step(s); release `thread`: its step panicked: staged; \
         release `child 0`: its step has failed; \
         release `segment`: held back while `child 0` is left, which uses it; \
         close again to try these again",
        );
        assert_eq!(
            error.source().map(ToString::to_string).as_deref(),
            Some("alive")
        );
    });
}

#[test]
fn the_other_close_errors_say_what_to_do() {
    within_deadline(|| {
        check(
            &CloseError::<Fault>::Abandoned { attempt: 2 },
            "close: the thread that drove attempt 2 left without a verdict; close again to drive on",
        );
        check(
            &CloseError::<Fault>::Reentrant { inside: "run" },
            "close: this thread is inside `run` and would wait for itself; \
         return from it first, or close from another thread",
        );
    });
}
