//! Arguments, on both sides: [`args`] builds the list that a task is submitted with, [`Args`] is what a function is given.

use std::fmt;
use std::sync::Arc;

use device::ScalarValue;
use smallvec::SmallVec;
use taskgraph::capture::IntoScalar;
use taskgraph::{ArgsError, BufferId, Scalar, Tag, TaskArgs, Tensor, TensorError};

use crate::buffer::{Buffer, BufferCore, View};
use crate::device_memory::DeviceBuffer;
use crate::element::Element;
use crate::error::{ArgError, SubmitError};
use crate::fresh::{Fresh, FreshCore};
use crate::orchestrator::TaskHandle;
use crate::view::Grant;

/// The most tensors, and the most scalars, that one task can have.
pub const ARGS_MAX: usize = 1024;

/// What stands behind a tensor argument, and is kept alive by the task.
#[derive(Debug, Clone)]
pub(crate) enum Backing {
    Shared(Arc<BufferCore>),
    Device(provenance::Span),
    /// Intermediate memory of a graph that is being recorded: there is none yet.
    Recorded,
    /// Memory that comes with the submit of the task that names it as its output.
    Fresh(Arc<FreshCore>),
}

/// A tensor and what stands behind it, as sealed traits hand them over.
#[derive(Debug)]
#[doc(hidden)]
#[expect(unnameable_types, reason = "the inside of a sealed trait")]
pub struct Parts(Tensor, Backing);

impl Backing {
    /// The identity under which workers below map it, when they do: an intermediate tensor is a buffer of its own in the
    /// graph, but its memory is that of a ring.
    pub(crate) fn id(&self) -> Option<BufferId> {
        match self {
            Backing::Shared(core) => Some(core.id()),
            Backing::Device(_) | Backing::Recorded | Backing::Fresh(_) => None,
        }
    }

    /// The range of device memory, if it is that.
    pub(crate) fn span(&self) -> Option<provenance::Span> {
        match self {
            Backing::Device(span) => Some(*span),
            Backing::Shared(_) | Backing::Recorded | Backing::Fresh(_) => None,
        }
    }
}

mod sealed {
    use super::Parts;

    #[expect(
        unnameable_types,
        reason = "sealed: only this crate knows what a backing is"
    )]
    pub trait AsTensor {
        fn parts(&self) -> Parts;
    }
}

/// A task, or the tasks of a graph, that another one can come [after](ArgList::after).
pub trait Precedes: precedes::Precedes {}

impl<T: precedes::Precedes> Precedes for T {}

mod precedes {
    use crate::graph::GraphHandle;
    use crate::orchestrator::TaskHandle;

    #[expect(
        unnameable_types,
        reason = "sealed: only this crate knows what a task is"
    )]
    pub trait Precedes {
        fn handles(&self) -> &[TaskHandle];
    }

    impl Precedes for TaskHandle {
        fn handles(&self) -> &[TaskHandle] {
            std::slice::from_ref(self)
        }
    }

    impl Precedes for GraphHandle {
        fn handles(&self) -> &[TaskHandle] {
            self.tasks()
        }
    }
}

/// Something that can be a tensor argument: a [`Buffer`], a [`View`] of one, a [`DeviceBuffer`], a tensor that a task brings
/// into being ([`Fresh`]), or an argument that is passed on ([`ArgTensor`]).
pub trait AsTensor: sealed::AsTensor {}

impl<T: sealed::AsTensor> AsTensor for T {}

impl<T: Element> sealed::AsTensor for Buffer<T> {
    fn parts(&self) -> Parts {
        Parts(*self.tensor(), Backing::Shared(Arc::clone(self.core())))
    }
}

impl<T: Element> sealed::AsTensor for View<T> {
    fn parts(&self) -> Parts {
        Parts(*self.tensor(), self.backing().clone())
    }
}

impl<T: Element> sealed::AsTensor for DeviceBuffer<T> {
    fn parts(&self) -> Parts {
        Parts(*self.tensor(), Backing::Device(self.span()))
    }
}

impl<T: Element> sealed::AsTensor for Fresh<T> {
    fn parts(&self) -> Parts {
        let (tensor, backing) = Fresh::parts(self);
        Parts(tensor, backing)
    }
}

impl sealed::AsTensor for ArgTensor {
    fn parts(&self) -> Parts {
        Parts(self.tensor, self.backing.clone())
    }
}

/// The arguments that a task is submitted with, in the order in which its function counts them.
///
/// What is wrong with an argument is kept and returned by the submit, so that a list reads without a `?` per line.
#[derive(Clone, Default)]
#[must_use = "arguments do nothing until a task is submitted with them"]
pub struct ArgList {
    args: TaskArgs,
    backings: SmallVec<[Backing; 3]>,
    order: SmallVec<[TaskHandle; 2]>,
    fault: Option<ArgsError>,
    too_many: bool,
}

impl fmt::Debug for ArgList {
    /// Without values and places: in the body of a graph they are those of one call.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ArgList")
            .field("n_tensors", &self.args.tensors().len())
            .field("n_scalars", &self.args.scalars().len())
            .field("order", &self.order)
            .field("fault", &self.fault)
            .finish_non_exhaustive()
    }
}

/// An empty list of arguments.
///
/// ```no_run
/// # fn submit(a: &facade::Buffer<f32>, c: &facade::Buffer<f32>) {
/// let list = facade::args().input(a).output(c).scalar(0.5_f32);
/// # }
/// ```
pub fn args() -> ArgList {
    ArgList::default()
}

impl ArgList {
    /// A tensor that the task reads.
    pub fn input(self, tensor: &impl AsTensor) -> Self {
        self.tensor(tensor, Tag::Input)
    }

    /// A tensor that the task overwrites whole, without reading it. A [`Fresh`] one gets its memory with the submit.
    pub fn output(self, tensor: &impl AsTensor) -> Self {
        self.tensor(tensor, Tag::Output)
    }

    /// A tensor that the task reads and writes.
    pub fn inout(self, tensor: &impl AsTensor) -> Self {
        self.tensor(tensor, Tag::InOut)
    }

    /// A tensor that the task overwrites whole, without reading it, in memory that it has already. What a task writes
    /// only in part is [`inout`](ArgList::inout): of the rest, an earlier writer's failure still counts.
    pub fn output_existing(self, tensor: &impl AsTensor) -> Self {
        self.tensor(tensor, Tag::OutputExisting)
    }

    /// A tensor that the graph must not order by: the caller orders it by other means, such as
    /// [`after`](ArgList::after), and promises that nobody else writes meanwhile what this task reads, nor touches what it
    /// writes. The task may read or write it; a chip gets a copy of it, and what it leaves is copied back.
    pub fn no_dep(self, tensor: &impl AsTensor) -> Self {
        self.tensor(tensor, Tag::NoDep)
    }

    /// A scalar: a value, or a scalar of a graph that is passed on.
    pub fn scalar(mut self, value: impl IntoScalar) -> Self {
        self.args.scalar(value);
        self.too_many |= self.args.scalars().len() > ARGS_MAX;
        self
    }

    /// Starts the task only after `task` (or all of the tasks of a graph) has ended well, besides what is inferred. If
    /// that one fails, this one is skipped. Tasks of another worker are refused at the submit
    /// ([`SubmitError::OtherWorker`](crate::SubmitError::OtherWorker)).
    pub fn after(mut self, task: &impl Precedes) -> Self {
        self.order.extend_from_slice(task.handles());
        self
    }

    fn tensor(mut self, tensor: &impl AsTensor, tag: Tag) -> Self {
        let Parts(tensor, backing) = sealed::AsTensor::parts(tensor);
        self.push(tensor, backing, tag);
        self
    }

    fn push(&mut self, tensor: Tensor, backing: Backing, tag: Tag) {
        self.too_many |= self.backings.len() == ARGS_MAX;
        if self.fault.is_some() || self.too_many {
            return;
        }
        match self.args.tensor(tensor, tag) {
            Ok(_) => self.backings.push(backing),
            Err(fault) => self.fault = Some(fault),
        }
    }

    /// Whether an output waits for memory.
    pub(crate) fn is_unbacked(&self) -> bool {
        self.args.is_unbacked()
    }

    /// The outputs that wait for memory, by position.
    pub(crate) fn unbacked(&self) -> SmallVec<[(usize, Arc<FreshCore>); 2]> {
        let fresh = |(at, backing): (usize, &Backing)| match backing {
            Backing::Fresh(core) => Some((at, Arc::clone(core))),
            _ => None,
        };
        self.backings.iter().enumerate().filter_map(fresh).collect()
    }

    /// Gives memory to one of them.
    pub(crate) fn back(
        &mut self,
        at: usize,
        tensor: Tensor,
        backing: Backing,
    ) -> Result<(), SubmitError> {
        self.args.back(at, tensor).map_err(SubmitError::Args)?;
        self.backings[at] = backing;
        Ok(())
    }

    /// Tasks that this one follows in any case.
    pub(crate) fn order(&self) -> &[TaskHandle] {
        &self.order
    }

    /// The checked arguments and what stands behind each tensor.
    pub(crate) fn checked(&self) -> Result<(&TaskArgs, &[Backing]), SubmitError> {
        if self.too_many {
            return Err(SubmitError::TooManyArgs { max: ARGS_MAX });
        }
        match &self.fault {
            Some(fault) => Err(SubmitError::Args(fault.clone())),
            None => Ok((&self.args, &self.backings)),
        }
    }
}

/// A tensor argument as a function may pass it on to tasks of its own.
///
/// It does not say where it lies: the body of a graph would freeze what it makes of that.
///
/// ```compile_fail
/// # fn body(a: &facade::GraphArgs<'_, ()>) -> u64 {
/// a.tensor(0).unwrap().tensor().byte_offset() // of one call
/// # }
/// ```
#[derive(Clone)]
pub struct ArgTensor {
    tensor: Tensor,
    backing: Backing,
}

impl fmt::Debug for ArgTensor {
    /// Without the place.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ArgTensor")
            .field("dtype", &self.dtype())
            .field("shape", &self.shape())
            .field("strides", &self.strides())
            .finish_non_exhaustive()
    }
}

impl ArgTensor {
    pub(crate) fn new(tensor: Tensor, backing: Backing) -> Self {
        Self { tensor, backing }
    }

    fn with(&self, tensor: Result<Tensor, TensorError>) -> Result<Self, ArgError> {
        let tensor = tensor.map_err(ArgError::View)?;
        Ok(Self::new(tensor, self.backing.clone()))
    }

    /// Length of each dimension, in elements.
    #[must_use]
    pub fn shape(&self) -> &[u64] {
        self.tensor.shape()
    }

    /// Distance of neighbours along each dimension, in elements.
    #[must_use]
    pub fn strides(&self) -> &[u64] {
        self.tensor.strides()
    }

    /// The element type.
    #[must_use]
    pub fn dtype(&self) -> taskgraph::DType {
        self.tensor.dtype()
    }

    /// The elements `range` of dimension `dim`.
    ///
    /// # Errors
    ///
    /// [`ArgError::View`] when the dimension does not exist or the range leaves it.
    pub fn slice(&self, dim: usize, range: std::ops::Range<usize>) -> Result<Self, ArgError> {
        let range = range.start as u64..range.end as u64;
        self.with(self.tensor.slice(dim, range))
    }

    /// The same elements with two dimensions exchanged.
    ///
    /// # Errors
    ///
    /// [`ArgError::View`] when a dimension does not exist.
    pub fn transpose(&self, a: usize, b: usize) -> Result<Self, ArgError> {
        self.with(self.tensor.transpose(a, b))
    }

    /// The same elements in another shape, row-major.
    ///
    /// # Errors
    ///
    /// [`ArgError::View`] when the number of elements differs or the view is not contiguous.
    pub fn reshape(&self, shape: &[usize]) -> Result<Self, ArgError> {
        let shape: SmallVec<[u64; 5]> = shape.iter().map(|&len| len as u64).collect();
        self.with(self.tensor.reshape(&shape))
    }
}

impl<T: Element> From<View<T>> for ArgTensor {
    /// Forgets the element type, for code that goes through tensors of both kinds.
    fn from(view: View<T>) -> Self {
        Self::new(*view.tensor(), view.backing().clone())
    }
}

/// What a host function or an orchestration below the root is called with.
///
/// Positions count tensors and scalars apart, in the order in which the task was given them.
#[derive(Debug)]
pub struct Args {
    grants: Vec<Grant>,
    scalars: SmallVec<[Scalar; 4]>,
}

impl Args {
    pub(crate) fn new(mut grants: Vec<Grant>, scalars: SmallVec<[Scalar; 4]>) -> Self {
        Grant::mark_aliases(&mut grants);
        Self { grants, scalars }
    }

    /// The number of tensors.
    #[must_use]
    pub fn n_tensors(&self) -> usize {
        self.grants.len()
    }

    /// The number of scalars.
    #[must_use]
    pub fn n_scalars(&self) -> usize {
        self.scalars.len()
    }

    /// The elements of tensor `index`, which the task named as an input.
    ///
    /// # Errors
    ///
    /// [`ArgError`] when there is no such tensor, its type or tag differs, its view is not contiguous, or the task also
    /// writes the same bytes through another argument.
    pub fn input<T: Element>(&self, index: usize) -> Result<&[T], ArgError> {
        self.grant(index)?.read(index)
    }

    /// The elements of tensor `index`, which the task named as an output or as in-out. Can be taken once.
    ///
    /// # Errors
    ///
    /// [`ArgError`] as for [`Args::input`], or when it was taken before.
    pub fn output<T: Element>(&self, index: usize) -> Result<&mut [T], ArgError> {
        self.grant(index)?.write(index)
    }

    /// Tensor `index`, to be passed on to tasks that this function submits.
    ///
    /// # Errors
    ///
    /// [`ArgError::Missing`] when there is no such tensor.
    pub fn tensor(&self, index: usize) -> Result<ArgTensor, ArgError> {
        let grant = self.grant(index)?;
        let core = grant.core().ok_or(ArgError::OnDevice { index })?;
        let backing = Backing::Shared(Arc::clone(core));
        Ok(ArgTensor::new(*grant.tensor(), backing))
    }

    /// Scalar `index`.
    ///
    /// # Errors
    ///
    /// [`ArgError`] when there is no such scalar or it has another type.
    pub fn scalar<T: ScalarValue>(&self, index: usize) -> Result<T, ArgError> {
        let found = self.scalars.len();
        let scalar = self.scalars.get(index).ok_or(ArgError::Missing {
            what: "scalar",
            index,
            found,
        })?;
        T::from_scalar(*scalar).ok_or(ArgError::Scalar {
            index,
            asked: T::NAME,
            found: *scalar,
        })
    }

    pub(crate) fn grants(&self) -> &[Grant] {
        &self.grants
    }

    pub(crate) fn scalars(&self) -> &[Scalar] {
        &self.scalars
    }

    pub(crate) fn grant(&self, index: usize) -> Result<&Grant, ArgError> {
        let found = self.grants.len();
        self.grants.get(index).ok_or(ArgError::Missing {
            what: "tensor",
            index,
            found,
        })
    }
}
