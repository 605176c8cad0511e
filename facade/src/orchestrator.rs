//! The orchestrator: what an orchestration function is given to submit tasks with.
//!
//! A submit checks everything that can be checked now (handle, target, arguments, device pointers, sizes), and either
//! adds the task or returns an error and adds nothing. Tasks start as soon as they are ready, while the orchestration
//! still submits others.

mod outputs;
mod own_run;
mod scopes;
mod submit;

use std::num::NonZeroU32;
use std::sync::Arc;

use smallvec::SmallVec;
use taskgraph::{Access, Placement, RunId, TaskArgs, TaskId, TaskSpec, WorkerId};

use crate::args::{ArgList, Backing};
use crate::callable::{
    CallableKind, Callee, ChipHandle, FunctionHandle, NextLevel, OrchestrationHandle, Registry,
};
use crate::desk::Desk;
use crate::domain::DomainCore;
use crate::element::Element;
use crate::engine::{Engine, LineKind};
use crate::error::{BufferError, Error, SubmitError};
use crate::graph::Recording;
use crate::tree_plan::Plan;

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
pub struct TaskHandle {
    pub(crate) id: TaskId,
    /// The life of the worker that it was submitted to; 0 for a node of a recording.
    pub(crate) worker: u64,
    /// The recording that it is a node of, if it is one.
    pub(crate) recording: Option<NonZeroU32>,
}

/// Submits the tasks of one run.
#[derive(Debug)]
pub struct Orchestrator<'e> {
    pub(crate) engine: &'e Engine,
    plan: &'e Plan,
    /// The callables as they were when the run began.
    pub(crate) registry: Arc<Registry>,
    run: RunId,
    /// Where tasks go that are recorded and not submitted.
    pub(crate) recording: Option<Recording>,
    /// What all tasks come after, because the graph that they are of does.
    order: SmallVec<[TaskHandle; 2]>,
    /// What was submitted so far, inside of the body of a graph.
    pub(crate) tasks: SmallVec<[TaskHandle; 1]>,
    is_inside: bool,
}

impl<'e> Orchestrator<'e> {
    pub(crate) fn new(engine: &'e Engine, plan: &'e Plan, run: RunId) -> Self {
        Self {
            engine,
            plan,
            registry: plan.registry(),
            run,
            recording: None,
            order: SmallVec::new(),
            tasks: SmallVec::new(),
            is_inside: false,
        }
    }

    /// The orchestrator that the body of a graph is given, whose tasks come after these too.
    pub(crate) fn inside(&self, order: &[TaskHandle]) -> Orchestrator<'e> {
        let mut inner = Orchestrator {
            registry: Arc::clone(&self.registry),
            order: self.order.clone(),
            is_inside: true,
            ..Orchestrator::new(self.engine, self.plan, self.run)
        };
        inner.order.extend_from_slice(order);
        inner
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
        Ok(self.registry.named(name, CallableKind::Chip)?)
    }

    /// The host function of this name.
    ///
    /// # Errors
    ///
    /// [`Error::Callable`] when none was registered.
    pub fn function(&self, name: &str) -> Result<FunctionHandle, Error> {
        Ok(self.registry.named(name, CallableKind::Function)?)
    }

    /// The orchestration of this name.
    ///
    /// # Errors
    ///
    /// [`Error::Callable`] when none was registered.
    pub fn orchestration(&self, name: &str) -> Result<OrchestrationHandle, Error> {
        Ok(self.registry.named(name, CallableKind::Orchestration)?)
    }

    /// Submits a task for a next-level worker: a chip callable for a chip worker, an orchestration for a worker that has
    /// children of its own.
    ///
    /// # Errors
    ///
    /// [`Error::Submit`], [`Error::Callable`] or [`Error::Buffer`]; nothing was submitted then.
    #[track_caller]
    pub fn submit_next_level(
        &mut self,
        callable: &impl NextLevel,
        mut args: ArgList,
        target: Target,
    ) -> Result<TaskHandle, Error> {
        let outputs = self.back_outputs(std::iter::once(&mut args))?;
        let submitted = self.submit_backed(&callable.target(), &args, target);
        self.keep_outputs(outputs, submitted)
    }

    #[track_caller]
    fn submit_backed(
        &mut self,
        callee: &Callee<'_>,
        args: &ArgList,
        target: Target,
    ) -> Result<TaskHandle, Error> {
        let suited = self.suited(callee, target)?;
        let (task_args, backings) = args.checked()?;
        let suited = self.settle_on_device(callee, backings, &suited)?;
        let placement = match *suited.as_slice() {
            [worker] => Placement::On(worker),
            _ => Placement::AnyOf(&suited),
        };
        let spec = TaskSpec::new(placement).args(task_args);
        let members = [(task_args, backings)];
        self.submit(callee, spec, args.order(), &members, &suited)
    }

    /// Submits one task that runs on several next-level workers at once, and completes once all have. Member `i` gets
    /// the `i`-th arguments and runs on the `i`-th target.
    ///
    /// # Errors
    ///
    /// As [`Orchestrator::submit_next_level`]; also when there is no member, two share a worker, or one writes bytes that
    /// another reads or writes: the members run at once, in no order. Within one member both are fine, and so is what is
    /// tagged [`NoDep`](taskgraph::Tag::NoDep), whose order is the caller's.
    #[track_caller]
    pub fn submit_next_level_group(
        &mut self,
        callable: &impl NextLevel,
        mut members: Vec<(ArgList, Target)>,
    ) -> Result<TaskHandle, Error> {
        let outputs = self.back_outputs(members.iter_mut().map(|(args, _)| args))?;
        let submitted = self.submit_backed_group(&callable.target(), &members);
        self.keep_outputs(outputs, submitted)
    }

    #[track_caller]
    fn submit_backed_group(
        &mut self,
        callee: &Callee<'_>,
        members: &[(ArgList, Target)],
    ) -> Result<TaskHandle, Error> {
        let workers = self.place_members(callee, members)?;
        self.submit_group(
            callee,
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
    #[track_caller]
    pub fn submit_sub(
        &mut self,
        function: &FunctionHandle,
        mut args: ArgList,
    ) -> Result<TaskHandle, Error> {
        let outputs = self.back_outputs(std::iter::once(&mut args))?;
        let submitted = self.submit_backed_sub(function, &args);
        self.keep_outputs(outputs, submitted)
    }

    #[track_caller]
    fn submit_backed_sub(
        &mut self,
        function: &FunctionHandle,
        args: &ArgList,
    ) -> Result<TaskHandle, Error> {
        let callee = function.callee(CallableKind::Function);
        self.registry.own(function)?;
        self.need_sub_worker(&callee)?;
        let (task_args, backings) = args.checked()?;
        let spec = TaskSpec::new(Placement::Sub).args(task_args);
        self.submit(&callee, spec, args.order(), &[(task_args, backings)], &[])
    }

    /// Submits one task that runs on as many sub workers at once as there are argument lists, and completes once.
    ///
    /// # Errors
    ///
    /// As [`Orchestrator::submit_sub`]; also when there is no member, more than sub workers, or one writes bytes that
    /// another reads or writes.
    #[track_caller]
    pub fn submit_sub_group(
        &mut self,
        function: &FunctionHandle,
        mut members: Vec<ArgList>,
    ) -> Result<TaskHandle, Error> {
        let outputs = self.back_outputs(members.iter_mut())?;
        let submitted = self.submit_backed_sub_group(function, &members);
        self.keep_outputs(outputs, submitted)
    }

    #[track_caller]
    fn submit_backed_sub_group(
        &mut self,
        function: &FunctionHandle,
        members: &[ArgList],
    ) -> Result<TaskHandle, Error> {
        let callee = function.callee(CallableKind::Function);
        self.registry.own(function)?;
        self.need_sub_worker(&callee)?;
        let n_members = u32::try_from(members.len()).unwrap_or(u32::MAX);
        self.submit_group(&callee, Placement::SubGroup(n_members), members.iter(), &[])
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
        let wanted = if callee.kind == CallableKind::Chip {
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
                let (core, is_recorded) = (self.engine.core(), self.recording.is_some());
                let all = (0..self.plan.n_next_level()).map(WorkerId);
                let suited: SmallVec<_> = all
                    .filter(|id| {
                        // A recording is for later calls, too: who is lost now may be back then.
                        let is_there = is_recorded || core.loss(*id).is_none();
                        self.plan.next_level(id.0) == Some(wanted) && is_there
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

    #[track_caller]
    fn submit_group<'a>(
        &mut self,
        callee: &Callee<'_>,
        placement: Placement<'_>,
        members: impl Iterator<Item = &'a ArgList>,
        workers: &[WorkerId],
    ) -> Result<TaskHandle, Error> {
        let mut all = TaskArgs::new();
        let mut parts: SmallVec<[(&TaskArgs, &[Backing]); 4]> = SmallVec::new();
        let mut order: SmallVec<[TaskHandle; 2]> = SmallVec::new();
        for member in members {
            let (task_args, backings) = member.checked()?;
            apart_from(callee, task_args, &parts)?;
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
        let spec = TaskSpec::new(placement).args(&all);
        self.submit(callee, spec, &order, &parts, workers)
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
            kind: callee.kind.name(),
            callable: Arc::clone(callee.name),
            target,
            wanted,
        }
    }
}

/// The members of a group run at once: none may write what another names.
fn apart_from(
    callee: &Callee<'_>,
    member: &TaskArgs,
    others: &[(&TaskArgs, &[Backing])],
) -> Result<(), SubmitError> {
    let mut others = others.iter().flat_map(|(args, _)| args.accesses());
    let conflicts = |other: &Access| member.accesses().iter().any(|it| it.conflicts_with(other));
    if !others.any(conflicts) {
        return Ok(());
    }
    let callable = Arc::clone(callee.name);
    let reason = "one member writes bytes that another reads or writes, and they run at once; give each its own bytes, or \
                  submit them as tasks, which run in order";
    Err(SubmitError::Group { callable, reason })
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
