//! The child's own books: the second check, which trusts no parent.

use provenance::{Cause, RecordCause, Table};

use crate::fixture::{CHIP0, CHIP1, ask, cause, free, record};

#[test]
fn parent_and_child_know_memory_by_one_handle() {
    let (parent, child) = (Table::new(), Table::new());
    record(&parent, CHIP1, 0x1000, 64);
    let reserved = parent.reserve(CHIP0).expect("reserved");
    let there = child
        .record_as(reserved.ticket(), 0x1000, 64)
        .expect("recorded");
    let here = reserved.record(0x1000, 64).expect("recorded");
    assert_eq!(here, there);
    assert_eq!(child.check(ask(), here.span(64)), Ok(0x1000));
}

#[test]
fn the_child_refuses_what_the_parent_let_pass() {
    let (parent, child) = (Table::new(), Table::new());
    let other = record(&parent, CHIP1, 0x1000, 64);
    let reserved = parent.reserve(CHIP0).expect("reserved");
    let ptr = child
        .record_as(reserved.ticket(), 0x1000, 64)
        .expect("recorded");
    reserved.record(0x1000, 64).expect("recorded");
    assert_eq!(cause(child.check(ask(), other.span(1))), Cause::Unknown);
    free(&child, ptr);
    assert_eq!(
        parent.check(ask(), ptr.span(1)),
        Ok(0x1000),
        "the parent has not heard of it"
    );
    assert_eq!(cause(child.check(ask(), ptr.span(1))), Cause::Stale);
}

#[test]
fn a_ticket_is_good_once() {
    let (parent, child) = (Table::new(), Table::new());
    let reserved = parent.reserve(CHIP0).expect("reserved");
    let ticket = reserved.ticket();
    let spent = RecordCause::Spent {
        entry: ticket.entry,
        generation: ticket.generation,
    };
    let ptr = child.record_as(ticket, 0x1000, 64).expect("recorded");
    assert_eq!(
        child
            .record_as(ticket, 0x2000, 64)
            .expect_err("in use")
            .cause,
        spent
    );
    free(&child, ptr);
    assert_eq!(
        child.record_as(ticket, 0x1000, 64).expect_err("used").cause,
        spent
    );
    drop(reserved);
    assert_eq!(
        parent
            .record_as(ticket, 0x1000, 64)
            .expect_err("dropped")
            .cause,
        spent
    );
}

#[test]
fn a_dropped_reservation_gives_its_entry_back() {
    let table = Table::new();
    let ticket = table.reserve(CHIP0).expect("reserved").ticket();
    let ptr = record(&table, CHIP0, 0x1000, 64);
    assert_eq!(ptr.entry(), ticket.entry);
    assert!(ptr.generation() > ticket.generation);
}

#[test]
fn the_child_follows_the_parents_numbering_through_many_lives_of_an_entry() {
    let (parent, child) = (Table::new(), Table::new());
    for round in 0..1_000 {
        let reserved = parent.reserve(CHIP0).expect("reserved");
        // Every third allocation fails on the device: the child never hears of it again.
        if round % 3 == 0 {
            continue;
        }
        let there = child
            .record_as(reserved.ticket(), 0x1000, 64)
            .expect("recorded");
        let here = reserved.record(0x1000, 64).expect("recorded");
        assert_eq!(here, there);
        free(&child, here);
        free(&parent, here);
    }
    assert_eq!((parent.stats().live, child.stats().live), (0, 0));
}

#[test]
fn nothing_is_reserved_for_a_lost_worker() {
    let table = Table::new();
    let before = table.reserve(CHIP0).expect("reserved");
    table.worker_lost(CHIP0);
    assert_eq!(
        table.reserve(CHIP0).expect_err("lost").cause,
        RecordCause::WorkerLost
    );
    assert_eq!(
        before.record(0x1000, 64).expect_err("lost").cause,
        RecordCause::WorkerLost
    );
}

#[test]
fn own_and_mirrored_entries_do_not_collide() {
    let (parent, mixed) = (Table::new(), Table::new());
    let reserved = parent.reserve(CHIP0).expect("reserved");
    let mirrored = mixed
        .record_as(reserved.ticket(), 0x1000, 64)
        .expect("recorded");
    let own = record(&mixed, CHIP1, 0x1000, 64);
    assert_ne!(own.entry(), mirrored.entry());
    assert_eq!(mixed.check(ask(), mirrored.span(64)), Ok(0x1000));
}
