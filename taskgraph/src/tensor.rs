//! Tensors: self-describing views of a buffer.
//!
//! A [`Tensor`] names a buffer, a byte offset, and up to [`RANK_MAX`] dimensions with strides in
//! elements. It carries no address. Every constructor checks, without wrapping, that the last byte
//! the view can touch lies inside the backing; a `Tensor` that exists is in bounds.
//!
//! Tensors cross a process as [`RawTensor`], and [`RawTensor::validate`] is the one door back.

mod raw;

use std::ops::Range;

pub use raw::RawTensor;

use crate::buffer::{BufferId, BufferKind};
use crate::dtype::DType;
use crate::view::View;

/// The largest number of dimensions.
pub const RANK_MAX: usize = 5;

/// The largest backing: positions in bits and differences of positions then fit in 64 bits.
pub const BACKING_BYTES_MAX: u64 = 1 << 60;

/// Why a tensor cannot exist.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum TensorError {
    /// More dimensions than [`RANK_MAX`].
    #[error("rank {rank} is above the limit of {RANK_MAX} dimensions")]
    Rank {
        /// The rank that was asked for.
        rank: usize,
    },
    /// Shape and strides differ in length.
    #[error("{shape} dimensions but {strides} strides")]
    StrideCount {
        /// Number of dimensions.
        shape: usize,
        /// Number of strides.
        strides: usize,
    },
    /// A stride of zero would make all elements of a dimension one.
    #[error("stride of dimension {dim} is zero, strides are at least one element")]
    ZeroStride {
        /// The dimension.
        dim: usize,
    },
    /// The extent does not fit in 64 bits.
    #[error("overflow: the extent of the view does not fit in 64 bits")]
    Overflow,
    /// The view touches bytes behind the end of the backing.
    #[error("view ends at byte {end} of {buffer}, which has {backing_bytes} bytes")]
    OutOfBounds {
        /// The buffer.
        buffer: BufferId,
        /// One past the last byte of the view.
        end: u64,
        /// Size of the backing in bytes.
        backing_bytes: u64,
    },
    /// The backing is larger than [`BACKING_BYTES_MAX`].
    #[error("backing of {backing_bytes} bytes is above the limit of {BACKING_BYTES_MAX} bytes")]
    BackingTooLarge {
        /// Size of the backing in bytes.
        backing_bytes: u64,
    },
    /// The descriptor claims more bytes than the object really has.
    #[error("descriptor claims a backing of {claimed} bytes, the object has {real}")]
    BackingClaim {
        /// What the descriptor says.
        claimed: u64,
        /// What the receiver knows.
        real: u64,
    },
    /// The first element does not lie on its natural alignment.
    #[error("byte offset {byte_offset} is not a multiple of {align}, the alignment of {dtype}")]
    Misaligned {
        /// Offset in bytes.
        byte_offset: u64,
        /// Alignment in bytes.
        align: u64,
        /// The element type.
        dtype: DType,
    },
    /// A packed element does not start on a byte.
    #[error("element {element} of a packed {dtype} tensor does not start on a byte")]
    SubByteOffset {
        /// Offset in elements from the start of the view.
        element: u64,
        /// The element type.
        dtype: DType,
    },
    /// A dimension that the tensor does not have.
    #[error("no dimension {dim} in a tensor of rank {rank}")]
    NoSuchDim {
        /// The dimension that was asked for.
        dim: usize,
        /// Rank of the tensor.
        rank: usize,
    },
    /// A range outside the dimension, or one that ends before it starts.
    #[error("range {start}..{end} does not lie in dimension {dim} of length {len}")]
    BadRange {
        /// The dimension.
        dim: usize,
        /// First index.
        start: u64,
        /// One past the last index.
        end: u64,
        /// Length of the dimension.
        len: u64,
    },
    /// A step of zero never advances.
    #[error("step of dimension {dim} is zero, steps are at least 1")]
    ZeroStep {
        /// The dimension.
        dim: usize,
    },
    /// Only contiguous tensors can be reshaped: no copy is ever made.
    #[error("cannot reshape a tensor that is not contiguous, copy it first")]
    NotContiguous,
    /// A reshape must keep the number of elements.
    #[error("cannot reshape {from} elements into {to}")]
    ElementCount {
        /// Elements of the tensor.
        from: u64,
        /// Elements of the wanted shape.
        to: u64,
    },
    /// An element type code that was never given out.
    #[error("unknown element type code {code}")]
    UnknownDType {
        /// The code.
        code: u8,
    },
    /// A buffer kind code that was never given out.
    #[error("unknown buffer kind code {code}")]
    UnknownBufferKind {
        /// The code.
        code: u32,
    },
    /// Bytes of the descriptor that must be zero are not.
    #[error("unused bytes of the descriptor are not zero")]
    UnusedNotZero,
}

/// A view of a buffer that is known to lie inside its backing.
#[derive(Clone, Copy, Debug, Eq)]
pub struct Tensor {
    buffer: BufferId,
    byte_offset: u64,
    backing_bytes: u64,
    // Unused dimensions are zero in both arrays.
    shape: [u64; RANK_MAX],
    strides: [u64; RANK_MAX],
    rank: u8,
    dtype: DType,
}

/// Field by field. By hand, because a recording compares tensors for every argument and the arrays are compared
/// at once here.
impl PartialEq for Tensor {
    #[inline]
    fn eq(&self, other: &Tensor) -> bool {
        self.buffer == other.buffer
            && self.byte_offset == other.byte_offset
            && self.backing_bytes == other.backing_bytes
            && self.dtype == other.dtype
            && self.is_laid_out(&other.shape, &other.strides, other.rank)
    }
}

impl Tensor {
    /// The row-major tensor of this shape at the start of a backing of `backing_bytes` bytes.
    ///
    /// # Errors
    /// When the shape has too many dimensions, overflows, or does not fit in the backing.
    pub fn contiguous(
        buffer: BufferId,
        dtype: DType,
        shape: &[u64],
        backing_bytes: u64,
    ) -> Result<Tensor, TensorError> {
        let (strides, rank) = (row_major(shape)?, shape.len());
        Tensor::strided(buffer, dtype, 0, shape, &strides[..rank], backing_bytes)
    }

    /// A row-major tensor of this shape without memory, for an argument that its submit gives memory to: see
    /// [`Scheduler::submit_outputs`](crate::Scheduler::submit_outputs). Tensors of one `number` are the same one.
    ///
    /// # Errors
    /// When the shape has too many dimensions or overflows.
    pub fn unbacked(number: u64, dtype: DType, shape: &[u64]) -> Result<Tensor, TensorError> {
        let buffer = BufferId::new(0, number, 0, BufferKind::Unbacked);
        Tensor::contiguous(buffer, dtype, shape, bytes_of(dtype, shape)?)
    }

    /// A view with any positive strides (in elements), `byte_offset` bytes into the backing.
    ///
    /// # Errors
    /// When the view has too many dimensions, a zero stride, overflows, is not aligned to its
    /// element type, or touches a byte outside the backing. An empty view touches none.
    pub fn strided(
        buffer: BufferId,
        dtype: DType,
        byte_offset: u64,
        shape: &[u64],
        strides: &[u64],
        backing_bytes: u64,
    ) -> Result<Tensor, TensorError> {
        if shape.len() > RANK_MAX {
            return Err(TensorError::Rank { rank: shape.len() });
        }
        if shape.len() != strides.len() {
            return Err(TensorError::StrideCount {
                shape: shape.len(),
                strides: strides.len(),
            });
        }
        let mut tensor = Tensor {
            buffer,
            byte_offset,
            backing_bytes,
            shape: [0; RANK_MAX],
            strides: [0; RANK_MAX],
            rank: shape.len() as u8,
            dtype,
        };
        tensor.shape[..shape.len()].copy_from_slice(shape);
        tensor.strides[..shape.len()].copy_from_slice(strides);
        tensor.check()?;
        Ok(tensor)
    }

    /// The buffer that is viewed.
    pub fn buffer(&self) -> BufferId {
        self.buffer
    }

    /// Offset of the first element from the start of the backing, in bytes.
    pub fn byte_offset(&self) -> u64 {
        self.byte_offset
    }

    /// Size of the backing in bytes.
    pub fn backing_bytes(&self) -> u64 {
        self.backing_bytes
    }

    /// Length of each dimension, in elements.
    pub fn shape(&self) -> &[u64] {
        &self.shape[..self.rank()]
    }

    /// Distance of neighbours along each dimension, in elements.
    pub fn strides(&self) -> &[u64] {
        &self.strides[..self.rank()]
    }

    /// Number of dimensions; 0 is a single element.
    pub fn rank(&self) -> usize {
        usize::from(self.rank)
    }

    /// Element type.
    pub fn dtype(&self) -> DType {
        self.dtype
    }

    /// Number of elements; 0 when a dimension is empty.
    pub fn num_elements(&self) -> u64 {
        // Wrapping cannot happen for a non-empty view with non-overlapping elements; a view whose
        // elements overlap can have more elements than bytes, and saturates.
        self.shape()
            .iter()
            .fold(1, |n: u64, &len| n.saturating_mul(len))
    }

    /// Whether the view has no element.
    pub fn is_empty(&self) -> bool {
        self.shape().contains(&0)
    }

    /// Whether the elements lie side by side in row-major order.
    pub fn is_contiguous(&self) -> bool {
        let mut expected = 1;
        for dim in (0..self.rank()).rev() {
            if self.shape[dim] != 1 && self.strides[dim] != expected {
                return self.is_empty();
            }
            expected *= self.shape[dim].max(1);
        }
        true
    }

    /// The bytes of elements that lie side by side in row-major order and fill whole bytes.
    fn dense_bytes(&self) -> Option<u64> {
        let mut elements = 1;
        for (&count, &stride) in self.shape().iter().zip(self.strides()).rev() {
            if count != 1 && stride != elements {
                return None;
            }
            elements = count.checked_mul(elements)?;
        }
        let bits = self.dtype.bits().checked_mul(elements)?;
        bits.is_multiple_of(8).then_some(bits / 8)
    }

    /// The bytes from the first to the last one touched, as offsets into the backing.
    ///
    /// Exact for a contiguous tensor, a bounding range for any other. Empty for an empty view.
    pub fn footprint(&self) -> Range<u64> {
        let view = self.view();
        view.lo()..view.hi()
    }

    /// The set of bytes that are touched, for intersection with other views.
    ///
    /// A few instructions where the elements lie side by side, as they mostly do.
    pub fn view(&self) -> View {
        if let Some(bytes) = self.dense_bytes() {
            return View::dense(self.byte_offset, self.byte_offset + bytes);
        }
        View::of(
            self.byte_offset,
            self.shape(),
            self.strides(),
            self.dtype.bits(),
        )
    }

    /// The part of the tensor with indices `range` along `dim`.
    ///
    /// # Errors
    /// When there is no such dimension or range, or a packed element would not start on a byte.
    pub fn slice(&self, dim: usize, range: Range<u64>) -> Result<Tensor, TensorError> {
        self.slice_step(dim, range, 1)
    }

    /// Every `step`-th index of `range` along `dim`, beginning with the first.
    ///
    /// # Errors
    /// As [`slice`](Tensor::slice), and when the step is zero or the new stride overflows.
    pub fn slice_step(
        &self,
        dim: usize,
        range: Range<u64>,
        step: u64,
    ) -> Result<Tensor, TensorError> {
        self.check_dim(dim)?;
        let (start, end, len) = (range.start, range.end, self.shape[dim]);
        if start > end || end > len {
            return Err(TensorError::BadRange {
                dim,
                start,
                end,
                len,
            });
        }
        if step == 0 {
            return Err(TensorError::ZeroStep { dim });
        }
        let mut part = *self;
        part.shape[dim] = (end - start).div_ceil(step);
        part.strides[dim] = self.strides[dim]
            .checked_mul(step)
            .ok_or(TensorError::Overflow)?;
        if !part.is_empty() {
            part.byte_offset += self.bytes_to(start * self.strides[dim])?;
        }
        part.check()?;
        Ok(part)
    }

    /// The same elements with dimensions `a` and `b` exchanged.
    ///
    /// # Errors
    /// When there is no such dimension.
    pub fn transpose(&self, a: usize, b: usize) -> Result<Tensor, TensorError> {
        self.check_dim(a)?;
        self.check_dim(b)?;
        let mut turned = *self;
        turned.shape.swap(a, b);
        turned.strides.swap(a, b);
        Ok(turned)
    }

    /// The same elements, in row-major order, under another shape.
    ///
    /// # Errors
    /// When the tensor is not contiguous or the shape has another number of elements.
    pub fn reshape(&self, shape: &[u64]) -> Result<Tensor, TensorError> {
        let (strides, rank) = (row_major(shape)?, shape.len());
        let shaped = Tensor::strided(
            self.buffer,
            self.dtype,
            self.byte_offset,
            shape,
            &strides[..rank],
            self.backing_bytes,
        );
        let to = shape.iter().fold(1, |n: u64, &len| n.saturating_mul(len));
        match (self.is_contiguous(), self.num_elements()) {
            (false, _) => Err(TensorError::NotContiguous),
            (true, from) if from != to => Err(TensorError::ElementCount { from, to }),
            (true, _) => shaped,
        }
    }

    /// Whether shape and strides, zero behind the rank, are these. Without a branch per dimension.
    #[inline]
    pub(crate) fn is_laid_out(
        &self,
        shape: &[u64; RANK_MAX],
        strides: &[u64; RANK_MAX],
        rank: u8,
    ) -> bool {
        let differ = |a: &[u64; RANK_MAX], b: &[u64; RANK_MAX]| {
            a.iter().zip(b).fold(0, |all, (a, b)| all | (a ^ b))
        };
        let differs = differ(&self.shape, shape) | differ(&self.strides, strides);
        differs == 0 && self.rank == rank
    }

    /// The wire form.
    pub fn to_raw(&self) -> RawTensor {
        RawTensor::of(self)
    }

    fn check_dim(&self, dim: usize) -> Result<(), TensorError> {
        if dim < self.rank() {
            return Ok(());
        }
        Err(TensorError::NoSuchDim {
            dim,
            rank: self.rank(),
        })
    }

    /// Bytes that `elements` elements take, when that is a whole number.
    fn bytes_to(&self, elements: u64) -> Result<u64, TensorError> {
        let bits = elements
            .checked_mul(self.dtype.bits())
            .ok_or(TensorError::Overflow)?;
        if !bits.is_multiple_of(8) {
            return Err(TensorError::SubByteOffset {
                element: elements,
                dtype: self.dtype,
            });
        }
        Ok(bits / 8)
    }

    /// The promise of the type: what a `Tensor` describes lies inside the backing.
    fn check(&self) -> Result<(), TensorError> {
        let (backing_bytes, dtype) = (self.backing_bytes, self.dtype);
        if backing_bytes > BACKING_BYTES_MAX {
            return Err(TensorError::BackingTooLarge { backing_bytes });
        }
        if let Some(dim) = self.strides().iter().position(|&stride| stride == 0) {
            return Err(TensorError::ZeroStride { dim });
        }
        if !self.byte_offset.is_multiple_of(dtype.align()) {
            let (byte_offset, align) = (self.byte_offset, dtype.align());
            return Err(TensorError::Misaligned {
                byte_offset,
                align,
                dtype,
            });
        }
        let end = self.end()?;
        if end > backing_bytes {
            return Err(TensorError::OutOfBounds {
                buffer: self.buffer,
                end,
                backing_bytes,
            });
        }
        Ok(())
    }

    /// One past the last byte that is touched; the offset itself for an empty view.
    fn end(&self) -> Result<u64, TensorError> {
        if self.is_empty() {
            return Ok(self.byte_offset);
        }
        let last = self
            .shape()
            .iter()
            .zip(self.strides())
            .try_fold(0u64, |last, (&len, &stride)| {
                last.checked_add((len - 1).checked_mul(stride)?)
            });
        last.and_then(|last| last.checked_add(1))
            .and_then(|count| count.checked_mul(self.dtype.bits()))
            .and_then(|bits| self.byte_offset.checked_add(bits.div_ceil(8)))
            .ok_or(TensorError::Overflow)
    }
}

/// Bytes of a row-major tensor.
pub(crate) fn bytes_of(dtype: DType, shape: &[u64]) -> Result<u64, TensorError> {
    let elements = shape.iter().try_fold(1u64, |n, &len| n.checked_mul(len));
    let bits = elements.and_then(|n| n.checked_mul(dtype.bits()));
    Ok(bits.ok_or(TensorError::Overflow)?.div_ceil(8))
}

/// Strides in elements of a row-major tensor. An empty dimension counts as one element here.
pub(crate) fn row_major(shape: &[u64]) -> Result<[u64; RANK_MAX], TensorError> {
    if shape.len() > RANK_MAX {
        return Err(TensorError::Rank { rank: shape.len() });
    }
    let mut strides = [0; RANK_MAX];
    let mut next: u64 = 1;
    for dim in (0..shape.len()).rev() {
        strides[dim] = next;
        next = next
            .checked_mul(shape[dim].max(1))
            .ok_or(TensorError::Overflow)?;
    }
    Ok(strides)
}

#[cfg(test)]
mod tests;
