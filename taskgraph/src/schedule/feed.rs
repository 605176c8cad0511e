//! Dispatching: which worker takes which ready task now.

use smallvec::SmallVec;

use super::Scheduler;
use super::arena::Kind;
use super::groups::Group;
use super::spec::{Dispatch, Effect, Failure, TaskEnd, WorkerKind};
use super::workers::{WorkerSet, Workers};
use crate::ids::{TaskId, WorkerId};
use crate::slot::Step;

impl Scheduler {
    /// The next decision, or `None` until another event happens.
    ///
    /// All members of a group are handed out one after the other, with nothing in between.
    pub fn next_dispatch(&mut self) -> Option<Dispatch> {
        loop {
            if !self.replays.ready.is_empty() {
                self.start_graphs();
            }
            if let Some(dispatch) = self.outbox.pop_front() {
                return Some(dispatch);
            }
            // Most often there is nothing to take, and who is hungry stays so.
            if self.lines.is_empty() && self.groups.is_empty() {
                return None;
            }
            let worker = self.hungry.first()?;
            match self.feed(worker) {
                Some(dispatch) => return Some(dispatch),
                None => self.hungry.remove(worker),
            }
        }
    }

    /// The running tasks that a waiting group waits for, each with its worker.
    ///
    /// Empty for anything that is not a waiting group of next-level workers.
    pub fn blockers(&self, group: TaskId) -> SmallVec<[(WorkerId, TaskId); 8]> {
        let mut found = SmallVec::new();
        if !self.arena.is_current(group) {
            return found;
        }
        let Kind::Group(index) = self.arena[group.slot].place.kind() else {
            return found;
        };
        for &worker in &self.groups[index].targets {
            let tasks = self.workers[worker]
                .in_flight()
                .map(|entry| self.arena.id(entry.slot));
            found.extend(
                tasks
                    .filter(|&task| task != group)
                    .map(|task| (worker, task)),
            );
        }
        found
    }

    /// A ready task of the active run goes in line, or fails when nobody is left to take it.
    #[inline(always)]
    pub(super) fn enqueue(&mut self, slot: u32) {
        let Kind::Line(line) = self.arena[slot].place.kind() else {
            return self.enqueue_several(slot);
        };
        if !self.lines.is_served(line) {
            return self.end_unserved(slot, *self.lines.targets(line));
        }
        // Who can take the tasks of a line that is not empty is hungry already, or held.
        if self.lines.push(line, &mut self.arena, slot) {
            self.hungry.add(&self.lines.takers(line, &self.workers));
        }
    }

    /// As [`enqueue`](Scheduler::enqueue), for what is more than one dispatch.
    #[inline(never)]
    fn enqueue_several(&mut self, slot: u32) {
        match self.arena[slot].place.kind() {
            Kind::Line(_) => unreachable!("the caller puts it in line"),
            Kind::Graph(_) => self.replays.ready.push_back(slot),
            Kind::Group(group) => {
                if !self.groups[group].can_run(&self.workers) {
                    return self.end_unserved(slot, self.groups[group].candidates(&self.workers));
                }
                self.groups.enter(group, &mut self.workers);
                self.wake_targets(group);
            }
        }
    }

    /// Ends a task of which none, or too few, of those are left that could run it.
    #[cold]
    pub(super) fn end_unserved(&mut self, slot: u32, candidates: WorkerSet) {
        let lost = candidates.without(self.workers.live()).first();
        self.end_badly(slot, TaskEnd::Failed(Failure::NoWorker { lost }));
    }

    /// Ends every waiting group that `is_dropped` says.
    pub(super) fn drop_groups(
        &mut self,
        is_dropped: impl Fn(&Group, &Workers) -> bool,
        end: TaskEnd,
    ) {
        for group in self.groups.waiting(&self.workers) {
            if is_dropped(&self.groups[group], &self.workers) {
                self.groups.leave(group, &mut self.workers);
                self.wake_targets(group);
                self.end_badly(self.groups[group].slot, end);
            }
        }
    }

    /// Who was held for a group, or can now start it, is looked at again.
    fn wake_targets(&mut self, group: u32) {
        if self.groups[group].is_sub {
            self.hungry
                .add(&self.workers.live_subs().and(self.workers.room()));
        }
        for &worker in &self.groups[group].targets {
            if self.workers.live().contains(worker) {
                self.hungry.insert(worker);
            }
        }
    }

    /// What this worker gets now: its group when that can start, nothing when a group holds it, else
    /// the oldest task of its lines. Between two groups an older single task has its turn.
    #[inline]
    fn feed(&mut self, worker: WorkerId) -> Option<Dispatch> {
        if !self.groups.is_empty()
            && let Some(group) = self.holder(worker)
            && !self.single_is_due(worker, group)
        {
            return self.feed_group(worker, group);
        }
        let slot = self.lines.take_next(worker, &self.workers, &self.arena)?;
        self.arena[slot].step(Step::Dispatch);
        self.workers[worker].owes_single = false;
        Some(self.dispatch(slot, worker, 0))
    }

    /// Starts the group that holds this worker, or says that it cannot start.
    fn feed_group(&mut self, worker: WorkerId, group: u32) -> Option<Dispatch> {
        if self.can_start(group) {
            return self.start_group(group);
        }
        self.report_stall(group, worker);
        None
    }

    /// Whether the last thing this worker began was a group, and a task waits that is older than the
    /// next one.
    fn single_is_due(&self, worker: WorkerId, group: u32) -> bool {
        self.workers[worker].owes_single && {
            let group_seq = self.arena[self.groups[group].slot].seq;
            let oldest = self.lines.pick(worker, &self.workers, &self.arena);
            oldest.is_some_and(|(seq, _)| seq < group_seq)
        }
    }

    /// The waiting group that this worker is reserved for.
    fn holder(&self, worker: WorkerId) -> Option<u32> {
        let &front = match self.workers[worker].kind {
            WorkerKind::NextLevel => self.workers[worker].groups.front(),
            WorkerKind::Sub => self.groups.sub_line.front(),
        }?;
        (self.groups[front].is_sub || self.groups.is_head(front)).then_some(front)
    }

    fn can_start(&self, group: u32) -> bool {
        let (group, idle) = (&self.groups[group], self.workers.idle());
        if group.is_sub {
            return self.workers.subs.and(idle).len() >= group.n_members;
        }
        group.targets.iter().all(|&worker| idle.contains(worker))
    }

    /// Sends every member; the first is returned, the others follow from the outbox.
    fn start_group(&mut self, index: u32) -> Option<Dispatch> {
        self.groups.leave(index, &mut self.workers);
        let group = &mut self.groups[index];
        if group.is_sub {
            let idle = self.workers.subs.and(self.workers.idle());
            group.targets = idle.iter().take(group.n_members as usize).collect();
        }
        let (slot, targets) = (group.slot, group.targets.clone());
        self.arena[slot].step(Step::Dispatch);
        self.wake_targets(index);
        for (member, worker) in (0..).zip(targets) {
            self.workers[worker].owes_single = true;
            let dispatch = self.dispatch(slot, worker, member);
            self.outbox.push_back(dispatch);
        }
        self.outbox.pop_front()
    }

    #[inline(always)]
    fn dispatch(&mut self, slot: u32, worker: WorkerId, member: u32) -> Dispatch {
        let (dispatch, staged) = self.workers.send(worker, slot, member);
        let (run, task) = (self.runs.id(self.arena[slot].run), self.arena.id(slot));
        Dispatch {
            run,
            task,
            worker,
            member,
            dispatch,
            staged,
        }
    }

    fn report_stall(&mut self, group: u32, worker: WorkerId) {
        let is_idle = self.workers.idle().contains(worker);
        if self.groups[group].is_reported || !is_idle || !self.lines.has_work(worker, &self.workers)
        {
            return;
        }
        self.groups[group].is_reported = true;
        let group = self.arena.id(self.groups[group].slot);
        self.effects.push_back(Effect::GroupStalled {
            group,
            idle: worker,
        });
    }
}
