//! Two chips that hand out equal addresses, and short names for questions.

use std::io;

use provenance::{Ask, Cause, DevicePtr, Operation, Refused, Table, WorkerRef};

pub(crate) const CHIP0: WorkerRef = WorkerRef {
    id: 0,
    incarnation: 0xa,
};
pub(crate) const CHIP1: WorkerRef = WorkerRef {
    id: 1,
    incarnation: 0xb,
};

pub(crate) fn ask() -> Ask {
    Ask::owner(Operation::CopyTo)
}

pub(crate) fn free_ask() -> Ask {
    Ask::owner(Operation::Free)
}

pub(crate) fn release_ask() -> Ask {
    Ask::owner(Operation::Release)
}

#[track_caller]
pub(crate) fn record(table: &Table, worker: WorkerRef, address: u64, bytes: u64) -> DevicePtr {
    table.record(worker, address, bytes).expect("recorded")
}

#[track_caller]
pub(crate) fn cause<T: std::fmt::Debug>(result: Result<T, Refused>) -> Cause {
    result.expect_err("to be refused").cause
}

/// A free whose native part succeeds.
#[track_caller]
pub(crate) fn free(table: &Table, ptr: DevicePtr) {
    table
        .free(free_ask(), ptr, |_| Ok::<(), io::Error>(()))
        .expect("freed");
}
