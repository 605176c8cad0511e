//! Windows: several views of one memory, each with an extent of its own.

use provenance::{Ask, Cause, Operation, RecordCause, Role, Table};

use crate::fixture::{CHIP0, CHIP1, ask, cause, free, free_ask, record, release_ask};

#[test]
fn a_small_role_at_the_same_base_does_not_shrink_the_big_one() {
    let table = Table::new();
    let window = table
        .record_window(CHIP0, 0x1000, 4096, None)
        .expect("recorded");
    let buffer = table
        .record_window(CHIP0, 0x1000, 256, Some(window))
        .expect("recorded");
    assert_eq!(table.check(ask(), window.span(4096)), Ok(0x1000));
    assert_eq!(
        cause(table.check(ask(), buffer.span(257))),
        Cause::OutOfRange { extent: 256 }
    );
}

#[test]
fn memory_is_not_freed_while_a_window_shows_it() {
    let table = Table::new();
    let memory = record(&table, CHIP0, 0x1000, 4096);
    let peer = table
        .record_window(CHIP1, 0x9000, 4096, Some(memory))
        .expect("recorded");
    let shown = Cause::Windows { windows: 1 };
    assert_eq!(cause(table.revoke(free_ask(), memory)), shown);
    assert_eq!(cause(table.retire(free_ask(), memory)), shown);
    assert_eq!(cause(table.revoke(free_ask(), peer)), Cause::NotAllocation);
    let revoked = table.revoke(release_ask(), peer).expect("released");
    assert_eq!((revoked.role(), revoked.address()), (Role::Window, 0x9000));
    revoked.freed();
    free(&table, memory);
}

#[test]
fn one_byte_has_one_root_through_any_window() {
    let table = Table::new();
    let memory = record(&table, CHIP0, 0x1000, 4096);
    let part = memory.plus(1024).expect("inside");
    let peer = table
        .record_window(CHIP1, 0x9000, 2048, Some(part))
        .expect("recorded");
    let inner = peer.plus(512).expect("inside");
    let nested = table
        .record_window(CHIP1, 0x9200, 64, Some(inner))
        .expect("recorded");

    let root = memory.plus(1024 + 512 + 8).expect("inside");
    assert_eq!(table.root(ask(), root.span(1)), Ok(root));
    assert_eq!(
        table.root(ask(), inner.plus(8).expect("inside").span(1)),
        Ok(root)
    );
    assert_eq!(
        table.root(ask(), nested.plus(8).expect("inside").span(1)),
        Ok(root)
    );
    assert_eq!(
        cause(table.root(ask(), nested.span(65))),
        Cause::OutOfRange { extent: 64 }
    );
}

#[test]
fn a_window_shows_only_what_is_there() {
    let table = Table::new();
    let memory = record(&table, CHIP0, 0x1000, 64);
    let wide = table
        .record_window(CHIP1, 0x9000, 65, Some(memory))
        .expect_err("too wide");
    let RecordCause::Backing(refused) = wide.cause else {
        panic!("{wide}")
    };
    assert_eq!(refused.cause, Cause::OutOfRange { extent: 64 });
    free(&table, memory);
    let dead = table
        .record_window(CHIP1, 0x9000, 64, Some(memory))
        .expect_err("freed");
    assert!(matches!(dead.cause, RecordCause::Backing(refused) if refused.cause == Cause::Stale));
    assert_eq!(table.stats().windows, 0);
}

#[test]
fn windows_are_released_all_or_none() {
    let table = Table::new();
    let memory = record(&table, CHIP0, 0x1000, 64);
    let show = |address| {
        table
            .record_window(CHIP1, address, 64, Some(memory))
            .expect("recorded")
    };
    let windows = [show(0x7000), show(0x8000), show(0x9000)];
    let hold = table.hold(ask(), &[windows[2].span(1)]).expect("held");
    let refused = table.revoke_windows(release_ask(), &windows);
    assert_eq!(cause(refused), Cause::InUse { uses: 1 });
    for window in windows {
        assert!(
            table.check(ask(), window.span(64)).is_ok(),
            "all are as they were"
        );
    }
    assert_eq!(
        cause(table.revoke(free_ask(), memory)),
        Cause::Windows { windows: 3 }
    );
    drop(hold);
    let revoked = table
        .revoke_windows(release_ask(), &windows)
        .expect("released");
    revoked.into_iter().for_each(provenance::Revoked::freed);
    free(&table, memory);
}

#[test]
fn a_window_named_twice_is_released_never() {
    let table = Table::new();
    let window = table
        .record_window(CHIP0, 0x1000, 64, None)
        .expect("recorded");
    assert_eq!(
        cause(table.revoke_windows(release_ask(), &[window, window])),
        Cause::Stale
    );
    assert!(table.check(ask(), window.span(64)).is_ok());
}

#[test]
fn a_window_on_a_lost_chip_is_gone_everywhere() {
    let table = Table::new();
    let memory = record(&table, CHIP0, 0x1000, 64);
    let peer = table
        .record_window(CHIP1, 0x9000, 64, Some(memory))
        .expect("recorded");
    let own = table
        .record_window(CHIP0, 0x1000, 64, Some(memory))
        .expect("recorded");
    let kept = table
        .record_window(CHIP1, 0x9000, 64, None)
        .expect("recorded");
    let hold = table.hold(ask(), &[peer.span(1)]).expect("held");
    table.worker_lost(CHIP0);
    assert_eq!(cause(table.check(ask(), peer.span(1))), Cause::Stale);
    assert_eq!(
        cause(table.check(ask(), own.span(1))),
        Cause::WorkerLost { worker: CHIP0 }
    );
    assert!(table.check(ask(), kept.span(64)).is_ok());
    drop(hold);
    assert_eq!(cause(table.check(ask(), peer.span(1))), Cause::Stale);
    assert_eq!(table.stats().windows, 1);
}

#[test]
fn a_window_whose_unmap_failed_is_a_leak_without_bytes() {
    let table = Table::new();
    let window = table
        .record_window(CHIP0, 0x1000, 64, None)
        .expect("recorded");
    drop(table.revoke(release_ask(), window).expect("released"));
    assert_eq!(cause(table.check(ask(), window.span(1))), Cause::Leaked);
    assert_eq!((table.stats().leaked, table.stats().leaked_bytes), (1, 0));
}

#[test]
fn a_worker_sees_the_memory_of_another_through_its_own_window_only() {
    let table = Table::new();
    let memory = record(&table, CHIP0, 0x1000, 4096);
    let home = table
        .record_window(CHIP0, 0x1000, 4096, Some(memory))
        .expect("recorded");
    let second_half = home.plus(2048).expect("inside");
    let peer = table
        .record_window(CHIP1, 0x9000, 2048, Some(second_half))
        .expect("recorded");
    let on = |worker| Ask::on(Operation::Argument, worker);
    let inside = home.plus(2050).expect("inside").span(16);
    assert_eq!(table.seen_from(on(0), inside), Ok(inside));
    let seen = table.seen_from(on(1), inside).expect("shown");
    assert_eq!(seen, peer.plus(2).expect("inside").span(16));
    assert_eq!(table.viewers(ask(), inside), Ok(vec![0, 1]));
    // What the window does not show in full is not seen.
    let across = home.plus(2047).expect("inside").span(2);
    let owner = Cause::OtherWorker { owner: 0 };
    assert_eq!(cause(table.seen_from(on(1), across)), owner);
    assert_eq!(table.viewers(ask(), across), Ok(vec![0]));
    assert_eq!(cause(table.seen_from(on(7), inside)), owner);
    // A window that is gone shows nothing; memory whose worker is gone is not there.
    table.revoke(release_ask(), peer).expect("released").freed();
    assert_eq!(cause(table.seen_from(on(1), inside)), owner);
    table.worker_lost(CHIP0);
    let lost = Cause::WorkerLost { worker: CHIP0 };
    assert_eq!(cause(table.seen_from(on(1), inside)), lost);
}

#[test]
fn a_window_can_be_entered_under_a_ticket_and_is_not_freed_under_it() {
    let (parent, child) = (Table::new(), Table::new());
    let root = parent.reserve(CHIP0).expect("an entry");
    let window = parent.reserve(CHIP0).expect("an entry");
    let ticket = window.ticket();
    // The child knows the window only.
    let there = child
        .record_window_as(ticket, 0x1000, 64, None)
        .expect("recorded");
    assert_eq!(cause(child.revoke(free_ask(), there)), Cause::NotAllocation);
    let memory = root.record(0x1000, 64).expect("recorded");
    let here = window
        .record_window(0x1000, 64, Some(memory))
        .expect("recorded");
    assert_eq!((here, here.entry()), (there, ticket.entry));
    assert_eq!(
        cause(parent.revoke(free_ask(), memory)),
        Cause::Windows { windows: 1 }
    );
    let again = child.record_window_as(ticket, 0x2000, 64, None);
    assert!(matches!(
        again.expect_err("spent").cause,
        RecordCause::Spent { .. }
    ));
}
