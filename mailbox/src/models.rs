//! Models: every interleaving of two or three threads over the code that ships.
//!
//! Run with `cargo xtask loom mailbox`, and with `--weaken` to see that each ordering is needed. Time does
//! not pass in a model, so a wake-up that is lost is a deadlock, which the checker reports. A peer that
//! dies is a thread that stops there, after which the kernel changes its death word and wakes the
//! sleepers on it, as it does for a robust futex.

use loom::thread;

use crate::bell::Doorbell;
use crate::board::{self, Board};
use crate::child::ChildEnd;
use crate::events::Event;
use crate::frame::Identity;
use crate::mailbox::Mailbox;
use crate::message::Outcome;
use crate::parent::ParentEnd;
use crate::poison::Cause;
use crate::request::{NextError, Request};
use crate::sync::{AtomicU32, AtomicU64, Ordering, futex};
use crate::wait::{Activity, DeathWords, Immortal, Probe, WaitError, Waiter};
use crate::words::Words;

mod death;
mod staging;

fn model(body: impl Fn() + Sync + Send + 'static) {
    let mut builder = loom::model::Builder::new();
    // Two preemptions reach every race of two parties; LOOM_MAX_PREEMPTIONS overrides.
    builder.preemption_bound = builder.preemption_bound.or(Some(2));
    builder.check(body);
}

fn ends(task_frames: usize) -> (ParentEnd, ChildEnd) {
    let (parent, child) = Mailbox::modelled(&Doorbell::modelled(), task_frames);
    (parent.into_parent().unwrap(), child.into_child().unwrap())
}

fn identity(dispatch: u64) -> Identity {
    Identity {
        run: 1,
        slot: 2,
        generation: 3,
        dispatch,
    }
}

/// Serves `n` requests: a task's answer is its payload plus one, a control's is its payload.
fn serve(child: &mut ChildEnd, n: usize) {
    for _ in 0..n {
        match child.next(&Immortal, None).unwrap() {
            Request::Task(task) => {
                assert_eq!(u64::from(task.payload()[0]), task.identity().dispatch * 10);
                let answer = [task.payload()[0] + 1];
                child.complete(task, Ok(&answer)).unwrap();
            }
            Request::Control(control) => {
                let answer = [control.payload()[0]];
                child.reply(control, Ok(&answer)).unwrap();
            }
            Request::Shutdown => panic!("nobody has shut down"),
        }
    }
}

fn submit(parent: &mut ParentEnd, dispatch: u8) {
    parent
        .submit(identity(u64::from(dispatch)), 0, &[dispatch * 10])
        .unwrap();
}

/// Waits for the end of a task and checks that it is the whole of it.
fn await_done(parent: &mut ParentEnd, dispatch: u8) {
    parent.wait(&mut Waiter::new(), &Immortal, None).unwrap();
    let Some(Event::Done {
        identity: done,
        accepted: true,
        outcome,
    }) = parent.poll().unwrap()
    else {
        panic!("the task has not ended");
    };
    assert_eq!(done, identity(u64::from(dispatch)));
    assert_eq!(outcome, Outcome::Ok(&[dispatch * 10 + 1]));
}

/// Whoever observes a stamp observes what it covers, there and back, also when a frame is used again.
#[test]
fn a_task_comes_back_whole() {
    model(|| {
        let (mut parent, mut child) = ends(1);
        let server = thread::spawn(move || serve(&mut child, 2));
        for dispatch in 1..=2 {
            submit(&mut parent, dispatch);
            await_done(&mut parent, dispatch);
        }
        server.join().unwrap();
    });
}

/// Two tasks under way at once are executed in order and both come back.
#[test]
fn two_frames_keep_their_order() {
    model(|| {
        let (mut parent, mut child) = ends(2);
        let server = thread::spawn(move || serve(&mut child, 2));
        submit(&mut parent, 1);
        submit(&mut parent, 2);
        await_done(&mut parent, 1);
        await_done(&mut parent, 2);
        server.join().unwrap();
    });
}

/// One doorbell, two children: neither ring is lost.
#[test]
fn one_parked_parent_hears_both_children() {
    model(|| {
        let doorbell = Doorbell::modelled();
        let pair = || {
            let (parent, child) = Mailbox::modelled(&doorbell, 1);
            (parent.into_parent().unwrap(), child.into_child().unwrap())
        };
        let (mut parent_a, mut child_a) = pair();
        let (mut parent_b, mut child_b) = pair();
        submit(&mut parent_a, 1);
        submit(&mut parent_b, 1);
        let a = thread::spawn(move || serve(&mut child_a, 1));
        let b = thread::spawn(move || serve(&mut child_b, 1));
        let ready = || parent_a.is_ready() && parent_b.is_ready();
        doorbell
            .wait(
                &mut Waiter::new(),
                &Immortal,
                Activity::InFlight,
                None,
                ready,
            )
            .unwrap();
        await_done(&mut parent_a, 1);
        await_done(&mut parent_b, 1);
        a.join().unwrap();
        b.join().unwrap();
    });
}

/// Two threads of the parent may sleep on one doorbell: a ring wakes both.
#[test]
fn one_ring_reaches_every_parked_thread() {
    model(|| {
        let doorbell = Doorbell::modelled();
        let flag = loom::sync::Arc::new(AtomicU32::new(0));
        let wait = |doorbell: Doorbell, flag: loom::sync::Arc<AtomicU32>| {
            move || {
                let ready = || flag.load(Ordering::Acquire) == 1;
                doorbell
                    .wait(&mut Waiter::new(), &Immortal, Activity::Idle, None, ready)
                    .unwrap();
            }
        };
        let one = thread::spawn(wait(doorbell.clone(), flag.clone()));
        let two = thread::spawn(wait(doorbell.clone(), flag.clone()));
        // Release: partner of the Acquire in `ready`.
        flag.store(1, Ordering::Release);
        doorbell.ring();
        one.join().unwrap();
        two.join().unwrap();
    });
}

/// What was submitted before the shutdown is served and answered, whatever overlaps.
#[test]
fn a_shutdown_overtakes_nothing() {
    model(|| {
        let (mut parent, mut child) = ends(1);
        let server = thread::spawn(move || {
            serve(&mut child, 1);
            assert!(matches!(
                child.next(&Immortal, None).unwrap(),
                Request::Shutdown
            ));
        });
        submit(&mut parent, 1);
        parent.shutdown();
        await_done(&mut parent, 1);
        server.join().unwrap();
    });
}

/// A control request that was sent before a task is served before it; both are answered.
#[test]
fn a_control_request_goes_before_the_task_behind_it() {
    model(|| {
        let (mut parent, mut child) = ends(1);
        let server = thread::spawn(move || {
            let Request::Control(control) = child.next(&Immortal, None).unwrap() else {
                panic!("the task has overtaken the control request");
            };
            child.reply(control, Ok(&[5])).unwrap();
            serve(&mut child, 1);
        });
        let id = parent.control(0, &[5]).unwrap();
        submit(&mut parent, 1);
        let (mut replied, mut done) = (false, false);
        while !replied || !done {
            parent.wait(&mut Waiter::new(), &Immortal, None).unwrap();
            if let Some(reply) = parent.poll_control().unwrap() {
                assert_eq!((reply.id, reply.outcome), (id, Outcome::Ok(&[5])));
                replied = true;
            }
            done |= matches!(parent.poll().unwrap(), Some(Event::Done { .. }));
        }
        server.join().unwrap();
    });
}

/// Who hears of records over the doorbell finds each of them, in the pipe or among the lost. The pipe is a relaxed
/// word here: the kernel's own would order more than the board promises.
#[test]
fn a_record_that_was_told_of_is_found() {
    model(|| {
        let doorbell = Doorbell::modelled();
        let board = Board::new(Words::modelled(board::WORDS));
        let pipe = loom::sync::Arc::new(AtomicU64::new(0));
        let sender = thread::spawn({
            let (doorbell, board, pipe) = (doorbell.clone(), board.clone(), pipe.clone());
            move || {
                pipe.fetch_add(1, Ordering::Relaxed);
                board.tell_sent();
                doorbell.ring();
            }
        });
        let loser = thread::spawn({
            let (doorbell, board) = (doorbell.clone(), board.clone());
            move || {
                board.tell_lost();
                doorbell.ring();
            }
        });
        let ready = || board.told() == 2;
        doorbell
            .wait(&mut Waiter::new(), &Immortal, Activity::Idle, None, ready)
            .unwrap();
        assert_eq!((pipe.load(Ordering::Relaxed), board.lost()), (1, 1));
        sender.join().unwrap();
        loser.join().unwrap();
    });
}

/// What a child has answered counts, although it gave the mailbox up right afterwards.
#[test]
fn giving_up_overtakes_no_answer() {
    model(|| {
        let (mut parent, mut child) = ends(1);
        let server = thread::spawn(move || {
            serve(&mut child, 1);
            child.poison(Cause::Told("enough".to_owned()));
        });
        submit(&mut parent, 1);
        await_done(&mut parent, 1);
        parent.wait(&mut Waiter::new(), &Immortal, None).unwrap();
        let poisoned = parent.poll().unwrap_err();
        assert!(matches!(poisoned.cause(), Cause::PeerGaveUp { .. }));
        server.join().unwrap();
    });
}
