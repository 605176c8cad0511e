//! What people read when something is refused: each text says what was tried, found and expected.

use std::error::Error;

use mailbox::{
    AttachError, Cause, Doorbell, FrameName, Identity, Layout, Mailbox, Request, Segment, Side,
};

/// A message and its causes, as a report prints them.
fn chain(error: &dyn Error) -> String {
    let mut text = error.to_string();
    let mut source = error.source();
    while let Some(error) = source {
        text = format!("{text}: {error}");
        source = error.source();
    }
    text
}

#[track_caller]
fn check(error: &dyn Error, expected: &str) {
    assert_eq!(chain(error), expected);
}

fn small() -> Layout {
    Layout {
        task_bytes: 96,
        spill_bytes: 4096,
        ..Layout::default()
    }
}

#[test]
fn a_refused_submit_says_how_much_fits() {
    let mailbox = Mailbox::create(small(), &Doorbell::create().unwrap()).unwrap();
    let (mut parent, mut child) = mailbox.split().unwrap();
    let large = parent
        .submit(Identity::default(), 0, &[0; 5000])
        .unwrap_err();
    check(
        &large,
        "submit a payload of 5000 bytes: the frame holds 96, and with its spill area 4096",
    );
    parent.submit(Identity::default(), 0, b"").unwrap();
    parent.submit(Identity::default(), 0, b"").unwrap();
    let full = parent.submit(Identity::default(), 0, b"").unwrap_err();
    check(
        &full,
        "submit: all 2 frames are taken (poll until one is free)",
    );
    parent.control(0, b"").unwrap();
    check(
        &parent.control(0, b"").unwrap_err(),
        "send a control request: the one before is unanswered (poll for its answer, also after giving it up)",
    );
    let Some(Request::Control(control)) = child.try_next().unwrap() else {
        panic!("no request")
    };
    child.reply(control, Ok(&[])).unwrap();
    let Some(Request::Task(task)) = child.try_next().unwrap() else {
        panic!("no task")
    };
    let refused = child.complete(task, Ok(&[0; 5000])).unwrap_err();
    check(
        &refused,
        "answer a request: the result has 5000 bytes: the frame holds 96, and with its spill area 4096",
    );
    child.complete(refused.request, Ok(&[])).unwrap();
}

#[test]
fn poison_says_its_first_cause() {
    let mailbox = Mailbox::create(small(), &Doorbell::create().unwrap()).unwrap();
    let mut parent = mailbox.into_parent().unwrap();
    parent.poison(Cause::PeerDied { side: Side::Child });
    parent.poison(Cause::Told("a later cause".to_owned()));
    let refused = parent.submit(Identity::default(), 0, b"").unwrap_err();
    check(
        &refused,
        "submit: use a mailbox that was given up: the child died",
    );
    let stamp = Cause::ImpossibleStamp {
        frame: FrameName::Task(1),
        stamp: 0x10,
        expected: 7,
    };
    assert_eq!(
        stamp.to_string(),
        "task frame 1 has the impossible stamp 0x0000000000000010 (sequence number 7 was due)"
    );
}

#[test]
fn a_refused_attach_says_what_to_do() {
    check(
        &AttachError::Taken { side: Side::Child },
        "attach to a mailbox as the child: that side has been attached before \
         (create a new mailbox for a new child)",
    );
    let layout = Layout {
        task_frames: 3,
        ..small()
    };
    check(
        &layout.segment_bytes().unwrap_err(),
        "lay out a mailbox: task_frames is 3, it must be from 1 to 2",
    );
    check(
        &Segment::create("none", 0).unwrap_err(),
        "create segment `none` of 0 bytes: the size must be from 1 to 9223372036854775807",
    );
}
