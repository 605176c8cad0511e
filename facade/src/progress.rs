//! How far the start of a tree has come: a board in shared memory on which every process notes its own phases.
//!
//! ```text
//! worker (slot)     phase:  made    began   configured  device open  children  ready   failed
//! 0  node                     -       t        t            -           t        t       -
//! 1  node/chip0               t       t        t            t           -        t       -
//! 2  node/w0                  t       t        t            -           t                       <- still here
//! 3  node/w0/sub0             t       t                                                         <- and here
//! ```
//!
//! A place holds the time of the machine's monotonic clock, which is one for all processes; zero means "not yet". It has
//! one writer (its own process; the parent for `made`) and one write, so that a reader sees nothing or the whole of it.
//! The board needs nobody's cooperation: a start that hangs or dies is explained by what was noted before.

use std::collections::BTreeSet;
use std::fmt;
use std::os::fd::{AsFd as _, BorrowedFd, OwnedFd};
use std::sync::Arc;
use std::time::{Duration, Instant};

use mailbox::{Segment, SegmentError};
use serde::{Deserialize, Serialize};

use crate::clock::WireInstant;

/// How far a worker has come, in the order in which phases are reached; some roles skip some.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[non_exhaustive]
pub enum StartPhase {
    /// Its parent is about to make its process.
    Made,
    /// Its process runs.
    Began,
    /// Its settings (CPUs, nice value, environment, limits) hold.
    Configured,
    /// Chip workers: the device is open; the callables are being registered with it.
    DeviceOpen,
    /// Workers with children: all of their processes are made.
    ChildrenMade,
    /// It and everything below it is ready.
    Ready,
    /// It could not start; the error of the start says why.
    Failed,
}

impl StartPhase {
    const ALL: [StartPhase; 7] = [
        StartPhase::Made,
        StartPhase::Began,
        StartPhase::Configured,
        StartPhase::DeviceOpen,
        StartPhase::ChildrenMade,
        StartPhase::Ready,
        StartPhase::Failed,
    ];
}

impl fmt::Display for StartPhase {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            StartPhase::Made => "made",
            StartPhase::Began => "began",
            StartPhase::Configured => "configured",
            StartPhase::DeviceOpen => "device open",
            StartPhase::ChildrenMade => "children made",
            StartPhase::Ready => "ready",
            StartPhase::Failed => "failed",
        })
    }
}

/// A worker has reached a phase of its start.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct StartProgress {
    /// Path of the worker.
    pub path: String,
    /// What it has reached.
    pub phase: StartPhase,
    /// Time from the call of `init` until then.
    pub elapsed: Duration,
}

impl fmt::Display for StartProgress {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let ms = self.elapsed.as_secs_f64() * 1e3;
        write!(
            f,
            "{ms:>9.3} ms  {:<14} {}",
            self.phase.to_string(),
            self.path
        )
    }
}

/// Places of one worker, rounded up to a cache line.
const PLACES: usize = 8;
const SLOT_BYTES: usize = PLACES * size_of::<u64>();

/// The board as one worker of the tree sees it: its own slot, and those of its subtree after it.
#[derive(Clone)]
pub(crate) struct Board {
    segment: Arc<Segment>,
    slot: usize,
}

impl Board {
    /// A board for so many workers, seen from the root.
    pub(crate) fn create(n_workers: usize) -> Result<Self, SegmentError> {
        let segment = Segment::create("start", n_workers * SLOT_BYTES)?;
        Ok(Self {
            segment: Arc::new(segment),
            slot: 0,
        })
    }

    /// The board that a parent handed over, seen from `slot`.
    pub(crate) fn attach(fd: OwnedFd, slot: u32, n_slots: u32) -> Result<Self, SegmentError> {
        let segment = Segment::from_fd(fd, n_slots as usize * SLOT_BYTES)?;
        Ok(Self {
            segment: Arc::new(segment),
            slot: slot as usize,
        })
    }

    pub(crate) fn fd(&self) -> BorrowedFd<'_> {
        self.segment.as_fd()
    }

    /// Whether a worker of the subtree has noted that it could not start. A load for each.
    pub(crate) fn has_failure(&self, n_workers: usize) -> bool {
        (0..n_workers).any(|slot| self.when(slot, StartPhase::Failed).is_some())
    }

    /// The board as the worker `offset` slots further sees it.
    pub(crate) fn below(&self, offset: usize) -> Self {
        Self {
            segment: Arc::clone(&self.segment),
            slot: self.slot + offset,
        }
    }

    pub(crate) fn slot(&self) -> u32 {
        self.slot as u32
    }

    pub(crate) fn n_slots(&self) -> u32 {
        (self.segment.len() / SLOT_BYTES) as u32
    }

    /// Notes that this worker has reached a phase.
    pub(crate) fn note(&self, phase: StartPhase) {
        let place = self.place(0, phase);
        // The slot was checked when the board was made; a note that cannot be written is no reason to fail.
        let _ = self
            .segment
            .write_at(place, &WireInstant::now().0.to_ne_bytes());
    }

    /// When the worker `offset` slots further reached a phase, on the monotonic clock.
    fn when(&self, offset: usize, phase: StartPhase) -> Option<WireInstant> {
        let mut bytes = [0; 8];
        let place = self.place(offset, phase);
        self.segment.read_at(place, &mut bytes).ok()?;
        Some(WireInstant(u64::from_ne_bytes(bytes))).filter(|when| *when != WireInstant::default())
    }

    fn place(&self, offset: usize, phase: StartPhase) -> usize {
        (self.slot + offset) * SLOT_BYTES + phase as usize * size_of::<u64>()
    }
}

/// Tells somebody what is new on a board.
pub(crate) struct Watcher<'a> {
    board: Board,
    /// The paths of the subtree, in the order of their slots.
    paths: Vec<String>,
    began: WireInstant,
    looked: Instant,
    told: BTreeSet<(usize, StartPhase)>,
    tell: &'a mut dyn FnMut(&StartProgress),
}

impl<'a> Watcher<'a> {
    pub(crate) fn new(
        board: Board,
        paths: Vec<String>,
        tell: &'a mut dyn FnMut(&StartProgress),
    ) -> Self {
        Self {
            board,
            paths,
            began: WireInstant::now(),
            looked: Instant::now(),
            told: BTreeSet::new(),
            tell,
        }
    }

    /// As [`Watcher::look`], if the last one is that long ago.
    pub(crate) fn look_after(&mut self, period: Duration) {
        if self.looked.elapsed() >= period {
            self.look();
        }
    }

    /// Tells what was reached since the last look, in the order of time.
    pub(crate) fn look(&mut self) {
        self.looked = Instant::now();
        let mut news = Vec::new();
        for slot in 0..self.paths.len() {
            for phase in StartPhase::ALL {
                let when = self.board.when(slot, phase);
                if let Some(when) = when.filter(|_| self.told.insert((slot, phase))) {
                    news.push((when, phase, slot));
                }
            }
        }
        news.sort_unstable();
        for (when, phase, slot) in news {
            let progress = StartProgress {
                path: self.paths[slot].clone(),
                phase,
                elapsed: when.since(self.began),
            };
            tracing::debug!(worker = progress.path, %phase, elapsed = ?progress.elapsed, "start");
            (self.tell)(&progress);
        }
    }

    /// Who is not ready, with the last phase that it reached; workers that wait only for others are left out.
    pub(crate) fn unready(&self) -> Vec<StartProgress> {
        let is_ready = |slot: usize| self.board.when(slot, StartPhase::Ready).is_some();
        let late: Vec<usize> = (0..self.paths.len())
            .filter(|slot| !is_ready(*slot))
            .collect();
        let waits = |slot: usize| {
            let below = format!("{}/", self.paths[slot]);
            late.iter()
                .any(|other| self.paths[*other].starts_with(&below))
        };
        let last = |slot: usize| {
            let reached = |phase: &StartPhase| self.board.when(slot, *phase);
            let phase = StartPhase::ALL
                .into_iter()
                .rfind(|phase| reached(phase).is_some())?;
            Some(StartProgress {
                path: self.paths[slot].clone(),
                phase,
                elapsed: reached(&phase)?.since(self.began),
            })
        };
        let blocking = late.iter().filter(|slot| !waits(**slot));
        blocking.filter_map(|slot| last(*slot)).collect()
    }
}
