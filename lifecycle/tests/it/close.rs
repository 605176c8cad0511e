//! Attempts, verdicts and who gets which.

use std::{sync::Arc, thread};

use lifecycle::{Attempt, Claim, CloseError, Joined, Journal, Lifecycle, State, WaitingFor};

use crate::fixture::{Fault, RUN, Record, Verdict, gate, journal, now, ready, within_deadline};

#[track_caller]
fn drives<'a>(lifecycle: &'a Lifecycle<Fault>) -> Attempt<'a, Fault> {
    match lifecycle.claim().expect("outside") {
        Claim::Drive(attempt) => attempt,
        other => panic!("not driving, but {other:?}"),
    }
}

#[track_caller]
fn joins<'a>(lifecycle: &'a Lifecycle<Fault>) -> Joined<'a, Fault> {
    // From a thread of its own, since the driver's thread would be refused.
    thread::scope(|scope| {
        let claim = scope.spawn(|| match lifecycle.claim().expect("outside") {
            Claim::Join(joined) => joined,
            other => panic!("not joining, but {other:?}"),
        });
        claim.join().expect("no panic")
    })
}

/// Closes from a thread of its own, without waiting.
fn closes_elsewhere(lifecycle: &Arc<Lifecycle<Fault>>, journal: &Arc<Journal<Fault>>) -> Verdict {
    let (lifecycle, journal) = (Arc::clone(lifecycle), Arc::clone(journal));
    thread::spawn(move || lifecycle.close(now(), &journal))
        .join()
        .expect("no panic")
}

#[track_caller]
fn waits_for_one_run(verdict: &Verdict, expected_attempt: u64) {
    let Err(CloseError::Incomplete {
        attempt,
        waiting_for,
    }) = verdict
    else {
        panic!("not incomplete, but {verdict:?}")
    };
    assert_eq!(*attempt, expected_attempt);
    let WaitingFor::Leases { count: 1, holders } = waiting_for else {
        panic!("not one lease, but {waiting_for:?}")
    };
    assert_eq!(holders.len(), 1);
    assert_eq!(
        (holders[0].operation, &*holders[0].thread),
        ("run", "operation")
    );
}

/// ```text
/// operation   |-- lease ------------------------------ gate opens --|
/// B                 drives 1, budget used up
/// C                 joins 1   (wakes late)                              gets 1's verdict
/// D                                     drives 2, used up
/// last                                                                drives 3: Ok
/// ```
#[test]
fn closers_of_one_attempt_get_one_verdict_and_nothing_is_torn_down_under_an_operation() {
    within_deadline(|| {
        let (lifecycle, record) = (ready(), Record::default());
        let journal = Arc::new(journal(&record, &["first", "second"]));
        let (open, shut) = gate();
        let (admitted, wait_admitted) = gate();
        let shared = Arc::clone(&lifecycle);
        let operation = thread::Builder::new()
            .name("operation".into())
            .spawn(move || {
                let _lease = shared.lease(&RUN).expect("ready");
                admitted.open();
                shut.pass();
            });
        wait_admitted.pass();

        let b = drives(&lifecycle);
        assert_eq!(lifecycle.state(), State::Closed, "from the claim on");
        let c = joins(&lifecycle);
        let b = b.drain(now()).expect_err("the gate is shut");
        waits_for_one_run(&Err(b.clone()), 1);
        let d = closes_elsewhere(&lifecycle, &journal);
        waits_for_one_run(&d, 2);
        assert_eq!(
            c.wait(None),
            Err(b),
            "C is pinned to the attempt that it saw"
        );
        assert!(
            lifecycle.lease(&RUN).is_err(),
            "refused from the first claim on"
        );
        assert_eq!(record.seen(), [""; 0], "no step while the gate is shut");
        assert!(!lifecycle.is_torn_down());

        open.open();
        assert_eq!(lifecycle.close(None, &journal), Ok(()));
        assert_eq!(
            lifecycle.close(None, &journal),
            Ok(()),
            "and again, at once"
        );
        assert_eq!(
            record.seen(),
            ["second", "first"],
            "each once, last in first out"
        );
        assert_eq!(lifecycle.state(), State::Closed);
        operation
            .expect("a thread starts")
            .join()
            .expect("no panic");
    });
}

#[test]
fn a_joiner_gets_the_success_of_the_driver_and_runs_nothing_itself() {
    within_deadline(|| {
        let (lifecycle, record) = (ready(), Record::default());
        let journal = journal(&record, &["step"]);
        let attempt = drives(&lifecycle);
        let joined = joins(&lifecycle);
        let number = attempt.number();
        assert_eq!(joined.number(), number);
        attempt
            .drain(None)
            .expect("idle")
            .tear_down(&journal, None)
            .expect("fine");
        assert_eq!(joined.wait(now()), Ok(()));
        assert_eq!(record.seen(), ["step"]);
    });
}

#[test]
fn a_joiner_whose_own_budget_is_shorter_is_told_what_the_driver_waits_for() {
    within_deadline(|| {
        let lifecycle = ready();
        let lease = lifecycle.lease_owned(&RUN).expect("ready");
        let attempt = drives(&lifecycle);
        let error = joins(&lifecycle)
            .wait(now())
            .expect_err("the lease is alive");
        assert!(matches!(
            error,
            CloseError::Incomplete {
                attempt: 1,
                waiting_for: WaitingFor::Leases { count: 1, .. }
            }
        ));
        drop(lease);
        let drained = attempt
            .drain(now())
            .expect("the joiner has not harmed the attempt");
        let error = joins(&lifecycle)
            .wait(now())
            .expect_err("the steps have not run");
        assert!(matches!(
            error,
            CloseError::Incomplete {
                waiting_for: WaitingFor::Teardown,
                ..
            }
        ));
        drained.tear_down(&Journal::new(), None).expect("fine");
    });
}

#[test]
fn an_attempt_that_is_dropped_gives_its_joiners_a_verdict_and_the_next_close_drives_on() {
    within_deadline(|| {
        let (lifecycle, record) = (ready(), Record::default());
        let journal = journal(&record, &["step"]);
        let attempt = drives(&lifecycle);
        let joined = joins(&lifecycle);
        drop(attempt);
        assert_eq!(joined.wait(None), Err(CloseError::Abandoned { attempt: 1 }));
        let drained = drives(&lifecycle).drain(None).expect("idle");
        let joined = joins(&lifecycle);
        drop(drained);
        assert_eq!(joined.wait(None), Err(CloseError::Abandoned { attempt: 2 }));
        assert_eq!(lifecycle.close(None, &journal), Ok(()));
        assert_eq!(record.seen(), ["step"]);
    });
}

#[test]
fn a_hook_that_panics_abandons_the_attempt_and_the_other_hooks_still_run() {
    within_deadline(|| {
        let lifecycle = crate::fixture::new();
        let lifecycle::Start::Won(epoch) = lifecycle.start(None) else {
            panic!("nobody else")
        };
        let token = epoch.cancel_token();
        let (rung, bell) = gate();
        let _first = token.on_cancel(|| std::panic::resume_unwind(Box::new("staged")));
        let _second = token.on_cancel(move || rung.open());
        let shared = Arc::clone(&lifecycle);
        let closer = thread::spawn(move || shared.claim().map(drop));
        assert!(closer.join().is_err(), "the panic is the closer's");
        bell.pass();
        drop(epoch);
        assert_eq!(lifecycle.close(None, &Journal::new()), Ok(()));
    });
}

#[test]
fn an_owned_lease_that_is_held_by_the_closer_itself_makes_the_close_incomplete_not_deadlocked() {
    within_deadline(|| {
        let lifecycle = ready();
        let handle = lifecycle.lease_owned(&RUN).expect("ready");
        let error = lifecycle
            .close(now(), &Journal::new())
            .expect_err("the run is alive");
        assert!(matches!(error, CloseError::Incomplete { .. }), "{error}");
        drop(handle);
        assert_eq!(lifecycle.close(now(), &Journal::new()), Ok(()));
    });
}
