//! Graphs: a body of tasks that is recorded once per key and then replayed as one task.
//!
//! ```text
//! graph(key, args, body)
//!    │ key known?  no ──> body is recorded: nothing is submitted, edges are found, arguments get sources
//!    │                        │ cannot be recorded ──> said once; runs eagerly, this time and later
//!    v                        v
//!  boundary fits? ── no ──> counted, said once per kind; runs eagerly
//!    │ yes
//!    v
//!  one graph task ──> its nodes are sent as they become ready
//! ```
//!
//! Recording submits nothing, so a body that fails, panics, or cannot be recorded has changed nothing, and can
//! be run again from its start. The first call records and then replays what it recorded: there is no second
//! way to run a graph.
//!
//! What shapes the graph is the key. A body captures nothing (the compiler checks that), so it knows what it is
//! given: the key, the tensors, and scalars that it can only pass on.

mod cache;
mod files;
mod key;
mod recording;
mod scratch;

use std::hash::Hash;
use std::panic::Location;

use smallvec::SmallVec;
use taskgraph::Inference;
use taskgraph::capture::{BoundaryScalar, NotRecordable};

use crate::args::{ArgList, ArgTensor, Backing};
use crate::error::{ArgError, Error};
use crate::orchestrator::{Orchestrator, TaskHandle};

pub(crate) use self::cache::{Begin, Cached, GraphCache, Heap, Keeps, Misfit, Ticket};
pub use self::files::GraphStats;
#[cfg(any(test, fuzzing))]
pub(crate) use self::files::check_key;
pub(crate) use self::key::{Asked, GraphKey};
pub(crate) use self::recording::Recording;

/// How a call of [`Orchestrator::graph`] was executed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub enum How {
    /// It was the first of its key, was recorded, and runs as one task.
    Recorded,
    /// It runs as one task, as it was recorded.
    Replayed,
    /// Its tasks were submitted one by one.
    Eager,
    /// Its tasks became part of the graph that is being recorded around it.
    Inlined,
}

/// The tasks of one call of [`Orchestrator::graph`], for explicit order: see [`ArgList::after`].
#[derive(Debug, Clone)]
pub struct GraphHandle {
    how: How,
    tasks: SmallVec<[TaskHandle; 1]>,
}

impl GraphHandle {
    /// How the call was executed.
    #[must_use]
    pub fn how(&self) -> How {
        self.how
    }

    pub(crate) fn tasks(&self) -> &[TaskHandle] {
        &self.tasks
    }
}

/// What the body of a graph is called with. Positions count tensors and scalars apart, as for [`Args`](crate::Args).
#[derive(Debug)]
pub struct GraphArgs<'a, K> {
    key: &'a K,
    tensors: Vec<ArgTensor>,
    scalars: Vec<BoundaryScalar>,
}

impl<'a, K> GraphArgs<'a, K> {
    fn new(
        key: &'a K,
        args: &ArgList,
        scalars: impl Iterator<Item = BoundaryScalar>,
    ) -> Result<Self, Error> {
        let (task_args, backings) = args.checked()?;
        let tensors = task_args.tensors().iter().zip(backings);
        let tensors = tensors.map(|(arg, backing)| ArgTensor::new(arg.tensor, backing.clone()));
        Ok(Self {
            key,
            tensors: tensors.collect(),
            scalars: scalars.collect(),
        })
    }

    /// The key of the call: the values that shape the graph.
    #[must_use]
    pub fn key(&self) -> &'a K {
        self.key
    }

    /// The number of tensors.
    #[must_use]
    pub fn n_tensors(&self) -> usize {
        self.tensors.len()
    }

    /// The number of scalars.
    #[must_use]
    pub fn n_scalars(&self) -> usize {
        self.scalars.len()
    }

    /// Tensor `index`, to be given to tasks, whole or in part.
    ///
    /// # Errors
    ///
    /// [`ArgError::Missing`] when there is no such tensor.
    pub fn tensor(&self, index: usize) -> Result<ArgTensor, ArgError> {
        let found = self.tensors.len();
        let tensor = self.tensors.get(index).cloned();
        tensor.ok_or(ArgError::Missing {
            what: "tensor",
            index,
            found,
        })
    }

    /// Scalar `index`, to be given to tasks. Its value cannot be had: pass what is derived from it as one more
    /// scalar, make it part of the key, or compute it in a kernel.
    ///
    /// # Errors
    ///
    /// [`ArgError::Missing`] when there is no such scalar.
    pub fn scalar(&self, index: usize) -> Result<BoundaryScalar, ArgError> {
        let found = self.scalars.len();
        let scalar = self.scalars.get(index).copied();
        scalar.ok_or(ArgError::Missing {
            what: "scalar",
            index,
            found,
        })
    }
}

/// One call, as its parts need it.
struct Call<'a, K, F> {
    key: &'a K,
    body: &'a F,
    place: &'static Location<'static>,
    /// Of the scope that it is made in.
    inference: Inference,
}

impl Orchestrator<'_> {
    /// Runs the tasks that `body` submits: records them at the first call with this key, and submits them as one
    /// task at later calls, for the cost of the arguments and not of the tasks.
    ///
    /// `key` holds the values that shape the graph (sizes, counts, options); together with the type of `body` it
    /// names the recording. `args` is the boundary: every tensor that tasks of the body share with others, tagged
    /// by what the body as a whole does to it, and every scalar that changes from call to call. Buffers, offsets
    /// and values of scalars may differ from call to call. A call that differs in anything else (shapes, strides,
    /// types, tags, which arguments overlap), or that finds a worker gone that a task was recorded for, runs eagerly, which is counted in
    /// [`Worker::graph_stats`](crate::Worker::graph_stats) and logged once per kind of difference.
    ///
    /// Two calls have one recording when `body` is the same and their keys are equal, whatever they hash to. A tensor that the body writes only in part is an inout, not an output.
    ///
    /// In a [`manual_scope`](Orchestrator::manual_scope) no order is inferred inside of the graph either, and it has a
    /// recording of its own.
    ///
    /// To other tasks the graph is one task. It fails with the first failure inside of it, and whatever reads its
    /// outputs is skipped then.
    ///
    /// `body` captures nothing, so that nothing can be frozen: callables are found by their names
    /// ([`Orchestrator::function`], [`Orchestrator::chip`]), values come through the key. It must submit the same
    /// tasks whenever the key is the same, so it reads no clock, file or global. A graph inside of a body becomes
    /// part of the outer one.
    ///
    /// ```no_run
    /// # fn run(orch: &mut facade::Orchestrator<'_>, x: &facade::Buffer<f32>) -> Result<(), facade::Error> {
    /// use facade::args;
    ///
    /// for step in 0..40_u32 {
    ///     orch.graph(("layer", 2_u32), args().inout(x).scalar(step), |g, a| {
    ///         let layer = g.function("layer")?;
    ///         for _ in 0..a.key().1 {
    ///             g.submit_sub(&layer, args().inout(&a.tensor(0)?).scalar(a.scalar(0)?))?;
    ///         }
    ///         Ok(())
    ///     })?;
    /// }
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// A body that captures a value does not compile:
    ///
    /// ```compile_fail
    /// # fn run(orch: &mut facade::Orchestrator<'_>, x: &facade::Buffer<f32>) -> Result<(), facade::Error> {
    /// # use facade::args;
    /// let step = std::env::args().count() as u32;
    /// orch.graph("layer", args().inout(x), move |g, a| {
    ///     let layer = g.function("layer")?;
    ///     g.submit_sub(&layer, args().inout(&a.tensor(0)?).scalar(step))?;
    ///     Ok(())
    /// })?;
    /// # Ok(())
    /// # }
    /// # type Run = fn(&mut facade::Orchestrator<'_>, &facade::Buffer<f32>) -> Result<(), facade::Error>;
    /// # fn main() {
    /// #     std::hint::black_box(run as Run); // so that code is made of it
    /// # }
    /// ```
    ///
    /// Nor does one that computes with a scalar, or asks for its value:
    ///
    /// ```compile_fail
    /// # fn run(orch: &mut facade::Orchestrator<'_>, x: &facade::Buffer<f32>) -> Result<(), facade::Error> {
    /// # use facade::args;
    /// orch.graph("layer", args().inout(x).scalar(1_u32), |g, a| {
    ///     let layer = g.function("layer")?;
    ///     g.submit_sub(&layer, args().inout(&a.tensor(0)?).scalar(a.scalar(0)? + 1))?;
    ///     Ok(())
    /// })?;
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    ///
    /// What `body` returns, which leaves nothing recorded and nothing submitted at a first call; [`Error::Submit`],
    /// [`Error::Callable`] or [`Error::Buffer`] when the arguments are refused.
    #[track_caller]
    pub fn graph<K, F>(&mut self, key: K, mut args: ArgList, body: F) -> Result<GraphHandle, Error>
    where
        K: Hash + Eq + Clone + Send + Sync + 'static,
        F: Fn(&mut Orchestrator<'_>, &GraphArgs<'_, K>) -> Result<(), Error> + 'static,
    {
        const {
            assert!(
                size_of::<F>() == 0,
                "the body of a graph captures a value, which would be frozen at its first call: \
                 find callables by name on `g`, and pass values in the key or in the arguments"
            );
        }
        let call = Call {
            key: &key,
            body: &body,
            place: Location::caller(),
            inference: self.inference(),
        };
        let outputs = self.back_outputs(std::iter::once(&mut args))?;
        let asked = Asked::new::<K, F>(&key, call.inference);
        let submitted = self.run_graph(&asked, &call, args);
        self.keep_outputs(outputs, submitted)
    }

    fn run_graph<K, F>(
        &mut self,
        asked: &Asked<'_>,
        call: &Call<'_, K, F>,
        args: ArgList,
    ) -> Result<GraphHandle, Error>
    where
        F: Fn(&mut Orchestrator<'_>, &GraphArgs<'_, K>) -> Result<(), Error>,
    {
        args.checked()?;
        if self.recording.is_some() {
            return self.inlined(call, &args);
        }
        match self.engine.graphs().begin(asked, &self.registry) {
            Begin::Record(ticket) => self.recorded(ticket, call, args),
            Begin::Ready(cached) => self.replayed(&cached, call, args, How::Replayed),
            Begin::Uncacheable => self.eager(call, &args),
        }
    }

    /// The first call of a key.
    fn recorded<K, F>(
        &mut self,
        ticket: Ticket<'_>,
        call: &Call<'_, K, F>,
        args: ArgList,
    ) -> Result<GraphHandle, Error>
    where
        F: Fn(&mut Orchestrator<'_>, &GraphArgs<'_, K>) -> Result<(), Error>,
    {
        let (task_args, backings) = args.checked()?;
        let graphs = self.engine.graphs();
        let begun = Recording::begin(
            graphs,
            &ticket,
            task_args,
            &places(backings),
            call.inference,
        );
        let recording = match begun {
            Ok(recording) => recording,
            Err(reason) => return self.refused(ticket, call, &args, reason, call.place),
        };
        let graph_args = GraphArgs::new(call.key, &args, recording.scalars())?;
        let mut inner = self.inside(&[]);
        inner.recording = Some(recording);
        let built = (call.body)(&mut inner, &graph_args);
        let recording = inner.recording.take().expect("put there above");
        if let Some((reason, place)) = recording.refusal() {
            return self.refused(ticket, call, &args, reason, place);
        }
        built?;
        let (definition, keeps) = match recording.finish(graphs, ticket.name(), &self.registry) {
            Ok(made) => made,
            Err(reason) => return self.refused(ticket, call, &args, reason, call.place),
        };
        let cached = ticket.recorded(definition, keeps);
        self.replayed(&cached, call, args, How::Recorded)
    }

    /// The body cannot be recorded, which is said once; nothing was submitted, so it runs eagerly.
    fn refused<K, F>(
        &mut self,
        ticket: Ticket<'_>,
        call: &Call<'_, K, F>,
        args: &ArgList,
        reason: NotRecordable,
        place: &'static Location<'static>,
    ) -> Result<GraphHandle, Error>
    where
        F: Fn(&mut Orchestrator<'_>, &GraphArgs<'_, K>) -> Result<(), Error>,
    {
        tracing::error!(graph = %ticket.name(), at = %place, %reason, "a graph cannot be recorded, its tasks are submitted one by one");
        ticket.refused(reason);
        self.eager(call, args)
    }

    /// A call of a key that is recorded, by now or since long.
    fn replayed<K, F>(
        &mut self,
        cached: &Cached,
        call: &Call<'_, K, F>,
        args: ArgList,
        how: How,
    ) -> Result<GraphHandle, Error>
    where
        F: Fn(&mut Orchestrator<'_>, &GraphArgs<'_, K>) -> Result<(), Error>,
    {
        match self.submit_graph_task(cached, args)? {
            Ok(task) => {
                self.engine.graphs().hit();
                Ok(self.handle(how, task))
            }
            Err((misfit, args)) => {
                let (graphs, name) = (self.engine.graphs(), &cached.keeps.name);
                graphs.misfit(name, &misfit, call.place);
                self.eager(call, &args)
            }
        }
    }

    /// Calls the body with values, and this orchestrator behind it; in a scope, so that its intermediate memory comes
    /// back as that of a replay does.
    fn eager<K, F>(&mut self, call: &Call<'_, K, F>, args: &ArgList) -> Result<GraphHandle, Error>
    where
        F: Fn(&mut Orchestrator<'_>, &GraphArgs<'_, K>) -> Result<(), Error>,
    {
        self.scope(|orch| orch.call_body(call, args, How::Eager))
    }

    /// A graph inside of one that is recorded: its tasks become nodes of that.
    fn inlined<K, F>(&mut self, call: &Call<'_, K, F>, args: &ArgList) -> Result<GraphHandle, Error>
    where
        F: Fn(&mut Orchestrator<'_>, &GraphArgs<'_, K>) -> Result<(), Error>,
    {
        self.call_body(call, args, How::Inlined)
    }

    fn call_body<K, F>(
        &mut self,
        call: &Call<'_, K, F>,
        args: &ArgList,
        how: How,
    ) -> Result<GraphHandle, Error>
    where
        F: Fn(&mut Orchestrator<'_>, &GraphArgs<'_, K>) -> Result<(), Error>,
    {
        let scalars = args.checked()?.0.scalars().iter();
        let graph_args = GraphArgs::new(call.key, args, scalars.map(|arg| arg.forward()))?;
        let recording = self.recording.take();
        let mut inner = self.inside(args.order());
        inner.recording = recording;
        let built = (call.body)(&mut inner, &graph_args);
        let (recording, tasks) = (inner.recording.take(), std::mem::take(&mut inner.tasks));
        self.recording = recording;
        self.tasks.extend_from_slice(&tasks);
        built.map(|()| GraphHandle { how, tasks })
    }

    fn handle(&mut self, how: How, task: TaskHandle) -> GraphHandle {
        self.tasks.push(task);
        let tasks = SmallVec::from_slice(&[task]);
        GraphHandle { how, tasks }
    }
}

/// Where the memory of each tensor is: on one chip, or where everybody reaches it.
pub(crate) fn places(backings: &[Backing]) -> SmallVec<[u32; 32]> {
    let place = |backing: &Backing| backing.span().map_or(0, |span| 1 + span.ptr.worker().id);
    backings.iter().map(place).collect()
}
