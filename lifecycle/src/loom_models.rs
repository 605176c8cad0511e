//! Loom models: two or three threads in every interleaving that the memory model allows, and a law at the end.
//!
//! Each model also *fails* under at least one deliberate fault of `weaken.rs`, which shows that it looks at the right place.
//! `loom_models/README.md` lists which, and the commands.
//!
//! Witnesses are relaxed atomics: they order nothing themselves, so a model sees a stale value wherever the protocol under
//! test does not forbid it.

mod abandonment;
mod cancellation;
mod closers;
mod leases;
mod starts;
mod steps;

use std::sync::Arc;

use crate::{
    close::CloseError,
    journal::{Journal, Step},
    lifecycle::Lifecycle,
    operation::Operation,
    start::Start,
    sync::{AtomicU64, Ordering::Relaxed},
};

/// A cause that compares.
#[derive(Clone, Debug, PartialEq)]
struct Fault(u64);

type Verdict = Result<(), CloseError<Fault>>;

static WORK: Operation = Operation::new("work");

/// What the threads of a model share.
struct World {
    lifecycle: Lifecycle<Fault>,
    journal: Journal<Fault>,
    /// Written by starts and operations, read by teardown steps.
    made: AtomicU64,
    /// How often a step ran to its success.
    released: AtomicU64,
}

impl World {
    fn new() -> Arc<Self> {
        Arc::new(Self {
            lifecycle: Lifecycle::new(),
            journal: Journal::new(),
            made: AtomicU64::new(0),
            released: AtomicU64::new(0),
        })
    }

    fn ready() -> Arc<Self> {
        let world = Self::new();
        match world.lifecycle.start(None) {
            Start::Won(epoch) => epoch.commit().expect("nobody closes yet"),
            Start::Done(outcome) => panic!("nobody else starts: {outcome:?}"),
        }
        world
    }

    /// Journals a step whose `nth` call (from one) does what `release` says; a success is counted.
    fn push(self: &Arc<Self>, release: impl Fn(&World, u64) -> Result<(), Fault> + Send + 'static) {
        let (world, mut nth) = (Arc::downgrade(self), 0);
        self.journal.push(Step::new("step", move |_deadline| {
            let world = world.upgrade().expect("the model holds the world");
            nth += 1;
            release(&world, nth)?;
            world.released.fetch_add(1, Relaxed);
            Ok(())
        }));
    }

    fn close(&self) -> Verdict {
        self.lifecycle.close(None, &self.journal)
    }

    fn released(&self) -> u64 {
        self.released.load(Relaxed)
    }
}

/// Runs `work` on a second thread of the model.
fn spawn<T: 'static>(
    world: &Arc<World>,
    work: impl FnOnce(&World) -> T + 'static,
) -> loom::thread::JoinHandle<T> {
    let world = Arc::clone(world);
    loom::thread::spawn(move || work(&world))
}
