//! What belongs to a thread is touched on that thread only.

use std::{rc::Rc, sync::Arc, thread};

use lifecycle::{CloseError, Journal, Owner, Step, StepCause, ThreadBound};

use crate::fixture::{Fault, Record, gate, ready, within_deadline};

#[test]
fn a_step_of_one_thread_is_refused_on_another_and_names_both() {
    within_deadline(|| {
        let (lifecycle, record) = (ready(), Record::default());
        let journal: Arc<Journal<Fault>> = Arc::new(Journal::new());
        // An `Rc` shows that the captures need not be `Send`.
        let (context, log) = (Rc::new("device context"), record.clone());
        journal.push(Step::here(*context, move |_deadline| {
            log.note(*context);
            Ok(())
        }));
        journal.push(record.step("anywhere"));

        let (elsewhere, shared) = (Arc::clone(&lifecycle), Arc::clone(&journal));
        let closer = thread::Builder::new().name("closer".into());
        let closer = closer
            .spawn(move || elsewhere.close(None, &shared))
            .expect("it starts");
        let error = closer
            .join()
            .expect("no panic")
            .expect_err("it is the wrong thread");
        let CloseError::Teardown { failures, .. } = &error else {
            panic!("{error:?}")
        };
        let StepCause::WrongThread(wrong) = &failures[0].cause else {
            panic!("{error:?}")
        };
        assert_eq!(wrong.owner, Owner::here());
        assert!(wrong.to_string().contains("`test`"), "{wrong}");
        assert!(wrong.to_string().contains("`closer`"), "{wrong}");
        assert_eq!(record.seen(), ["anywhere"]);

        assert_eq!(
            lifecycle.close(None, &journal),
            Ok(()),
            "its own thread may"
        );
        assert_eq!(record.seen(), ["anywhere", "device context"]);
    });
}

#[test]
fn a_bound_value_is_reached_on_its_thread_and_nowhere_else() {
    within_deadline(|| {
        let bound = Arc::new(ThreadBound::new(Rc::new(1)));
        assert_eq!(bound.with(|value| **value), Ok(1));
        let shared = Arc::clone(&bound);
        let elsewhere = thread::spawn(move || shared.with(|value| **value));
        let wrong = elsewhere
            .join()
            .expect("no panic")
            .expect_err("it is the wrong thread");
        assert_eq!(&wrong.owner, bound.owner());
        assert_ne!(wrong.owner, wrong.here);
        assert_eq!(bound.with(|value| *value = Rc::new(2)), Ok(()));
        assert_eq!(bound.with(|value| **value), Ok(2));
    });
}

/// Notes when and where it is dropped.
struct Tracked(Record);

impl Drop for Tracked {
    fn drop(&mut self) {
        let name = thread::current().name().map(str::to_owned);
        self.0
            .note(format!("dropped on {}", name.expect("a named thread")));
    }
}

#[test]
fn a_bound_value_is_dropped_on_its_thread_wherever_its_handle_goes() {
    within_deadline(|| {
        let record = Record::default();
        let (log, (open, shut)) = (record.clone(), gate());
        let (send, receive) = std::sync::mpsc::channel();
        let owner = thread::Builder::new().name("owner".into()).spawn(move || {
            let tracked = || ThreadBound::new(Tracked(log.clone()));
            drop(tracked());
            log.note("one");
            send.send(tracked()).expect("the test listens");
            shut.pass();
        });
        drop(receive.recv().expect("the owner sends it"));
        assert_eq!(record.seen(), ["dropped on owner", "one"]);
        open.open();
        owner.expect("it starts").join().expect("no panic");
        assert_eq!(
            record.seen(),
            ["dropped on owner", "one", "dropped on owner"]
        );
    });
}

#[test]
fn a_step_whose_thread_has_ended_is_named_until_it_is_forgotten() {
    within_deadline(|| {
        let (lifecycle, journal) = (ready(), Arc::new(Journal::<Fault>::new()));
        let shared = Arc::clone(&journal);
        let owner = thread::spawn(move || shared.push(Step::here("context", |_| Ok(()))));
        let id = owner.join().expect("no panic");
        let error = lifecycle
            .close(None, &journal)
            .expect_err("nobody may run it");
        assert!(matches!(error, CloseError::Teardown { .. }), "{error}");
        assert!(journal.forget(id));
        assert_eq!(lifecycle.close(None, &journal), Ok(()));
    });
}

#[test]
fn a_bound_value_survives_a_panic_in_its_use() {
    within_deadline(|| {
        let bound = ThreadBound::new(5);
        let panics = || bound.with(|_| std::panic::resume_unwind(Box::new("staged")));
        assert!(std::panic::catch_unwind(std::panic::AssertUnwindSafe(panics)).is_err());
        assert_eq!(bound.with(|value| *value), Ok(5));
    });
}
