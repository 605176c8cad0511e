//! The wire form of a tensor, and the one door back.
//!
//! What a peer wrote is a claim. [`RawTensor`] is plain old data: any 128 bytes are one. Only
//! [`RawTensor::validate`] turns it into a [`Tensor`], and it needs the real size of the backing.

use std::mem::offset_of;

use bytemuck::{Pod, Zeroable};

use super::{RANK_MAX, Tensor, TensorError};
use crate::buffer::{BufferId, BufferKind};
use crate::dtype::DType;

/// A tensor as it crosses a process: 128 bytes, native endianness, no padding.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Pod, Zeroable)]
#[repr(C)]
pub struct RawTensor {
    /// Incarnation of the owner of the buffer.
    pub owner: u64,
    /// Number of the buffer at its owner.
    pub id: u64,
    /// Generation of the buffer id.
    pub generation: u32,
    /// [`BufferKind`] code.
    pub kind: u32,
    /// Offset of the first element, in bytes.
    pub byte_offset: u64,
    /// Size of the backing in bytes, as the sender believes it.
    pub backing_bytes: u64,
    /// Length of each dimension in elements; zero behind `rank`.
    pub shape: [u64; RANK_MAX],
    /// Stride of each dimension in elements; zero behind `rank`.
    pub strides: [u64; RANK_MAX],
    /// Number of dimensions.
    pub rank: u8,
    /// [`DType`] code.
    pub dtype: u8,
    /// Zero.
    pub unused: [u8; 6],
}

// Shared with other processes: a change here is a change of the protocol.
const _: () = {
    assert!(size_of::<RawTensor>() == 128);
    assert!(align_of::<RawTensor>() == 8);
    assert!(offset_of!(RawTensor, owner) == 0);
    assert!(offset_of!(RawTensor, id) == 8);
    assert!(offset_of!(RawTensor, generation) == 16);
    assert!(offset_of!(RawTensor, kind) == 20);
    assert!(offset_of!(RawTensor, byte_offset) == 24);
    assert!(offset_of!(RawTensor, backing_bytes) == 32);
    assert!(offset_of!(RawTensor, shape) == 40);
    assert!(offset_of!(RawTensor, strides) == 80);
    assert!(offset_of!(RawTensor, rank) == 120);
    assert!(offset_of!(RawTensor, dtype) == 121);
    assert!(offset_of!(RawTensor, unused) == 122);
};

impl RawTensor {
    pub(super) fn of(tensor: &Tensor) -> RawTensor {
        RawTensor {
            owner: tensor.buffer.owner,
            id: tensor.buffer.id,
            generation: tensor.buffer.generation,
            kind: tensor.buffer.kind.code(),
            byte_offset: tensor.byte_offset,
            backing_bytes: tensor.backing_bytes,
            shape: tensor.shape,
            strides: tensor.strides,
            rank: tensor.rank,
            dtype: tensor.dtype.code(),
            unused: [0; 6],
        }
    }

    /// The identity that the descriptor claims, to look up the backing before [`validate`].
    ///
    /// # Errors
    /// When the kind is not a known one.
    ///
    /// [`validate`]: RawTensor::validate
    pub fn buffer(&self) -> Result<BufferId, TensorError> {
        let kind = BufferKind::from_code(self.kind)
            .ok_or(TensorError::UnknownBufferKind { code: self.kind })?;
        Ok(BufferId::new(self.owner, self.id, self.generation, kind))
    }

    /// The tensor, when it lies inside a backing of `backing_bytes` bytes.
    ///
    /// `backing_bytes` is what the receiver itself knows about the object, never what the
    /// descriptor says. Never panics, whatever the bytes.
    ///
    /// # Errors
    /// Every [`TensorError`] that names a bad descriptor.
    pub fn validate(&self, backing_bytes: u64) -> Result<Tensor, TensorError> {
        let buffer = self.buffer()?;
        let dtype =
            DType::from_code(self.dtype).ok_or(TensorError::UnknownDType { code: self.dtype })?;
        let rank = usize::from(self.rank);
        if rank > RANK_MAX {
            return Err(TensorError::Rank { rank });
        }
        let behind_rank = self.shape[rank..].iter().chain(&self.strides[rank..]);
        if behind_rank.copied().any(|word| word != 0) || self.unused != [0; 6] {
            return Err(TensorError::UnusedNotZero);
        }
        if self.backing_bytes > backing_bytes {
            let (claimed, real) = (self.backing_bytes, backing_bytes);
            return Err(TensorError::BackingClaim { claimed, real });
        }
        let (shape, strides) = (&self.shape[..rank], &self.strides[..rank]);
        Tensor::strided(
            buffer,
            dtype,
            self.byte_offset,
            shape,
            strides,
            self.backing_bytes,
        )
    }
}
