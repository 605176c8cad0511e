//! What must hold in quiet moments and at the end, checked over the whole model.

use taskgraph::{Depth, RunId, RunStatus, Scheduler, State, TaskEnd, WorkerId};

use super::{Broken, Kind, Model, ModelTask};

impl Model {
    /// What must hold whenever the scheduler has nothing more to decide.
    pub(crate) fn check_quiet(&mut self, scheduler: &Scheduler) -> Result<(), Broken> {
        ensure!(self.begun.is_none(), "I7: a group was not sent whole");
        for (index, task) in self.unended() {
            let waits = self.before(index).any(|other| other.end.is_none());
            let is_pending = scheduler.task_state(task.id) == State::Pending;
            ensure!(
                waits == is_pending,
                "I2: {} waits: {is_pending}, should: {waits}",
                task.id
            );
        }
        self.check_memory(scheduler)?;
        self.check_idle(scheduler)?;
        self.note_waiting_groups(scheduler);
        Ok(())
    }

    /// Slots are held by tasks that have not ended, and by failed ones until their run is over.
    fn check_memory(&self, scheduler: &Scheduler) -> Result<(), Broken> {
        let holds =
            |task: &&ModelTask| task.end.is_none() || task.ended_badly() && !self.is_over(task.run);
        let (expected, found) = (
            self.tasks.iter().filter(holds).count(),
            scheduler.n_live_tasks(),
        );
        ensure!(
            expected == found,
            "I9: {found} slots are in use, {expected} should be"
        );
        ensure!(
            found > 0 || scheduler.n_records() == 0,
            "I9: {} records without a task",
            scheduler.n_records()
        );
        Ok(())
    }

    /// No worker is idle that could have something, unless a group holds it.
    fn check_idle(&self, scheduler: &Scheduler) -> Result<(), Broken> {
        let ready: Vec<_> = self.ready(scheduler).collect();
        let is_idle = |id: &WorkerId| {
            let worker = &self.workers[id.0 as usize];
            worker.is_live && worker.in_flight.is_empty()
        };
        for (index, group) in ready.iter().filter(|(_, task)| task.kind != Kind::Single) {
            let is_first = self.is_first(*index, &ready);
            let n_idle = group.targets.iter().filter(|id| is_idle(id)).count();
            let can_start = is_first && n_idle >= group.n_members;
            ensure!(!can_start, "I8: {} could start and does not", group.id);
        }
        for (_, single) in ready.iter().filter(|(_, task)| task.kind == Kind::Single) {
            let is_held = |id: &WorkerId| {
                let mut groups = ready.iter().filter(|(_, task)| task.kind != Kind::Single);
                groups.any(|(_, group)| group.targets.contains(id))
            };
            let mut free = single
                .targets
                .iter()
                .filter(|id| is_idle(id) && !is_held(id));
            let worker = free.next();
            ensure!(
                worker.is_none(),
                "I8: {} waits while {worker:?} is idle",
                single.id
            );
            let live: Vec<_> = single
                .targets
                .iter()
                .filter(|id| self.is_live(**id))
                .collect();
            if let [only] = live[..] {
                let worker = &self.workers[only.0 as usize];
                let has_room = worker.depth == Depth::Two && worker.in_flight.len() < 2;
                ensure!(
                    !has_room || is_held(only),
                    "I8: {} is not staged on {only}",
                    single.id
                );
            }
        }
        Ok(())
    }

    /// Ready tasks of the run that is executing.
    fn ready<'a>(
        &'a self,
        scheduler: &'a Scheduler,
    ) -> impl Iterator<Item = (usize, &'a ModelTask)> {
        let active = self
            .runs
            .iter()
            .find(|(_, is_over)| !is_over)
            .map(|&(run, _)| run);
        self.unended().filter(move |(_, task)| {
            Some(task.run) == active && scheduler.task_state(task.id) == State::Ready
        })
    }

    /// Whether no other group stood in line at one of its workers when this one came. Of groups that
    /// came at once neither counts as first.
    fn is_first(&self, index: usize, ready: &[(usize, &ModelTask)]) -> bool {
        let group = &self.tasks[index];
        let since = self.ready_since.get(&index);
        !ready.iter().any(|(other, task)| {
            let meets = task
                .targets
                .iter()
                .any(|target| group.targets.contains(target));
            let came_first = since.is_none() || self.ready_since.get(other) <= since;
            *other != index && task.kind == group.kind && meets && came_first
        })
    }

    /// Notes which groups wait, and begins to count for those that are first in line.
    fn note_waiting_groups(&mut self, scheduler: &Scheduler) {
        self.n_quiet += 1;
        let ready: Vec<_> = self.ready(scheduler).map(|(index, _)| index).collect();
        let groups = ready
            .into_iter()
            .filter(|index| self.tasks[*index].kind != Kind::Single);
        let groups: Vec<_> = groups.collect();
        for index in &groups {
            self.ready_since.entry(*index).or_insert(self.n_quiet);
        }
        let ready: Vec<_> = groups
            .iter()
            .map(|index| (*index, &self.tasks[*index]))
            .collect();
        let first: Vec<_> = groups
            .iter()
            .filter(|index| self.is_first(**index, &ready))
            .collect();
        let first: Vec<_> = first.into_iter().copied().collect();
        for index in first {
            self.overtaken.entry(index).or_default();
        }
    }

    /// What must hold when all runs are sealed and every dispatch was answered.
    pub(crate) fn check_end(&self, scheduler: &Scheduler) -> Result<(), Broken> {
        if let Some((_, task)) = self.unended().next() {
            let state = scheduler.task_state(task.id);
            return Err(format!("I3: {} never ended, it is {state:?}", task.id));
        }
        for (run, is_over) in &self.runs {
            ensure!(*is_over, "I5: {run} never ended");
        }
        let left = (scheduler.n_live_tasks(), scheduler.n_records());
        ensure!(left == (0, 0), "I9: slots and records are left: {left:?}");
        Ok(())
    }

    /// The outcome of a run is the sum of the ends of its tasks.
    pub(crate) fn check_outcome(&self, run: RunId, status: RunStatus) -> Result<(), Broken> {
        let RunStatus::Done(outcome) = status else {
            return Ok(());
        };
        let count = |is: fn(&TaskEnd) -> bool| {
            let ends = self
                .tasks
                .iter()
                .filter(|task| task.run == run)
                .filter_map(|task| task.end);
            ends.filter(is).count() as u64
        };
        let counts = [
            (
                outcome.completed,
                count(|end| matches!(end, TaskEnd::Completed)),
            ),
            (
                outcome.failed,
                count(|end| matches!(end, TaskEnd::Failed(_))),
            ),
            (
                outcome.skipped,
                count(|end| matches!(end, TaskEnd::Skipped { .. })),
            ),
            (
                outcome.cancelled,
                count(|end| matches!(end, TaskEnd::Cancelled)),
            ),
        ];
        for (told, counted) in counts {
            ensure!(
                told == counted,
                "I5: {run} tells {outcome:?}, {told} should be {counted}"
            );
        }
        let bad = outcome.failed + outcome.skipped > 0;
        ensure!(
            outcome.cause.is_some() == bad,
            "I5: the cause of {run} is {:?}",
            outcome.cause
        );
        Ok(())
    }
}
