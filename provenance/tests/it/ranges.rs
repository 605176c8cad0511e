//! PV-2: any range inside one live allocation, and nothing else.

use provenance::{Cause, DevicePtr, NotRecorded, RecordCause, Table};

use crate::fixture::{CHIP0, CHIP1, ask, cause, free, record};

fn at(ptr: DevicePtr, offset: u64, bytes: u64) -> provenance::Span {
    ptr.plus(offset).expect("in the address space").span(bytes)
}

#[test]
fn ranges_inside_are_accepted_with_their_own_address() {
    let table = Table::new();
    let ptr = record(&table, CHIP0, 0x1000, 4096);
    for (offset, bytes) in [(0, 4096), (4095, 1), (4096, 0), (0, 0), (17, 0)] {
        let address = table.with_range(ask(), at(ptr, offset, bytes), |address| address);
        assert_eq!(address, Ok(0x1000 + offset), "{offset}, {bytes}");
    }
}

#[test]
fn ranges_that_leave_are_refused_without_overflow() {
    let table = Table::new();
    let ptr = record(&table, CHIP0, 0x1000, 4096);
    let outside = Cause::OutOfRange { extent: 4096 };
    for (offset, bytes) in [
        (4096, 1),
        (0, 4097),
        (1, u64::MAX),
        (4097, 0),
        (1 << 62, 1 << 62),
    ] {
        assert_eq!(cause(table.check(ask(), at(ptr, offset, bytes))), outside);
        assert_eq!(cause(table.hold(ask(), &[at(ptr, offset, bytes)])), outside);
    }
    free(&table, ptr);
}

#[test]
fn a_range_over_two_neighbours_is_refused() {
    let table = Table::new();
    let low = record(&table, CHIP0, 0x1000, 0x1000);
    let high = record(&table, CHIP0, 0x2000, 0x1000);
    let outside = Cause::OutOfRange { extent: 0x1000 };
    assert_eq!(cause(table.check(ask(), at(low, 0xfff, 2))), outside);
    assert_eq!(table.check(ask(), high.span(0x1000)), Ok(0x2000));
}

#[test]
fn memory_at_the_very_end_of_the_address_space_works() {
    let table = Table::new();
    let ptr = record(&table, CHIP0, u64::MAX - 16, 16);
    assert_eq!(table.check(ask(), at(ptr, 15, 1)), Ok(u64::MAX - 1));
    assert_eq!(
        cause(table.check(ask(), at(ptr, 16, 1))),
        Cause::OutOfRange { extent: 16 }
    );
}

#[track_caller]
fn not_recorded(result: Result<DevicePtr, NotRecorded>) -> RecordCause {
    result.expect_err("not recorded").cause
}

#[test]
fn impossible_memory_is_not_recorded() {
    let table = Table::new();
    assert_eq!(
        not_recorded(table.record(CHIP0, 0x1000, 0)),
        RecordCause::Empty
    );
    assert_eq!(
        not_recorded(table.record(CHIP0, u64::MAX, 2)),
        RecordCause::Overflow
    );
    assert_eq!(table.stats().live, 0);
}

#[test]
fn memory_that_overlaps_is_not_recorded_except_on_another_worker() {
    let table = Table::new();
    let held = record(&table, CHIP0, 0x1000, 0x1000);
    let overlap = RecordCause::Overlap {
        held,
        bytes: 0x1000,
    };
    for (address, bytes) in [
        (0x1000, 1),
        (0x1fff, 1),
        (0xfff, 2),
        (0, 0x4000),
        (0x1800, 0x100),
    ] {
        assert_eq!(not_recorded(table.record(CHIP0, address, bytes)), overlap);
        let other = record(&table, CHIP1, address, bytes);
        free(&table, other);
    }
    record(&table, CHIP0, 0x2000, 1);
    record(&table, CHIP0, 0xfff, 1);
}
