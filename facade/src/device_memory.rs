//! Memory that lives on one chip, across runs.
//!
//! A [`DeviceBuffer`] is a handle: it carries the owner, the generation and the extent, and no number that anybody would
//! trust. Every use asks the table of pointers first; a stale, foreign or interior one is refused before any device call,
//! here and again in the chip worker.

use std::marker::PhantomData;
use std::ops::Range;
use std::sync::Arc;
use std::time::Instant;

use provenance::{Ask, DevicePtr, Operation, Span, Table};
use taskgraph::{BufferId, BufferKind, Tensor};

use crate::buffer::BufferCore;
use crate::control::{ControlReply, ControlRequest, DeviceName};
use crate::element::Element;
use crate::engine::{Engine, Job, JobOutcome, LineKind};
use crate::error::{Error, MemoryError};
use crate::started::Started;
use crate::tree_plan::Plan;
use crate::wire::WireBuffer;
use crate::worker::{MEMORY, Worker};

/// The most bytes that one copy moves at a time; longer ones take several steps, and need no more host memory.
const COPY_BYTES: usize = 8 << 20;

/// `T`s in the memory of one chip: a handle that is cheap to copy and says nothing about being alive.
pub struct DeviceBuffer<T: Element> {
    ptr: DevicePtr,
    tensor: Tensor,
    element: PhantomData<T>,
}

impl<T: Element> Clone for DeviceBuffer<T> {
    fn clone(&self) -> Self {
        *self
    }
}

impl<T: Element> Copy for DeviceBuffer<T> {}

impl<T: Element> std::fmt::Debug for DeviceBuffer<T> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("DeviceBuffer")
            .field("ptr", &self.ptr)
            .field("len", &self.len())
            .finish()
    }
}

impl<T: Element> DeviceBuffer<T> {
    /// The handle of the pointer.
    #[must_use]
    pub fn ptr(&self) -> DevicePtr {
        self.ptr
    }

    /// The next-level index of the chip worker that owns the memory.
    #[must_use]
    pub fn owner(&self) -> u32 {
        self.ptr.worker().id
    }

    /// The number of elements.
    #[must_use]
    pub fn len(&self) -> usize {
        usize::try_from(self.tensor.num_elements()).unwrap_or(usize::MAX)
    }

    /// Whether there are no elements.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// The description of the view.
    #[must_use]
    pub fn tensor(&self) -> &Tensor {
        &self.tensor
    }

    /// The elements `range` of the first dimension. The result can be copied and passed to tasks, not freed.
    ///
    /// # Errors
    ///
    /// [`Error::Memory`] when the range leaves it.
    pub fn slice(&self, range: Range<usize>) -> Result<Self, Error> {
        let tensor = self.tensor.slice(0, range.start as u64..range.end as u64);
        Ok(Self {
            tensor: tensor.map_err(MemoryError::View)?,
            ..*self
        })
    }

    /// The same elements in another shape, row-major.
    ///
    /// # Errors
    ///
    /// [`Error::Memory`] when the number of elements differs.
    pub fn reshape(&self, shape: &[usize]) -> Result<Self, Error> {
        let shape: Vec<u64> = shape.iter().map(|&len| len as u64).collect();
        let tensor = self.tensor.reshape(&shape).map_err(MemoryError::View)?;
        Ok(Self { tensor, ..*self })
    }

    /// The whole allocation, as tasks name it.
    pub(crate) fn span(&self) -> Span {
        self.ptr.span(self.tensor.backing_bytes())
    }

    fn name(&self) -> DeviceName {
        DeviceName {
            incarnation: self.ptr.worker().incarnation,
            entry: self.ptr.entry(),
            generation: self.ptr.generation(),
        }
    }

    /// The bytes of this view, for a copy: it must be dense.
    fn dense_bytes(&self) -> Result<(u64, usize), Error> {
        if !self.tensor.is_contiguous() {
            return Err(MemoryError::NotContiguous.into());
        }
        Ok((self.tensor.byte_offset(), self.len() * size_of::<T>()))
    }
}

impl Worker {
    /// Allocates `n_elements` on the chip worker with next-level index `chip`, with unspecified contents.
    ///
    /// The memory lives until it is freed, its chip worker dies, or the worker is closed.
    ///
    /// # Errors
    ///
    /// [`Error::Memory`]: no such chip, out of memory (with what was wanted, what is free and the largest block), or the
    /// chip worker died. [`Error::State`] unless the worker is ready.
    pub fn malloc<T: Element>(
        &self,
        chip: u32,
        n_elements: usize,
    ) -> Result<DeviceBuffer<T>, Error> {
        let _lease = self.lease(&MEMORY)?;
        let desk = self.desk()?;
        desk.need_chip("allocate device memory", chip)?;
        let bytes = (n_elements as u64)
            .checked_mul(size_of::<T>() as u64)
            .filter(|&bytes| bytes > 0);
        let bytes = bytes.ok_or(MemoryError::Size {
            n_elements,
            element_bytes: size_of::<T>(),
        })?;
        let owner = desk.engine.core().life(chip as usize);
        let reservation = desk.table().reserve(owner);
        let reservation = reservation.map_err(|error| desk.protocol(chip, "allocate", &error))?;
        let ticket = reservation.ticket();
        let name = DeviceName {
            incarnation: owner.incarnation,
            entry: ticket.entry,
            generation: ticket.generation,
        };
        match desk.ask(Job::new(
            chip as usize,
            ControlRequest::Malloc { name, bytes },
        ))? {
            ControlReply::Address(address) => {
                let ptr = reservation.record(address, bytes);
                let ptr = ptr.map_err(|error| desk.protocol(chip, "allocate", &error))?;
                let id = u64::from(ticket.entry);
                let buffer =
                    BufferId::new(owner.incarnation, id, ticket.generation, BufferKind::Device);
                let tensor = Tensor::contiguous(buffer, T::DTYPE, &[n_elements as u64], bytes);
                let tensor = tensor.map_err(MemoryError::View)?;
                Ok(DeviceBuffer {
                    ptr,
                    tensor,
                    element: PhantomData,
                })
            }
            reply => Err(desk.unexpected(chip, "allocate", &reply)),
        }
    }

    /// Frees an allocation. The handle, and every slice of it, is refused as stale afterwards.
    ///
    /// # Errors
    ///
    /// [`Error::Memory`]: stale, not ours, not the base, or named by an unfinished task (nothing has changed then); or
    /// the device refused, and the memory is leaked and dead.
    pub fn free<T: Element>(&self, memory: DeviceBuffer<T>) -> Result<(), Error> {
        let _lease = self.lease(&MEMORY)?;
        let desk = self.desk()?;
        let ptr = memory.ptr;
        if memory.dense_bytes()?
            != (
                0,
                usize::try_from(memory.tensor.backing_bytes()).unwrap_or(usize::MAX),
            )
        {
            return Err(MemoryError::NotBase { ptr }.into());
        }
        let chip = memory.owner();
        let request = ControlRequest::Free {
            name: memory.name(),
        };
        let freed = desk
            .table()
            .free(Ask::owner(Operation::Free), ptr, |_address| {
                desk.ask(Job::new(chip as usize, request)).map(drop)
            });
        freed.map_err(|error| match error {
            provenance::FreeError::Refused(refused) => {
                MemoryError::Refused(Arc::new(refused)).into()
            }
            provenance::FreeError::Leaked { source, .. } => MemoryError::Leaked {
                ptr,
                reason: crate::control::chain(&source),
            }
            .into(),
            other => desk.protocol(chip, "free", &other),
        })
    }

    /// Copies `elements` to device memory; the lengths must be equal. Copy a part with [`DeviceBuffer::slice`].
    ///
    /// # Errors
    ///
    /// [`Error::Memory`]; a stale or foreign handle is refused before any device call.
    pub fn copy_to<T: Element>(
        &self,
        memory: DeviceBuffer<T>,
        elements: &[T],
    ) -> Result<(), Error> {
        let _lease = self.lease(&MEMORY)?;
        let desk = self.desk()?;
        let (offset, bytes) = desk.check(&memory, elements.len(), "copy")?;
        let source: &[u8] = bytemuck::cast_slice(elements);
        desk.held(&memory, Operation::CopyTo, || {
            let stage = desk.stage(bytes)?;
            for (idx, chunk) in source.chunks(COPY_BYTES).enumerate() {
                stage
                    .segment()
                    .write_at(0, chunk)
                    .map_err(|error| desk.protocol(memory.owner(), "copy", &error))?;
                let request = ControlRequest::CopyTo {
                    name: memory.name(),
                    offset: offset + (idx * COPY_BYTES) as u64,
                    bytes: chunk.len() as u64,
                    buffer: WireBuffer::new(stage.id(), stage.bytes()),
                };
                desk.ask(Job::on_buffer(memory.owner() as usize, request, &stage))?;
            }
            Ok(())
        })
    }

    /// Copies device memory into `elements`; the lengths must be equal.
    ///
    /// # Errors
    ///
    /// As [`Worker::copy_to`].
    pub fn copy_from<T: Element>(
        &self,
        elements: &mut [T],
        memory: DeviceBuffer<T>,
    ) -> Result<(), Error> {
        let _lease = self.lease(&MEMORY)?;
        let desk = self.desk()?;
        let (offset, bytes) = desk.check(&memory, elements.len(), "copy")?;
        let target: &mut [u8] = bytemuck::cast_slice_mut(elements);
        desk.held(&memory, Operation::CopyFrom, || {
            let stage = desk.stage(bytes)?;
            for (idx, chunk) in target.chunks_mut(COPY_BYTES).enumerate() {
                let request = ControlRequest::CopyFrom {
                    name: memory.name(),
                    offset: offset + (idx * COPY_BYTES) as u64,
                    bytes: chunk.len() as u64,
                    buffer: WireBuffer::new(stage.id(), stage.bytes()),
                };
                desk.ask(Job::on_buffer(memory.owner() as usize, request, &stage))?;
                stage
                    .segment()
                    .read_at(0, chunk)
                    .map_err(|error| desk.protocol(memory.owner(), "copy", &error))?;
            }
            Ok(())
        })
    }

    fn desk(&self) -> Result<Desk<'_>, Error> {
        let Started { engine, plan, .. } = self.started(MEMORY.name())?;
        Ok(Desk { engine, plan })
    }
}

/// Where requests about device memory are made.
struct Desk<'a> {
    engine: &'a Arc<Engine>,
    plan: &'a Plan,
}

impl Desk<'_> {
    fn table(&self) -> &Table {
        self.plan.table()
    }

    fn need_chip(&self, operation: &'static str, index: u32) -> Result<(), MemoryError> {
        if self.plan.next_level(index) == Some(LineKind::Chip) {
            return Ok(());
        }
        let worker = self.engine.path().to_string();
        let found = (0..self.plan.n_next_level())
            .filter(|&i| self.plan.next_level(i) == Some(LineKind::Chip));
        Err(MemoryError::NoSuchChip {
            operation,
            worker,
            index,
            found: found.count() as u32,
        })
    }

    /// Makes one request and waits for its answer, driving meanwhile.
    fn ask(&self, job: Arc<Job>) -> Result<ControlReply, Error> {
        self.engine.post(std::slice::from_ref(&job));
        self.engine.wait_until(None::<Instant>, &|| job.is_done());
        match job.outcome() {
            Some(JobOutcome::Reply(ControlReply::Failed(remote))) => {
                Err(MemoryError::Remote(remote.clone()).into())
            }
            Some(JobOutcome::Reply(reply)) => Ok(reply.clone()),
            Some(JobOutcome::Died(died)) => Err(MemoryError::WorkerDied(died.clone()).into()),
            Some(JobOutcome::Protocol(reason)) => {
                let error = std::io::Error::other(reason.clone());
                Err(self.protocol(job.line as u32, "ask for device memory", &error))
            }
            None => {
                let error = std::io::Error::other("no answer");
                Err(self.protocol(job.line as u32, "ask for device memory", &error))
            }
        }
    }

    /// The range of a copy: equal lengths, dense, on a chip.
    fn check<T: Element>(
        &self,
        memory: &DeviceBuffer<T>,
        elements: usize,
        operation: &'static str,
    ) -> Result<(u64, usize), Error> {
        if elements != memory.len() {
            return Err(MemoryError::Length {
                operation,
                elements,
                found: memory.len(),
            }
            .into());
        }
        memory.dense_bytes()
    }

    /// Calls `copy` while the memory cannot be freed.
    fn held<T: Element>(
        &self,
        memory: &DeviceBuffer<T>,
        operation: Operation,
        copy: impl FnOnce() -> Result<(), Error>,
    ) -> Result<(), Error> {
        let (offset, bytes) = memory.dense_bytes()?;
        let span = memory
            .ptr
            .plus(offset)
            .map_err(|error| self.protocol(memory.owner(), "copy", &error))?;
        let held = self
            .table()
            .hold(Ask::owner(operation), &[span.span(bytes as u64)]);
        let _held = held.map_err(|refused| MemoryError::Refused(Arc::new(refused)))?;
        copy()
    }

    /// A shared buffer for the steps of a copy.
    fn stage(&self, bytes: usize) -> Result<Arc<BufferCore>, Error> {
        Ok(self.engine.create_buffer(bytes.clamp(1, COPY_BYTES))?)
    }

    fn protocol(
        &self,
        chip: u32,
        operation: &'static str,
        error: &(dyn std::error::Error + 'static),
    ) -> Error {
        let (worker, reason) = (self.plan.path_of(chip), crate::control::chain(error));
        MemoryError::Protocol {
            operation,
            worker,
            reason,
        }
        .into()
    }

    fn unexpected(&self, chip: u32, operation: &'static str, reply: &ControlReply) -> Error {
        let error = std::io::Error::other(format!("the unexpected answer {reply:?}"));
        self.protocol(chip, operation, &error)
    }
}
