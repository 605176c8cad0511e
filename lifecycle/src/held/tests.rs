//! Records: what a thread notes, who reads it, and what is left of it.

use std::{sync::mpsc, thread};

use super::{Kind, Mark, RECORDS, SLOTS, holders, inside, mark, new_key, unpoisoned};
use crate::operation::Operation;

static RUN: Operation = Operation::new("run");
static SUBMIT: Operation = Operation::new("submit");

fn names(key: u64) -> Vec<&'static str> {
    holders(key)
        .into_iter()
        .map(|holder| holder.operation)
        .collect()
}

#[test]
fn a_thread_is_inside_what_it_has_marked_until_the_mark_is_dropped() {
    let (key, other) = (new_key(), new_key());
    assert_eq!(inside(key), None);
    let lease = mark(key, Kind::Lease, &RUN);
    assert_eq!((inside(key), inside(other)), (Some("run"), None));
    drop(lease);
    assert_eq!(inside(key), None);
}

#[test]
fn an_owned_mark_is_listed_but_its_thread_is_not_inside() {
    let key = new_key();
    let owned = mark(key, Kind::Owned, &RUN);
    assert_eq!((inside(key), names(key)), (None, vec!["run"]));
    let entered = owned.enter();
    assert_eq!(
        (inside(key), names(key)),
        (Some("run"), vec!["run"]),
        "entering adds no lease"
    );
    drop(entered);
    assert_eq!(inside(key), None);
}

#[test]
fn marks_beyond_one_block_are_kept_and_cleared_like_the_first() {
    let key = new_key();
    let mut marks: Vec<Mark> = (0..3 * SLOTS)
        .map(|_| mark(key, Kind::Lease, &RUN))
        .collect();
    marks.push(mark(key, Kind::Lease, &SUBMIT));
    assert_eq!(names(key).len(), 3 * SLOTS + 1);
    marks.drain(..3 * SLOTS).for_each(drop);
    assert_eq!(inside(key), Some("submit"), "found in the last block");
    drop(marks);
    assert_eq!(names(key), [""; 0]);
}

#[test]
fn a_mark_that_is_dropped_elsewhere_is_cleared_and_its_thread_is_named_meanwhile() {
    let key = new_key();
    let taker = thread::Builder::new().name("taker".into());
    let taker = taker
        .spawn(move || mark(key, Kind::Owned, &RUN))
        .expect("it starts");
    let owned = taker.join().expect("no panic");
    let holder = holders(key)
        .pop()
        .expect("its thread has ended, its lease has not");
    assert_eq!(holder.to_string(), "`run` (taken on thread taker)");
    drop(owned);
    assert!(holders(key).is_empty());
}

#[test]
fn threads_that_come_and_go_share_records() {
    let live = |n| {
        let (done, wait) = mpsc::channel::<()>();
        let key = new_key();
        for _ in 0..n {
            let done = done.clone();
            thread::spawn(move || {
                drop(mark(key, Kind::Lease, &RUN));
                drop(done);
            })
            .join()
            .expect("no panic");
        }
        drop((done, wait));
        unpoisoned(&RECORDS).len()
    };
    // Other tests run meanwhile and may add some, but not one for each of these threads.
    assert!(
        live(200) < 150,
        "200 threads, one after another, have left 200 records"
    );
}

#[test]
fn a_record_with_a_forgotten_lease_is_not_handed_to_another_thread() {
    let key = new_key();
    let forgetful = thread::spawn(move || std::mem::forget(mark(key, Kind::Lease, &RUN)));
    forgetful.join().expect("no panic");
    let strangers: Vec<_> = (0..20)
        .map(|_| {
            thread::spawn(move || {
                drop(mark(new_key(), Kind::Lease, &SUBMIT));
                inside(key)
            })
        })
        .collect();
    for stranger in strangers {
        assert_eq!(stranger.join().expect("no panic"), None);
    }
    assert_eq!(names(key), ["run"], "the lease itself is still admitted");
}
