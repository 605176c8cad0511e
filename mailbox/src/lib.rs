//! Bytes between a parent and a child process: shared segments, task frames, doorbells and waits.
//!
//! A [`Mailbox`] is a piece of shared memory with one control frame and one or two task frames. The
//! parent submits a task by writing a frame and its stamp; a child that is awake sees the stamp at once,
//! a sleeping one is rung. The answer comes back the same way.
//!
//! ```
//! use mailbox::{Doorbell, Event, Identity, Immortal, Layout, Mailbox, Outcome, Request, Waiter};
//!
//! let doorbell = Doorbell::create()?;
//! let (mut parent, mut child) = Mailbox::create(Layout::default(), &doorbell)?.split()?;
//!
//! let server = std::thread::spawn(move || {
//!     loop {
//!         match child.next(&Immortal, None).unwrap() {
//!             Request::Task(task) => {
//!                 let answer: Vec<u8> = task.payload().iter().rev().copied().collect();
//!                 child.complete(task, Ok(&answer)).unwrap();
//!             }
//!             Request::Control(control) => child.reply(control, Ok(&[])).unwrap(),
//!             Request::Shutdown => return,
//!         }
//!     }
//! });
//!
//! let identity = Identity { run: 1, slot: 0, generation: 0, dispatch: 1 };
//! parent.submit(identity, 0, b"stressed")?;
//! parent.wait(&mut Waiter::new(), &Immortal, None)?;
//! let done = parent.poll()?;
//! assert_eq!(
//!     done,
//!     Some(Event::Done { identity, accepted: true, outcome: Outcome::Ok(b"desserts") })
//! );
//! parent.shutdown();
//! server.join().unwrap();
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```
//!
//! ```text
//!  ParentEnd                      segment                           ChildEnd
//!  submit ---- task 0, task 1: stamp | identity | payload --------> next -> Task
//!  poll <----- task 0, task 1: stamp | identity | payload --------- accept, complete
//!  control <-> control frame: the same, both ways <---------------> Control, reply
//!  shutdown -- life word -----------------------------------------> Request::Shutdown
//!  wait <===== Doorbell (one per parent) === bells ===============> next (parked)
//! ```
//!
//! # Guarantees
//!
//! - While both sides are awake nothing on the path of a task is a system call.
//! - A wake-up is never lost; a wait ends at once when the kernel reports the peer's death.
//! - Tasks are taken in the order of their activation; an answer is tied to its task by identity.
//! - A shutdown, and poison, are for ever. Poison keeps its first cause.
//! - What the peer wrote is checked before it is used. Whatever it wrote, nothing panics and no byte
//!   outside the frame is read.
//! - Nothing has a name: whatever is killed, no shared memory is left behind.
//!
//! # What it refuses
//!
//! It never interprets a payload, never starts or signals a process, never reuses the mailbox of a dead
//! child, and never hands out a reference to memory that a peer may write.
#![deny(unsafe_code)]
#![cfg_attr(
    loom,
    allow(dead_code, unused_imports, reason = "models have no segments")
)]

#[cfg(doctest)]
#[doc = include_str!("../README.md")]
struct Readme;

// Memory that two processes share.
mod board;
mod fd_channel;
#[cfg(not(loom))]
mod feed;
mod heap_ring;
mod kept;
mod memory_left;
mod segment;

// What they say to each other in it.
mod child;
mod events;
mod layout;
mod mailbox;
mod message;
mod parent;
mod poison;
mod request;

// How one waits for the other.
mod bell;
mod crowd;
mod spin;
mod wait;

// The ground: words, their orders, and the kernel's queue.
mod frame;
#[cfg(not(loom))]
mod futex;
#[cfg(loom)]
#[path = "futex_modelled.rs"]
mod futex;
mod sync;
mod words;

#[cfg(all(loom, test))]
mod models;

pub use bell::{Doorbell, Key};
pub use child::ChildEnd;
pub use events::{ControlId, ControlReply, Event, Staged, SubmitError};
pub use fd_channel::{FDS_MAX, FdChannel, FdChannelError, FdHeader, FdMessage};
#[cfg(not(loom))]
pub use feed::{Feed, FeedWriter, Missed, RECORD_MAX, Told};
pub use frame::Identity;
pub use heap_ring::{BLOCK_ALIGN, Block, Blocker, HeapRing, RingError};
pub use layout::{AttachError, Layout, Side};
pub use mailbox::Mailbox;
pub use message::{CUT_MARK, Failure, Outcome};
pub use parent::ParentEnd;
pub use poison::{Cause, FrameName, Poisoned};
pub use request::{Control, NextError, Refused, ReplyError, Request, Task};
pub use segment::{Access, Pages, Reserve, Segment, SegmentError, SegmentOptions};
pub use wait::{Activity, DeathWords, Immortal, Probe, WaitError, WaitStats, Waiter};
