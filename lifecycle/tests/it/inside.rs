//! A close that would wait for itself is refused at once, and nothing changes.

use std::{sync::Arc, thread};

use lifecycle::{CloseError, Journal, Lifecycle, Start, State, Step};

use crate::fixture::{Fault, RUN, Record, SUBMIT, new, ready, within_deadline};

#[track_caller]
fn check_refused(lifecycle: &Lifecycle<Fault>, inside: &'static str) {
    let before = lifecycle.state();
    assert_eq!(
        lifecycle.close(None, &Journal::new()),
        Err(CloseError::Reentrant { inside })
    );
    assert_eq!(
        lifecycle.state(),
        before,
        "the refused close was not claimed"
    );
}

#[test]
fn a_close_inside_a_leased_operation_is_refused() {
    within_deadline(|| {
        let lifecycle = ready();
        let outer = lifecycle.lease(&RUN).expect("ready");
        let inner = lifecycle.lease(&SUBMIT).expect("ready");
        check_refused(&lifecycle, "run");
        drop(outer);
        check_refused(&lifecycle, "submit");
        drop(inner);
        assert_eq!(lifecycle.close(None, &Journal::new()), Ok(()));
    });
}

#[test]
fn a_close_deep_inside_many_leases_is_refused_too() {
    within_deadline(|| {
        let (lifecycle, others) = (ready(), ready());
        let held: Vec<_> = (0..50)
            .map(|_| others.lease(&RUN).expect("ready"))
            .collect();
        let lease = lifecycle.lease(&SUBMIT).expect("ready");
        check_refused(&lifecycle, "submit");
        drop(held);
        check_refused(&lifecycle, "submit");
        drop(lease);
        assert_eq!(lifecycle.close(None, &Journal::new()), Ok(()));
    });
}

#[test]
fn a_close_inside_the_start_is_refused_and_the_start_goes_on() {
    within_deadline(|| {
        let lifecycle = new();
        let Start::Won(epoch) = lifecycle.start(None) else {
            panic!("nobody else starts")
        };
        check_refused(&lifecycle, "start");
        epoch
            .commit()
            .expect("the refused close has cancelled nothing");
        assert_eq!(lifecycle.state(), State::Ready);
        assert_eq!(lifecycle.close(None, &Journal::new()), Ok(()));
    });
}

#[test]
fn a_close_inside_a_teardown_step_is_refused_and_the_outer_close_succeeds() {
    within_deadline(|| {
        let (lifecycle, record) = (ready(), Record::default());
        let (again, log) = (Arc::clone(&lifecycle), record.clone());
        let journal = Arc::new(Journal::new());
        let inner = Arc::downgrade(&journal);
        journal.push(Step::new("step", move |deadline| {
            let journal = inner.upgrade().expect("the close holds it");
            log.note(format!("{:?}", again.close(deadline, &journal)));
            Ok(())
        }));
        assert_eq!(lifecycle.close(None, &journal), Ok(()));
        assert_eq!(record.seen(), ["Err(Reentrant { inside: \"close\" })"]);
    });
}

#[test]
fn leases_of_another_lifecycle_do_not_matter() {
    within_deadline(|| {
        let (lifecycle, other) = (ready(), ready());
        let _held = other.lease(&RUN).expect("ready");
        assert_eq!(lifecycle.close(None, &Journal::new()), Ok(()));
        check_refused(&other, "run");
    });
}

#[test]
fn who_works_under_an_owned_lease_is_inside_and_who_only_holds_it_is_not() {
    within_deadline(|| {
        let lifecycle = ready();
        let lease = lifecycle.lease_owned(&RUN).expect("ready");
        let shared = Arc::clone(&lifecycle);
        let worker = thread::spawn(move || {
            let entered = lease.enter();
            check_refused(&shared, "run");
            drop(entered);
            drop(lease);
        });
        worker.join().expect("no panic");
        assert_eq!(lifecycle.close(None, &Journal::new()), Ok(()));
    });
}
