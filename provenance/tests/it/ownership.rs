//! PV-1: a pointer of one worker is worth nothing on another, whatever the address says.

use std::cell::Cell;
use std::io;

use provenance::{Ask, Cause, DevicePtr, FreeError, Operation, Table, Wanted, WorkerRef};

use crate::fixture::{CHIP0, CHIP1, ask, cause, free, record};

fn two_chips() -> (Table, DevicePtr, DevicePtr) {
    let table = Table::new();
    let a = record(&table, CHIP0, 0x1000, 64);
    let b = record(&table, CHIP1, 0x1000, 64);
    (table, a, b)
}

#[test]
fn equal_addresses_on_two_workers_are_two_pointers() {
    let (table, a, b) = two_chips();
    assert_ne!(a, b);
    assert_eq!(table.check(ask(), a.span(64)), Ok(0x1000));
    assert_eq!(table.check(ask(), b.span(64)), Ok(0x1000));
    free(&table, a);
    assert_eq!(table.check(ask(), b.span(64)), Ok(0x1000));
}

#[test]
fn no_wrong_use_reaches_the_device() {
    let (table, a, b) = two_chips();
    let device_calls = Cell::new(0);
    let other = Cause::OtherWorker { owner: 0 };
    for operation in [Operation::CopyTo, Operation::CopyFrom, Operation::Argument] {
        let wrong = Ask::on(operation, 1);
        let used = table.with_range(wrong, a.span(64), |_| device_calls.set(1));
        assert_eq!(cause(used), other);
        assert_eq!(cause(table.hold(wrong, &[b.span(1), a.span(1)])), other);
    }
    let freed = table.free(Ask::on(Operation::Free, 1), a, |_| {
        device_calls.set(1);
        Ok::<(), io::Error>(())
    });
    assert!(matches!(freed, Err(FreeError::Refused(refused)) if refused.cause == other));
    assert!(table.resolve_target(&[a.span(64)], Wanted::On(1)).is_err());
    let members = [
        (&[a.span(64)][..], Wanted::On(0)),
        (&[a.span(64)][..], Wanted::On(1)),
    ];
    assert!(table.resolve_group(&members).is_err());
    assert_eq!(device_calls.get(), 0);
    free(&table, b);
}

#[test]
fn a_half_taken_hold_is_given_back() {
    let (table, a, b) = two_chips();
    assert!(
        table
            .hold(Ask::on(Operation::Argument, 0), &[a.span(1), b.span(1)])
            .is_err()
    );
    free(&table, a);
    free(&table, b);
}

#[test]
fn a_handle_of_another_tree_is_foreign() {
    let (table, a, _) = two_chips();
    let elsewhere = Table::new();
    let stray = record(
        &elsewhere,
        WorkerRef {
            id: 0,
            incarnation: 0xdead,
        },
        0x1000,
        64,
    );
    assert_eq!(
        (stray.entry(), stray.generation()),
        (a.entry(), a.generation())
    );
    let foreign = Cause::Foreign {
        owner: CHIP0,
        base: 0x1000,
    };
    assert_eq!(cause(table.check(ask(), stray.span(1))), foreign);
    assert_eq!(cause(table.hold(ask(), &[stray.span(1)])), foreign);
    assert_eq!(
        cause(table.revoke(Ask::owner(Operation::Free), stray)),
        foreign
    );
    free(&table, a);
}

#[test]
fn a_damaged_handle_is_refused_in_every_byte() {
    let (table, a, _) = two_chips();
    let used = 0..40;
    for byte in used.filter(|byte| !(20..24).contains(byte)) {
        let mut bytes = a.to_bytes();
        bytes[byte] ^= 0x80;
        let damaged = DevicePtr::from_bytes(&bytes).span(1);
        assert!(table.check(ask(), damaged).is_err(), "byte {byte}");
        assert!(table.hold(ask(), &[damaged]).is_err(), "byte {byte}");
    }
}

#[test]
fn a_handle_of_an_earlier_life_is_refused_on_the_next() {
    let (table, a, _) = two_chips();
    assert_eq!(table.worker_lost(CHIP0), 1);
    let again = WorkerRef {
        incarnation: 0xc,
        ..CHIP0
    };
    let renewed = record(&table, again, 0x1000, 64);
    assert_eq!(
        cause(table.check(ask(), a.span(1))),
        Cause::WorkerLost { worker: CHIP0 }
    );
    assert_eq!(table.check(ask(), renewed.span(1)), Ok(0x1000));
}
