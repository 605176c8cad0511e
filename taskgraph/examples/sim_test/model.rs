//! What must be true of a scheduler, told from the outside and by brute force.
//!
//! The model knows of every task the exact bytes that it reads and writes, and nothing of how the
//! scheduler works. `docs/design/scheduling.md` numbers the invariants; so do the checks here.

use std::collections::HashMap;

use taskgraph::{Depth, Dispatch, Effect, Failure, RunId, TaskEnd, TaskId, WorkerId, WorkerKind};

use crate::scenario::BUFFERS;

/// A task as it was submitted.
#[derive(Debug)]
pub(crate) struct Submitted {
    pub(crate) id: TaskId,
    pub(crate) run: RunId,
    /// Workers in member order for a group; the set for anything else.
    pub(crate) targets: Vec<WorkerId>,
    pub(crate) n_members: usize,
    pub(crate) kind: Kind,
    /// The bytes of each buffer, a bit each; none for a manual task.
    pub(crate) reads: [u64; BUFFERS],
    pub(crate) writes: [u64; BUFFERS],
    pub(crate) after: Vec<usize>,
}

/// A task, and what became of it.
#[derive(Debug)]
pub(crate) struct ModelTask {
    new: Submitted,
    /// Tasks whose data it needs and whose run was not over when it was submitted.
    sources: Vec<usize>,
    /// Tasks before this one whose run was over then: their failure is history.
    forgotten: Vec<bool>,
    n_dispatched: usize,
    /// A worker was lost while the members were handed out: one of them never will be.
    is_maimed: bool,
    end: Option<TaskEnd>,
}

/// What a placement asks for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Kind {
    Single,
    Group,
    SubGroup,
}

#[derive(Debug)]
struct ModelWorker {
    kind: WorkerKind,
    depth: Depth,
    is_live: bool,
    in_flight: Vec<Dispatch>,
}

/// Everything that was told, and the rules.
#[derive(Debug, Default)]
pub(crate) struct Model {
    pub(crate) tasks: Vec<ModelTask>,
    by_id: HashMap<TaskId, usize>,
    workers: Vec<ModelWorker>,
    runs: Vec<(RunId, bool)>,
    /// The group that was begun and not yet sent whole.
    begun: Option<usize>,
    /// When a group was first seen to be ready, in quiet moments.
    ready_since: HashMap<usize, usize>,
    n_quiet: usize,
    /// Groups that are first in line, and how many single tasks each of their workers got meanwhile.
    overtaken: HashMap<usize, HashMap<WorkerId, usize>>,
    /// Tasks that were skipped although the bytes they read came from elsewhere.
    pub(crate) n_needless_skips: usize,
}

/// A rule that does not hold.
pub(crate) type Broken = String;

macro_rules! ensure {
    ($holds:expr, $($text:tt)+) => {
        if !$holds {
            return Err(format!($($text)+));
        }
    };
}

#[path = "rules.rs"]
mod rules;

impl std::ops::Deref for ModelTask {
    type Target = Submitted;

    fn deref(&self) -> &Submitted {
        &self.new
    }
}

impl ModelTask {
    fn ended_badly(&self) -> bool {
        self.end.is_some_and(|end| end != TaskEnd::Completed)
    }

    fn conflicts(&self, other: &ModelTask) -> bool {
        (0..BUFFERS).any(|b| {
            let any = other.reads[b] | other.writes[b];
            self.writes[b] & any != 0 || self.reads[b] & other.writes[b] != 0
        })
    }

    fn reads_from(&self, other: &ModelTask) -> bool {
        (0..BUFFERS).any(|b| self.reads[b] & other.writes[b] != 0)
    }
}

impl Model {
    pub(crate) fn add_worker(&mut self, kind: WorkerKind, depth: Depth) {
        let in_flight = Vec::new();
        self.workers.push(ModelWorker {
            kind,
            depth,
            is_live: true,
            in_flight,
        });
    }

    pub(crate) fn begin(&mut self, run: RunId) {
        self.runs.push((run, false));
    }

    pub(crate) fn live_workers(&self, kind: WorkerKind) -> Vec<WorkerId> {
        let all = (0..).map(WorkerId).zip(&self.workers);
        let live = all.filter(|(_, worker)| worker.is_live && worker.kind == kind);
        live.map(|(id, _)| id).collect()
    }

    pub(crate) fn n_workers(&self) -> usize {
        self.workers.len()
    }

    pub(crate) fn is_live(&self, worker: WorkerId) -> bool {
        self.workers[worker.0 as usize].is_live
    }

    /// A task was accepted by the scheduler.
    pub(crate) fn submitted(&mut self, new: Submitted) -> Result<(), Broken> {
        let forgotten: Vec<_> = self
            .tasks
            .iter()
            .map(|task| self.is_over(task.run))
            .collect();
        let mut sources = new.after.clone();
        for (buffer, bytes) in new.reads.into_iter().enumerate() {
            for byte in (0..64).filter(|byte| bytes & (1 << byte) != 0) {
                let wrote = |task: &ModelTask| task.writes[buffer] & (1 << byte) != 0;
                sources.extend(self.tasks.iter().rposition(wrote));
            }
        }
        sources.retain(|&source| !forgotten[source]);
        let is_new = self.by_id.insert(new.id, self.tasks.len()).is_none();
        ensure!(is_new, "I9: {} was given out twice", new.id);
        let (n_dispatched, is_maimed, end) = (0, false, None);
        self.tasks.push(ModelTask {
            new,
            sources,
            forgotten,
            n_dispatched,
            is_maimed,
            end,
        });
        Ok(())
    }

    pub(crate) fn lost(&mut self, worker: WorkerId) {
        let worker = &mut self.workers[worker.0 as usize];
        worker.is_live = false;
        worker.in_flight.clear();
        if let Some(group) = self.begun.take() {
            self.tasks[group].is_maimed = true;
        }
    }

    pub(crate) fn back(&mut self, worker: WorkerId) {
        self.workers[worker.0 as usize].is_live = true;
    }

    pub(crate) fn answered(&mut self, dispatch: &Dispatch) {
        let worker = &mut self.workers[dispatch.worker.0 as usize];
        worker
            .in_flight
            .retain(|other| other.dispatch != dispatch.dispatch);
    }

    /// Dispatches that may end next: the first one on each worker.
    pub(crate) fn fronts(&self) -> Vec<Dispatch> {
        self.workers
            .iter()
            .filter_map(|worker| worker.in_flight.first().copied())
            .collect()
    }

    pub(crate) fn has_ended(&self, id: TaskId) -> bool {
        self.by_id
            .get(&id)
            .is_some_and(|&index| self.tasks[index].end.is_some())
    }

    fn is_over(&self, run: RunId) -> bool {
        self.runs
            .iter()
            .any(|&(other, is_over)| other == run && is_over)
    }

    fn unended(&self) -> impl Iterator<Item = (usize, &ModelTask)> {
        self.tasks
            .iter()
            .enumerate()
            .filter(|(_, task)| task.end.is_none())
    }

    /// The earlier tasks that must have ended before this one starts.
    fn before(&self, index: usize) -> impl Iterator<Item = &ModelTask> {
        let task = &self.tasks[index];
        let earlier = self.tasks[..index].iter().enumerate();
        let must =
            move |(i, other): &(usize, &ModelTask)| task.after.contains(i) || task.conflicts(other);
        earlier.filter(must).map(|(_, other)| other)
    }

    /// The scheduler decided to send a task.
    pub(crate) fn dispatched(&mut self, dispatch: &Dispatch) -> Result<(), Broken> {
        let Dispatch {
            task: id,
            worker,
            member,
            run,
            ..
        } = *dispatch;
        let index = *self
            .by_id
            .get(&id)
            .ok_or(format!("I1: {id} was never submitted"))?;
        let task = &self.tasks[index];
        ensure!(task.run == run, "I1: {id} is of {}, not {run}", task.run);
        ensure!(task.end.is_none(), "I1: {id} was sent after it had ended");
        let in_turn = member as usize == task.n_dispatched || task.is_maimed;
        ensure!(in_turn, "I1: member {member} of {id} out of turn");
        ensure!(
            task.n_dispatched < task.n_members,
            "I1: {id} was sent too often"
        );
        if let Some(first) = self.before(index).find(|other| other.end.is_none()) {
            return Err(format!(
                "I2: {id} was sent while {} had not ended",
                first.id
            ));
        }
        if let Some(source) = task
            .sources
            .iter()
            .find(|&&source| self.tasks[source].ended_badly())
        {
            return Err(format!(
                "I4: {id} was sent, its source {} is bad",
                self.tasks[*source].id
            ));
        }
        let earlier = self.runs.iter().take_while(|(other, _)| *other != run);
        for (other, is_over) in earlier {
            ensure!(
                *is_over,
                "I5: {id} of {run} was sent before {other} was over"
            );
        }
        self.check_place(index, dispatch)?;
        self.count_overtaking(index, worker)?;
        self.workers[worker.0 as usize].in_flight.push(*dispatch);
        self.tasks[index].n_dispatched += 1;
        Ok(())
    }

    fn check_place(&mut self, index: usize, dispatch: &Dispatch) -> Result<(), Broken> {
        let (task, id) = (&self.tasks[index], dispatch.worker);
        let worker = &self.workers[id.0 as usize];
        ensure!(
            worker.is_live,
            "I6: {} was sent to {id}, which is lost",
            task.id
        );
        let n_in_flight = worker.in_flight.len();
        let frames = if worker.depth == Depth::One { 1 } else { 2 };
        ensure!(
            n_in_flight < frames,
            "I6: {id} has {n_in_flight} in flight already"
        );
        ensure!(
            dispatch.staged == (n_in_flight > 0),
            "I6: staged is wrong for {}",
            task.id
        );
        ensure!(
            task.targets.contains(&id),
            "I6: {} does not run on {id}",
            task.id
        );
        let live = task
            .targets
            .iter()
            .filter(|target| self.is_live(**target))
            .count();
        let may_stage = task.kind == Kind::Single && live == 1;
        ensure!(
            n_in_flight == 0 || may_stage,
            "I6: {} must not be staged on {id}",
            task.id
        );
        let is_next = self.begun.is_none_or(|begun| begun == index);
        ensure!(
            is_next,
            "I7: {} came between the members of a group",
            task.id
        );
        let is_whole = dispatch.member as usize + 1 == task.n_members;
        self.begun = (!is_whole && !task.is_maimed).then_some(index);
        if task.kind == Kind::Group {
            let expected = task.targets[dispatch.member as usize];
            ensure!(
                expected == id,
                "I7: member {} belongs on {expected}",
                dispatch.member
            );
        }
        Ok(())
    }

    /// A group that is first in line at all its workers lets one older task pass on each of them.
    fn count_overtaking(&mut self, index: usize, worker: WorkerId) -> Result<(), Broken> {
        let (task, waiting) = (&self.tasks[index], &mut self.overtaken);
        waiting.remove(&index);
        for (group, counts) in waiting.iter_mut() {
            let group = &self.tasks[*group];
            if task.kind != Kind::Single || !group.targets.contains(&worker) {
                continue;
            }
            let count = counts.entry(worker).or_default();
            *count += 1;
            ensure!(
                *count <= 1,
                "I8: {} was overtaken {count} times on {worker}",
                group.id
            );
        }
        Ok(())
    }

    /// The scheduler told of something.
    pub(crate) fn effect(&mut self, effect: &Effect) -> Result<(), Broken> {
        match *effect {
            Effect::TaskFinished { run, task, end } => self.finished(run, task, end),
            Effect::RunFinished { run } => self.run_finished(run),
            Effect::GroupStalled { group, .. } => {
                let known = self.by_id.contains_key(&group);
                ensure!(known, "I8: the stalled group {group} is unknown");
                Ok(())
            }
            _ => Ok(()),
        }
    }

    fn finished(&mut self, run: RunId, id: TaskId, end: TaskEnd) -> Result<(), Broken> {
        let index = *self
            .by_id
            .get(&id)
            .ok_or(format!("I3: {id} ended and never was"))?;
        let task = &self.tasks[index];
        ensure!(task.run == run, "I3: {id} is of {}, not {run}", task.run);
        ensure!(task.end.is_none(), "I3: {id} ended twice");
        let has_run = task.n_dispatched == task.n_members || task.is_maimed;
        let should_have = matches!(end, TaskEnd::Completed)
            || matches!(
                end,
                TaskEnd::Failed(Failure::Reported { .. } | Failure::WorkerLost { .. })
            );
        ensure!(
            has_run == should_have,
            "I3: {id} ended with {end:?}, sent: {has_run}"
        );
        if let Some(first) = self.before(index).find(|other| other.end.is_none()) {
            return Err(format!(
                "I3: {id} ended before {}, which it follows",
                first.id
            ));
        }
        let bad_source = task
            .sources
            .iter()
            .any(|&source| self.tasks[source].ended_badly());
        match end {
            TaskEnd::Skipped { cause } => {
                self.check_cause(index, cause)?;
                self.n_needless_skips += usize::from(!bad_source);
            }
            TaskEnd::Cancelled => {}
            _ => ensure!(
                !bad_source,
                "I4: {id} ended with {end:?}, its source is bad"
            ),
        }
        if let TaskEnd::Failed(Failure::NoWorker { lost }) = end {
            let task = &self.tasks[index];
            ensure!(
                lost.is_some_and(|lost| !self.is_live(lost)),
                "I4: {id} has no worker, and {lost:?} is said to be lost"
            );
            let n_live = task
                .targets
                .iter()
                .filter(|target| self.is_live(**target))
                .count();
            let needed = if task.kind == Kind::Single {
                1
            } else {
                task.n_members
            };
            ensure!(
                n_live < needed,
                "I6: {id} found no worker, {n_live} are alive"
            );
        }
        self.tasks[index].end = Some(end);
        self.overtaken.remove(&index);
        Ok(())
    }

    fn check_cause(&self, index: usize, cause: TaskId) -> Result<(), Broken> {
        let task = &self.tasks[index];
        let is_root = |(i, other): (usize, &ModelTask)| {
            let feeds = task.after.contains(&i) || task.reads_from(other);
            let root = match other.end {
                Some(TaskEnd::Skipped { cause: root }) => root == cause,
                // A cancelled task may have been pointless before it was cancelled.
                Some(TaskEnd::Cancelled) => true,
                Some(TaskEnd::Failed(_)) => other.id == cause,
                Some(TaskEnd::Completed) | None => false,
            };
            feeds && root && !task.forgotten[i]
        };
        let found = self.tasks[..index].iter().enumerate().any(is_root);
        ensure!(
            found,
            "I4: {} was skipped because of {cause}, which is no source",
            task.id
        );
        Ok(())
    }

    fn run_finished(&mut self, run: RunId) -> Result<(), Broken> {
        let left = self.unended().find(|(_, task)| task.run == run);
        ensure!(
            left.is_none(),
            "I5: {run} is over, {:?} is not",
            left.map(|(_, task)| task.id)
        );
        let found = self.runs.iter_mut().find(|(other, _)| *other == run);
        let (_, is_over) = found.ok_or(format!("I5: {run} never began"))?;
        ensure!(!*is_over, "I5: {run} ended twice");
        *is_over = true;
        Ok(())
    }
}
