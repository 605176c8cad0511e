//! Lines: one queue of ready tasks for each distinct set of workers that may take them.
//!
//! A next-level worker has a line of its own, all sub workers share one, and every set that an
//! [`AnyOf`](super::Placement::AnyOf) names gets one when it is first named. A free worker takes the
//! task that was submitted first among the heads of the lines it serves.

use hashbrown::HashMap;

use super::arena::Arena;
use super::list::List;
use super::workers::{WorkerSet, Workers};
use crate::ids::WorkerId;

/// One queue.
pub(super) struct Line {
    pub(super) targets: WorkerSet,
    tasks: List,
}

/// All queues.
#[derive(Default)]
pub(super) struct Lines {
    all: Vec<Line>,
    /// A `set -> line` pair means that the workers of the set serve that line.
    by_targets: HashMap<[u64; 4], u32>,
}

impl Lines {
    /// The line of a set of workers, new when the set is.
    pub(super) fn of(&mut self, targets: WorkerSet, workers: &mut Workers) -> u32 {
        let next = self.all.len() as u32;
        let line = *self.by_targets.entry(targets.words()).or_insert(next);
        if line == next {
            self.all.push(Line {
                targets,
                tasks: List::default(),
            });
            targets
                .iter()
                .for_each(|worker| workers[worker].lines.push(line));
        }
        line
    }

    /// Adds a worker to a line that exists, for the shared line of the sub workers.
    pub(super) fn widen(&mut self, line: u32, worker: WorkerId, workers: &mut Workers) {
        self.all[line as usize].targets.insert(worker);
        workers[worker].lines.push(line);
    }

    pub(super) fn push(&mut self, line: u32, arena: &mut Arena, slot: u32) {
        self.all[line as usize].tasks.push(arena, slot);
    }

    pub(super) fn pop(&mut self, line: u32, arena: &Arena) -> Option<u32> {
        self.all[line as usize].tasks.pop(arena)
    }

    pub(super) fn len(&self) -> u32 {
        self.all.len() as u32
    }

    /// Who can take a task of this line now: an idle worker, or, when nobody else ever could, a busy
    /// one with a free frame.
    pub(super) fn takers(&self, line: u32, workers: &Workers) -> WorkerSet {
        let live = self.live_targets(line, workers);
        let free = if live.len() == 1 {
            workers.room()
        } else {
            workers.idle()
        };
        live.and(free)
    }

    pub(super) fn live_targets(&self, line: u32, workers: &Workers) -> WorkerSet {
        self.all[line as usize].targets.and(workers.live())
    }

    /// The oldest task that this worker can take now: its submission number and its line.
    pub(super) fn pick(
        &self,
        worker: WorkerId,
        workers: &Workers,
        arena: &Arena,
    ) -> Option<(u64, u32)> {
        let heads = workers[worker].lines.iter().filter_map(|&line| {
            let head = self.all[line as usize].tasks.head()?;
            Some((arena[head].seq, line))
        });
        let takes = |line: u32| self.takers(line, workers).contains(worker);
        heads.filter(|&(_, line)| takes(line)).min()
    }

    /// Whether a task waits in a line that this worker serves.
    pub(super) fn has_work(&self, worker: WorkerId, workers: &Workers) -> bool {
        let mut lines = workers[worker].lines.iter();
        lines.any(|&line| self.all[line as usize].tasks.head().is_some())
    }
}
