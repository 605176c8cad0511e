//! The common end of all submits: what a task holds, what it is sent as, and the graph.

use std::panic::Location;
use std::sync::Arc;

use hashbrown::HashSet;
use smallvec::SmallVec;
use taskgraph::{Placement, TaskArgs, TaskId, TaskSpec, WorkerId};
use tracing::Span;
use tracing::field::Empty;

use super::{Orchestrator, TaskHandle};
use crate::args::{ArgList, Backing};
use crate::buffer::Use;
use crate::callable::{CallableKind, Callee};
use crate::desk::copy_of;
use crate::engine::{Core, DeviceHold, DeviceUse, GraphRecord, Hold, NewTask, NotSubmitted};
use crate::error::{BufferError, Error, Name, SubmitError, TaskCause, WorkerDied};
use crate::graph::{Cached, Heap, Misfit, places};
use crate::wire::{self, Payload};

impl Orchestrator<'_> {
    /// The common end of all submits: payloads, holds, the graph. Member `i` runs on `workers[i]`, where that is known:
    /// it is wherever there is device memory.
    #[track_caller]
    pub(super) fn submit(
        &mut self,
        callee: &Callee<'_>,
        spec: TaskSpec<'_>,
        order: &[TaskHandle],
        members: &[(&TaskArgs, &[Backing])],
        workers: &[WorkerId],
    ) -> Result<TaskHandle, Error> {
        let whole_order: SmallVec<[TaskHandle; 2]>;
        let order = match self.order.is_empty() {
            true => order,
            false => {
                whole_order = self.order.iter().chain(order).copied().collect();
                &whole_order
            }
        };
        let task = match self.recording {
            Some(_) => self.record(callee, spec.placement, order, members)?,
            None => {
                let after = self.eager_order(callee.name, order)?;
                self.submit_now(callee, spec.after(&after), members, workers)?
            }
        };
        if self.is_inside {
            self.tasks.push(task);
        }
        Ok(task)
    }

    /// Takes a task down that would be refused by no check of its own if it were submitted.
    #[track_caller]
    fn record(
        &mut self,
        callee: &Callee<'_>,
        placement: Placement<'_>,
        order: &[TaskHandle],
        members: &[(&TaskArgs, &[Backing])],
    ) -> Result<TaskHandle, Error> {
        let mut all: SmallVec<[&TaskArgs; 4]> = SmallVec::new();
        for (args, backings) in members {
            self.check_payload(callee, &encode(callee, args, backings))?;
            check_device(callee, backings)?;
            all.push(args);
        }
        let place = Location::caller();
        let recording = self.recording.as_mut().expect("asked by the caller");
        recording.submit(callee, placement, order, &all, place)
    }

    fn submit_now(
        &self,
        callee: &Callee<'_>,
        spec: TaskSpec<'_>,
        members: &[(&TaskArgs, &[Backing])],
        workers: &[WorkerId],
    ) -> Result<TaskHandle, Error> {
        let mut payloads = SmallVec::new();
        let mut holds = SmallVec::new();
        for (member, (args, backings)) in members.iter().enumerate() {
            let payload = encode(callee, args, backings);
            self.check_payload(callee, &payload)?;
            payloads.push(payload);
            check_device(callee, backings)?;
            let worker = workers.get(member);
            self.hold(callee.name, args, backings, worker, &mut holds)?;
        }
        check_buffers(callee.name, &holds)?;
        let mut task = NewTask {
            spec,
            callable: Arc::clone(callee.name),
            payloads,
            holds,
            span: span_of(callee.name),
        };
        let span = task.span.clone();
        let submitted = self.engine.attempt(is_full, |core| {
            let submitted = core.submit(self.run, &mut task);
            submitted.map_err(|refused| self.with_death(core, refused))
        });
        let id = submitted.map_err(|source| Self::refused_by_graph(callee.name, source))?;
        span.record("task", id.slot);
        Ok(self.submitted(id))
    }

    /// Submits a call of a recorded graph as one task, or gives its arguments back with what does not fit.
    pub(crate) fn submit_graph_task(
        &self,
        cached: &Cached,
        args: ArgList,
    ) -> Result<Result<TaskHandle, (Misfit, ArgList)>, Error> {
        let name = &cached.keeps.name;
        let mut order = self.order.clone();
        order.extend_from_slice(args.order());
        let after = self.eager_order(name, &order)?;
        let record = Arc::new(GraphRecord::new(Arc::clone(cached), args));
        match self.submit_record(name, &record, &after)? {
            Ok(task) => Ok(Ok(task)),
            Err(misfit) => {
                let record = Arc::into_inner(record).expect("it was not submitted");
                Ok(Err((misfit, record.into_args())))
            }
        }
    }

    fn submit_record(
        &self,
        name: &Name,
        record: &Arc<GraphRecord>,
        after: &[TaskId],
    ) -> Result<Result<TaskHandle, Misfit>, Error> {
        let (graphs, definition) = (self.engine.graphs(), record.definition());
        let (task_args, backings) = record.args().checked()?;
        let mut binding = match definition.bind(task_args, &places(backings)) {
            Ok(binding) => binding.after(after),
            Err(difference) => return Ok(Err(Misfit::Call(difference))),
        };
        let mut holds = SmallVec::new();
        self.hold(name, task_args, backings, None, &mut holds)?;
        match graphs.heap(definition, self.engine)? {
            Heap::NotNeeded => {}
            Heap::NoRoom => return Ok(Err(graphs.no_room(definition))),
            Heap::Piece(core, memory) => {
                holds.push(Hold::buffer(&core, Use::Write)?);
                let memory = record.with_heap(memory);
                binding = binding.heap(memory).expect("it was made for this");
            }
        }
        check_buffers(name, &holds)?;
        let span = span_of(name);
        let submitted = self.engine.attempt(is_full, |core| {
            core.submit_graph(self.run, &binding, (name, &mut holds, record, &span))
        });
        match submitted {
            Ok(id) => {
                span.record("task", id.slot);
                Ok(Ok(self.submitted(id)))
            }
            Err(NotSubmitted::Graph(source)) if is_about_workers(&source) => {
                Ok(Err(Misfit::Target(source)))
            }
            Err(source) => Err(Self::refused_by_graph(name, source).into()),
        }
    }

    fn check_payload(&self, callee: &Callee<'_>, payload: &Payload) -> Result<(), SubmitError> {
        let (bytes, limit) = (payload.len(), self.plan.payload_max());
        if bytes <= limit {
            return Ok(());
        }
        let callable = Arc::clone(callee.name);
        Err(SubmitError::TooLarge {
            callable,
            bytes,
            limit,
        })
    }

    /// Counts the task in at everything it names.
    fn hold(
        &self,
        name: &Name,
        args: &TaskArgs,
        backings: &[Backing],
        worker: Option<&WorkerId>,
        holds: &mut SmallVec<[Hold; 3]>,
    ) -> Result<(), Error> {
        let mut spans: SmallVec<[provenance::Span; 3]> = SmallVec::new();
        let mut uses: SmallVec<[DeviceUse; 3]> = SmallVec::new();
        for (access, backing) in args.accesses().iter().zip(backings) {
            match backing {
                Backing::Shared(core) => holds.push(Hold::buffer(core, Use::of(access.tag))?),
                Backing::Device(span) => {
                    spans.push(*span);
                    uses.push(DeviceUse {
                        buffer: access.buffer,
                        bytes: access.view.lo()..access.view.hi(),
                        how: Use::of(access.tag),
                    });
                }
                Backing::Recorded => return Err(BufferError::Recorded.into()),
                Backing::Fresh(_) => return Err(BufferError::Unbacked.into()),
            }
        }
        if spans.is_empty() {
            return Ok(());
        }
        let held = self.hold_on_device(&spans, worker);
        let held = held.map_err(|error| SubmitError::Device {
            callable: Arc::clone(name),
            reason: error.to_string(),
        })?;
        holds.push(Hold::Device(Box::new(DeviceHold { held, uses })));
        Ok(())
    }

    /// Names the dead worker, where that is why the graph refused: asked in the same step, since a lost worker may be
    /// back a moment later.
    fn with_death(&self, core: &Core, refused: NotSubmitted) -> NotSubmitted {
        use taskgraph::SubmitError::{TooFewSubWorkers, WorkerLost};
        let died = match refused {
            NotSubmitted::Graph(WorkerLost { worker }) => match core.loss(worker) {
                Some(TaskCause::WorkerDied(died)) => Some(WorkerDied::clone(died)),
                _ => None,
            },
            NotSubmitted::Graph(TooFewSubWorkers { .. }) => {
                core.first_death(self.plan.n_next_level())
            }
            _ => None,
        };
        died.map_or(refused, NotSubmitted::Died)
    }

    fn refused_by_graph(name: &Name, refused: NotSubmitted) -> SubmitError {
        let callable = Arc::clone(name);
        let source = match refused {
            NotSubmitted::Graph(source) => source,
            NotSubmitted::Died(died) => return SubmitError::WorkerDied { callable, died },
            NotSubmitted::HostCopy { buffer, how } => {
                let how = copy_of(how);
                return SubmitError::HostCopy {
                    callable,
                    buffer,
                    how,
                };
            }
        };
        match source {
            taskgraph::SubmitError::RunClosed { .. } => SubmitError::Cancelled { callable },
            reason => SubmitError::Graph { callable, reason },
        }
    }
}

impl Orchestrator<'_> {
    fn submitted(&self, id: TaskId) -> TaskHandle {
        TaskHandle {
            id,
            worker: self.engine.life(),
            recording: None,
        }
    }

    /// The tasks that a submitted one comes after. Nodes of a recorded graph are none, and neither are tasks of another
    /// worker, whose numbers mean other tasks here.
    fn eager_order(
        &self,
        name: &Name,
        order: &[TaskHandle],
    ) -> Result<SmallVec<[TaskId; 2]>, SubmitError> {
        if order.is_empty() {
            return Ok(SmallVec::new());
        }
        let callable = || Arc::clone(name);
        let id = |task: &TaskHandle| match task.recording {
            Some(_) => Err(SubmitError::OutsideGraph {
                callable: callable(),
            }),
            None if task.worker != self.engine.life() => Err(SubmitError::OtherWorker {
                callable: callable(),
                worker: Arc::clone(self.engine.path()),
            }),
            None => Ok(task.id),
        };
        order.iter().map(id).collect()
    }
}

/// The span of a task, from its submit to its end. Its slot is recorded when it is known, its worker when it is sent.
fn span_of(callable: &Name) -> Span {
    tracing::debug_span!("task", %callable, task = Empty, worker = Empty)
}

/// The workers are not those that were recorded for.
fn is_about_workers(error: &taskgraph::SubmitError) -> bool {
    use taskgraph::SubmitError::{NoTargets, NotNextLevel, TooFewSubWorkers, WorkerLost};
    matches!(
        error,
        NoTargets | NotNextLevel { .. } | TooFewSubWorkers { .. } | WorkerLost { .. }
    )
}

/// Waiting helps.
fn is_full(error: &NotSubmitted) -> bool {
    matches!(
        error,
        NotSubmitted::Graph(taskgraph::SubmitError::SlotsFull { .. })
    )
}

/// What a task is sent as.
fn encode(callee: &Callee<'_>, args: &TaskArgs, backings: &[Backing]) -> Payload {
    wire::encode(callee.digest, args, |at| backings[at].id())
}

/// Device memory is reached by chip callables only.
fn check_device(callee: &Callee<'_>, backings: &[Backing]) -> Result<(), SubmitError> {
    let has_device = backings.iter().any(|backing| backing.span().is_some());
    if !has_device || callee.kind == CallableKind::Chip {
        return Ok(());
    }
    let callable = Arc::clone(callee.name);
    Err(SubmitError::DeviceArgument { callable })
}

/// The most different buffers of one task, a buffer that is both read and written counted twice. Their announcements wait in
/// the socket of a busy worker, for the task that runs and the one behind it; a socket of the usual size holds some 270.
pub(crate) const BUFFERS_MAX: usize = 128;

fn check_buffers(name: &Name, holds: &[Hold]) -> Result<(), SubmitError> {
    if holds.len() <= BUFFERS_MAX {
        return Ok(());
    }
    let of_hold = |hold: &Hold| match hold {
        Hold::Buffer(core, how) => Some((core.id(), *how)),
        Hold::Device(..) => None,
    };
    let different: HashSet<_> = holds.iter().filter_map(of_hold).collect();
    let (callable, found) = (Arc::clone(name), different.len());
    match found <= BUFFERS_MAX {
        true => Ok(()),
        false => Err(SubmitError::TooManyBuffers {
            callable,
            found,
            max: BUFFERS_MAX,
        }),
    }
}
