//! Plays a scenario on a scheduler, with the model beside it.

use std::panic::{AssertUnwindSafe, catch_unwind};

use taskgraph::{
    BufferId, BufferKind, DType, Dispatch, Limits, Outcome, Placement, RunId, RunStatus, Scheduler,
    SubmitError, TaskArgs, TaskId, TaskSpec, Tensor, WorkerId, WorkerKind,
};

use crate::model::{Broken, Kind, Model, Submitted};
use crate::scenario::{BUFFERS, Cut, Event, Place, SIDE, Scenario, Task, shrink};

/// What a seed led to.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Tally {
    pub(crate) tasks: usize,
    pub(crate) dispatches: usize,
    pub(crate) refused: usize,
    pub(crate) needless_skips: usize,
}

impl Tally {
    pub(crate) fn add(&mut self, other: &Tally) {
        self.tasks += other.tasks;
        self.dispatches += other.dispatches;
        self.refused += other.refused;
        self.needless_skips += other.needless_skips;
    }
}

/// A seed that breaks a rule.
#[derive(Debug)]
pub(crate) struct Failure {
    pub(crate) seed: u64,
    pub(crate) broken: Broken,
    pub(crate) shrunk: Scenario,
}

impl std::fmt::Display for Failure {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        writeln!(f, "seed {} breaks a rule: {}", self.seed, self.broken)?;
        writeln!(f, "workers: {:?}", self.shrunk.workers)?;
        writeln!(
            f,
            "at most {} tasks; shrunk to {} events:",
            self.shrunk.tasks_max,
            self.shrunk.events.len()
        )?;
        self.shrunk
            .events
            .iter()
            .try_for_each(|event| writeln!(f, "  {event:?}"))
    }
}

/// Runs the scenario of a seed; a failing one comes back shrunk.
pub(crate) fn check_seed(seed: u64) -> Result<Tally, Box<Failure>> {
    let scenario = Scenario::of(seed);
    play(&scenario).map_err(|_| {
        let shrunk = shrink(&scenario, |candidate| play(candidate).is_err());
        let broken = play(&shrunk).expect_err("a shrunk scenario still fails");
        Box::new(Failure {
            seed,
            broken,
            shrunk,
        })
    })
}

/// Runs a scenario; a panic of the scheduler counts as a broken rule.
fn play(scenario: &Scenario) -> Result<Tally, Broken> {
    let played = catch_unwind(AssertUnwindSafe(|| World::new(scenario).play(scenario)));
    played.unwrap_or_else(|payload| {
        let text = payload.downcast_ref::<String>().map(String::as_str);
        let text = text.or(payload.downcast_ref::<&str>().copied());
        Err(format!("panic: {}", text.unwrap_or("without a text")))
    })
}

struct World {
    scheduler: Scheduler,
    model: Model,
    runs: Vec<RunId>,
    n_next: u64,
    tally: Tally,
}

impl World {
    fn new(scenario: &Scenario) -> World {
        let limits = Limits::default().tasks_max(scenario.tasks_max);
        let (mut scheduler, mut model) = (Scheduler::new(limits), Model::default());
        for &(kind, depth) in &scenario.workers {
            scheduler.add_worker(kind, depth).expect("few workers");
            model.add_worker(kind, depth);
        }
        let is_next = |(kind, _): &&(WorkerKind, _)| *kind == WorkerKind::NextLevel;
        let n_next = scenario.workers.iter().filter(is_next).count() as u64;
        World {
            scheduler,
            model,
            runs: Vec::new(),
            n_next,
            tally: Tally::default(),
        }
    }

    fn play(mut self, scenario: &Scenario) -> Result<Tally, Broken> {
        for event in &scenario.events {
            self.event(event, scenario)?;
            self.effects()?;
            if !scenario.is_lazy {
                self.decide()?;
            }
        }
        for run in std::mem::take(&mut self.runs) {
            // Cancelled runs may be over; sealing those is refused.
            let _ = self.scheduler.seal(run);
        }
        self.decide()?;
        while let Some(dispatch) = self.model.fronts().first().copied() {
            self.finish(dispatch, Outcome::Ok)?;
            self.decide()?;
        }
        self.model.check_end(&self.scheduler)?;
        self.tally.needless_skips = self.model.n_needless_skips;
        Ok(self.tally)
    }

    /// Takes what the scheduler has to say until it has nothing more, and looks at what is then.
    fn decide(&mut self) -> Result<(), Broken> {
        while self.take_decisions(u64::MAX)? {}
        self.model.check_quiet(&self.scheduler)?;
        for &run in &self.runs {
            if let Some(status) = self.scheduler.run_status(run) {
                self.model.check_outcome(run, status)?;
            }
        }
        Ok(())
    }

    /// Takes at most `n` decisions; says whether there may be more.
    fn take_decisions(&mut self, n: u64) -> Result<bool, Broken> {
        self.effects()?;
        for _ in 0..n {
            let Some(dispatch) = self.scheduler.next_dispatch() else {
                return Ok(false);
            };
            self.tally.dispatches += 1;
            self.model.dispatched(&dispatch)?;
            self.effects()?;
        }
        Ok(true)
    }

    fn effects(&mut self) -> Result<(), Broken> {
        while let Some(effect) = self.scheduler.next_effect() {
            self.model.effect(&effect)?;
        }
        Ok(())
    }

    fn event(&mut self, event: &Event, scenario: &Scenario) -> Result<(), Broken> {
        match event {
            Event::Begin => drop(self.begin()),
            Event::Decide(n) => {
                let _more = self.take_decisions(*n)?;
            }
            Event::Submit(task) => self.submit(task)?,
            Event::Seal(pick) => drop(self.run(*pick).map(|run| self.scheduler.seal(run))),
            Event::Cancel(pick) => drop(self.run(*pick).map(|run| self.scheduler.cancel(run))),
            Event::Release(pick) => self.release(*pick),
            Event::Accept(pick) => {
                if let Some(dispatch) = pick_of(&self.model.fronts(), *pick) {
                    self.scheduler
                        .accepted(dispatch.dispatch)
                        .map_err(|e| e.to_string())?;
                }
            }
            Event::Finish(pick, outcome) => {
                if let Some(dispatch) = self.next_to_end(*pick, &scenario.speeds) {
                    self.finish(dispatch, *outcome)?;
                }
            }
            Event::Lose(pick) => {
                let worker = WorkerId((pick % scenario.workers.len() as u64) as u32);
                self.scheduler
                    .worker_lost(worker)
                    .map_err(|e| e.to_string())?;
                self.model.lost(worker);
            }
            Event::Back(pick) => {
                let worker = WorkerId((pick % scenario.workers.len() as u64) as u32);
                self.scheduler
                    .worker_back(worker)
                    .map_err(|e| e.to_string())?;
                self.model.back(worker);
            }
        }
        Ok(())
    }

    fn run(&self, pick: u64) -> Option<RunId> {
        pick_of(&self.runs, pick)
    }

    /// Mostly the run that is being built, a new one when there is none; now and then any run.
    fn run_for(&mut self, pick: u64) -> RunId {
        let any = self.run(pick / 16).filter(|_| pick.is_multiple_of(16));
        let is_building =
            |run: &RunId| self.scheduler.run_status(*run) == Some(RunStatus::Building);
        let building = self.runs.iter().copied().find(is_building);
        any.or(building).unwrap_or_else(|| self.begin())
    }

    fn begin(&mut self) -> RunId {
        let run = self.scheduler.begin_run();
        self.model.begin(run);
        self.runs.push(run);
        run
    }

    /// Lets go of a run that is over; one that is not stays in use here.
    fn release(&mut self, pick: u64) {
        let Some(run) = self.run(pick) else { return };
        if matches!(self.scheduler.run_status(run), Some(RunStatus::Done(_))) {
            self.scheduler.release_run(run).expect("it is there");
            self.runs.retain(|&other| other != run);
        }
    }

    /// The dispatch that ends next: the faster a worker, the more often it is one of its own.
    fn next_to_end(&self, pick: u64, speeds: &[u64]) -> Option<Dispatch> {
        let fronts = self.model.fronts();
        let speed = |dispatch: &Dispatch| speeds[dispatch.worker.0 as usize];
        let mut left = pick.checked_rem(fronts.iter().map(speed).sum())?;
        fronts.into_iter().find(|dispatch| {
            let is_it = left < speed(dispatch);
            left = left.saturating_sub(speed(dispatch));
            is_it
        })
    }

    fn finish(&mut self, dispatch: Dispatch, outcome: Outcome) -> Result<(), Broken> {
        self.model.answered(&dispatch);
        let answer = self.scheduler.completed(dispatch.dispatch, outcome);
        answer.map_err(|error| error.to_string())?;
        let again = self.scheduler.completed(dispatch.dispatch, outcome);
        if again.is_ok() {
            Err("I3: a dispatch was answered twice".to_owned())
        } else {
            Ok(())
        }
    }

    fn submit(&mut self, task: &Task) -> Result<(), Broken> {
        let run = self.run_for(task.run);
        let args = arguments(task);
        let n_tasks = self.model.tasks.len() as u64;
        let after = task.after.iter();
        let after = after
            .filter_map(|pick| pick.checked_rem(n_tasks))
            .map(|index| index as usize);
        let after: Vec<_> = after.collect();
        let (kind, n_members, targets) = self.targets(&task.place);
        match self.submit_to_scheduler(run, task, &args, &targets, &after) {
            Ok(id) => {
                self.tally.tasks += 1;
                let [reads, writes] = bytes_by_use(&args, task.manual);
                let new = Submitted {
                    id,
                    run,
                    targets,
                    n_members,
                    kind,
                    reads,
                    writes,
                    after,
                };
                self.model.submitted(new)
            }
            Err(error) => {
                self.tally.refused += 1;
                self.check_refusal(run, error)
            }
        }
    }

    /// What a placement means, in workers.
    fn targets(&self, place: &Place) -> (Kind, usize, Vec<WorkerId>) {
        let worker = |n: &u64| WorkerId((n % self.n_next) as u32);
        let subs = || {
            (self.n_next as u32..self.model.n_workers() as u32)
                .map(WorkerId)
                .collect()
        };
        match place {
            Place::On(n) => (Kind::Single, 1, vec![worker(n)]),
            Place::AnyOf(list) => (Kind::Single, 1, list.iter().map(worker).collect()),
            Place::Group(list) => (Kind::Group, list.len(), list.iter().map(worker).collect()),
            Place::Sub => (Kind::Single, 1, subs()),
            Place::SubGroup(n) => (Kind::SubGroup, *n as usize, subs()),
        }
    }

    fn submit_to_scheduler(
        &mut self,
        run: RunId,
        task: &Task,
        args: &TaskArgs,
        targets: &[WorkerId],
        after: &[usize],
    ) -> Result<TaskId, SubmitError> {
        let placement = match task.place {
            Place::On(_) => Placement::On(targets[0]),
            Place::AnyOf(_) => Placement::AnyOf(targets),
            Place::Group(_) => Placement::Group(targets),
            Place::Sub => Placement::Sub,
            Place::SubGroup(n) => Placement::SubGroup(n),
        };
        let after: Vec<_> = after
            .iter()
            .map(|&index| self.model.tasks[index].id)
            .collect();
        let spec = TaskSpec::new(placement).args(args).after(&after);
        self.scheduler
            .submit(run, &if task.manual { spec.manual() } else { spec })
    }

    fn check_refusal(&self, run: RunId, error: SubmitError) -> Result<(), Broken> {
        let is_open = self.scheduler.run_status(run) == Some(RunStatus::Building);
        let is_right = match error {
            SubmitError::RunClosed { .. } => !is_open,
            SubmitError::EarlierRunOpen { earlier, .. } => {
                let status = self.scheduler.run_status(earlier);
                is_open && earlier < run && status == Some(RunStatus::Building)
            }
            SubmitError::SlotsFull { tasks_max, oldest } => {
                self.scheduler.n_live_tasks() == tasks_max as usize
                    && self.model.tasks.iter().any(|task| task.id == oldest)
            }
            SubmitError::SlotsHeld { tasks_max, .. } => {
                self.scheduler.n_live_tasks() == tasks_max as usize
                    && self
                        .model
                        .tasks
                        .iter()
                        .all(|task| self.model.has_ended(task.id))
            }
            SubmitError::WorkerLost { worker } => !self.model.is_live(worker),
            SubmitError::TooFewSubWorkers { live, .. } => {
                live as usize == self.model.live_workers(WorkerKind::Sub).len()
            }
            _ => false,
        };
        if is_right {
            Ok(())
        } else {
            Err(format!("I1: a submit was refused: {error}"))
        }
    }
}

fn pick_of<T: Copy>(list: &[T], pick: u64) -> Option<T> {
    Some(list[pick.checked_rem(list.len() as u64)? as usize])
}

/// The arguments of a task; what a task must not be given is left out.
fn arguments(task: &Task) -> TaskArgs {
    let mut args = TaskArgs::new();
    for (buffer, cut, tag) in &task.accesses {
        let _ = args.tensor(tensor(*buffer, cut), *tag);
    }
    args
}

fn tensor(buffer: usize, cut: &Cut) -> Tensor {
    let buffer = BufferId::new(1, buffer as u64, 0, BufferKind::Shared);
    let whole = Tensor::contiguous(buffer, DType::U8, &[SIDE, SIDE], SIDE * SIDE);
    let (rows, columns) = (cut.rows, cut.columns);
    let part = whole
        .and_then(|whole| whole.slice_step(0, rows.0..rows.1, rows.2))
        .and_then(|part| part.slice_step(1, columns.0..columns.1, columns.2));
    let part = part.expect("ranges lie inside");
    if cut.turned {
        part.transpose(0, 1).expect("two dimensions")
    } else {
        part
    }
}

/// The bytes of each buffer that are read, and those that are written.
fn bytes_by_use(args: &TaskArgs, is_manual: bool) -> [[u64; BUFFERS]; 2] {
    let mut all = [[0; BUFFERS]; 2];
    for arg in args.tensors().iter().filter(|_| !is_manual) {
        let buffer = arg.tensor.buffer().id as usize;
        for (bytes_used, is_used) in all.iter_mut().zip([arg.tag.reads(), arg.tag.writes()]) {
            bytes_used[buffer] |= if is_used { bytes(&arg.tensor) } else { 0 };
        }
    }
    all
}

/// Every byte that a tensor of two dimensions touches, a bit each.
fn bytes(tensor: &Tensor) -> u64 {
    let (shape, strides) = (tensor.shape(), tensor.strides());
    let offsets = (0..shape[0]).flat_map(|i| (0..shape[1]).map(move |j| (i, j)));
    offsets.fold(0, |all, (i, j)| {
        all | 1 << (tensor.byte_offset() + i * strides[0] + j * strides[1])
    })
}
