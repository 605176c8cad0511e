//! Workers: what each has in flight, who is idle, who is lost.

use std::collections::VecDeque;

use smallvec::SmallVec;

use super::spec::{Depth, WORKERS_MAX, WorkerKind};
use crate::ids::{DispatchId, WorkerId};

/// A set of workers: a bit each. Two words, of which a question about one worker touches one.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub(super) struct WorkerSet([u64; 2]);

const _: () = assert!(WORKERS_MAX == 2 * u64::BITS as usize);

impl WorkerSet {
    pub(super) fn one(worker: WorkerId) -> WorkerSet {
        let mut one = WorkerSet::default();
        one.insert(worker);
        one
    }

    pub(super) fn of(workers: &[WorkerId]) -> WorkerSet {
        let mut all = WorkerSet::default();
        workers.iter().for_each(|&worker| all.insert(worker));
        all
    }

    /// A bit for each worker.
    pub(super) const fn from_bits(bits: u128) -> WorkerSet {
        WorkerSet([bits as u64, (bits >> u64::BITS) as u64])
    }

    /// The word and the bit of a worker.
    #[inline]
    const fn place(worker: WorkerId) -> (usize, u64) {
        ((worker.0 / u64::BITS) as usize, 1 << (worker.0 % u64::BITS))
    }

    #[inline]
    pub(super) fn insert(&mut self, worker: WorkerId) {
        let (word, bit) = WorkerSet::place(worker);
        self.0[word] |= bit;
    }

    #[inline]
    pub(super) fn remove(&mut self, worker: WorkerId) {
        let (word, bit) = WorkerSet::place(worker);
        self.0[word] &= !bit;
    }

    #[inline]
    pub(super) fn contains(&self, worker: WorkerId) -> bool {
        let (word, bit) = WorkerSet::place(worker);
        self.0[word] & bit != 0
    }

    #[inline]
    pub(super) fn first(&self) -> Option<WorkerId> {
        match self.0 {
            [0, 0] => None,
            [0, high] => Some(WorkerId(u64::BITS + high.trailing_zeros())),
            [low, _] => Some(WorkerId(low.trailing_zeros())),
        }
    }

    pub(super) fn len(&self) -> u32 {
        self.0[0].count_ones() + self.0[1].count_ones()
    }

    pub(super) fn is_empty(&self) -> bool {
        self.0 == [0, 0]
    }

    #[inline]
    pub(super) fn and(&self, other: &WorkerSet) -> WorkerSet {
        WorkerSet([self.0[0] & other.0[0], self.0[1] & other.0[1]])
    }

    pub(super) fn without(&self, other: &WorkerSet) -> WorkerSet {
        WorkerSet([self.0[0] & !other.0[0], self.0[1] & !other.0[1]])
    }

    #[inline]
    pub(super) fn add(&mut self, other: &WorkerSet) {
        self.0[0] |= other.0[0];
        self.0[1] |= other.0[1];
    }

    pub(super) fn iter(self) -> impl Iterator<Item = WorkerId> {
        let mut left = self;
        std::iter::from_fn(move || {
            let worker = left.first()?;
            left.remove(worker);
            Some(worker)
        })
    }
}

/// A task, or a member of a group, that is on a worker.
#[derive(Clone, Copy, Debug)]
pub(super) struct InFlight {
    pub(super) dispatch: DispatchId,
    pub(super) slot: u32,
    pub(super) member: u32,
    pub(super) accepted: bool,
}

/// One worker.
pub(super) struct Worker {
    pub(super) kind: WorkerKind,
    depth: Depth,
    /// Lines it serves.
    pub(super) lines: SmallVec<[u32; 4]>,
    /// Groups that wait for it, oldest first.
    pub(super) groups: VecDeque<u32>,
    /// Whether a group was the last thing that it began.
    pub(super) owes_single: bool,
    in_flight: [Option<InFlight>; 2],
}

impl Worker {
    /// The line that a next-level worker serves alone.
    #[inline]
    pub(super) fn own_line(&self) -> u32 {
        self.lines[0]
    }

    pub(super) fn in_flight(&self) -> impl Iterator<Item = &InFlight> {
        self.in_flight.iter().flatten()
    }
}

/// All workers. A dispatch id holds the worker and the frame, so that an answer finds its place:
/// `number << 8 | worker << 1 | frame`.
#[derive(Default)]
pub(super) struct Workers {
    all: Vec<Worker>,
    live: WorkerSet,
    /// Live, and nothing in flight.
    idle: WorkerSet,
    /// Live, and a frame is free.
    room: WorkerSet,
    pub(super) subs: WorkerSet,
    n_dispatches: u64,
}

const FRAME_BITS: u32 = 1;
const WORKER_BITS: u32 = 7;
const _: () = assert!(WORKERS_MAX == 1 << WORKER_BITS);

impl Workers {
    pub(super) fn add(&mut self, kind: WorkerKind, depth: Depth) -> Option<WorkerId> {
        let id = WorkerId(self.all.len() as u32);
        if self.all.len() == WORKERS_MAX {
            return None;
        }
        let (lines, groups) = (SmallVec::new(), VecDeque::new());
        self.all.push(Worker {
            kind,
            depth,
            lines,
            groups,
            owes_single: false,
            in_flight: [None; 2],
        });
        if kind == WorkerKind::Sub {
            self.subs.insert(id);
        }
        self.revive(id);
        Some(id)
    }

    #[inline]
    pub(super) fn get(&self, worker: WorkerId) -> Option<&Worker> {
        self.all.get(worker.0 as usize)
    }

    /// The groups that wait for each worker, one after the other.
    pub(super) fn all_groups(&self) -> impl Iterator<Item = u32> {
        self.all
            .iter()
            .flat_map(|worker| worker.groups.iter().copied())
    }

    #[inline]
    pub(super) fn live(&self) -> &WorkerSet {
        &self.live
    }

    #[inline]
    pub(super) fn idle(&self) -> &WorkerSet {
        &self.idle
    }

    #[inline]
    pub(super) fn room(&self) -> &WorkerSet {
        &self.room
    }

    /// Next-level workers, the lost ones too.
    pub(super) fn next_level(&self) -> WorkerSet {
        let n_workers = self.all.len() as u32;
        let all = u128::MAX.checked_shr(u128::BITS - n_workers).unwrap_or(0);
        WorkerSet::from_bits(all).without(&self.subs)
    }

    pub(super) fn live_subs(&self) -> WorkerSet {
        self.subs.and(&self.live)
    }

    /// Puts a member in a free frame; says what to call it and whether another is in front.
    #[inline]
    pub(super) fn send(&mut self, id: WorkerId, slot: u32, member: u32) -> (DispatchId, bool) {
        let worker = &mut self.all[id.0 as usize];
        let frame = usize::from(worker.in_flight[0].is_some());
        debug_assert!(worker.in_flight[frame].is_none(), "no free frame");
        let staged = worker.in_flight[1 - frame].is_some();
        self.n_dispatches += 1;
        let number = (self.n_dispatches << WORKER_BITS | u64::from(id.0)) << FRAME_BITS;
        let dispatch = DispatchId(number | frame as u64);
        worker.in_flight[frame] = Some(InFlight {
            dispatch,
            slot,
            member,
            accepted: false,
        });
        self.idle.remove(id);
        if staged || worker.depth == Depth::One {
            self.room.remove(id);
        }
        (dispatch, staged)
    }

    /// The worker that has this dispatch in flight, and the dispatch.
    #[inline]
    pub(super) fn find(&mut self, dispatch: DispatchId) -> Option<(WorkerId, &mut InFlight)> {
        let frame = (dispatch.0 & 1) as usize;
        let id = (dispatch.0 >> FRAME_BITS) as usize & (WORKERS_MAX - 1);
        let in_flight = self.all.get_mut(id)?.in_flight[frame].as_mut();
        let found = in_flight.filter(|in_flight| in_flight.dispatch == dispatch)?;
        Some((WorkerId(id as u32), found))
    }

    /// Takes an answered dispatch out of its frame.
    #[inline]
    pub(super) fn take(&mut self, dispatch: DispatchId) -> Option<(WorkerId, InFlight)> {
        let (id, &mut in_flight) = self.find(dispatch)?;
        let worker = &mut self.all[id.0 as usize];
        worker.in_flight[(dispatch.0 & 1) as usize] = None;
        self.room.insert(id);
        if worker.in_flight[0].is_none() && worker.in_flight[1].is_none() {
            self.idle.insert(id);
        }
        Some((id, in_flight))
    }

    /// Marks a worker as lost and hands over what was on it.
    pub(super) fn lose(&mut self, id: WorkerId) -> [Option<InFlight>; 2] {
        self.live.remove(id);
        self.idle.remove(id);
        self.room.remove(id);
        let worker = &mut self.all[id.0 as usize];
        let mut lost = std::mem::take(&mut worker.in_flight);
        lost.sort_by_key(|entry| entry.map_or(u64::MAX, |entry| entry.dispatch.0));
        lost
    }

    /// Makes a new or lost worker available, with nothing in flight.
    pub(super) fn revive(&mut self, id: WorkerId) {
        self.live.insert(id);
        self.idle.insert(id);
        self.room.insert(id);
    }
}

impl std::ops::Index<WorkerId> for Workers {
    type Output = Worker;

    fn index(&self, worker: WorkerId) -> &Worker {
        &self.all[worker.0 as usize]
    }
}

impl std::ops::IndexMut<WorkerId> for Workers {
    fn index_mut(&mut self, worker: WorkerId) -> &mut Worker {
        &mut self.all[worker.0 as usize]
    }
}
