//! Who is admitted, and what the last one out does.

use std::{sync::Arc, thread};

use lifecycle::{Journal, Lifecycle, Refused, Start, State};

use crate::fixture::{Fault, RUN, Record, gate, new, now, ready, within_deadline};

#[track_caller]
fn check_refused(lifecycle: &Lifecycle<Fault>, state: State) {
    let Refused {
        operation,
        state: found,
        ..
    } = lifecycle.lease(&RUN).expect_err("only Ready admits");
    assert_eq!((operation, found), ("run", state));
    assert_eq!(lifecycle.leases(), 0, "a refusal leaves no trace");
}

#[test]
fn only_ready_admits_and_every_other_state_refuses_at_once() {
    within_deadline(|| {
        let lifecycle = new();
        check_refused(&lifecycle, State::New);
        let Start::Won(epoch) = lifecycle.start(None) else {
            panic!("nobody else starts")
        };
        check_refused(&lifecycle, State::Initializing);
        drop(epoch);
        check_refused(&lifecycle, State::Failed);
        lifecycle
            .close(None, &Journal::new())
            .expect("nothing is left");
        check_refused(&lifecycle, State::Closed);
    });
}

#[test]
fn leases_nest_and_end_in_any_order() {
    within_deadline(|| {
        let lifecycle = ready();
        let mut leases: Vec<_> = (0..100)
            .map(|_| lifecycle.lease(&RUN).expect("ready"))
            .collect();
        assert_eq!(lifecycle.leases(), 100);
        drop(leases.swap_remove(17));
        drop(leases.remove(0));
        assert_eq!(lifecycle.leases(), 98);
        drop(leases);
        assert_eq!(lifecycle.leases(), 0);
        lifecycle
            .close(None, &Journal::new())
            .expect("all have ended");
    });
}

#[test]
fn an_owned_lease_may_end_on_another_thread_and_wakes_the_close_there() {
    within_deadline(|| {
        let (lifecycle, record) = (ready(), Record::default());
        let lease = lifecycle.lease_owned(&RUN).expect("ready");
        let (claimed, wait_claimed) = gate();
        let log = record.clone();
        let worker = thread::spawn(move || {
            wait_claimed.pass();
            log.note("operation ended");
            drop(lease);
        });
        let lifecycle::Claim::Drive(attempt) = lifecycle.claim().expect("outside") else {
            panic!("nobody else closes")
        };
        claimed.open();
        let journal = crate::fixture::journal(&record, &["step"]);
        attempt
            .drain(None)
            .expect("the worker ends it")
            .tear_down(&journal, None)
            .expect("fine");
        worker.join().expect("no panic");
        assert_eq!(record.seen(), ["operation ended", "step"]);
    });
}

#[test]
fn an_owned_lease_keeps_its_lifecycle_alive() {
    within_deadline(|| {
        let lifecycle = ready();
        let lease = lifecycle.lease_owned(&RUN).expect("ready");
        let weak = Arc::downgrade(&lifecycle);
        drop(lifecycle);
        assert_eq!(lease.lifecycle().leases(), 1);
        drop(lease);
        assert!(weak.upgrade().is_none());
    });
}

#[test]
fn a_panic_inside_an_operation_ends_its_lease() {
    within_deadline(|| {
        let lifecycle = ready();
        let shared = Arc::clone(&lifecycle);
        let operation = thread::spawn(move || {
            let _lease = shared.lease(&RUN).expect("ready");
            std::panic::resume_unwind(Box::new("staged"));
        });
        assert!(operation.join().is_err());
        lifecycle
            .close(now(), &Journal::new())
            .expect("nothing is alive");
    });
}

#[test]
fn many_threads_admit_and_leave_while_one_closes_and_none_is_lost() {
    within_deadline(|| {
        let (lifecycle, record) = (ready(), Record::default());
        let workers: Vec<_> = (0..4)
            .map(|_| {
                let lifecycle = Arc::clone(&lifecycle);
                thread::spawn(move || {
                    let mut admitted = 0_u64;
                    while let Ok(_lease) = lifecycle.lease(&RUN) {
                        admitted += 1;
                    }
                    admitted
                })
            })
            .collect();
        while lifecycle.leases() == 0 {
            thread::yield_now();
        }
        let (watched, log) = (Arc::clone(&lifecycle), record.clone());
        let journal = Journal::new();
        journal.push(lifecycle::Step::new("step", move |_| {
            log.note(format!("{} leases", watched.leases()));
            Ok(())
        }));
        lifecycle.close(None, &journal).expect("every worker ends");
        assert_eq!(record.seen(), ["0 leases"]);
        let admitted: u64 = workers
            .into_iter()
            .map(|w| w.join().expect("no panic"))
            .sum();
        assert!(admitted > 0);
    });
}
