//! What the next run will begin with: a hint for whoever can prepare a dispatch before it is decided.
//!
//! Nothing is decided here and nothing changes: a task of a run that waits is dispatched when its turn comes, wherever
//! it is then to go.

use smallvec::SmallVec;

use super::Scheduler;
use super::arena::Kind;
use super::workers::WorkerSet;
use crate::ids::{TaskId, WorkerId};

/// How many waiting tasks one look goes through.
const LOOK_MAX: usize = 64;

impl Scheduler {
    /// Whether a run was begun after the active one. A few loads.
    #[inline]
    pub fn has_next_run(&self) -> bool {
        self.runs.has_next()
    }

    /// For each worker the task that it will most likely be sent first when the active run is over: of the ready tasks of
    /// the run after it, in their order, each goes to the first living worker that may take it and has none yet.
    ///
    /// Groups and graphs are left out. Looks at the first few waiting tasks; ask
    /// [`has_next_run`](Scheduler::has_next_run) first, which is cheaper.
    pub fn next_run_begins_with(&self) -> SmallVec<[(WorkerId, TaskId); 8]> {
        let mut firsts = SmallVec::new();
        let mut without = *self.workers.live();
        let mut next = self.runs.next_backlog();
        for _ in 0..LOOK_MAX {
            let Some(slot) = next.filter(|_| !without.is_empty()) else {
                break;
            };
            if let Kind::Line(line) = self.arena[slot].place.kind()
                && let Some(worker) = self.lines.targets(line).and(&without).first()
            {
                firsts.push((worker, self.arena.id(slot)));
                without = without.without(&WorkerSet::one(worker));
            }
            next = self.arena.after(slot);
        }
        firsts
    }
}
