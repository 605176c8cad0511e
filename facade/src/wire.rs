//! The payload of a task frame: which callable, with which arguments.
//!
//! ```text
//! 0    digest of the callable                  32 bytes: a task without arguments is this and no more
//! 32   n_tensors u16, n_scalars u16, zero u32
//! 40   n_tensors × { RawTensor 128, tag u32, zero u32 }
//!      n_scalars × { code u32, zero u32, bits u64 }
//! ```
//!
//! Native endianness: both ends are one machine. The encoder is trusted; the decoder trusts nothing, checks every
//! length and code, and never panics.

use bytemuck::{Pod, Zeroable};
use device::Digest;
use mailbox::FdHeader;
use serde::{Deserialize, Serialize};
use smallvec::SmallVec;
use taskgraph::{BufferId, BufferKind, RawTensor, Scalar, Tag, TaskArgs, Tensor};

use crate::buffer::Use;

/// Bytes of the digest at the head of every payload.
pub(crate) const DIGEST_BYTES: usize = 32;

/// A payload; tasks without arguments fit without an allocation.
pub(crate) type Payload = SmallVec<[u8; DIGEST_BYTES]>;

#[derive(Clone, Copy, Pod, Zeroable)]
#[repr(C)]
struct Counts {
    n_tensors: u16,
    n_scalars: u16,
    zero: u32,
}

#[derive(Clone, Copy, Pod, Zeroable)]
#[repr(C)]
struct WireTensor {
    tensor: RawTensor,
    tag: u32,
    zero: u32,
}

#[derive(Clone, Copy, Pod, Zeroable)]
#[repr(C)]
struct WireScalar {
    code: u32,
    zero: u32,
    bits: u64,
}

// Both ends are built from this file; the sizes are asserted so that a change is seen as one of the protocol.
const _: () = {
    assert!(size_of::<Counts>() == 8);
    assert!(size_of::<WireTensor>() == 136);
    assert!(size_of::<WireScalar>() == 16);
};

const ANNOUNCE_READ: u32 = 1;
const ANNOUNCE_WRITE: u32 = 2;

/// A buffer identity as control messages carry it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct WireBuffer {
    pub(crate) owner: u64,
    pub(crate) id: u64,
    pub(crate) generation: u32,
    pub(crate) bytes: u64,
}

impl WireBuffer {
    pub(crate) fn new(id: BufferId, bytes: u64) -> Self {
        Self {
            owner: id.owner,
            id: id.id,
            generation: id.generation,
            bytes,
        }
    }

    /// The message that announces the buffer on a descriptor channel, for one kind of use; the descriptor goes with it.
    pub(crate) fn to_header(self, how: Use) -> FdHeader {
        FdHeader {
            kind: match how {
                Use::Read => ANNOUNCE_READ,
                Use::Write => ANNOUNCE_WRITE,
            },
            generation: self.generation,
            owner: self.owner,
            id: self.id,
            value: self.bytes,
        }
    }

    /// The buffer that a message announces, and the use that it announces it for.
    pub(crate) fn from_header(header: FdHeader) -> Option<(Self, Use)> {
        let how = match header.kind {
            ANNOUNCE_READ => Use::Read,
            ANNOUNCE_WRITE => Use::Write,
            _ => return None,
        };
        let buffer = Self {
            owner: header.owner,
            id: header.id,
            generation: header.generation,
            bytes: header.value,
        };
        Some((buffer, how))
    }

    /// The identity; shared buffers are the only kind that control messages name.
    pub(crate) fn id(&self) -> BufferId {
        BufferId::new(self.owner, self.id, self.generation, BufferKind::Shared)
    }
}

/// The callable that an encoded task names.
pub(crate) fn digest_of(payload: &Payload) -> Option<Digest> {
    let bytes = payload.get(..DIGEST_BYTES)?;
    Some(Digest(bytes.try_into().ok()?))
}

/// Encodes a task. `mapped` says under which identity the worker below maps the backing of tensor `i`, where that is not
/// the tensor's own.
pub(crate) fn encode(
    digest: &Digest,
    args: &TaskArgs,
    mapped: impl Fn(usize) -> Option<BufferId>,
) -> Payload {
    let tensors = args.tensors().iter().enumerate();
    let tensors = tensors.map(|(at, arg)| (raw_as(&arg.tensor, mapped(at)), arg.tag));
    let scalars = args.scalars().iter().map(|arg| arg.to_send());
    encode_parts(&digest.0, tensors, scalars)
}

/// A tensor as it crosses, under the identity that its backing has below.
pub(crate) fn raw_as(tensor: &Tensor, mapped: Option<BufferId>) -> RawTensor {
    let mut raw = tensor.to_raw();
    if let Some(id) = mapped {
        (raw.owner, raw.id, raw.generation) = (id.owner, id.id, id.generation);
    }
    raw
}

/// Encodes a task from its parts.
pub(crate) fn encode_parts(
    digest: &[u8; DIGEST_BYTES],
    tensors: impl ExactSizeIterator<Item = (RawTensor, Tag)>,
    scalars: impl ExactSizeIterator<Item = Scalar>,
) -> Payload {
    let mut payload = Payload::from_slice(digest);
    if tensors.len() == 0 && scalars.len() == 0 {
        return payload;
    }
    let tensor_bytes = tensors.len() * size_of::<WireTensor>();
    payload.reserve_exact(
        size_of::<Counts>() + tensor_bytes + scalars.len() * size_of::<WireScalar>(),
    );
    let counts = Counts {
        n_tensors: u16::try_from(tensors.len()).expect("checked when the arguments were built"),
        n_scalars: u16::try_from(scalars.len()).expect("checked when the arguments were built"),
        zero: 0,
    };
    payload.extend_from_slice(bytemuck::bytes_of(&counts));
    for (tensor, tag) in tensors {
        let tensor = WireTensor {
            tensor,
            tag: tag.code(),
            zero: 0,
        };
        payload.extend_from_slice(bytemuck::bytes_of(&tensor));
    }
    for value in scalars {
        let scalar = WireScalar {
            code: value.code(),
            zero: 0,
            bits: value.bits(),
        };
        payload.extend_from_slice(bytemuck::bytes_of(&scalar));
    }
    payload
}

/// Why a payload is not a task.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub(crate) enum WireError {
    #[error("the payload has {found} bytes, expected {expected}")]
    Length { found: usize, expected: usize },
    #[error("tensor {index} has the unknown tag code {code}")]
    Tag { index: usize, code: u32 },
    #[error("scalar {index} has the unknown code {code} or bits that its type does not have")]
    Scalar { index: usize, code: u32 },
}

/// A task as the peer claims it: tensors are still to be validated against their backings.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct ClaimedTask {
    pub(crate) digest: Digest,
    pub(crate) tensors: Vec<(RawTensor, Tag)>,
    pub(crate) scalars: SmallVec<[Scalar; 4]>,
}

/// Decodes a task.
pub(crate) fn decode(payload: &[u8]) -> Result<ClaimedTask, WireError> {
    let found = payload.len();
    let short = |expected| WireError::Length { found, expected };
    let (digest, rest) = payload.split_first_chunk().ok_or(short(DIGEST_BYTES))?;
    let mut task = ClaimedTask {
        digest: Digest(*digest),
        tensors: Vec::new(),
        scalars: SmallVec::new(),
    };
    if rest.is_empty() {
        return Ok(task);
    }
    let head = DIGEST_BYTES + size_of::<Counts>();
    let counts: Counts = rest
        .get(..size_of::<Counts>())
        .map(bytemuck::pod_read_unaligned)
        .ok_or(short(head))?;
    let tensor_bytes = usize::from(counts.n_tensors) * size_of::<WireTensor>();
    let expected = head + tensor_bytes + usize::from(counts.n_scalars) * size_of::<WireScalar>();
    if found != expected {
        return Err(short(expected));
    }
    let (tensors, scalars) = payload[head..].split_at(tensor_bytes);
    task.tensors.reserve_exact(counts.n_tensors.into());
    for (index, bytes) in tensors.chunks_exact(size_of::<WireTensor>()).enumerate() {
        let wire: WireTensor = bytemuck::pod_read_unaligned(bytes);
        let tag = Tag::from_code(wire.tag).ok_or(WireError::Tag {
            index,
            code: wire.tag,
        })?;
        task.tensors.push((wire.tensor, tag));
    }
    for (index, bytes) in scalars.chunks_exact(size_of::<WireScalar>()).enumerate() {
        let wire: WireScalar = bytemuck::pod_read_unaligned(bytes);
        let scalar = Scalar::from_wire(wire.code, wire.bits);
        task.scalars.push(scalar.ok_or(WireError::Scalar {
            index,
            code: wire.code,
        })?);
    }
    Ok(task)
}

#[cfg(test)]
mod tests;
