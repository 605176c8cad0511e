//! What a user reads when memory is refused.

use std::io;

use provenance::{Ask, Operation, Table, Wanted};

use crate::fixture::{CHIP0, CHIP1, ask, free, free_ask, record, release_ask};

#[track_caller]
fn check<T: std::fmt::Debug, E: std::fmt::Display>(result: Result<T, E>, expected: &str) {
    let error = result.expect_err("to be refused");
    assert_eq!(format!("failed to {error}"), expected);
}

#[test]
fn errors_name_the_operation_the_pointer_its_owner_and_who_was_asked() {
    let table = Table::new();
    let ptr = record(&table, CHIP0, 0x1000, 4096);
    check(
        table.check(Ask::on(Operation::CopyTo, 1), ptr.span(64)),
        "failed to copy to 64 bytes at w0:0x1000 (#0.1) on worker 1: \
         it belongs to worker 0; ask that one, or copy the data over",
    );
    check(
        table.check(
            Ask::on(Operation::CopyFrom, 0),
            ptr.plus(4000).expect("inside").span(97),
        ),
        "failed to copy from 97 bytes at w0:0x1000+4000 (#0.1) on worker 0: \
         outside of its 4096 bytes",
    );
    let hold = table.hold(ask(), &[ptr.span(1)]);
    check(
        table.revoke(free_ask(), ptr),
        "failed to free w0:0x1000 (#0.1): \
         1 queued or running uses; wait for them, or let the release wait",
    );
    drop(hold);
    check(
        table.revoke(release_ask(), ptr),
        "failed to release w0:0x1000 (#0.1): it is an allocation, not a window; free it",
    );
}

#[test]
fn errors_of_dead_memory_say_what_became_of_it() {
    let table = Table::new();
    let ptr = record(&table, CHIP0, 0x1000, 64);
    let failed = table.free(free_ask(), ptr, |_| Err(io::Error::other("busy")));
    check(
        failed,
        "failed to free 64 bytes at w0:0x1000 (#0.1): \
         the device refused, so they stay allocated and unusable",
    );
    check(
        table.check(ask(), ptr.span(1)),
        "failed to copy to 1 bytes at w0:0x1000 (#0.1): \
         a free of it failed earlier; the memory is lost until its worker ends",
    );
    let ptr = record(&table, CHIP1, 0x1000, 64);
    free(&table, ptr);
    check(
        table.check(Ask::owner(Operation::Argument), ptr.span(1)),
        "failed to pass to a task 1 bytes at w1:0x1000 (#1.1): it is gone; allocate anew",
    );
    table.worker_lost(CHIP1);
    check(
        table.check(ask(), ptr.span(1)),
        "failed to copy to 1 bytes at w1:0x1000 (#1.1): \
         worker 1 (life b) ended, and its memory with it; allocate anew",
    );
}

#[test]
fn errors_of_targets_name_both_sides_or_the_list() {
    let table = Table::new();
    let (a, b) = (
        record(&table, CHIP0, 0x1000, 64),
        record(&table, CHIP1, 0x1000, 64),
    );
    check(
        table.resolve_target(&[a.span(64), b.span(32)], Wanted::Any(&[0, 1])),
        "failed to run one task on 64 bytes at w0:0x1000 (#0.1) and 32 bytes at w1:0x1000 (#1.1): \
         they are on workers 0 and 1; copy one over",
    );
    check(
        table.resolve_target(&[], Wanted::Any(&[0, 1])),
        "failed to choose a worker: no device argument decides, and the candidates are [0, 1]; \
         name one",
    );
    check(
        table.resolve_group(&[(&[], Wanted::On(3)), (&[], Wanted::On(3))]),
        "failed to place group member 1 on worker 3: member 0 is there already, \
         and members run at once on distinct workers",
    );
}

#[test]
fn errors_of_recording_name_what_is_in_the_way() {
    let table = Table::new();
    record(&table, CHIP0, 0x1000, 64);
    check(
        table.record(CHIP0, 0x1020, 64),
        "failed to record 64 bytes at 0x1020 of worker 0 (life a): \
         64 bytes at w0:0x1000 (#0.1) are recorded as live there; a free was not reported",
    );
}
