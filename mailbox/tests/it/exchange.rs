//! Tasks and control requests there and back, between two threads or in one.

use std::time::{Duration, Instant};

use mailbox::{
    CUT_MARK, ChildEnd, Doorbell, Event, Failure, Identity, Immortal, Layout, Mailbox, Outcome,
    ParentEnd, Request, SubmitError, Task,
};

fn pair(layout: Layout) -> (ParentEnd, ChildEnd) {
    let doorbell = Doorbell::create().unwrap();
    Mailbox::create(layout, &doorbell).unwrap().split().unwrap()
}

fn identity(dispatch: u64) -> Identity {
    Identity {
        run: 7,
        slot: 3,
        generation: 9,
        dispatch,
    }
}

#[track_caller]
fn next_task(child: &mut ChildEnd) -> Task {
    match child.try_next().unwrap() {
        Some(Request::Task(task)) => task,
        other => panic!("expected a task, got {other:?}"),
    }
}

#[test]
fn a_task_comes_back_with_its_identity_and_result() {
    let (mut parent, mut child) = pair(Layout::default());
    parent.submit(identity(1), 42, b"question").unwrap();
    let task = next_task(&mut child);
    assert_eq!(
        (task.identity(), task.kind(), task.payload()),
        (identity(1), 42, &b"question"[..])
    );
    assert_eq!(parent.poll().unwrap(), None);
    child.complete(task, Ok(b"answer")).unwrap();
    let outcome = Outcome::Ok(b"answer");
    let done = Event::Done {
        identity: identity(1),
        accepted: true,
        outcome,
    };
    assert_eq!(parent.poll().unwrap(), Some(done));
    assert_eq!(parent.poll().unwrap(), None);
}

#[test]
fn acceptance_is_a_fact_of_its_own() {
    let (mut parent, mut child) = pair(Layout::default());
    parent.submit(identity(1), 0, b"").unwrap();
    let mut task = next_task(&mut child);
    child.accept(&mut task).unwrap();
    assert_eq!(parent.poll().unwrap(), Some(Event::Accepted(identity(1))));
    assert_eq!(parent.poll().unwrap(), None);
    child
        .complete(
            task,
            Err(Failure {
                code: 5,
                message: "broke",
            }),
        )
        .unwrap();
    let outcome = Outcome::Failed(Failure {
        code: 5,
        message: "broke",
    });
    let done = Event::Done {
        identity: identity(1),
        accepted: true,
        outcome,
    };
    assert_eq!(parent.poll().unwrap(), Some(done));
}

#[test]
#[should_panic(expected = "belongs to the mailbox that it was staged at")]
fn a_staged_task_is_refused_by_another_mailbox() {
    let ((mut one, _), (mut other, _)) = (pair(Layout::default()), pair(Layout::default()));
    let staged = one.stage(identity(1), 0, b"here").unwrap();
    // The frame of that number holds something here, too.
    let _there = other.stage(identity(2), 0, b"there").unwrap();
    let _ = other.activate(staged);
}

#[test]
fn tasks_are_taken_in_order_of_activation_over_both_frames() {
    let (mut parent, mut child) = pair(Layout::default());
    let staged = parent.stage(identity(1), 0, b"later").unwrap();
    parent.submit(identity(2), 0, b"first").unwrap();
    let full = parent.submit(identity(3), 0, b"").unwrap_err();
    assert!(matches!(full, SubmitError::Full { frames: 2 }));
    let first = next_task(&mut child);
    assert!(
        child.try_next().unwrap().is_none(),
        "a staged task is not visible"
    );
    parent.activate(staged).unwrap();
    let second = next_task(&mut child);
    assert_eq!(
        (first.payload(), second.payload()),
        (&b"first"[..], &b"later"[..])
    );
    child.complete(second, Ok(b"")).unwrap();
    assert!(
        matches!(parent.poll().unwrap(), Some(Event::Done { identity: i, .. }) if i == identity(1))
    );
    child.complete(first, Ok(b"")).unwrap();
    assert!(
        matches!(parent.poll().unwrap(), Some(Event::Done { identity: i, .. }) if i == identity(2))
    );
    assert_eq!(parent.free_frames(), 2);
}

#[test]
fn payloads_of_every_size_up_to_the_limit_arrive_whole() {
    let layout = Layout {
        task_bytes: 128,
        spill_bytes: 8192,
        ..Layout::default()
    };
    let (mut parent, mut child) = pair(layout);
    let bytes: Vec<u8> = (0..8193_u32).map(|i| (i * 31 % 251) as u8).collect();
    for (i, len) in (0..300).chain([4096, 8191, 8192]).enumerate() {
        parent.submit(identity(i as u64), 1, &bytes[..len]).unwrap();
        let task = next_task(&mut child);
        let echo = task.payload().to_vec();
        child.complete(task, Ok(&echo)).unwrap();
        let expected = Outcome::Ok(&bytes[..len]);
        match parent.poll().unwrap() {
            Some(Event::Done { outcome, .. }) => assert_eq!(outcome, expected, "length {len}"),
            other => panic!("expected an end, got {other:?}"),
        }
    }
    let refused = parent.submit(identity(1), 1, &bytes).unwrap_err();
    assert!(
        matches!(
            refused,
            SubmitError::TooLarge {
                needed: 8193,
                capacity: 128,
                limit: 8192
            }
        ),
        "{refused:?}"
    );
    assert_eq!(parent.free_frames(), 2, "a refusal changes nothing");
}

#[test]
fn a_long_error_text_is_cut_with_a_mark() {
    let (mut parent, mut child) = pair(Layout::default());
    parent.submit(identity(1), 0, b"").unwrap();
    let task = next_task(&mut child);
    let message = "é".repeat(32 << 10);
    child
        .complete(
            task,
            Err(Failure {
                code: 1,
                message: &message,
            }),
        )
        .unwrap();
    match parent.poll().unwrap() {
        Some(Event::Done {
            outcome: Outcome::Failed(failure),
            accepted: false,
            ..
        }) => {
            assert!(failure.message.ends_with(CUT_MARK));
            assert!(failure.message.len() > 4000 && failure.message.starts_with("éé"));
        }
        other => panic!("expected a failure, got {other:?}"),
    }
    parent.submit(identity(2), 0, b"").unwrap();
    let _still_works = next_task(&mut child);
}

#[test]
fn a_control_request_passes_tasks_that_have_not_begun() {
    let (mut parent, mut child) = pair(Layout::default());
    parent.submit(identity(1), 0, b"task").unwrap();
    let id = parent.control(9, b"ask").unwrap();
    assert!(matches!(
        parent.control(9, b"again"),
        Err(SubmitError::ControlTaken)
    ));
    let Some(Request::Control(control)) = child.try_next().unwrap() else {
        panic!("the control request comes first");
    };
    assert_eq!((control.kind(), control.payload()), (9, &b"ask"[..]));
    child.reply(control, Ok(b"told")).unwrap();
    let reply = parent.poll_control().unwrap().unwrap();
    assert_eq!((reply.id, reply.outcome), (id, Outcome::Ok(b"told")));
    assert_eq!(next_task(&mut child).payload(), b"task");
}

#[test]
fn an_abandoned_control_request_is_answered_into_nothing() {
    let (mut parent, mut child) = pair(Layout::default());
    let id = parent.control(1, b"slow").unwrap();
    parent.abandon_control(id);
    let Some(Request::Control(control)) = child.try_next().unwrap() else {
        panic!("no control")
    };
    assert!(
        parent.control(1, b"next").is_err(),
        "the frame stays taken until the late answer"
    );
    child.reply(control, Ok(b"late")).unwrap();
    assert_eq!(parent.poll_control().unwrap(), None);
    parent.control(1, b"next").unwrap();
}

#[test]
fn a_shutdown_comes_after_everything_before_it_and_stays() {
    let (mut parent, mut child) = pair(Layout::default());
    parent.submit(identity(1), 0, b"").unwrap();
    parent.shutdown();
    assert!(matches!(
        parent.submit(identity(2), 0, b""),
        Err(SubmitError::ShutDown)
    ));
    let task = next_task(&mut child);
    child.complete(task, Ok(b"")).unwrap();
    for _ in 0..2 {
        assert!(matches!(
            child.next(&Immortal, None).unwrap(),
            Request::Shutdown
        ));
    }
    assert!(matches!(parent.poll().unwrap(), Some(Event::Done { .. })));
}

#[test]
fn a_deadline_ends_a_wait_and_changes_nothing() {
    let (mut parent, mut child) = pair(Layout::default());
    let soon = Instant::now() + Duration::from_millis(5);
    assert!(matches!(
        child.next(&Immortal, Some(soon)),
        Err(mailbox::NextError::Deadline)
    ));
    parent.submit(identity(1), 0, b"").unwrap();
    let _arrives = next_task(&mut child);
}
