//! The live allocations of one chip: which ranges of addresses may be touched, and which addresses
//! may be freed.
//!
//! Both backends ask here before each native call, so that a wrong address is refused the same way
//! on a simulated chip and on a real one.

use std::collections::BTreeMap;

use taskgraph::{Access, BACKING_BYTES_MAX, BufferId, BufferKind, DType, Tag, Tensor, View};

use crate::args::{CoreArgs, DeviceTensor};
use crate::chip::DeviceAddress;
use crate::error::{AddressProblem, DeviceError, OrchestrationError};

/// A live allocation: its base address and its size as it was asked for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Allocation {
    pub(crate) base: u64,
    pub(crate) bytes: u64,
}

/// A tensor argument that was found in live memory.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Resolved {
    /// Address of the first byte of its footprint.
    pub(crate) first: DeviceAddress,
    /// One past the last byte of the allocation that holds it.
    pub(crate) end: DeviceAddress,
    /// What is done to which bytes of which allocation: what may alias has one buffer identity,
    /// whatever the caller called it.
    pub(crate) access: Access,
}

/// Base to size of every live allocation of a chip.
#[derive(Debug)]
pub(crate) struct Allocations {
    chip: u32,
    live: BTreeMap<u64, u64>,
}

impl Allocations {
    pub(crate) fn new(chip: u32) -> Self {
        Self {
            chip,
            live: BTreeMap::new(),
        }
    }

    /// Notes an allocation that the device made.
    pub(crate) fn record(&mut self, base: u64, bytes: u64) {
        self.live.insert(base, bytes);
    }

    /// Forgets the allocation that starts at `address`; its size. To be called before the native
    /// free, so that a free that fails is a leak and not a live pointer.
    pub(crate) fn revoke(&mut self, address: DeviceAddress) -> Result<u64, DeviceError> {
        let problem = match self.at(address) {
            Some(Allocation { base, bytes }) if base == address.0 => {
                self.live.remove(&base);
                return Ok(bytes);
            }
            Some(Allocation { base, bytes }) if address.0 < base + bytes => {
                AddressProblem::NotBase { base, bytes }
            }
            _ => AddressProblem::NotAllocated,
        };
        Err(self.refuse("free", address, 0, problem))
    }

    /// Forgets all, because the device did.
    pub(crate) fn clear(&mut self) {
        self.live.clear();
    }

    /// The allocation that holds `bytes` bytes from `address` on.
    pub(crate) fn resolve(
        &self,
        operation: &'static str,
        address: DeviceAddress,
        bytes: u64,
    ) -> Result<Allocation, DeviceError> {
        let problem = match (self.at(address), address.0.checked_add(bytes)) {
            (_, None) => AddressProblem::Overflow,
            (None, _) => AddressProblem::NotAllocated,
            (Some(found), Some(end)) if end > found.base + found.bytes => AddressProblem::PastEnd {
                base: found.base,
                bytes: found.bytes,
            },
            (Some(found), Some(_)) => return Ok(found),
        };
        Err(self.refuse(operation, address, bytes, problem))
    }

    /// Finds a tensor in live memory.
    pub(crate) fn find(&self, tensor: &DeviceTensor, tag: Tag) -> Result<Resolved, DeviceError> {
        let view = tensor.view.view();
        let first = tensor.first_address(&view)?;
        let allocation = self.resolve("use a tensor of", first, view.hi() - view.lo())?;
        let buffer = BufferId::new(0, allocation.base, 0, BufferKind::Device);
        let view = if tensor.address.0 == allocation.base {
            view
        } else {
            // The tensor counts from another place than the allocation: the same bytes, counted
            // from its base.
            moved(&tensor.view, first.0 - allocation.base)
        };
        let end = DeviceAddress(allocation.base + allocation.bytes);
        Ok(Resolved {
            first,
            end,
            access: Access { buffer, view, tag },
        })
    }

    /// A tensor in live memory as a view of its allocation, which is its buffer whatever the caller called
    /// it; `None` if it is not aligned there.
    pub(crate) fn tensor(&self, tensor: &DeviceTensor) -> Result<Option<Tensor>, DeviceError> {
        let view = tensor.view.view();
        let first = tensor.first_address(&view)?;
        let found = self.resolve("use a tensor of", first, view.hi() - view.lo())?;
        let buffer = BufferId::new(0, found.base, 0, BufferKind::Device);
        let (view, offset) = (&tensor.view, first.0 - found.base);
        let located = Tensor::strided(
            buffer,
            view.dtype(),
            offset,
            view.shape(),
            view.strides(),
            found.bytes,
        );
        Ok(located.ok())
    }

    /// One past the last byte of the allocation that starts at `base`.
    pub(crate) fn end_of(&self, base: u64) -> Option<DeviceAddress> {
        self.live
            .get(&base)
            .map(|bytes| DeviceAddress(base + bytes))
    }

    /// Finds all tensors of a task in live memory; no two of them may write a common byte.
    pub(crate) fn find_all(
        &self,
        kernel: &'static str,
        args: &CoreArgs<'_>,
        found: &mut Vec<Resolved>,
    ) -> Result<(), OrchestrationError> {
        found.clear();
        for (idx, (tensor, tag)) in args.tensors.iter().enumerate() {
            let tensor = self.find(tensor, *tag)?;
            if tag.writes()
                && let Some(other) = found.iter().position(|other| both_write(other, &tensor))
            {
                let problem = format!("its tensors {other} and {idx} write overlapping bytes");
                return Err(OrchestrationError::Task { kernel, problem });
            }
            found.push(tensor);
        }
        Ok(())
    }

    pub(crate) fn len(&self) -> usize {
        self.live.len()
    }

    /// Bases of all live allocations.
    pub(crate) fn bases(&self) -> impl Iterator<Item = u64> {
        self.live.keys().copied()
    }

    /// The allocation that `address` lies in; its end counts, so that empty ranges resolve.
    fn at(&self, address: DeviceAddress) -> Option<Allocation> {
        let (&base, &bytes) = self.live.range(..=address.0).next_back()?;
        (address.0 - base <= bytes).then_some(Allocation { base, bytes })
    }

    pub(crate) fn refuse(
        &self,
        operation: &'static str,
        address: DeviceAddress,
        bytes: u64,
        problem: AddressProblem,
    ) -> DeviceError {
        DeviceError::Address {
            operation,
            chip: self.chip,
            address,
            bytes,
            problem,
        }
    }
}

/// The view of the same bytes from `byte_offset` on.
fn moved(tensor: &Tensor, byte_offset: u64) -> View {
    let (buffer, dtype) = (tensor.buffer(), tensor.dtype());
    let (shape, strides) = (tensor.shape(), tensor.strides());
    let moved = Tensor::strided(
        buffer,
        dtype,
        byte_offset,
        shape,
        strides,
        BACKING_BYTES_MAX,
    );
    moved.map_or_else(
        // Not aligned within the allocation: every byte from first to last, which costs an edge at
        // most.
        |_| bytes(buffer, byte_offset, tensor.footprint()),
        |moved| moved.view(),
    )
}

/// All bytes of a range, moved to `byte_offset`.
fn bytes(buffer: BufferId, byte_offset: u64, range: std::ops::Range<u64>) -> View {
    let len = range.end - range.start;
    Tensor::strided(
        buffer,
        DType::U8,
        byte_offset,
        &[len],
        &[1],
        BACKING_BYTES_MAX,
    )
    .expect("a range of bytes inside an allocation is a tensor")
    .view()
}

/// Whether two arguments of one task write a common byte, in no order.
fn both_write(a: &Resolved, b: &Resolved) -> bool {
    let (a, b) = (&a.access, &b.access);
    a.tag.writes() && b.tag.writes() && a.buffer == b.buffer && a.view.overlaps(&b.view)
}
