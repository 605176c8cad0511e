//! One start, one outcome, whoever asks.

use std::{sync::Arc, thread};

use lifecycle::{Journal, Lifecycle, Start, StartError, State};

use crate::fixture::{Fault, Record, gate, new, now, ready, within_deadline};

type Outcome = Result<(), StartError<Fault>>;

#[track_caller]
fn won<'a>(lifecycle: &'a Lifecycle<Fault>) -> lifecycle::Epoch<'a, Fault> {
    match lifecycle.start(None) {
        Start::Won(epoch) => epoch,
        Start::Done(outcome) => panic!("not won, but {outcome:?}"),
    }
}

#[track_caller]
fn done(lifecycle: &Lifecycle<Fault>) -> Outcome {
    match lifecycle.start(None) {
        Start::Won(epoch) => panic!("not done, but {epoch:?}"),
        Start::Done(outcome) => outcome,
    }
}

#[test]
fn a_commit_makes_it_ready_for_all_who_ask_later() {
    within_deadline(|| {
        let lifecycle = new();
        assert_eq!(lifecycle.state(), State::New);
        let epoch = won(&lifecycle);
        assert_eq!(lifecycle.state(), State::Initializing);
        epoch.commit().expect("nobody closes");
        assert_eq!(lifecycle.state(), State::Ready);
        assert_eq!(done(&lifecycle), Ok(()));
    });
}

#[test]
fn everybody_who_waits_for_a_failing_start_gets_its_first_cause() {
    within_deadline(|| {
        let lifecycle = new();
        let epoch = won(&lifecycle);
        let (asking, asked) = std::sync::mpsc::channel();
        let waiters: Vec<_> = (0..4)
            .map(|_| {
                let (lifecycle, asking) = (Arc::clone(&lifecycle), asking.clone());
                thread::spawn(move || {
                    asking.send(()).expect("the test listens");
                    done(&lifecycle)
                })
            })
            .collect();
        (0..4).for_each(|_| asked.recv().expect("each waiter says so"));

        let mine = epoch.fail(Fault("E7"));
        assert_eq!(mine, StartError::Failed { cause: Fault("E7") });
        for waiter in waiters {
            assert_eq!(waiter.join().expect("no panic"), Err(mine.clone()));
        }
        assert_eq!(lifecycle.state(), State::Failed);
        assert_eq!(done(&lifecycle), Err(mine), "and so does who comes later");
    });
}

#[test]
fn an_epoch_that_is_dropped_is_a_failed_start() {
    within_deadline(|| {
        let lifecycle = new();
        drop(won(&lifecycle));
        assert_eq!(lifecycle.state(), State::Failed);
        assert_eq!(done(&lifecycle), Err(StartError::Abandoned));
    });
}

#[test]
fn a_start_that_panics_is_a_failed_start() {
    within_deadline(|| {
        let lifecycle = new();
        let shared = Arc::clone(&lifecycle);
        let starter = thread::spawn(move || {
            let _epoch = won(&shared);
            std::panic::resume_unwind(Box::new("staged"));
        });
        assert!(starter.join().is_err());
        assert_eq!(done(&lifecycle), Err(StartError::Abandoned));
    });
}

#[test]
fn a_waiter_whose_deadline_passes_is_told_that_the_start_goes_on() {
    within_deadline(|| {
        let lifecycle = new();
        let epoch = won(&lifecycle);
        let shared = Arc::clone(&lifecycle);
        let waiter = thread::spawn(move || match shared.start(now()) {
            Start::Done(outcome) => outcome,
            Start::Won(_) => panic!("it is taken"),
        });
        assert_eq!(
            waiter.join().expect("no panic"),
            Err(StartError::StillStarting)
        );
        epoch.commit().expect("the start itself is not harmed");
        assert_eq!(lifecycle.state(), State::Ready);
    });
}

#[test]
fn a_start_from_inside_the_start_is_refused_at_once() {
    within_deadline(|| {
        let lifecycle = new();
        let epoch = won(&lifecycle);
        assert_eq!(done(&lifecycle), Err(StartError::Reentrant));
        epoch.commit().expect("the start itself is not harmed");
    });
}

#[test]
fn a_close_cancels_a_start_that_blocks_and_waits_for_its_end() {
    within_deadline(|| {
        let (lifecycle, record) = (new(), Record::default());
        let (started, wait_started) = gate();
        let (shared, log) = (Arc::clone(&lifecycle), record.clone());
        let starter = thread::spawn(move || {
            let epoch = won(&shared);
            started.open();
            assert!(epoch.cancel_token().wait(None), "the close wakes it");
            log.note("starter woke");
            let cancelled = epoch
                .commit()
                .expect_err("Ready is never published after a close");
            log.note("starter rolled back");
            StartError::from(cancelled)
        });
        wait_started.pass();
        let journal = Journal::new();
        journal.push(record.step("half-built child"));
        assert_eq!(lifecycle.close(None, &journal), Ok(()));
        assert_eq!(starter.join().expect("no panic"), StartError::Cancelled);
        let order = ["starter woke", "starter rolled back", "half-built child"];
        assert_eq!(record.seen(), order);
        assert_eq!(lifecycle.state(), State::Closed);
    });
}

#[test]
fn a_start_that_cannot_be_cancelled_yet_makes_the_close_incomplete_and_the_next_one_drives_on() {
    within_deadline(|| {
        let (lifecycle, record) = (new(), Record::default());
        let (started, wait_started) = gate();
        let (open, shut) = gate();
        let shared = Arc::clone(&lifecycle);
        let starter = thread::spawn(move || {
            let epoch = won(&shared);
            started.open();
            shut.pass(); // Deaf to the cancellation.
            epoch.fail(Fault("too late to matter"))
        });
        wait_started.pass();
        let journal = Journal::new();
        journal.push(record.step("half-built child"));
        let refused = lifecycle
            .close(now(), &journal)
            .expect_err("the starter is deaf");
        assert_eq!(refused.to_string(), INCOMPLETE_START);
        assert_eq!(record.seen(), [""; 0], "no step runs under a live start");
        assert_eq!(lifecycle.state(), State::Closed);

        open.open();
        assert_eq!(lifecycle.close(None, &journal), Ok(()));
        assert_eq!(record.seen(), ["half-built child"]);
        assert_eq!(
            starter.join().expect("no panic"),
            StartError::Cancelled,
            "the close was first"
        );
        assert_eq!(done(&lifecycle), Err(StartError::Closed));
    });
}

const INCOMPLETE_START: &str = "close within its budget: attempt 1 still waits for the start that it has \
                                cancelled; close again to drive on";

#[test]
fn those_who_wait_for_a_cancelled_start_hear_of_the_cancellation() {
    within_deadline(|| {
        let lifecycle = new();
        let epoch = won(&lifecycle);
        let shared = Arc::clone(&lifecycle);
        let closer = thread::spawn(move || shared.close(now(), &Journal::new()));
        assert!(
            closer.join().expect("no panic").is_err(),
            "the start is alive"
        );
        assert!(epoch.is_cancelled());
        assert_eq!(epoch.fail(Fault("later")), StartError::Cancelled);
    });
}

#[test]
fn a_hook_interrupts_whatever_the_start_blocks_in_and_runs_once() {
    within_deadline(|| {
        let lifecycle = new();
        let (rung, bell) = gate();
        let (started, wait_started) = gate();
        let shared = Arc::clone(&lifecycle);
        let starter = thread::spawn(move || {
            let epoch = won(&shared);
            let token = epoch.cancel_token();
            let hook = token.on_cancel(move || rung.open());
            let taken_back = token.on_cancel(|| panic!("it was taken back"));
            drop(taken_back);
            started.open();
            bell.pass();
            drop(hook);
            // A hook that comes too late runs at once.
            let (late, rings_at_once) = gate();
            let _hook = token.on_cancel(move || late.open());
            rings_at_once.pass();
        });
        wait_started.pass();
        assert_eq!(lifecycle.close(None, &Journal::new()), Ok(()));
        starter.join().expect("no panic");
    });
}

#[test]
fn a_failed_start_rolls_back_what_it_journalled_and_leaves_the_rest_to_the_close() {
    within_deadline(|| {
        let (lifecycle, record, journal) = (new(), Record::default(), Journal::new());
        let epoch = won(&lifecycle);
        journal.push(record.step("segment"));
        let mut tries = 0;
        journal.push(record.step_that("child", move || {
            tries += 1;
            if tries == 1 {
                Err(Fault("alive"))
            } else {
                Ok(())
            }
        }));
        let left = epoch
            .roll_back(&journal, None)
            .expect_err("the child is alive");
        assert_eq!(left.len(), 1);
        assert_eq!(left[0].to_string(), "release `child`: its step has failed");
        let _ = epoch.fail(Fault("first"));
        assert_eq!(lifecycle.close(None, &journal), Ok(()));
        assert_eq!(record.seen(), ["child", "segment", "child"]);
    });
}

#[test]
fn a_new_one_can_be_closed_without_a_start() {
    within_deadline(|| {
        let (lifecycle, record) = (new(), Record::default());
        let journal = crate::fixture::journal(&record, &["only"]);
        assert_eq!(lifecycle.close(None, &journal), Ok(()));
        assert_eq!(record.seen(), ["only"]);
        assert_eq!(done(&lifecycle), Err(StartError::Closed));
        assert_eq!(ready().state(), State::Ready, "others are not affected");
    });
}
