//! Processes that start whole and die whole: fork, parent liveness, groups, reaping, descendants.
//!
//! A parent makes children that run a function each; children make children of their own. Whatever
//! dies first, however it dies, nothing of the tree below it stays, and the parent of what died
//! knows exactly how. [`fork()`] copies the parent, closures included; [`spawn()`] starts the program
//! again and finds a [registered](register) function by its name, from any thread of any process.
//!
//! ```no_run
//! use std::time::{Duration, Instant};
//! use procfork::{Children, ForkOptions, fork};
//!
//! # fn step() -> bool { true }
//! fn main() -> Result<(), Box<dyn std::error::Error>> {
//!     let mut children = Children::new()?;
//!     for index in 0..4 {
//!         let options = ForkOptions::new(format!("worker-{index}")).group(children.group());
//!         children.push(fork(options, |context| {
//!             while context.parent.is_alive() && step() {}
//!         })?)?;
//!     }
//!     let deadline = Instant::now() + Duration::from_secs(5);
//!     children.wait_all(deadline)?;
//!     let closing = children.terminate(Duration::from_millis(200), deadline);
//!     for child in &closing.ended {
//!         eprintln!("{} {}", child.name, child.cause); // worker-0 exited with code 0
//!     }
//!     assert!(closing.survivors.is_empty());
//!     Ok(())
//! }
//! ```
//!
//! ```text
//!  root               not in the tree's group; its death word is watched by all below it
//!  ├─ child ────────┐
//!  │  └─ grandchild │ one process group: any member may kill it whole once the root is dead
//!  └─ child ────────┘
//! ```
//!
//! # Guarantees
//!
//! - A fork happens only where it is safe: in a process of one thread. Elsewhere it is refused, and
//!   the threads are named; a spawn works there, and costs the same from a parent of any size.
//! - A child never returns into its parent's frames and runs none of its exit handlers,
//!   destructors or buffers. It has the descriptors that it was given, default signal
//!   dispositions, an empty signal mask, and a name.
//! - A child learns of its parent's death by memory, by signal and by question; see [`ParentWatch`]
//!   for each layer and what it costs.
//! - How a child ended is known exactly and never changes. Only what this process made is ever
//!   signalled: by pidfd, or by a group that an unreaped child proves.
//!
//! # What it refuses
//!
//! It never forks a process with threads, never waits for what a child does without a deadline, never
//! reaps a child that it did not make, and never signals a bare number. (Three waits have none, and
//! end with what the kernel or this crate does: the reaping of a child that could not be set up and
//! was just killed, the keeper thread's start of a program, and the join of a pump that was stopped.)
#![deny(unsafe_code)]

#[cfg(doctest)]
#[doc = include_str!("../README.md")]
struct Readme;

mod birth;
mod boot;
mod cause;
mod child;
mod children;
mod context;
mod death_word;
mod descendants;
#[cfg(feature = "dump")]
pub mod dump;
mod ending;
mod escalation;
mod fork;
#[cfg(any(test, fuzzing))]
pub mod fuzzing;
mod keeper;
mod lifeline;
mod options;
mod orphans;
mod pid;
mod prepare;
mod proc;
mod pump;
mod registry;
mod settings;
mod signal;
mod spawn;
mod sweep;
mod sync;
mod sys;
mod threads;
mod watch;

#[cfg(feature = "testing")]
pub mod testing;

pub use cause::{ExitCause, exit_code};
pub use child::{Child, ChildError, ChildStatus};
pub use children::{Children, Closing, Ended, Survivor};
pub use context::ChildContext;
pub use death_word::{Armed, DeathWord};
pub use descendants::descendants;
pub use ending::Ending;
pub use escalation::{Escalation, Reach, Stage, Termination};
pub use fork::fork;
pub use options::{ForkOptions, Group, Stream};
pub use orphans::adopt_orphans;
pub use pid::Pid;
pub use prepare::StartError;
pub use proc::{ProcessInfo, ProcessState};
pub use pump::{Bounds, Output, Pump, PumpThread};
pub use settings::{Resource, Settings, SettingsError};
pub use signal::{NoSignal, Signal};
pub use spawn::spawn;
pub use sweep::{Proof, Stray};
pub use sys::own::Origin;
pub use sys::spawn::lies_in_program;
pub use threads::{ThreadName, is_single_threaded};
pub use watch::{ParentWatch, Parked, Rearmed};

/// For the expansion of [`register!`].
#[doc(hidden)]
pub mod __private {
    pub use crate::registry::{FUNCTIONS, Function, finish};
    pub use linkme::{self, distributed_slice};
}
