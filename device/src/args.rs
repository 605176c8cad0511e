//! Arguments: tensors in the memory of one chip, and scalars; for a run ([`ChipArgs`]) and for one
//! of its core tasks ([`CoreArgs`]).

use std::fmt;
use std::ops::Range;

use smallvec::SmallVec;
use taskgraph::capture::{BoundaryScalar, IntoScalar};
use taskgraph::{
    BACKING_BYTES_MAX, BufferId, BufferKind, DType, Scalar, ScalarArg, Tag, Tensor, View,
};

use crate::chip::DeviceAddress;
use crate::error::{DeviceError, OrchestrationError};
use crate::orchestrator::CoreTaskId;
use crate::predicate::{Condition, Predicate};

/// A tensor in the memory of a chip: a view, and the device address of the first byte of the buffer
/// it views.
///
/// Shape, strides and element type can be asked for. Where it lies cannot: a body of a graph that could see that would
/// freeze what it makes of it, since the graph is replayed elsewhere. Whoever allocated the memory knows its address.
///
/// ```compile_fail
/// # fn body(args: &device::ChipGraphArgs) -> Result<u64, device::OrchestrationError> {
/// Ok(args.tensor(0)?.address.0) // of one call
/// # }
/// ```
/// ```compile_fail
/// # fn body(args: &device::ChipGraphArgs) -> Result<u64, device::OrchestrationError> {
/// Ok(args.tensor(0)?.view.byte_offset()) // of one call, too
/// # }
/// ```
/// ```compile_fail
/// # fn body(args: &device::ChipGraphArgs) -> Result<bool, device::OrchestrationError> {
/// Ok(args.tensor(0)? == args.tensor(1)?) // whether they lie in one place
/// # }
/// ```
#[derive(Clone, Copy)]
pub struct DeviceTensor {
    /// Device address of byte 0 of the buffer. The view's first element lies at `address + view.byte_offset()`; slices of
    /// a tensor keep the address and change the view.
    pub(crate) address: DeviceAddress,
    /// Shape, strides, offset and element type.
    pub(crate) view: Tensor,
    /// No core task may write it.
    pub(crate) is_read_only: bool,
}

impl fmt::Debug for DeviceTensor {
    /// Without the place.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("DeviceTensor")
            .field("dtype", &self.dtype())
            .field("shape", &self.shape())
            .field("strides", &self.strides())
            .finish_non_exhaustive()
    }
}

impl DeviceTensor {
    /// A tensor from its parts; nothing is checked before it is used.
    #[must_use]
    pub fn new(address: DeviceAddress, view: Tensor) -> Self {
        Self {
            address,
            view,
            is_read_only: false,
        }
    }

    /// The same tensor, to be read only: a core task that would write it, or a part of it, is refused.
    #[must_use]
    pub fn read_only(self) -> Self {
        Self {
            is_read_only: true,
            ..self
        }
    }

    /// The row-major tensor of this shape that begins at `address`, backed by as many bytes as it
    /// needs.
    ///
    /// # Errors
    /// [`OrchestrationError::Tensor`] for a shape that is no tensor.
    pub fn contiguous(
        address: DeviceAddress,
        dtype: DType,
        shape: &[u64],
    ) -> Result<Self, OrchestrationError> {
        let buffer = BufferId::new(0, address.0, 0, BufferKind::Device);
        let unbounded = Tensor::contiguous(buffer, dtype, shape, BACKING_BYTES_MAX)?;
        let view = Tensor::contiguous(buffer, dtype, shape, unbounded.footprint().end)?;
        Ok(Self::new(address, view))
    }

    /// Length of each dimension, in elements.
    #[must_use]
    pub fn shape(&self) -> &[u64] {
        self.view.shape()
    }

    /// Distance of neighbours along each dimension, in elements.
    #[must_use]
    pub fn strides(&self) -> &[u64] {
        self.view.strides()
    }

    /// The element type.
    #[must_use]
    pub fn dtype(&self) -> DType {
        self.view.dtype()
    }

    /// Number of elements.
    #[must_use]
    pub fn num_elements(&self) -> u64 {
        self.view.num_elements()
    }

    /// Where the buffer lies. For hosts that lost count of it, not for bodies of graphs.
    #[doc(hidden)]
    #[must_use]
    pub fn buffer_address(&self) -> DeviceAddress {
        self.address
    }

    /// The part of the tensor with the given indices along one dimension.
    ///
    /// # Errors
    /// [`OrchestrationError::Tensor`] if it does not lie inside the tensor.
    pub fn slice(&self, dim: usize, range: Range<u64>) -> Result<Self, OrchestrationError> {
        Ok(Self {
            view: self.view.slice(dim, range)?,
            ..*self
        })
    }

    /// The same elements in another shape, row-major.
    ///
    /// # Errors
    /// [`OrchestrationError::Tensor`] if it is not contiguous, or has another number of elements.
    pub fn reshape(&self, shape: &[u64]) -> Result<Self, OrchestrationError> {
        Ok(Self {
            view: self.view.reshape(shape)?,
            ..*self
        })
    }

    /// One block of a matrix: some of its rows and some of its columns.
    ///
    /// # Errors
    /// [`OrchestrationError::Tensor`] if it does not lie inside the tensor.
    pub fn tile(&self, rows: Range<u64>, columns: Range<u64>) -> Result<Self, OrchestrationError> {
        self.slice(0, rows)?.slice(1, columns)
    }

    /// The first address that `view`, which is the view of this tensor, touches.
    pub(crate) fn first_address(&self, view: &View) -> Result<DeviceAddress, DeviceError> {
        let first = self.address.0.checked_add(view.lo()).map(DeviceAddress);
        let (address, bytes) = (self.address, view.hi());
        first.ok_or(DeviceError::AddressOverflow { address, bytes })
    }
}

/// A type that a scalar can be given as and read back as, without a conversion.
pub trait ScalarValue: Sized {
    /// Its name in messages.
    const NAME: &'static str;
    /// The value, if the scalar was given as this type.
    fn from_scalar(scalar: Scalar) -> Option<Self>;
}

macro_rules! scalar_value {
    ($($rust:ty => $variant:ident),* $(,)?) => {$(
        impl ScalarValue for $rust {
            const NAME: &'static str = stringify!($rust);
            fn from_scalar(scalar: Scalar) -> Option<Self> {
                match scalar { Scalar::$variant(value) => Some(value), _ => None }
            }
        }
    )*};
}
scalar_value!(
    f32 => F32, f64 => F64, i32 => I32, i64 => I64, u32 => U32, u64 => U64, bool => Bool,
);

/// The arguments of one run: what the orchestration names.
#[derive(Clone, Debug, Default)]
pub struct ChipArgs {
    /// Tensors in the chip's memory.
    pub tensors: SmallVec<[DeviceTensor; 4]>,
    /// Scalars.
    pub scalars: SmallVec<[Scalar; 4]>,
}

impl ChipArgs {
    /// No arguments.
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }

    /// Adds a tensor.
    #[must_use]
    pub fn with_tensor(mut self, tensor: DeviceTensor) -> Self {
        self.tensors.push(tensor);
        self
    }

    /// Adds a scalar.
    #[must_use]
    pub fn with_scalar(mut self, scalar: impl Into<Scalar>) -> Self {
        self.scalars.push(scalar.into());
        self
    }

    /// The tensor at a position.
    ///
    /// # Errors
    /// [`OrchestrationError::NoArgument`].
    pub fn tensor(&self, idx: usize) -> Result<&DeviceTensor, OrchestrationError> {
        let count = self.tensors.len();
        self.tensors.get(idx).ok_or(OrchestrationError::NoArgument {
            kind: "tensor",
            idx,
            count,
        })
    }

    /// The scalar at a position.
    ///
    /// # Errors
    /// [`OrchestrationError::NoArgument`].
    pub fn scalar(&self, idx: usize) -> Result<Scalar, OrchestrationError> {
        let count = self.scalars.len();
        let missing = OrchestrationError::NoArgument {
            kind: "scalar",
            idx,
            count,
        };
        self.scalars.get(idx).copied().ok_or(missing)
    }
}

/// The arguments of one core task, built by [`core_args`]; borrows the tensors until it is
/// submitted.
#[derive(Clone, Default)]
pub struct CoreArgs<'t> {
    pub(crate) tensors: SmallVec<[(&'t DeviceTensor, Tag); 4]>,
    pub(crate) scalars: SmallVec<[Scalar; 4]>,
    /// Which of the scalars are those of a graph's boundary. Outside of graphs none are, and nothing is
    /// allocated.
    pub(crate) forwarded: Vec<(usize, BoundaryScalar)>,
    pub(crate) n_blocks: Option<u32>,
    pub(crate) after: SmallVec<[CoreTaskId; 2]>,
    /// Boxed, because few tasks have one.
    pub(crate) predicate: Option<Box<Predicate>>,
}

impl fmt::Debug for CoreArgs<'_> {
    /// Without the values of scalars that are a graph's: they are those of one call.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let is_forwarded = |at: usize| self.forwarded.iter().any(|(known, _)| *known == at);
        let scalars = self.scalars.iter().enumerate();
        let scalars = scalars.map(|(at, scalar)| (!is_forwarded(at)).then_some(*scalar));
        f.debug_struct("CoreArgs")
            .field("tensors", &self.tensors)
            .field("scalars", &scalars.collect::<SmallVec<[_; 4]>>())
            .field("n_blocks", &self.n_blocks)
            .field("after", &self.after)
            .field("predicate", &self.predicate)
            .finish()
    }
}

/// Starts the arguments of a core task.
#[must_use]
pub fn core_args<'t>() -> CoreArgs<'t> {
    CoreArgs::default()
}

impl<'t> CoreArgs<'t> {
    /// A tensor with a tag; the methods below are shorter.
    #[must_use]
    pub fn tensor(mut self, tensor: &'t DeviceTensor, tag: Tag) -> Self {
        self.tensors.push((tensor, tag));
        self
    }

    /// A tensor that the task reads.
    #[must_use]
    pub fn input(self, tensor: &'t DeviceTensor) -> Self {
        self.tensor(tensor, Tag::Input)
    }

    /// A tensor that the task overwrites whole.
    #[must_use]
    pub fn output(self, tensor: &'t DeviceTensor) -> Self {
        self.tensor(tensor, Tag::Output)
    }

    /// A tensor that the task updates in place.
    #[must_use]
    pub fn inout(self, tensor: &'t DeviceTensor) -> Self {
        self.tensor(tensor, Tag::InOut)
    }

    /// A scalar: a value, or a scalar of the graph that is being built ([`ChipGraphArgs::scalar`]).
    ///
    /// [`ChipGraphArgs::scalar`]: crate::ChipGraphArgs::scalar
    #[must_use]
    pub fn scalar(mut self, scalar: impl IntoScalar) -> Self {
        let arg = ScalarArg::of(scalar);
        let at = self.scalars.len();
        self.forwarded.extend(arg.forwarded().map(|it| (at, it)));
        self.scalars.push(arg.to_send());
        self
    }

    /// Runs the kernel over `n` blocks, each on a core of its own; 1 unless said.
    #[must_use]
    pub fn blocks(mut self, n: u32) -> Self {
        self.n_blocks = Some(n);
        self
    }

    /// Makes the task wait for an earlier one of the same run, whatever the two touch.
    #[must_use]
    pub fn after(mut self, task: CoreTaskId) -> Self {
        self.after.push(task);
        self
    }

    /// Runs the task only if the element of `tensor` at `index` fulfils `condition`. The element is
    /// read on the chip, after the tasks that write it. A task that does not run counts as done.
    ///
    /// # Errors
    /// [`OrchestrationError::Tensor`] or [`OrchestrationError::Refused`] if there is no such
    /// element.
    pub fn only_if(
        mut self,
        tensor: &DeviceTensor,
        index: &[u64],
        condition: Condition,
    ) -> Result<Self, OrchestrationError> {
        self.predicate = Some(Box::new(Predicate::new(tensor, index, condition)?));
        Ok(self)
    }

    /// The scalar at a position, as a body of a graph is given it.
    pub(crate) fn boundary_scalar(&self, at: usize) -> BoundaryScalar {
        let forwarded = self.forwarded.iter().find(|(known, _)| *known == at);
        forwarded.map_or_else(|| BoundaryScalar::eager(self.scalars[at]), |(_, it)| *it)
    }

    /// Refuses what belongs to a task and not to a graph.
    pub(crate) fn refuse_for_graph(&self) -> Result<(), OrchestrationError> {
        if self.n_blocks.is_none() && self.predicate.is_none() {
            return Ok(());
        }
        let problem = "submit a graph: blocks and predicates belong to the tasks in it";
        Err(OrchestrationError::refuse(problem))
    }

    /// How many blocks the task has; a kernel's name for the message if there is none.
    pub(crate) fn block_count(&self, kernel: &'static str) -> Result<u32, OrchestrationError> {
        match self.n_blocks.unwrap_or(1) {
            0 => {
                let problem = "it has 0 blocks".to_owned();
                Err(OrchestrationError::Task { kernel, problem })
            }
            n_blocks => Ok(n_blocks),
        }
    }
}
