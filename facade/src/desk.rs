//! Where requests about device memory are made: checked by the table of pointers, sent to the chip worker, waited for.
//!
//! The same from a worker and from inside an orchestration. A request is a control message to one child; whoever asks
//! drives meanwhile. Memory that was released while tasks used it goes back through the module `engine::reclaim`.

use std::sync::Arc;
use std::time::Instant;

use provenance::{Ask, DevicePtr, FreeError, Operation, Revoked, Table, WorkerRef};
use taskgraph::{BufferId, BufferKind, Tensor};

use crate::buffer::{BufferCore, Use};
use crate::control::{ControlReply, ControlRequest, DeviceName};
use crate::device_memory::DeviceBuffer;
use crate::element::Element;
use crate::engine::{Busy, Copying, DeviceUse, Engine, Job, JobOutcome, LineKind};
use crate::error::{Error, MemoryError};
use crate::memory_report::{ChipMemory, MemoryReport};
use crate::tree_plan::Plan;
use crate::wire::WireBuffer;

/// The most bytes that one copy moves at a time; longer ones take several steps, and need no more host memory.
const COPY_BYTES: usize = 8 << 20;

/// An engine and its plan, as a place to ask for device memory.
pub(crate) struct Desk<'a> {
    pub(crate) engine: &'a Engine,
    pub(crate) plan: &'a Plan,
}

impl Desk<'_> {
    pub(crate) fn malloc<T: Element>(
        &self,
        chip: u32,
        n_elements: usize,
    ) -> Result<DeviceBuffer<T>, Error> {
        self.need_chip("allocate device memory", chip)?;
        let bytes = (n_elements as u64)
            .checked_mul(size_of::<T>() as u64)
            .filter(|&bytes| bytes > 0);
        let bytes = bytes.ok_or(MemoryError::Size {
            n_elements,
            element_bytes: size_of::<T>(),
        })?;
        loop {
            let owner = self.engine.core().life(chip as usize);
            let allocated = self.malloc_of(owner, bytes);
            let is_over = self.engine.core().life(chip as usize) != owner;
            match allocated {
                // The chip was started again meanwhile. Nothing of this was in the life that has ended.
                Err(error) if is_over && error.worker_died().is_none() => {}
                allocated => {
                    let (ptr, buffer) = allocated?;
                    let tensor = Tensor::contiguous(buffer, T::DTYPE, &[n_elements as u64], bytes);
                    return Ok(DeviceBuffer::new(ptr, tensor.map_err(MemoryError::View)?));
                }
            }
        }
    }

    /// Allocates memory of one life of a chip.
    fn malloc_of(&self, owner: WorkerRef, bytes: u64) -> Result<(DevicePtr, BufferId), Error> {
        let chip = owner.id;
        let reservation = self.table().reserve(owner);
        let reservation =
            reservation.map_err(|error| self.not_alive(chip, "allocate device memory", &error))?;
        let ticket = reservation.ticket();
        let name = DeviceName::of(&ticket);
        let reply = self.ask(Job::new(
            chip as usize,
            ControlRequest::Malloc { name, bytes },
        ))?;
        let ControlReply::Address(address) = reply else {
            return Err(self.unexpected(chip, "allocate", &reply));
        };
        let ptr = reservation.record(address, bytes).map_err(|error| {
            self.take_back(chip, name);
            self.not_alive(chip, "allocate device memory", &error)
        })?;
        let (entry, generation) = (u64::from(ticket.entry), ticket.generation);
        let buffer = BufferId::new(owner.incarnation, entry, generation, BufferKind::Device);
        Ok((ptr, buffer))
    }

    /// Frees what the chip has allocated and the table did not take.
    fn take_back(&self, chip: u32, name: DeviceName) {
        if let Err(error) = self.ask(Job::new(chip as usize, ControlRequest::Free { name })) {
            tracing::error!(worker = %self.plan.path_of(chip), %error, "device memory without a handle is not freed");
        }
    }

    pub(crate) fn free<T: Element>(&self, memory: DeviceBuffer<T>) -> Result<(), Error> {
        let ptr = memory.freeable()?;
        let request = ControlRequest::Free { name: name_of(ptr) };
        let native = |_address| {
            self.ask(Job::new(memory.owner() as usize, request))
                .map(drop)
        };
        let freed = self.table().free(Ask::owner(Operation::Free), ptr, native);
        freed.map_err(|error| match error {
            FreeError::Refused(refused) => refused_free(refused),
            FreeError::Leaked { source, .. } => leaked(ptr, source),
            other => self.protocol(memory.owner(), "free", &other),
        })
    }

    /// Refuses new uses at once, and frees after the last one.
    pub(crate) fn free_after_runs<T: Element>(&self, memory: DeviceBuffer<T>) -> Result<(), Error> {
        let ptr = memory.freeable()?;
        let retired = self.table().retire(Ask::owner(Operation::Free), ptr);
        match retired.map_err(refused_free)? {
            Some(unused) => self.give_back(unused),
            None => Ok(()),
        }
    }

    /// The native free of memory that nothing uses any more.
    fn give_back(&self, unused: Revoked) -> Result<(), Error> {
        let ptr = unused.ptr();
        let request = ControlRequest::Free { name: name_of(ptr) };
        self.ask(Job::new(ptr.worker().id as usize, request))
            .map_err(|error| leaked(ptr, error))?;
        unused.freed();
        Ok(())
    }

    pub(crate) fn copy_to<T: Element>(
        &self,
        memory: DeviceBuffer<T>,
        elements: &[T],
    ) -> Result<(), Error> {
        let (bytes, _copying) = self.begin_copy(&memory, elements.len(), Operation::CopyTo)?;
        let source: &[u8] = bytemuck::cast_slice(elements);
        self.held(&memory, Operation::CopyTo, || {
            let stage = self.stage(bytes)?;
            self.in_steps(&memory, bytes, &stage, |from, to| {
                let written = stage.segment().write_at(0, &source[from..to]);
                written.map_err(|error| self.protocol(memory.owner(), "copy", &error))?;
                self.step(&memory, Operation::CopyTo, from, to, &stage)
            })
        })
    }

    pub(crate) fn copy_from<T: Element>(
        &self,
        elements: &mut [T],
        memory: DeviceBuffer<T>,
    ) -> Result<(), Error> {
        let (bytes, _copying) = self.begin_copy(&memory, elements.len(), Operation::CopyFrom)?;
        let target: &mut [u8] = bytemuck::cast_slice_mut(elements);
        self.held(&memory, Operation::CopyFrom, || {
            let stage = self.stage(bytes)?;
            self.in_steps(&memory, bytes, &stage, |from, to| {
                self.step(&memory, Operation::CopyFrom, from, to, &stage)?;
                let read = stage.segment().read_at(0, &mut target[from..to]);
                read.map_err(|error| self.protocol(memory.owner(), "copy", &error))
            })
        })
    }

    /// Calls `step` for each piece of a copy.
    fn in_steps<T: Element>(
        &self,
        memory: &DeviceBuffer<T>,
        bytes: usize,
        stage: &Arc<BufferCore>,
        mut step: impl FnMut(usize, usize) -> Result<(), Error>,
    ) -> Result<(), Error> {
        debug_assert!(memory.tensor().is_contiguous());
        let piece = usize::try_from(stage.bytes()).unwrap_or(COPY_BYTES);
        (0..bytes)
            .step_by(piece)
            .try_for_each(|from| step(from, bytes.min(from + piece)))
    }

    /// One piece of a copy, between the stage and the device.
    fn step<T: Element>(
        &self,
        memory: &DeviceBuffer<T>,
        operation: Operation,
        from: usize,
        to: usize,
        stage: &Arc<BufferCore>,
    ) -> Result<(), Error> {
        let name = name_of(memory.ptr());
        let offset = memory.tensor().byte_offset() + from as u64;
        let (bytes, buffer) = (
            (to - from) as u64,
            WireBuffer::new(stage.id(), stage.bytes()),
        );
        let request = if operation == Operation::CopyTo {
            ControlRequest::CopyTo {
                name,
                offset,
                bytes,
                buffer,
            }
        } else {
            ControlRequest::CopyFrom {
                name,
                offset,
                bytes,
                buffer,
            }
        };
        self.ask(Job::on_buffer(memory.owner() as usize, request, stage))
            .map(drop)
    }

    /// How the memory of every chip is used. Dead chips say how they died.
    pub(crate) fn memory_report(&self) -> Result<MemoryReport, Error> {
        let chips: Vec<u32> = (0..self.plan.n_next_level())
            .filter(|&index| self.plan.next_level(index) == Some(LineKind::Chip))
            .collect();
        let report = |&chip: &u32| {
            let usage = match self.ask(Job::new(chip as usize, ControlRequest::MemoryReport)) {
                Ok(ControlReply::Memory(usage)) => Ok(usage),
                Ok(reply) => return Err(self.unexpected(chip, "report memory", &reply)),
                Err(Error::Memory(MemoryError::WorkerDied { died, .. })) => Err(died),
                Err(error) => return Err(error),
            };
            Ok(ChipMemory {
                path: self.plan.path_of(chip),
                chip,
                usage,
            })
        };
        let chips = chips.iter().map(report).collect::<Result<_, Error>>()?;
        Ok(MemoryReport { chips })
    }

    pub(crate) fn table(&self) -> &Table {
        self.plan.table()
    }

    pub(crate) fn need_chip(&self, operation: &'static str, index: u32) -> Result<(), MemoryError> {
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
        self.ask_all(std::slice::from_ref(&job));
        self.answer(&job)
    }

    /// Makes several requests at once, and waits for all answers.
    pub(crate) fn ask_all(&self, jobs: &[Arc<Job>]) {
        self.engine.post(jobs);
        let over = || jobs.iter().all(|job| job.is_done());
        self.engine.wait_until(None::<Instant>, &over);
    }

    /// The answer to a request that is over.
    pub(crate) fn answer(&self, job: &Job) -> Result<ControlReply, Error> {
        let chip = job.line as u32;
        let broken = |reason: String| {
            let error = std::io::Error::other(reason);
            self.protocol(chip, job.request.operation(), &error)
        };
        Err(match job.outcome() {
            Some(JobOutcome::Reply(ControlReply::Failed(remote))) => {
                MemoryError::Remote(remote.clone()).into()
            }
            Some(JobOutcome::Reply(ControlReply::OutOfMemory { wanted, usage })) => {
                MemoryError::OutOfMemory {
                    worker: self.plan.path_of(chip),
                    wanted: *wanted,
                    usage: Box::new(*usage),
                }
                .into()
            }
            Some(JobOutcome::Reply(reply)) => return Ok(reply.clone()),
            Some(JobOutcome::Died(died)) => MemoryError::WorkerDied {
                operation: job.request.operation(),
                died: died.clone(),
            }
            .into(),
            Some(JobOutcome::Protocol(reason)) => broken(reason.clone()),
            None => broken("no answer".to_owned()),
        })
    }

    /// The length of a copy in bytes: equal lengths, dense, and not what an unfinished task or another copy does something
    /// else to, until the guard goes.
    fn begin_copy<T: Element>(
        &self,
        memory: &DeviceBuffer<T>,
        elements: usize,
        operation: Operation,
    ) -> Result<(usize, Copying<'_>), Error> {
        if elements != memory.len() {
            let operation = "copy";
            let found = memory.len();
            return Err(MemoryError::Length {
                operation,
                elements,
                found,
            }
            .into());
        }
        let how = if operation == Operation::CopyTo {
            Use::Write
        } else {
            Use::Read
        };
        let (offset, bytes) = memory.dense_bytes()?;
        let copy = DeviceUse {
            buffer: memory.tensor().buffer(),
            bytes: offset..offset + bytes as u64,
            how,
        };
        let (operation, ptr) = (copy_of(how), memory.ptr());
        let begun = self.engine.begin_copy(copy).map_err(|busy| match busy {
            Busy::Task(task, used) => MemoryError::InUse {
                operation,
                ptr,
                task,
                how: if used == Use::Read { "reads" } else { "writes" },
            },
            Busy::Copy(other) => MemoryError::CopyUnderWay {
                operation,
                ptr,
                other: copy_of(other),
            },
        })?;
        Ok((bytes, begun))
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
            .ptr()
            .plus(offset)
            .map_err(|error| self.protocol(memory.owner(), "copy", &error))?;
        let held = self
            .table()
            .hold(Ask::owner(operation), &[span.span(bytes as u64)]);
        let held = held.map_err(|refused| MemoryError::Refused(Arc::new(refused)))?;
        let copied = copy();
        drop(held);
        // It may have been the last use of something released.
        self.engine.reclaim();
        copied
    }

    /// A shared buffer for the steps of a copy.
    fn stage(&self, bytes: usize) -> Result<Arc<BufferCore>, Error> {
        Ok(self.engine.create_buffer(bytes.clamp(1, COPY_BYTES))?)
    }

    /// The table refused because the worker is dead; how it died says more.
    pub(crate) fn not_alive(
        &self,
        chip: u32,
        operation: &'static str,
        error: &provenance::NotRecorded,
    ) -> Error {
        let dead = self.engine.core().dead();
        let path = self.plan.path_of(chip);
        match dead.into_iter().find(|died| died.worker == path) {
            Some(died) => MemoryError::WorkerDied { operation, died }.into(),
            None => self.protocol(chip, operation, error),
        }
    }

    pub(crate) fn protocol(
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

    pub(crate) fn unexpected(
        &self,
        chip: u32,
        operation: &'static str,
        reply: &ControlReply,
    ) -> Error {
        let error = std::io::Error::other(format!("the unexpected answer {reply:?}"));
        self.protocol(chip, operation, &error)
    }
}

/// A pointer as parent and child name it.
pub(crate) fn name_of(ptr: DevicePtr) -> DeviceName {
    DeviceName {
        incarnation: ptr.worker().incarnation,
        entry: ptr.entry(),
        generation: ptr.generation(),
    }
}

/// What a copy that does this to device memory is called.
pub(crate) fn copy_of(how: Use) -> &'static str {
    match how {
        Use::Write => "copy to",
        Use::Read => "copy from",
    }
}

fn refused_free(refused: provenance::Refused) -> Error {
    match refused.cause {
        provenance::Cause::NotAllocation => MemoryError::Window {
            ptr: refused.span.ptr,
        }
        .into(),
        _ => MemoryError::Refused(Arc::new(refused)).into(),
    }
}

/// The native free failed. Memory of a process that died is no leak: it went with the process.
fn leaked(ptr: DevicePtr, source: Error) -> Error {
    if matches!(source, Error::Memory(MemoryError::WorkerDied { .. })) {
        return source;
    }
    MemoryError::Leaked {
        ptr,
        reason: crate::control::chain(&source),
    }
    .into()
}
