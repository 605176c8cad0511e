//! The orchestrator: what an orchestration function is given to submit tasks with.
//!
//! A submit checks everything that can be checked now (handle, target, arguments, device pointers, sizes), and either
//! adds the task or returns an error and adds nothing. Tasks start as soon as they are ready, while the orchestration
//! still submits others.

mod scopes;

use std::sync::Arc;

use smallvec::SmallVec;
use taskgraph::{Access, Placement, RunId, TaskArgs, TaskId, TaskSpec, WorkerId};

use crate::args::{ArgList, Args, Backing};
use crate::buffer::Use;
use crate::callable::{
    Callee, ChipHandle, FunctionHandle, NextLevel, OrchestrationHandle, Registry,
};
use crate::desk::Desk;
use crate::domain::DomainCore;
use crate::element::Element;
use crate::engine::{DeviceUse, Engine, Hold, LineKind, NewTask};
use crate::error::{BufferError, Error, SubmitError, TaskCause, WorkerDied};
use crate::tree_plan::Plan;
use crate::wire;

/// Where a next-level task runs.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Target {
    /// On exactly this next-level worker.
    On(u32),
    /// On whichever suitable next-level worker is idle first; device arguments decide where they are.
    Any,
}

/// The next-level worker with this index: chips first, in the order of their devices, then the workers that were added.
#[must_use]
pub const fn on(index: u32) -> Target {
    Target::On(index)
}

/// Any suitable next-level worker.
#[must_use]
pub const fn any() -> Target {
    Target::Any
}

/// A submitted task, for explicit order: see [`ArgList::after`].
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct TaskHandle(pub(crate) TaskId);

/// Submits the tasks of one run.
#[derive(Debug)]
pub struct Orchestrator<'e> {
    engine: &'e Engine,
    plan: &'e Plan,
    /// The callables as they were when the run began.
    registry: Arc<Registry>,
    run: RunId,
}

impl<'e> Orchestrator<'e> {
    pub(crate) fn new(engine: &'e Engine, plan: &'e Plan, run: RunId) -> Self {
        Self {
            engine,
            plan,
            registry: plan.registry(),
            run,
        }
    }

    /// The number of next-level workers; [`on`] takes an index below it.
    #[must_use]
    pub fn next_level_workers(&self) -> u32 {
        self.plan.n_next_level()
    }

    /// The chip callable of this name.
    ///
    /// # Errors
    ///
    /// [`Error::Callable`] when none was registered.
    pub fn chip(&self, name: &str) -> Result<ChipHandle, Error> {
        Ok(self.registry.named(name, "chip callable")?)
    }

    /// The host function of this name.
    ///
    /// # Errors
    ///
    /// [`Error::Callable`] when none was registered.
    pub fn function(&self, name: &str) -> Result<FunctionHandle, Error> {
        Ok(self.registry.named(name, "function")?)
    }

    /// The orchestration of this name.
    ///
    /// # Errors
    ///
    /// [`Error::Callable`] when none was registered.
    pub fn orchestration(&self, name: &str) -> Result<OrchestrationHandle, Error> {
        Ok(self.registry.named(name, "orchestration")?)
    }

    /// Submits a task for a next-level worker: a chip callable for a chip worker, an orchestration for a worker that has
    /// children of its own.
    ///
    /// # Errors
    ///
    /// [`Error::Submit`], [`Error::Callable`] or [`Error::Buffer`]; nothing was submitted then.
    pub fn submit_next_level(
        &mut self,
        callable: &impl NextLevel,
        args: ArgList,
        target: Target,
    ) -> Result<TaskHandle, Error> {
        let callee = callable.target();
        let suited = self.suited(&callee, target)?;
        let (task_args, backings) = args.checked()?;
        let suited = self.settle_on_device(&callee, backings, &suited)?;
        let placement = match *suited.as_slice() {
            [worker] => Placement::On(worker),
            _ => Placement::AnyOf(&suited),
        };
        let spec = TaskSpec::new(placement).args(task_args).after(args.order());
        self.submit(&callee, spec, &[(task_args, backings)], &suited)
    }

    /// Submits one task that runs on several next-level workers at once, and completes once all have. Member `i` gets
    /// the `i`-th arguments and runs on the `i`-th target.
    ///
    /// # Errors
    ///
    /// As [`Orchestrator::submit_next_level`]; also when there is no member, two share a worker, or two write the same
    /// bytes.
    pub fn submit_next_level_group(
        &mut self,
        callable: &impl NextLevel,
        members: Vec<(ArgList, Target)>,
    ) -> Result<TaskHandle, Error> {
        let callee = callable.target();
        let workers = self.place_members(&callee, &members)?;
        self.submit_group(
            &callee,
            Placement::Group(&workers),
            members.iter().map(|(args, _)| args),
            &workers,
        )
    }

    /// Submits a task for any sub worker.
    ///
    /// # Errors
    ///
    /// [`Error::Submit`], [`Error::Callable`] or [`Error::Buffer`]; nothing was submitted then.
    pub fn submit_sub(
        &mut self,
        function: &FunctionHandle,
        args: ArgList,
    ) -> Result<TaskHandle, Error> {
        let callee = function.callee("function");
        self.registry.own(function)?;
        self.need_sub_worker(&callee)?;
        let (task_args, backings) = args.checked()?;
        let spec = TaskSpec::new(Placement::Sub)
            .args(task_args)
            .after(args.order());
        self.submit(&callee, spec, &[(task_args, backings)], &[])
    }

    /// Submits one task that runs on as many sub workers at once as there are argument lists, and completes once.
    ///
    /// # Errors
    ///
    /// As [`Orchestrator::submit_sub`]; also when there is no member, or more than sub workers.
    pub fn submit_sub_group(
        &mut self,
        function: &FunctionHandle,
        members: Vec<ArgList>,
    ) -> Result<TaskHandle, Error> {
        let callee = function.callee("function");
        self.registry.own(function)?;
        self.need_sub_worker(&callee)?;
        let n_members = u32::try_from(members.len()).unwrap_or(u32::MAX);
        self.submit_group(&callee, Placement::SubGroup(n_members), members.iter(), &[])
    }

    /// Records `body` once per key and replays it.
    ///
    /// # Errors
    ///
    /// Always [`Error::NotBuilt`]: call the body itself meanwhile, which builds the same tasks each time.
    pub fn graph<K>(
        &mut self,
        _key: K,
        _args: ArgList,
        _body: impl FnOnce(&mut Orchestrator<'_>, &Args) -> Result<(), Error>,
    ) -> Result<TaskHandle, Error> {
        let instead = "call the body itself, which submits the same tasks each time";
        Err(Error::NotBuilt {
            what: "record a graph",
            instead,
        })
    }

    /// Where device memory is asked for.
    pub(crate) fn desk(&self) -> Desk<'_> {
        Desk {
            engine: self.engine,
            plan: self.plan,
        }
    }

    /// The run gives the domain back when it ends.
    pub(crate) fn own(&self, domain: &Arc<DomainCore>) {
        self.engine.core().own_domain(self.run, domain);
    }

    /// The next-level workers that a target names and that execute this kind of callable.
    fn suited(
        &self,
        callee: &Callee<'_>,
        target: Target,
    ) -> Result<SmallVec<[WorkerId; 8]>, Error> {
        self.registry.own_callee(callee)?;
        let wanted = if callee.kind == "chip callable" {
            LineKind::Chip
        } else {
            LineKind::Node
        };
        match target {
            Target::On(index) => {
                let kind =
                    self.plan
                        .next_level(index)
                        .ok_or_else(|| SubmitError::NoSuchWorker {
                            callable: Arc::clone(callee.name),
                            worker: self.engine.path().to_string(),
                            index,
                            found: self.plan.n_next_level(),
                        })?;
                if kind != wanted {
                    return Err(self.wrong_kind(callee, index, kind).into());
                }
                Ok(SmallVec::from_slice(&[WorkerId(index)]))
            }
            Target::Any => {
                let core = self.engine.core();
                let all = (0..self.plan.n_next_level()).map(WorkerId);
                let suited: SmallVec<_> = all
                    .filter(|id| {
                        self.plan.next_level(id.0) == Some(wanted) && core.loss(*id).is_none()
                    })
                    .collect();
                if suited.is_empty() {
                    let noun = if wanted == LineKind::Chip {
                        "chip worker"
                    } else {
                        "worker below"
                    };
                    return Err(self.no_worker(callee, noun).into());
                }
                Ok(suited)
            }
        }
    }

    /// A worker for each member: first those that can be in one place only, then the others on what is left.
    fn place_members(
        &self,
        callee: &Callee<'_>,
        members: &[(ArgList, Target)],
    ) -> Result<SmallVec<[WorkerId; 8]>, Error> {
        let mut choices = Vec::with_capacity(members.len());
        for (args, target) in members {
            let suited = self.suited(callee, *target)?;
            choices.push(self.settle_on_device(callee, args.checked()?.1, &suited)?);
        }
        let mut taken: SmallVec<[WorkerId; 8]> = choices
            .iter()
            .filter(|choice| choice.len() == 1)
            .map(|choice| choice[0])
            .collect();
        let mut workers = SmallVec::new();
        for choice in &choices {
            let free = choice
                .iter()
                .copied()
                .find(|worker| !taken.contains(worker));
            let worker = if choice.len() == 1 {
                Some(choice[0])
            } else {
                free
            };
            let callable = || Arc::clone(callee.name);
            let reason = "it has more members than workers that could run one each";
            let worker = worker.ok_or_else(|| SubmitError::Group {
                callable: callable(),
                reason,
            })?;
            taken.push(worker);
            workers.push(worker);
        }
        Ok(workers)
    }

    /// Device arguments decide where a task runs; without any the candidates stay.
    fn settle_on_device(
        &self,
        callee: &Callee<'_>,
        backings: &[Backing],
        candidates: &[WorkerId],
    ) -> Result<SmallVec<[WorkerId; 8]>, Error> {
        let spans: SmallVec<[provenance::Span; 3]> =
            backings.iter().filter_map(Backing::span).collect();
        if spans.is_empty() {
            return Ok(SmallVec::from_slice(candidates));
        }
        let ids: Vec<u32> = candidates.iter().map(|worker| worker.0).collect();
        let wanted = match *ids.as_slice() {
            [one] => provenance::Wanted::On(one),
            _ => provenance::Wanted::Any(&ids),
        };
        let settled = self.plan.table().resolve_target(&spans, wanted);
        let settled = settled.map_err(|error| SubmitError::Device {
            callable: Arc::clone(callee.name),
            reason: crate::control::chain(&error),
        })?;
        Ok(SmallVec::from_slice(&[WorkerId(settled)]))
    }

    fn submit_group<'a>(
        &self,
        callee: &Callee<'_>,
        placement: Placement<'_>,
        members: impl Iterator<Item = &'a ArgList>,
        workers: &[WorkerId],
    ) -> Result<TaskHandle, Error> {
        let mut all = TaskArgs::new();
        let mut parts: SmallVec<[(&TaskArgs, &[Backing]); 4]> = SmallVec::new();
        let mut order: SmallVec<[TaskId; 2]> = SmallVec::new();
        for member in members {
            let (task_args, backings) = member.checked()?;
            for arg in task_args.tensors() {
                all.tensor(arg.tensor, arg.tag).map_err(SubmitError::Args)?;
            }
            order.extend_from_slice(member.order());
            parts.push((task_args, backings));
        }
        if parts.is_empty() {
            let callable = Arc::clone(callee.name);
            return Err(SubmitError::Group {
                callable,
                reason: "it has no members",
            }
            .into());
        }
        let spec = TaskSpec::new(placement).args(&all).after(&order);
        self.submit(callee, spec, &parts, workers)
    }

    /// The common end of all submits: payloads, holds, the graph. Member `i` runs on `workers[i]`, where that is known:
    /// it is wherever there is device memory.
    fn submit(
        &self,
        callee: &Callee<'_>,
        spec: TaskSpec<'_>,
        members: &[(&TaskArgs, &[Backing])],
        workers: &[WorkerId],
    ) -> Result<TaskHandle, Error> {
        let mut payloads = SmallVec::new();
        let mut holds = SmallVec::new();
        for (member, (args, backings)) in members.iter().enumerate() {
            let payload = wire::encode(callee.digest, args, |at| backings[at].id());
            if payload.len() > self.plan.payload_max() {
                let (bytes, limit) = (payload.len(), self.plan.payload_max());
                return Err(SubmitError::TooLarge {
                    callable: Arc::clone(callee.name),
                    bytes,
                    limit,
                }
                .into());
            }
            payloads.push(payload);
            self.hold(callee, args, backings, workers.get(member), &mut holds)?;
        }
        let mut task = NewTask {
            spec,
            callable: Arc::clone(callee.name),
            payloads,
            holds,
        };
        let is_full = |error: &taskgraph::SubmitError| {
            matches!(error, taskgraph::SubmitError::SlotsFull { .. })
        };
        let submitted = self
            .engine
            .attempt(is_full, |core| core.submit(self.run, &mut task));
        let id = submitted.map_err(|source| self.refused(callee, source))?;
        Ok(TaskHandle(id))
    }

    /// Counts the task in at everything it names.
    fn hold(
        &self,
        callee: &Callee<'_>,
        args: &TaskArgs,
        backings: &[Backing],
        worker: Option<&WorkerId>,
        holds: &mut SmallVec<[Hold; 3]>,
    ) -> Result<(), Error> {
        let mut spans: SmallVec<[provenance::Span; 3]> = SmallVec::new();
        let mut uses: SmallVec<[DeviceUse; 3]> = SmallVec::new();
        for (access, backing) in args.accesses().iter().zip(backings) {
            match backing {
                Backing::Shared(core) => holds.push(Hold::buffer(core, use_of(access))?),
                Backing::Device(span) => {
                    spans.push(*span);
                    uses.push(DeviceUse {
                        buffer: access.buffer,
                        bytes: access.view.lo()..access.view.hi(),
                        how: use_of(access),
                    });
                }
            }
        }
        if spans.is_empty() {
            return Ok(());
        }
        if callee.kind != "chip callable" {
            return Err(SubmitError::DeviceArgument {
                callable: Arc::clone(callee.name),
            }
            .into());
        }
        let held = self.hold_on_device(&spans, worker);
        let held = held.map_err(|error| SubmitError::Device {
            callable: Arc::clone(callee.name),
            reason: error.to_string(),
        })?;
        holds.push(Hold::Device(held, uses));
        Ok(())
    }

    /// Keeps device memory alive, in the form in which the worker sees it.
    fn hold_on_device(
        &self,
        spans: &[provenance::Span],
        worker: Option<&WorkerId>,
    ) -> Result<provenance::Hold, provenance::Refused> {
        let argument = provenance::Operation::Argument;
        let ask = worker.map_or(provenance::Ask::owner(argument), |worker| {
            provenance::Ask::on(argument, worker.0)
        });
        let table = self.plan.table();
        let seen = spans.iter().map(|&span| table.seen_from(ask, span));
        let seen: SmallVec<[provenance::Span; 3]> = seen.collect::<Result<_, _>>()?;
        table.hold(ask, &seen)
    }

    fn need_sub_worker(&self, callee: &Callee<'_>) -> Result<(), SubmitError> {
        if self.plan.n_sub_workers() == 0 {
            return Err(self.no_worker(callee, "sub worker"));
        }
        Ok(())
    }

    fn no_worker(&self, callee: &Callee<'_>, wanted: &'static str) -> SubmitError {
        let worker = self.engine.path().to_string();
        SubmitError::NoWorker {
            callable: Arc::clone(callee.name),
            worker,
            wanted,
        }
    }

    fn wrong_kind(&self, callee: &Callee<'_>, index: u32, kind: LineKind) -> SubmitError {
        let wanted = match kind {
            LineKind::Chip => "that is a chip worker, which runs chip callables",
            LineKind::Node => {
                "that is a worker with children of its own, which runs orchestrations"
            }
            LineKind::Sub => "that is a sub worker, which runs functions",
        };
        let target = self.plan.path_of(index);
        SubmitError::WrongKind {
            kind: callee.kind,
            callable: Arc::clone(callee.name),
            target,
            wanted,
        }
    }

    /// Names the dead worker, where that is why the graph refused.
    fn refused(&self, callee: &Callee<'_>, source: taskgraph::SubmitError) -> SubmitError {
        let callable = Arc::clone(callee.name);
        if let taskgraph::SubmitError::WorkerLost { worker } = source
            && let Some(TaskCause::WorkerDied(died)) = self.engine.core().loss(worker)
        {
            return SubmitError::WorkerDied {
                callable,
                died: WorkerDied::clone(died),
            };
        }
        if let taskgraph::SubmitError::TooFewSubWorkers { .. } = source
            && let Some(died) = self.engine.core().first_death(self.plan.n_next_level())
        {
            return SubmitError::WorkerDied { callable, died };
        }
        match source {
            taskgraph::SubmitError::RunClosed { .. } => SubmitError::Cancelled { callable },
            source => SubmitError::Graph { callable, source },
        }
    }
}

fn use_of(access: &Access) -> Use {
    // What the graph is not told of may be a write.
    if access.tag.writes() || access.tag == taskgraph::Tag::NoDep {
        Use::Write
    } else {
        Use::Read
    }
}

/// The size of `n_elements` of `T`, when a buffer can have it.
pub(crate) fn byte_size<T: Element>(n_elements: usize) -> Result<usize, BufferError> {
    let bytes = n_elements.checked_mul(size_of::<T>());
    bytes
        .filter(|&bytes| bytes > 0 && isize::try_from(bytes).is_ok())
        .ok_or(BufferError::Size {
            n_elements,
            element_bytes: size_of::<T>(),
        })
}
