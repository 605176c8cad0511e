//! PV-1: a pointer of one worker is worth nothing on another, whatever the address says.

use provenance::{Ask, Cause, Operation, Table, WorkerRef};

const CHIP0: WorkerRef = WorkerRef {
    id: 0,
    incarnation: 0xa,
};
const CHIP1: WorkerRef = WorkerRef {
    id: 1,
    incarnation: 0xb,
};

#[test]
fn equal_addresses_on_two_workers_are_two_pointers() {
    let table = Table::new();
    let a = table.record(CHIP0, 0x1000, 64).expect("recorded");
    let b = table.record(CHIP1, 0x1000, 64).expect("recorded");
    assert_ne!(a, b);
    for operation in [Operation::CopyTo, Operation::CopyFrom, Operation::Argument] {
        assert_eq!(table.check(Ask::on(operation, 0), a.span(64)), Ok(0x1000));
        let refused = table
            .check(Ask::on(operation, 1), a.span(64))
            .expect_err("refused");
        assert_eq!(refused.cause, Cause::OtherWorker { owner: 0 });
    }
}
