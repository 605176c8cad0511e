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
    targets: WorkerSet,
    /// Targets that are alive.
    n_live: u32,
    tasks: List,
}

/// All queues.
#[derive(Default)]
pub(super) struct Lines {
    all: Vec<Line>,
    /// Tasks in all of them.
    n_tasks: usize,
    /// A `set -> line` pair means that the workers of the set serve that line.
    by_targets: HashMap<WorkerSet, u32>,
}

impl Lines {
    /// The line of a set of workers, new when the set is.
    pub(super) fn of(&mut self, targets: WorkerSet, workers: &mut Workers) -> u32 {
        let next = self.all.len() as u32;
        let line = *self.by_targets.entry(targets).or_insert(next);
        if line == next {
            let n_live = targets.and(workers.live()).len();
            let tasks = List::default();
            self.all.push(Line {
                targets,
                n_live,
                tasks,
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
        self.all[line as usize].n_live += 1;
        workers[worker].lines.push(line);
    }

    /// Says whether the line was empty before.
    #[inline]
    pub(super) fn push(&mut self, line: u32, arena: &mut Arena, slot: u32) -> bool {
        self.n_tasks += 1;
        let tasks = &mut self.all[line as usize].tasks;
        let was_empty = tasks.head().is_none();
        tasks.push(arena, slot);
        was_empty
    }

    #[inline]
    pub(super) fn pop(&mut self, line: u32, arena: &Arena) -> Option<u32> {
        let popped = self.all[line as usize].tasks.pop(arena);
        self.n_tasks -= usize::from(popped.is_some());
        popped
    }

    /// Whether no task waits in any line.
    #[inline]
    pub(super) fn is_empty(&self) -> bool {
        self.n_tasks == 0
    }

    pub(super) fn len(&self) -> u32 {
        self.all.len() as u32
    }

    /// Who can take a task of this line now: an idle worker, or, when nobody else ever could, a busy
    /// one with a free frame.
    #[inline]
    pub(super) fn takers(&self, line: u32, workers: &Workers) -> WorkerSet {
        self.targets(line).and(self.free(line, workers))
    }

    /// Who may be given something now, if it serves this line.
    #[inline]
    fn free<'w>(&self, line: u32, workers: &'w Workers) -> &'w WorkerSet {
        match self.all[line as usize].n_live {
            1 => workers.room(),
            _ => workers.idle(),
        }
    }

    /// Everybody who serves this line, the lost ones too.
    pub(super) fn targets(&self, line: u32) -> &WorkerSet {
        &self.all[line as usize].targets
    }

    /// Whether anybody is left to serve this line.
    #[inline]
    pub(super) fn is_served(&self, line: u32) -> bool {
        self.all[line as usize].n_live > 0
    }

    /// The worker was lost or is back: counts who is left for the lines it serves.
    pub(super) fn recount(&mut self, worker: WorkerId, workers: &Workers) {
        for &line in &workers[worker].lines {
            let line = &mut self.all[line as usize];
            line.n_live = line.targets.and(workers.live()).len();
        }
    }

    /// Takes the oldest task that this worker can take now off its line.
    #[inline]
    pub(super) fn take_next(
        &mut self,
        worker: WorkerId,
        workers: &Workers,
        arena: &Arena,
    ) -> Option<u32> {
        let line = match workers[worker].lines[..] {
            // Most workers serve one line.
            [line] if self.is_open_to(line, worker, workers) => line,
            [_] => return None,
            _ => self.pick(worker, workers, arena)?.1,
        };
        self.pop(line, arena)
    }

    /// Whether a worker that serves this line can take a task of it now; see [`takers`](Lines::takers).
    #[inline]
    fn is_open_to(&self, line: u32, worker: WorkerId, workers: &Workers) -> bool {
        self.free(line, workers).contains(worker)
    }

    /// The oldest task that this worker can take now: its submission number and its line.
    pub(super) fn pick(
        &self,
        worker: WorkerId,
        workers: &Workers,
        arena: &Arena,
    ) -> Option<(u64, u32)> {
        let mut oldest = None;
        for &line in &workers[worker].lines {
            let Some(head) = self.all[line as usize].tasks.head() else {
                continue;
            };
            let found = (arena[head].seq, line);
            if oldest.is_none_or(|oldest| found < oldest) && self.is_open_to(line, worker, workers)
            {
                oldest = Some(found);
            }
        }
        oldest
    }

    /// Whether a task waits in a line that this worker serves.
    pub(super) fn has_work(&self, worker: WorkerId, workers: &Workers) -> bool {
        let mut lines = workers[worker].lines.iter();
        lines.any(|&line| self.all[line as usize].tasks.head().is_some())
    }
}
