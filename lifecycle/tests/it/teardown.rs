//! What a close makes of steps that fail.

use std::{sync::Arc, time::Instant};

use lifecycle::{CloseError, Journal, Step, StepCause, StepFailure};

use crate::fixture::{Fault, Record, Verdict, journal, ready, within_deadline};

#[track_caller]
fn failures(verdict: Verdict) -> Arc<[StepFailure<Fault>]> {
    match verdict {
        Err(CloseError::Teardown { failures, .. }) => failures,
        other => panic!("not a failed teardown, but {other:?}"),
    }
}

/// What is left, as `step: why`.
#[track_caller]
fn left(verdict: Verdict) -> Vec<String> {
    let why = |cause: &StepCause<Fault>| match cause {
        StepCause::HeldBack { by } => format!("held back by {by}"),
        StepCause::Panicked { message } => format!("panicked, {message}"),
        StepCause::Refused { cause } => format!("refused, {cause}"),
        other => format!("{other:?}"),
    };
    failures(verdict)
        .iter()
        .map(|f| format!("{}: {}", f.step, why(&f.cause)))
        .collect()
}

/// Fails as often as told, then succeeds.
fn failing(
    times: u32,
    how: impl Fn() -> Result<(), Fault> + Send,
) -> impl FnMut() -> Result<(), Fault> + Send {
    let mut left = times;
    move || {
        if left == 0 {
            return Ok(());
        }
        left -= 1;
        how()
    }
}

#[test]
fn one_failing_step_skips_no_other_and_only_it_is_retried() {
    within_deadline(|| {
        let (lifecycle, record) = (ready(), Record::default());
        let journal = journal(&record, &["1"]);
        journal.push(record.step_that("2", failing(1, || Err(Fault("alive")))));
        for name in ["3", "4", "5"] {
            journal.push(record.step(name));
        }

        assert_eq!(left(lifecycle.close(None, &journal)), ["2: refused, alive"]);
        assert_eq!(record.seen(), ["5", "4", "3", "2", "1"]);
        assert_eq!(journal.left(), ["2"]);
        assert_eq!(lifecycle.close(None, &journal), Ok(()));
        assert_eq!(
            record.seen(),
            ["5", "4", "3", "2", "1", "2"],
            "nothing is released twice"
        );
    });
}

#[test]
fn errors_and_panics_accumulate_in_one_verdict() {
    within_deadline(|| {
        let (lifecycle, record) = (ready(), Record::default());
        let journal = Journal::new();
        let panics = || std::panic::resume_unwind(Box::new("staged"));
        journal.push(record.step_that("a", failing(1, || Err(Fault("stuck")))));
        journal.push(record.step("b"));
        journal.push(record.step_that("c", failing(1, panics)));
        assert_eq!(
            left(lifecycle.close(None, &journal)),
            ["c: panicked, staged", "a: refused, stuck"]
        );
        assert_eq!(lifecycle.close(None, &journal), Ok(()));
        assert_eq!(record.seen(), ["c", "b", "a", "c", "a"]);
    });
}

#[test]
fn what_a_survivor_uses_is_not_released_before_it() {
    within_deadline(|| {
        let (lifecycle, record) = (ready(), Record::default());
        let journal = Journal::new();
        let mailboxes = ["mailbox 0", "mailbox 1"].map(|name| journal.push(record.step(name)));
        let alive = failing(1, || Err(Fault("alive")));
        journal.push(record.step_that("child 0", alive).using(mailboxes[0]));
        journal.push(record.step("child 1").using(mailboxes[1]));

        let expected = ["child 0: refused, alive", "mailbox 0: held back by child 0"];
        assert_eq!(left(lifecycle.close(None, &journal)), expected);
        assert_eq!(record.seen(), ["child 1", "child 0", "mailbox 1"]);
        assert_eq!(lifecycle.close(None, &journal), Ok(()));
        assert_eq!(
            record.seen(),
            ["child 1", "child 0", "mailbox 1", "child 0", "mailbox 0"]
        );
    });
}

#[test]
fn every_step_gets_the_deadline_of_the_close_even_when_it_has_passed() {
    within_deadline(|| {
        let (lifecycle, record) = (ready(), Record::default());
        let deadline = Some(Instant::now());
        let journal = Journal::new();
        for name in ["a", "b"] {
            let log = record.clone();
            journal.push(Step::new(name, move |given| {
                log.note(format!("{name}: {}", given == deadline));
                Ok(())
            }));
        }
        assert_eq!(lifecycle.close(deadline, &journal), Ok(()));
        assert_eq!(record.seen(), ["b: true", "a: true"]);
    });
}

#[test]
fn a_step_that_a_step_pushes_runs_in_the_same_close() {
    within_deadline(|| {
        let (lifecycle, record) = (ready(), Record::default());
        let journal = Arc::new(journal(&record, &["first"]));
        let (log, inner) = (record.clone(), Arc::downgrade(&journal));
        journal.push(Step::new("splits", move |_| {
            let journal = inner.upgrade().expect("the close holds it");
            journal.push(log.step("split off"));
            Ok(())
        }));
        assert_eq!(lifecycle.close(None, &journal), Ok(()));
        assert_eq!(record.seen(), ["split off", "first"]);
    });
}

#[test]
fn what_was_released_or_forgotten_before_is_not_released_again() {
    within_deadline(|| {
        let (lifecycle, record) = (ready(), Record::default());
        let journal = Journal::new();
        let [buffer, gone] = ["buffer", "gone"].map(|name| journal.push(record.step(name)));
        let user = journal.push(record.step("user").using(buffer));

        let error = journal.release(buffer, None).expect_err("it is in use");
        assert_eq!(error.cause, StepCause::HeldBack { by: "user".into() });
        journal.release(user, None).expect("nobody uses it");
        journal
            .release(buffer, None)
            .expect("nobody uses it any more");
        journal
            .release(buffer, None)
            .expect("it was released, which is what was asked");
        assert!(journal.forget(gone));
        assert!(!journal.forget(gone));

        assert_eq!(lifecycle.close(None, &journal), Ok(()));
        assert_eq!(record.seen(), ["user", "buffer"]);
    });
}
