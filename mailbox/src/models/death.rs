//! A peer dies at each step of the exchange: the survivor learns of it or of the result, never hangs,
//! and never takes half a message for a whole one.

use loom::sync::Arc;

use super::*;
use crate::frame::Stamp;
use crate::message::label;

/// The word that the kernel changes when its owner dies.
struct Peer(AtomicU32);

const ALIVE: u32 = 7;
const OWNER_DIED: u32 = 0x4000_0000;

impl Peer {
    fn new() -> Arc<Peer> {
        Arc::new(Peer(AtomicU32::new(ALIVE)))
    }

    /// What the kernel does for a dead owner. It walks the list of robust futexes after the last
    /// instruction of the process: Release, partner of the Acquire in `alive`.
    fn dies(&self) {
        self.0.store(OWNER_DIED, Ordering::Release);
        futex::wake_all(&self.0);
    }
}

impl Probe for Arc<Peer> {
    fn alive(&self) -> bool {
        // Acquire: partner of the Release in `dies`.
        self.0.load(Ordering::Acquire) == ALIVE
    }

    fn death_words<'a>(&'a self, words: &mut DeathWords<'a>) {
        words.watch(&self.0, ALIVE);
    }
}

/// Where a child stops.
#[derive(Clone, Copy, Debug, PartialEq)]
enum ChildDiesAfter {
    Nothing,
    TakingTheTask,
    WritingHalfAnAnswer,
    PublishingWithoutRinging,
    Answering,
}

fn child_dies(after: ChildDiesAfter) {
    use ChildDiesAfter::*;
    model(move || {
        let (mut parent, mut child) = ends(1);
        let peer = Peer::new();
        submit(&mut parent, 1);
        let kernel = peer.clone();
        let process = thread::spawn(move || {
            if after != Nothing {
                let Request::Task(task) = child.next(&Immortal, None).unwrap() else {
                    panic!("the task has been submitted");
                };
                match after {
                    Answering => child.complete(task, Ok(&[11])).unwrap(),
                    WritingHalfAnAnswer => child.write_unpublished(&task, &[99]),
                    PublishingWithoutRinging => {
                        child.write_unpublished(&task, &[11]);
                        child.publish_without_ringing(&task, Stamp::new(1, label::DONE, 1));
                    }
                    Nothing | TakingTheTask => {}
                }
            }
            kernel.dies();
        });
        let published = matches!(after, PublishingWithoutRinging | Answering);
        match parent.wait(&mut Waiter::new(), &peer, None) {
            Ok(()) => {
                assert!(published, "{after:?}: nothing was published");
                let Some(Event::Done { outcome, .. }) = parent.poll().unwrap() else {
                    panic!("{after:?}: news without an event");
                };
                assert_eq!(outcome, Outcome::Ok(&[11]));
            }
            Err(WaitError::PeerDied) => {
                assert!(
                    !published,
                    "{after:?}: what was published before the death counts"
                );
                let poisoned = parent.poll().unwrap_err();
                assert!(matches!(poisoned.cause(), Cause::PeerDied { .. }));
            }
            Err(other) => panic!("{other:?}"),
        }
        process.join().unwrap();
    });
}

#[test]
fn a_child_that_dies_before_taking_its_task_is_noticed() {
    child_dies(ChildDiesAfter::Nothing);
}

#[test]
fn a_child_that_dies_in_its_task_is_noticed() {
    child_dies(ChildDiesAfter::TakingTheTask);
}

#[test]
fn half_an_answer_is_none() {
    child_dies(ChildDiesAfter::WritingHalfAnAnswer);
}

#[test]
fn an_answer_that_was_published_but_not_rung_is_found() {
    child_dies(ChildDiesAfter::PublishingWithoutRinging);
}

#[test]
fn an_answer_outlives_its_child() {
    child_dies(ChildDiesAfter::Answering);
}

/// The parent dies with a task published or not: the child serves it or learns of the death.
fn parent_dies(publishes: bool) {
    model(move || {
        let (mut parent, mut child) = ends(1);
        let peer = Peer::new();
        let kernel = peer.clone();
        let process = thread::spawn(move || {
            match publishes {
                true => submit(&mut parent, 1),
                false => drop(parent.stage(identity(1), 0, &[10])),
            }
            kernel.dies();
        });
        match child.next(&peer, None) {
            Ok(Request::Task(task)) => {
                assert!(publishes);
                assert_eq!(task.payload(), [10]);
                child.complete(task, Ok(&[11])).unwrap();
                let after = child.next(&peer, None).unwrap_err();
                assert!(matches!(&after, NextError::Poisoned(p) if is_death(p.cause())));
            }
            Err(NextError::Poisoned(poisoned)) => {
                assert!(!publishes && is_death(poisoned.cause()));
            }
            other => panic!("{other:?}"),
        }
        process.join().unwrap();
    });
}

fn is_death(cause: &Cause) -> bool {
    matches!(cause, Cause::PeerDied { .. })
}

#[test]
fn a_parent_that_dies_before_publishing_is_noticed() {
    parent_dies(false);
}

#[test]
fn a_task_outlives_its_parent() {
    parent_dies(true);
}
