//! Who owns this device pointer, and is it still alive.
//!
//! A device address means nothing by itself: another chip uses the same number, the allocator
//! hands it out again, and a wrong one silently reads somebody else's data. So no raw number is
//! trusted. A [`Table`] knows which worker owns what; a [`DevicePtr`] is a claim to a place in
//! it; and only the table turns a claim into an address, for the length of one native call.
//!
//! ```
//! use provenance::{Ask, Cause, Operation, Table, WorkerRef};
//!
//! let table = Table::new();
//! let (chip0, chip1) = (WorkerRef { id: 0, incarnation: 7 }, WorkerRef { id: 1, incarnation: 8 });
//!
//! // Two chips hand out the same address.
//! let a = table.record(chip0, 0x1000, 4096)?;
//! let b = table.record(chip1, 0x1000, 4096)?;
//!
//! // The check and the native call that it guards are one step for other threads.
//! let copied = table.with_range(Ask::on(Operation::CopyTo, 0), a.plus(64)?.span(128), |address| {
//!     assert_eq!(address, 0x1040); // ... the native copy
//! });
//! assert!(copied.is_ok());
//!
//! // The pointer of one chip is worth nothing on the other,
//! let wrong = table.check(Ask::on(Operation::CopyTo, 0), b.span(128)).unwrap_err();
//! assert_eq!(wrong.cause, Cause::OtherWorker { owner: 1 });
//!
//! // and nothing at all after it was freed, even if its address is in use again.
//! table.free(Ask::owner(Operation::Free), a, |_address| Ok::<(), std::io::Error>(()))?;
//! table.record(chip0, 0x1000, 4096)?;
//! let stale = table.check(Ask::owner(Operation::CopyFrom), a.span(1)).unwrap_err();
//! assert_eq!(stale.cause, Cause::Stale);
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```
//!
//! ```text
//!   native allocation          native call                native free
//!         |                    ^                          ^
//!         v                    | address                  | address
//!   record -> [ Live ] -- with_range, hold     revoke -> [ Revoked ] -> freed: entry reusable,
//!                |             (pins)             ^                     under a new generation
//!                |                                |          `--------> dropped: leaked, for ever
//!                +-- free, revoke: refused while pinned
//!                +-- retire: refuses new uses, comes out of `due` after the last one
//!                +-- worker_lost: all of that life's memory, and every window on it
//! ```
//!
//! # Guarantees
//! - Recorded after the native allocation, revoked before the native free. An interruption at any
//!   point (a panic, a lost reply) leaves less authority, never more.
//! - A handle of an earlier allocation, or an earlier life of its worker, is refused, even if the
//!   address is alive again. Generations are never used twice.
//! - Only the base of an allocation can be freed, and only when nothing uses or shows it. Any
//!   range inside one live allocation can be used. No arithmetic overflows.
//! - Readers take no lock; they wait neither for each other nor for writers.
//!
//! # What it refuses to do
//! It allocates nothing and calls no device: the native calls are the caller's. It does not find
//! out whether a worker still lives: say [`worker_lost`](Table::worker_lost). It trusts no number:
//! there is no way from an address to a handle.

#![forbid(unsafe_code)]

#[cfg(doctest)]
#[doc = include_str!("../README.md")]
struct Readme;

mod error;
mod hold;
mod ledger;
mod mirror;
mod ptr;
mod release;
mod report;
mod slots;
mod sync;
mod table;
mod target;
mod windows;
mod word;

#[cfg(all(test, loom))]
mod interleavings;

pub use error::{Ask, Cause, FreeError, NotRecorded, Operation, RecordCause, Refused};
pub use hold::Hold;
pub use mirror::{Reservation, Ticket};
pub use ptr::{DevicePtr, Overflow, Span, WorkerRef};
pub use release::Revoked;
pub use report::{Entry, Stats};
pub use slots::Role;
pub use table::Table;
pub use target::{NoTarget, Wanted};
