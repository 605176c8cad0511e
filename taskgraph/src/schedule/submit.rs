//! Submitting: the placement is checked, a slot is taken, the edges are found.

use super::Scheduler;
use super::arena::{Arena, Kind, Place};
use super::runs::{Run, ShortRun};
use super::spec::{Inference, Placement, SubmitError, TaskSpec, WorkerKind};
use super::workers::WorkerSet;
use crate::args::Access;
use crate::ids::{RunId, TaskId, WorkerId};
use crate::infer::{NONE, Why};
use crate::slot::Step;

impl Scheduler {
    /// Adds a task to an open run. It starts when everything it follows has ended.
    ///
    /// Costs a hash lookup and a search among the live accesses of a buffer for each access, and
    /// allocates only while the tables still grow.
    ///
    /// # Errors
    /// When the run is closed, all slots are in use, the placement cannot be met, or `after` names a
    /// task that never was. Nothing has changed then.
    pub fn submit(&mut self, run: RunId, spec: &TaskSpec<'_>) -> Result<TaskId, SubmitError> {
        if spec.is_unbacked {
            return Err(SubmitError::Unbacked);
        }
        self.check(run, spec.after, spec.accesses.iter())?;
        let place = self.place(&spec.placement)?;
        let slot = self.take_slot(run, place);
        if let Kind::Group(group) = place.kind() {
            self.groups[group].slot = slot;
        }
        if self.runs.of_task(run.into()).recording.is_some() {
            self.record_task(slot, &spec.placement);
        }
        Ok(self.order(slot, spec.accesses.iter(), spec.after, spec.inference))
    }

    /// A slot for a task that was checked.
    #[inline(always)]
    pub(super) fn take_slot(&mut self, run: RunId, place: Place) -> u32 {
        self.n_submitted += 1;
        let short = ShortRun::from(run);
        self.runs.of_task(short).n_live += 1;
        self.arena.take(short, self.n_submitted, place)
    }

    /// Finds what a new task follows, and lets it go when that is nothing.
    #[inline]
    fn order<'a>(
        &mut self,
        slot: u32,
        accesses: impl Iterator<Item = &'a Access> + Clone,
        after: &[TaskId],
        inference: Inference,
    ) -> TaskId {
        let mut records = NONE;
        if self.is_automatic(slot, inference) {
            let run = self.runs.of_task(self.arena[slot].run);
            let arena = &mut self.arena;
            let found = |_, earlier, why| follow(arena, run, slot, earlier, why);
            self.ledger
                .access_all(slot, &mut records, accesses.clone(), found);
        }
        self.launch(slot, records, accesses, after)
    }

    /// Whether edges of a task come from its accesses: it and its scope must want that.
    #[inline]
    pub(super) fn is_automatic(&mut self, slot: u32, inference: Inference) -> bool {
        let run = self.runs.of_task(self.arena[slot].run);
        inference == Inference::Automatic && run.scopes.inference() == Inference::Automatic
    }

    /// A new task has these records in the ledger, and follows what they say: it also follows `after`, and goes on its
    /// way.
    #[inline]
    pub(super) fn launch<'a>(
        &mut self,
        slot: u32,
        records: u32,
        accesses: impl Iterator<Item = &'a Access>,
        after: &[TaskId],
    ) -> TaskId {
        self.arena[slot].records = records;
        let run = self.runs.of_task(self.arena[slot].run);
        for earlier in after {
            if self.arena.is_current(*earlier) {
                follow(&mut self.arena, run, slot, earlier.slot, Why::Data);
            }
        }
        let task = self.arena.id(slot);
        if !self.ledger.heap.is_empty() {
            self.hold_blocks(slot, task, accesses);
        }
        if self.arena[slot].waits == 0 {
            self.release(slot);
            self.settle();
        } else {
            self.arena[slot].step(Step::Wait);
        }
        task
    }

    #[inline]
    pub(super) fn check<'a>(
        &mut self,
        run: RunId,
        after: &[TaskId],
        accesses: impl Iterator<Item = &'a Access>,
    ) -> Result<(), SubmitError> {
        self.runs.check_building(run)?;
        if self.arena.is_full() {
            return Err(self.full());
        }
        match after.iter().find(|task| !self.arena.is_task(**task)) {
            Some(&task) => Err(SubmitError::UnknownTask { task }),
            None if self.ledger.heap.is_empty() => Ok(()),
            None => self.check_blocks(accesses),
        }
    }

    #[cold]
    fn full(&mut self) -> SubmitError {
        let (tasks_max, oldest) = (self.limits.tasks_max, self.arena.oldest());
        match self.runs.has_unended_tasks() {
            true => SubmitError::SlotsFull { tasks_max, oldest },
            false => SubmitError::SlotsHeld { tasks_max, oldest },
        }
    }

    #[cold]
    fn record_task(&mut self, slot: u32, placement: &Placement<'_>) {
        let (task, subs) = (self.arena.id(slot), self.workers.subs);
        if let Some(recording) = &mut self.runs.of_task(self.arena[slot].run).recording {
            recording.add_task(task, placement, subs.iter().collect());
        }
    }

    pub(super) fn record_graph(&mut self, slot: u32, n_nodes: u32) {
        let task = self.arena.id(slot);
        if let Some(recording) = &mut self.runs.of_task(self.arena[slot].run).recording {
            recording.add_graph(task, n_nodes);
        }
    }

    #[inline]
    pub(super) fn place(&mut self, placement: &Placement<'_>) -> Result<Place, SubmitError> {
        if let Placement::On(worker) = *placement {
            self.live_next_level(worker)?;
            return Ok(Place::line(self.workers[worker].own_line()));
        }
        self.place_on_several(placement)
    }

    #[inline(never)]
    fn place_on_several(&mut self, placement: &Placement<'_>) -> Result<Place, SubmitError> {
        match *placement {
            Placement::On(_) => unreachable!("the caller places it"),
            Placement::AnyOf(workers) => self.place_any(workers),
            Placement::Group(workers) => self.place_group(workers),
            Placement::Sub => {
                self.check_subs(1)?;
                let line = self.sub_line.ok_or(SubmitError::NoTargets)?;
                Ok(Place::line(line))
            }
            Placement::SubGroup(wanted) => {
                self.check_subs(wanted)?;
                Ok(Place::group(self.groups.add(&[], wanted)))
            }
        }
    }

    /// The workers that this placement names.
    pub(super) fn candidates(&self, placement: &Placement<'_>) -> WorkerSet {
        match *placement {
            Placement::On(worker) => WorkerSet::one(worker),
            Placement::AnyOf(workers) | Placement::Group(workers) => WorkerSet::of(workers),
            Placement::Sub | Placement::SubGroup(_) => self.workers.subs,
        }
    }

    fn place_any(&mut self, workers: &[WorkerId]) -> Result<Place, SubmitError> {
        let mut targets = WorkerSet::default();
        for &worker in workers {
            self.next_level(worker)?;
            targets.insert(worker);
        }
        let Some(&worker) = workers.first() else {
            return Err(SubmitError::NoTargets);
        };
        if targets.and(self.workers.live()).is_empty() {
            return Err(SubmitError::WorkerLost { worker });
        }
        Ok(Place::line(self.lines.of(targets, &mut self.workers)))
    }

    fn place_group(&mut self, workers: &[WorkerId]) -> Result<Place, SubmitError> {
        let mut seen = WorkerSet::default();
        for &worker in workers {
            self.live_next_level(worker)?;
            if seen.contains(worker) {
                return Err(SubmitError::DuplicateMember { worker });
            }
            seen.insert(worker);
        }
        if workers.is_empty() {
            return Err(SubmitError::NoTargets);
        }
        Ok(Place::group(self.groups.add(workers, 0)))
    }

    #[inline]
    fn next_level(&self, worker: WorkerId) -> Result<(), SubmitError> {
        match self.workers.get(worker) {
            Some(found) if found.kind == WorkerKind::NextLevel => Ok(()),
            _ => Err(SubmitError::NotNextLevel { worker }),
        }
    }

    #[inline]
    fn live_next_level(&self, worker: WorkerId) -> Result<(), SubmitError> {
        self.next_level(worker)?;
        if self.workers.live().contains(worker) {
            return Ok(());
        }
        Err(SubmitError::WorkerLost { worker })
    }

    pub(super) fn check_subs(&self, wanted: u32) -> Result<(), SubmitError> {
        let live = self.workers.live_subs().len();
        match wanted {
            0 => Err(SubmitError::NoTargets),
            _ if wanted > live => Err(SubmitError::TooFewSubWorkers { wanted, live }),
            _ => Ok(()),
        }
    }
}

/// Makes one task follow another, and notes it when the run is recorded.
#[inline]
pub(super) fn follow(arena: &mut Arena, run: &mut Run, later: u32, earlier: u32, why: Why) {
    arena.connect(earlier, later, why);
    if let Some(recording) = &mut run.recording {
        recording.add_edge(arena.id(earlier), arena.id(later), why);
    }
}
