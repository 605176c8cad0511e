//! Who may use a thing now, and when it may be torn down: admission states, leases and close attempts.
//!
//! For anything that many threads use and one of them closes: a worker with its processes, a thread pool, a device.
//!
//! ```
//! use lifecycle::{Journal, Lifecycle, Operation, Start, State, Step};
//!
//! static QUERY: Operation = Operation::new("query");
//!
//! let (lifecycle, journal) = (Lifecycle::<std::fmt::Error>::new(), Journal::new());
//!
//! // One caller wins the start; the others wait and get the same outcome.
//! let Start::Won(epoch) = lifecycle.start(None) else { panic!("nobody else is here") };
//! journal.push(Step::new("connection", |_deadline| Ok(())));
//! epoch.commit().expect("nobody has closed");
//!
//! // Operations are admitted in Ready only, at the cost of one atomic instruction.
//! let lease = lifecycle.lease(&QUERY)?;
//! // A close from inside of one is refused: it would wait for itself.
//! assert!(lifecycle.close(None, &journal).is_err());
//! drop(lease);
//!
//! // Outside it drains, runs the journal, and is final.
//! lifecycle.close(None, &journal).expect("nothing is left");
//! assert_eq!(lifecycle.state(), State::Closed);
//! assert!(lifecycle.lease(&QUERY).is_err());
//! # Ok::<(), lifecycle::Refused>(())
//! ```
//!
//! ```text
//! New --start--> Initializing --commit--> Ready
//!  |                 |     '---fail/drop---> Failed
//!  '-----------------+-----------+-----------'
//!                     close: claim
//!                          v
//!                       Closed   (drain -> tear down -> done, again until it succeeds)
//! ```
//!
//! # Guarantees
//!
//! - **Start.** One winner; everybody else gets the *same* outcome with the *same* first cause. Ready and a close decide on
//!   one word who was first. An epoch that is dropped, in a panic too, is Failed.
//! - **Lease.** Ready or refused at once. No lock, one read-modify-write each way.
//! - **Close.** Closed from the claim on, for ever. No teardown step runs while a lease or a start is alive. Each step
//!   succeeds exactly once; what failed or panicked stays journalled. Concurrent closers get the verdict of the attempt
//!   they saw.
//! - **Thread.** A close or start from inside is refused, not deadlocked. [`Step::here`] runs on its thread or not at all.
//!
//! # What it refuses to do
//!
//! It starts no thread and does no I/O. It never kills or interrupts an operation: a close waits for leases within its
//! budget and otherwise says who holds them. It never reopens. It drops nothing on its own: an unclosed lifecycle
//! that goes out of scope runs no step.
#![forbid(unsafe_code)]

mod state;

mod weaken;
mod word;

mod held;
mod operation;

mod lifecycle;

mod cancel;
mod start;

mod lease;

mod close;
mod journal;
mod owner;

mod sync;

#[cfg(all(test, loom))]
mod loom_models;

pub use cancel::{CancelHook, CancelToken};
pub use close::{Attempt, Claim, CloseError, Drained, Joined, WaitingFor};
pub use held::Holder;
pub use journal::{Journal, Step, StepCause, StepFailure, StepId};
pub use lease::{Entered, Lease, OwnedLease, Refused};
pub use lifecycle::Lifecycle;
pub use operation::Operation;
pub use owner::{Owner, ThreadBound, WrongThread};
pub use start::{Cancelled, Epoch, Start, StartError};
pub use state::State;

#[cfg(doctest)]
#[doc = include_str!("../README.md")]
struct Readme;
