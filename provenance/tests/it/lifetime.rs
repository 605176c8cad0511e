//! What is alive, in use, released, freed, leaked, lost.

use std::io;
use std::panic::{AssertUnwindSafe, catch_unwind};

use provenance::{Cause, FreeError, RecordCause, Role, Table};

use crate::fixture::{CHIP0, CHIP1, ask, cause, free, free_ask, record, release_ask};

#[test]
fn a_reused_address_does_not_revive_an_old_handle() {
    let table = Table::new();
    let mut old = Vec::new();
    for _ in 0..100 {
        let ptr = record(&table, CHIP0, 0x1000, 64);
        free(&table, ptr);
        old.push(ptr);
    }
    let live = record(&table, CHIP0, 0x1000, 64);
    for ptr in old {
        assert_eq!(cause(table.check(ask(), ptr.span(1))), Cause::Stale);
        assert_eq!(cause(table.hold(ask(), &[ptr.span(1)])), Cause::Stale);
        assert_eq!(cause(table.revoke(free_ask(), ptr)), Cause::Stale);
    }
    assert_eq!(table.check(ask(), live.span(64)), Ok(0x1000));
}

#[test]
fn only_the_base_is_freed() {
    let table = Table::new();
    let ptr = record(&table, CHIP0, 0x1000, 64);
    let interior = ptr.plus(8).expect("inside");
    assert_eq!(cause(table.revoke(free_ask(), interior)), Cause::NotBase);
    assert_eq!(cause(table.revoke(release_ask(), ptr)), Cause::NotWindow);
    free(&table, ptr);
    assert_eq!(cause(table.revoke(free_ask(), ptr)), Cause::Stale);
}

#[test]
fn memory_is_revoked_before_its_native_free() {
    let table = Table::new();
    let ptr = record(&table, CHIP0, 0x1000, 64);
    let freed = table.free(free_ask(), ptr, |address| {
        assert_eq!(address, 0x1000);
        assert_eq!(cause(table.check(ask(), ptr.span(1))), Cause::Stale);
        // The allocator may hand the address out again before it returns.
        record(&table, CHIP0, 0x1000, 32);
        Ok::<(), io::Error>(())
    });
    assert!(freed.is_ok());
    assert_eq!((table.stats().live, table.stats().bytes), (1, 32));
}

#[test]
fn a_failed_free_is_a_leak_for_ever() {
    let table = Table::new();
    let ptr = record(&table, CHIP0, 0x1000, 64);
    let failed = table.free(free_ask(), ptr, |_| Err(io::Error::other("busy")));
    let Err(FreeError::Leaked {
        source, bytes: 64, ..
    }) = failed
    else {
        panic!("not a leak: {failed:?}")
    };
    assert_eq!(source.to_string(), "busy");
    assert_eq!(cause(table.check(ask(), ptr.span(1))), Cause::Leaked);
    assert_eq!(cause(table.revoke(free_ask(), ptr)), Cause::Leaked);
    let stats = table.stats();
    assert_eq!((stats.live, stats.leaked, stats.leaked_bytes), (0, 1, 64));
}

#[test]
fn a_panic_in_the_native_free_leaves_a_leak() {
    let table = Table::new();
    let ptr = record(&table, CHIP0, 0x1000, 64);
    let native = |_| -> Result<(), io::Error> { panic!("in the driver") };
    assert!(catch_unwind(AssertUnwindSafe(|| table.free(free_ask(), ptr, native))).is_err());
    assert_eq!(cause(table.check(ask(), ptr.span(1))), Cause::Leaked);
    assert_eq!(table.stats().leaked, 1);
}

#[test]
fn a_panic_in_a_guarded_call_ends_the_use() {
    let table = Table::new();
    let ptr = record(&table, CHIP0, 0x1000, 64);
    let used = catch_unwind(AssertUnwindSafe(|| {
        table.with_range(ask(), ptr.span(1), |_| panic!("in the driver"))
    }));
    assert!(used.is_err());
    free(&table, ptr);
}

#[test]
fn memory_in_use_is_not_freed() {
    let table = Table::new();
    let ptr = record(&table, CHIP0, 0x1000, 64);
    let first = table
        .hold(ask(), &[ptr.span(8), ptr.span(64)])
        .expect("held");
    let inside = table.with_range(ask(), ptr.span(1), |_| cause(table.revoke(free_ask(), ptr)));
    assert_eq!(inside, Ok(Cause::InUse { uses: 3 }));
    assert_eq!(
        cause(table.revoke(free_ask(), ptr)),
        Cause::InUse { uses: 2 }
    );
    assert_eq!(
        table.check(ask(), ptr.span(64)),
        Ok(0x1000),
        "the refusal changed nothing"
    );
    drop(first);
    free(&table, ptr);
}

#[test]
fn a_retired_allocation_is_freed_after_its_last_use() {
    let table = Table::new();
    let ptr = record(&table, CHIP0, 0x1000, 64);
    let (one, two) = (
        table.hold(ask(), &[ptr.span(8)]),
        table.hold(ask(), &[ptr.span(8)]),
    );
    assert!(table.retire(free_ask(), ptr).expect("retired").is_none());
    let retired = Cause::Retired { uses: 2 };
    assert_eq!(cause(table.check(ask(), ptr.span(1))), retired);
    assert_eq!(cause(table.hold(ask(), &[ptr.span(1)])), retired);
    assert_eq!(cause(table.retire(free_ask(), ptr)), retired);
    drop(one);
    assert!(table.due().is_empty());
    let overlap = table
        .record(CHIP0, 0x1000, 64)
        .expect_err("still allocated");
    assert!(matches!(overlap.cause, RecordCause::Overlap { .. }));
    drop(two);
    let mut due = table.due();
    assert_eq!(
        due.iter().map(|one| one.address()).collect::<Vec<_>>(),
        [0x1000]
    );
    due.remove(0).freed();
    assert!(table.due().is_empty());
    assert_eq!((table.stats().live, table.stats().leaked), (0, 0));
}

#[test]
fn an_unused_allocation_is_retired_at_once() {
    let table = Table::new();
    let ptr = record(&table, CHIP0, 0x1000, 64);
    let revoked = table
        .retire(free_ask(), ptr)
        .expect("retired")
        .expect("at once");
    assert_eq!(
        (revoked.ptr(), revoked.bytes(), revoked.role()),
        (ptr, 64, Role::Allocation)
    );
    revoked.freed();
    assert_eq!(table.stats().leaked, 0);
}

#[test]
fn a_lost_worker_takes_all_of_its_memory_with_it() {
    let table = Table::new();
    let idle = record(&table, CHIP0, 0x1000, 64);
    let used = record(&table, CHIP0, 0x2000, 64);
    let waiting = record(&table, CHIP0, 0x3000, 64);
    let due = record(&table, CHIP0, 0x4000, 64);
    let kept = record(&table, CHIP1, 0x1000, 64);
    let hold = table
        .hold(ask(), &[used.span(1), waiting.span(1)])
        .expect("held");
    assert!(
        table
            .retire(free_ask(), waiting)
            .expect("retired")
            .is_none()
    );
    let short = table.hold(ask(), &[due.span(1)]).expect("held");
    assert!(table.retire(free_ask(), due).expect("retired").is_none());
    drop(short);

    assert_eq!(
        table.worker_lost(CHIP0),
        3,
        "the one that was due is out of the books"
    );
    assert_eq!(table.worker_lost(CHIP0), 0, "once is enough");
    let lost = Cause::WorkerLost { worker: CHIP0 };
    for ptr in [idle, used, waiting, due] {
        assert_eq!(cause(table.check(ask(), ptr.span(1))), lost);
        assert_eq!(cause(table.revoke(free_ask(), ptr)), lost);
    }
    drop(hold);
    assert!(table.due().is_empty(), "nothing is left to free");
    assert_eq!(cause(table.check(ask(), used.span(1))), lost);
    let late = table.record(CHIP0, 0x5000, 64).expect_err("a late reply");
    assert_eq!(late.cause, RecordCause::WorkerLost);
    assert_eq!(table.check(ask(), kept.span(64)), Ok(0x1000));
    assert_eq!((table.stats().live, table.stats().leaked), (1, 0));
}

#[test]
fn a_free_that_its_worker_did_not_survive_is_no_leak() {
    let table = Table::new();
    let ptr = record(&table, CHIP0, 0x1000, 64);
    let failed = table.free(free_ask(), ptr, |_| {
        table.worker_lost(CHIP0);
        Err(io::Error::other("no reply"))
    });
    assert!(failed.is_err());
    assert_eq!(table.stats().leaked, 0);
}

#[test]
fn a_report_lists_what_a_worker_has() {
    let table = Table::new();
    let high = record(&table, CHIP0, 0x2000, 64);
    let low = record(&table, CHIP0, 0x1000, 32);
    record(&table, CHIP1, 0x1000, 32);
    let _hold = table.hold(ask(), &[high.span(1)]).expect("held");
    assert!(table.retire(free_ask(), high).expect("retired").is_none());
    let lines: Vec<_> = table
        .report(CHIP0)
        .into_iter()
        .map(|line| (line.ptr, line.bytes, line.uses, line.retired))
        .collect();
    assert_eq!(lines, [(low, 32, 0, false), (high, 64, 1, true)]);
}
