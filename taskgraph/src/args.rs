//! What a task is given: tensors with tags, scalars, and optional names.
//!
//! A [`TaskArgs`] that exists is consistent: names are unique, nothing read-only is written, and no
//! two arguments write the same byte. The checks run when an argument is added, so that submitting
//! the same arguments a thousand times checks them once.

use std::borrow::Cow;
use std::fmt;

use smallvec::SmallVec;

use crate::buffer::{BufferId, BufferKind};
use crate::capture::scalar::{Origin, sealed::Parts};
use crate::capture::{BoundaryScalar, IntoScalar};
use crate::tensor::Tensor;
use crate::view::View;

/// What a task does to a tensor.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Tag {
    /// Reads it.
    Input,
    /// Overwrites all of it without reading; the submit may provide the [backing](Tensor::unbacked).
    Output,
    /// Reads and writes it.
    InOut,
    /// Overwrites all of it without reading, in a backing that exists.
    OutputExisting,
    /// Touches it in a way that the graph shall not order.
    NoDep,
}

impl Tag {
    /// Whether the task writes the tensor, as far as the graph is told.
    pub const fn writes(self) -> bool {
        matches!(self, Tag::Output | Tag::InOut | Tag::OutputExisting)
    }

    /// Whether the task reads the tensor, as far as the graph is told.
    pub const fn reads(self) -> bool {
        matches!(self, Tag::Input | Tag::InOut)
    }

    /// The wire code: 1 to 5 in the order of the variants.
    pub const fn code(self) -> u32 {
        match self {
            Tag::Input => 1,
            Tag::Output => 2,
            Tag::InOut => 3,
            Tag::OutputExisting => 4,
            Tag::NoDep => 5,
        }
    }

    /// The tag with this wire code, or `None` for a code that was never given out.
    pub const fn from_code(code: u32) -> Option<Tag> {
        match code {
            1 => Some(Tag::Input),
            2 => Some(Tag::Output),
            3 => Some(Tag::InOut),
            4 => Some(Tag::OutputExisting),
            5 => Some(Tag::NoDep),
            _ => None,
        }
    }
}

/// One tensor argument as inference sees it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
// In this order: all but the strides stand in front.
#[repr(C)]
pub struct Access {
    /// The buffer.
    pub buffer: BufferId,
    /// What is done to the bytes.
    pub tag: Tag,
    /// The bytes of the buffer.
    pub view: View,
}

impl Access {
    /// The access that a task makes to `tensor` under `tag`.
    pub fn new(tensor: &Tensor, tag: Tag) -> Access {
        Access {
            buffer: tensor.buffer(),
            view: tensor.view(),
            tag,
        }
    }

    /// Whether two tasks that run at once must not make both accesses: one writes bytes that the other reads or writes.
    ///
    /// [`Tag::NoDep`] conflicts with nothing: whoever uses it has taken the order upon themselves.
    pub fn conflicts_with(&self, other: &Access) -> bool {
        let untracked = self.tag == Tag::NoDep || other.tag == Tag::NoDep;
        (self.tag.writes() || other.tag.writes())
            && !untracked
            && self.buffer == other.buffer
            && self.view.overlaps(&other.view)
    }

    fn is_unbacked(&self) -> bool {
        self.buffer.kind == BufferKind::Unbacked
    }

    fn writes_over(&self, other: &Access) -> bool {
        self.tag.writes()
            && other.tag.writes()
            && self.buffer == other.buffer
            && self.view.overlaps(&other.view)
    }
}

/// A plain value handed to a task.
#[derive(Clone, Copy, Debug, PartialEq)]
#[non_exhaustive]
pub enum Scalar {
    /// A 64-bit unsigned integer.
    U64(u64),
    /// A 64-bit signed integer.
    I64(i64),
    /// A 32-bit unsigned integer.
    U32(u32),
    /// A 32-bit signed integer.
    I32(i32),
    /// A double.
    F64(f64),
    /// A float.
    F32(f32),
    /// A truth value.
    Bool(bool),
}

impl Scalar {
    /// The wire code of the type: 1 to 7 in the order of the variants.
    pub const fn code(self) -> u32 {
        match self {
            Scalar::U64(_) => 1,
            Scalar::I64(_) => 2,
            Scalar::U32(_) => 3,
            Scalar::I32(_) => 4,
            Scalar::F64(_) => 5,
            Scalar::F32(_) => 6,
            Scalar::Bool(_) => 7,
        }
    }

    /// The value in 64 bits; smaller types stand in the low bits, the rest is zero.
    pub const fn bits(self) -> u64 {
        match self {
            Scalar::U64(v) => v,
            Scalar::I64(v) => v as u64,
            Scalar::U32(v) => v as u64,
            Scalar::I32(v) => v as u32 as u64,
            Scalar::F64(v) => v.to_bits(),
            Scalar::F32(v) => v.to_bits() as u64,
            Scalar::Bool(v) => v as u64,
        }
    }

    /// The scalar with this code and these bits, or `None` when no value is written that way.
    pub fn from_wire(code: u32, bits: u64) -> Option<Scalar> {
        let narrow = u32::try_from(bits);
        Some(match code {
            1 => Scalar::U64(bits),
            2 => Scalar::I64(bits as i64),
            3 => Scalar::U32(narrow.ok()?),
            4 => Scalar::I32(narrow.ok()? as i32),
            5 => Scalar::F64(f64::from_bits(bits)),
            6 => Scalar::F32(f32::from_bits(narrow.ok()?)),
            7 if bits <= 1 => Scalar::Bool(bits == 1),
            _ => return None,
        })
    }
}

macro_rules! scalars {
    ($($rust:ty => $variant:ident),* $(,)?) => {
        $(impl From<$rust> for Scalar {
            fn from(value: $rust) -> Scalar { Scalar::$variant(value) }
        })*
    };
}

scalars! { u64 => U64, i64 => I64, u32 => U32, i32 => I32, f64 => F64, f32 => F32, bool => Bool }

/// A name of an argument; a literal costs nothing.
pub type Name = Cow<'static, str>;

/// One tensor argument.
#[derive(Clone, Debug, PartialEq)]
pub struct TensorArg {
    /// The view.
    pub tensor: Tensor,
    /// What the task does to it.
    pub tag: Tag,
    /// What the kernel calls it.
    pub name: Option<Name>,
}

/// One scalar argument.
///
/// Its value is for whoever sends it to a worker: a body that could read that of a scalar of the boundary
/// would freeze what it makes of it.
///
/// ```compile_fail
/// # fn body(s: taskgraph::capture::BoundaryScalar) {
/// let value = taskgraph::ScalarArg::of(s).value; // no value by this way either
/// # }
/// ```
/// ```compile_fail
/// # fn body(s: taskgraph::capture::BoundaryScalar) {
/// if taskgraph::ScalarArg::of(s) == taskgraph::ScalarArg::of(2u32) {} // nor by guessing it
/// # }
/// ```
/// ```compile_fail
/// # fn body(s: taskgraph::capture::BoundaryScalar) {
/// let (mut mine, mut guess) = (taskgraph::TaskArgs::new(), taskgraph::TaskArgs::new());
/// mine.scalar(s);
/// guess.scalar(2u32);
/// if mine == guess {}
/// # }
/// ```
#[derive(Clone)]
pub struct ScalarArg {
    pub(crate) value: Scalar,
    /// What the kernel calls it.
    pub name: Option<Name>,
    /// Whether it forwards a scalar of a boundary, and which.
    pub(crate) origin: Origin,
}

impl ScalarArg {
    /// A scalar without a name.
    pub fn of(value: impl IntoScalar) -> ScalarArg {
        ScalarArg::new(value, None)
    }

    /// The value, to be sent to a worker. Not for bodies of graphs.
    #[doc(hidden)]
    pub fn to_send(&self) -> Scalar {
        self.value
    }

    /// The scalar of a boundary that it forwards, if it forwards one.
    pub fn forwarded(&self) -> Option<BoundaryScalar> {
        (self.origin != Origin::Value).then(|| self.forward())
    }

    /// The same scalar, to be forwarded again.
    pub fn forward(&self) -> BoundaryScalar {
        BoundaryScalar::of(self.value, self.origin)
    }

    fn new(value: impl IntoScalar, name: Option<Name>) -> ScalarArg {
        let Parts(value, origin) = value.parts();
        ScalarArg {
            value,
            name,
            origin,
        }
    }
}

impl fmt::Debug for ScalarArg {
    /// Without the value of a scalar that is forwarded.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let value = (self.origin == Origin::Value).then_some(self.value);
        f.debug_struct("ScalarArg")
            .field("value", &value)
            .field("name", &self.name)
            .finish()
    }
}

/// Why an argument was refused. The arguments are as they were before.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum ArgsError {
    /// Two arguments have one name.
    #[error("two arguments are named `{name}`")]
    DuplicateName {
        /// The name.
        name: Name,
    },
    /// The buffer cannot be written.
    #[error("argument {index} writes {buffer}, which is read only; tag it as input")]
    ReadOnly {
        /// Position among the tensor arguments.
        index: usize,
        /// The buffer.
        buffer: BufferId,
    },
    /// The tensor has no memory yet, and only an output is given some.
    #[error(
        "argument {index} has no memory yet; name it as output of the task that makes it, before others use it"
    )]
    Unbacked {
        /// Position among the tensor arguments.
        index: usize,
    },
    /// The argument has memory already, or the new one has another shape or type.
    #[error(
        "argument {index} cannot be backed by such a tensor: it waits for none, or for another shape"
    )]
    NotBackable {
        /// Position among the tensor arguments.
        index: usize,
    },
    /// Two arguments of one task write the same bytes, in no order.
    #[error("arguments {first} and {second} write overlapping bytes of {buffer}")]
    OverlappingWrites {
        /// Position of the earlier tensor argument.
        first: usize,
        /// Position of the later tensor argument.
        second: usize,
        /// The buffer.
        buffer: BufferId,
    },
}

/// The arguments of one task, checked as they are added.
///
/// An output may be a tensor [without memory](Tensor::unbacked), which
/// [`Scheduler::submit_outputs`](crate::Scheduler::submit_outputs) allocates.
///
/// ```
/// use taskgraph::{BufferId, BufferKind, DType, Tag, TaskArgs, Tensor};
///
/// let buffer = BufferId::new(1, 7, 0, BufferKind::Shared);
/// let x = Tensor::contiguous(buffer, DType::F32, &[16, 16], 1024)?;
/// let mut args = TaskArgs::new();
/// args.tensor(x.slice(1, 0..4)?, Tag::Output)?; // two disjoint tiles of one buffer
/// args.tensor(x.slice(1, 8..12)?, Tag::Output)?;
/// args.scalar(3.0f32);
/// assert!(args.tensor(x.slice(1, 3..5)?, Tag::Output).is_err()); // meets the first one
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Clone, Debug, Default)]
pub struct TaskArgs {
    tensors: SmallVec<[TensorArg; 3]>,
    accesses: SmallVec<[Access; 3]>,
    scalars: SmallVec<[ScalarArg; 4]>,
    is_unbacked: bool,
}

impl TaskArgs {
    /// No arguments.
    pub fn new() -> TaskArgs {
        TaskArgs::default()
    }

    /// Adds a tensor.
    ///
    /// # Errors
    /// When it writes a read-only buffer, or bytes that another argument writes.
    pub fn tensor(&mut self, tensor: Tensor, tag: Tag) -> Result<&mut TaskArgs, ArgsError> {
        self.add_tensor(tensor, tag, None)
    }

    /// Adds a tensor under a name.
    ///
    /// # Errors
    /// As [`tensor`](TaskArgs::tensor), and when the name is taken.
    pub fn named_tensor(
        &mut self,
        name: impl Into<Name>,
        tensor: Tensor,
        tag: Tag,
    ) -> Result<&mut TaskArgs, ArgsError> {
        let name = self.free_name(name.into())?;
        self.add_tensor(tensor, tag, Some(name))
    }

    /// Adds a scalar: a value, or a [scalar of a boundary](crate::capture::BoundaryScalar) that is
    /// forwarded.
    pub fn scalar(&mut self, value: impl IntoScalar) -> &mut TaskArgs {
        self.scalars.push(ScalarArg::new(value, None));
        self
    }

    /// Adds a scalar under a name.
    ///
    /// # Errors
    /// When the name is taken.
    pub fn named_scalar(
        &mut self,
        name: impl Into<Name>,
        value: impl IntoScalar,
    ) -> Result<&mut TaskArgs, ArgsError> {
        let name = Some(self.free_name(name.into())?);
        self.scalars.push(ScalarArg::new(value, name));
        Ok(self)
    }

    /// The tensors, in the order they were added.
    pub fn tensors(&self) -> &[TensorArg] {
        &self.tensors
    }

    /// The scalars, in the order they were added.
    pub fn scalars(&self) -> &[ScalarArg] {
        &self.scalars
    }

    /// What inference sees: one access per tensor, in the order they were added.
    #[inline]
    pub fn accesses(&self) -> &[Access] {
        &self.accesses
    }

    /// Whether an output waits for memory.
    #[inline]
    pub fn is_unbacked(&self) -> bool {
        self.is_unbacked
    }

    /// Gives memory to an output without any: a row-major tensor of the same shape and type.
    ///
    /// # Errors
    /// When the argument has memory, the tensors differ, or another argument writes the same bytes.
    pub fn back(&mut self, index: usize, tensor: Tensor) -> Result<(), ArgsError> {
        let found = self.tensors.get(index).filter(|arg| {
            let old = &arg.tensor;
            let is_alike = (old.dtype(), old.shape()) == (tensor.dtype(), tensor.shape());
            is_alike && tensor.is_contiguous() && self.accesses[index].is_unbacked()
        });
        let tag = found.ok_or(ArgsError::NotBackable { index })?.tag;
        self.check_access(&Access::new(&tensor, tag), index)?;
        self.replace(index, tensor);
        Ok(())
    }

    /// Puts a tensor in the place of another, that no argument conflicts with.
    pub(crate) fn replace(&mut self, index: usize, tensor: Tensor) {
        let arg = &mut self.tensors[index];
        arg.tensor = tensor;
        self.accesses[index] = Access::new(&tensor, arg.tag);
        self.is_unbacked = self.accesses.iter().any(Access::is_unbacked);
    }

    /// Whether a tensor of which inference sees this may stand at this position.
    fn check_access(&self, access: &Access, index: usize) -> Result<(), ArgsError> {
        let (tag, buffer) = (access.tag, access.buffer);
        if tag.writes() && !buffer.kind.is_writable() {
            return Err(ArgsError::ReadOnly { index, buffer });
        }
        if access.is_unbacked() && tag != Tag::Output {
            return Err(ArgsError::Unbacked { index });
        }
        let others = self.accesses.iter().enumerate();
        let mut others = others.filter(|(other, _)| *other != index);
        match others.find(|(_, other)| access.writes_over(other)) {
            None => Ok(()),
            Some((other, _)) => Err(ArgsError::OverlappingWrites {
                first: other.min(index),
                second: other.max(index),
                buffer,
            }),
        }
    }

    fn add_tensor(
        &mut self,
        tensor: Tensor,
        tag: Tag,
        name: Option<Name>,
    ) -> Result<&mut TaskArgs, ArgsError> {
        let access = Access::new(&tensor, tag);
        self.check_access(&access, self.tensors.len())?;
        self.tensors.push(TensorArg { tensor, tag, name });
        self.accesses.push(access);
        self.is_unbacked |= access.is_unbacked();
        Ok(self)
    }

    fn free_name(&self, name: Name) -> Result<Name, ArgsError> {
        let mut names = self.tensors.iter().map(|arg| &arg.name);
        let mut scalar_names = self.scalars.iter().map(|arg| &arg.name);
        let is_taken = |taken: &Option<Name>| taken.as_ref() == Some(&name);
        if names.any(is_taken) || scalar_names.any(is_taken) {
            return Err(ArgsError::DuplicateName { name });
        }
        Ok(name)
    }
}

#[cfg(test)]
mod tests;
