//! Runs of the journal that overlap, as only a misuse of rollbacks could make them.

use std::{
    sync::{Arc, mpsc},
    thread,
};

use super::{Journal, Step, StepCause};

#[test]
fn a_step_that_is_running_is_run_by_nobody_else_and_cannot_be_forgotten() {
    let journal: Arc<Journal<()>> = Arc::default();
    let (started, wait_started) = mpsc::channel::<()>();
    let (open, shut) = mpsc::channel::<()>();
    let id = journal.push(Step::new("slow", move |_| {
        started.send(()).expect("the test listens");
        shut.recv().expect_err("opened by dropping the key");
        Ok(())
    }));
    let shared = Arc::clone(&journal);
    let runner = thread::spawn(move || shared.run_all(None));
    wait_started.recv().expect("it runs");

    let failures = journal.run_all(None).expect_err("it runs elsewhere");
    assert_eq!(
        (failures.len(), &failures[0].cause),
        (1, &StepCause::Running)
    );
    let failure = journal.release(id, None).expect_err("it runs elsewhere");
    assert_eq!(failure.cause, StepCause::Running);
    assert!(!journal.forget(id));
    assert_eq!(journal.left(), ["slow"]);

    drop(open);
    assert_eq!(runner.join().expect("no panic"), Ok(()));
    assert!(journal.left().is_empty());
}

#[test]
fn the_text_of_a_panic_is_kept_whatever_its_type() {
    let journal: Journal<()> = Journal::new();
    journal.push(Step::new("other", |_| {
        std::panic::resume_unwind(Box::new(7))
    }));
    journal.push(Step::new("string", |_| {
        std::panic::resume_unwind(Box::new(format!("code {}", 7)))
    }));
    journal.push(Step::new("str", |_| {
        std::panic::resume_unwind(Box::new("text"))
    }));
    let failures = journal.run_all(None).expect_err("all panic");
    let messages = failures.iter().map(|failure| match &failure.cause {
        StepCause::Panicked { message } => message.as_str(),
        other => panic!("{other:?}"),
    });
    assert!(messages.eq(["text", "code 7", "a payload that is not text"]));
}
