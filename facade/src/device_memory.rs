//! Memory that lives on one chip, across runs.
//!
//! A [`DeviceBuffer`] is a handle: it carries the owner, the generation and the extent, and no number that anybody would
//! trust. Every use asks the table of pointers first; a stale, foreign or interior one is refused before any device call,
//! here and again in the chip worker.

use std::marker::PhantomData;
use std::ops::Range;

use provenance::{DevicePtr, Span};
use taskgraph::Tensor;

use crate::desk::Desk;
use crate::element::Element;
use crate::error::{Error, MemoryError};
use crate::memory_report::MemoryReport;
use crate::orchestrator::Orchestrator;
use crate::started::Started;
use crate::worker::{MEMORY, Worker};

/// `T`s in the memory of one chip: a handle that is cheap to copy and says nothing about being alive.
pub struct DeviceBuffer<T: Element> {
    ptr: DevicePtr,
    tensor: Tensor,
    is_window: bool,
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
    /// A whole allocation.
    pub(crate) fn new(ptr: DevicePtr, tensor: Tensor) -> Self {
        Self {
            ptr,
            tensor,
            is_window: false,
            element: PhantomData,
        }
    }

    /// A part of the window of a domain: `tensor` counts from the beginning of the window.
    pub(crate) fn in_window(ptr: DevicePtr, tensor: Tensor) -> Self {
        Self {
            is_window: true,
            ..Self::new(ptr, tensor)
        }
    }

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

    /// The bytes of this view, for a copy: it must be dense.
    pub(crate) fn dense_bytes(&self) -> Result<(u64, usize), MemoryError> {
        if !self.tensor.is_contiguous() {
            return Err(MemoryError::NotContiguous);
        }
        Ok((self.tensor.byte_offset(), self.len() * size_of::<T>()))
    }

    /// The pointer, when this is a whole allocation; a window is the table's to refuse.
    pub(crate) fn freeable(&self) -> Result<DevicePtr, MemoryError> {
        let ptr = self.ptr;
        let whole = self.dense_bytes().is_ok_and(|(offset, bytes)| {
            offset == 0 && bytes as u64 == self.tensor.backing_bytes()
        });
        if whole || self.is_window {
            Ok(ptr)
        } else {
            Err(MemoryError::NotBase { ptr })
        }
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
        self.desk()?.malloc(chip, n_elements)
    }

    /// Frees an allocation. The handle, and every slice of it, is refused as stale afterwards.
    ///
    /// # Errors
    ///
    /// [`Error::Memory`]: stale, not ours, not the base, a window, or named by an unfinished task (nothing has changed
    /// then); or the device refused, and the memory is leaked and dead.
    pub fn free<T: Element>(&self, memory: DeviceBuffer<T>) -> Result<(), Error> {
        let _lease = self.lease(&MEMORY)?;
        self.desk()?.free(memory)
    }

    /// Frees an allocation as soon as no unfinished task names it: at once, or when the last such run has ended. The handle
    /// is refused from now on.
    ///
    /// # Errors
    ///
    /// As [`Worker::free`], except that unfinished tasks are no obstacle.
    pub fn free_after_runs<T: Element>(&self, memory: DeviceBuffer<T>) -> Result<(), Error> {
        let _lease = self.lease(&MEMORY)?;
        self.desk()?.free_after_runs(memory)
    }

    /// Copies `elements` to device memory; the lengths must be equal. Copy a part with [`DeviceBuffer::slice`], and from a
    /// shared buffer with its [`view`](crate::Buffer::view).
    ///
    /// # Errors
    ///
    /// [`Error::Memory`]: a stale or foreign handle is refused before any device call, and so is memory that an unfinished
    /// task or a copy of another thread reads or writes, since no order between the two is known. Until the copy is over, a
    /// submit that conflicts with it is refused likewise
    /// ([`SubmitError::HostCopy`](crate::SubmitError::HostCopy)).
    pub fn copy_to<T: Element>(
        &self,
        memory: DeviceBuffer<T>,
        elements: &[T],
    ) -> Result<(), Error> {
        let _lease = self.lease(&MEMORY)?;
        self.desk()?.copy_to(memory, elements)
    }

    /// Copies device memory into `elements`; the lengths must be equal.
    ///
    /// # Errors
    ///
    /// As [`Worker::copy_to`], except that tasks which only read are no obstacle.
    pub fn copy_from<T: Element>(
        &self,
        elements: &mut [T],
        memory: DeviceBuffer<T>,
    ) -> Result<(), Error> {
        let _lease = self.lease(&MEMORY)?;
        self.desk()?.copy_from(elements, memory)
    }

    /// How the memory of every chip is used, and how much was copied to and from it. Asks each chip worker, which answers
    /// between its tasks.
    ///
    /// # Errors
    ///
    /// [`Error::State`] unless the worker is ready; [`Error::Memory`] where a chip worker cannot say.
    pub fn memory_report(&self) -> Result<MemoryReport, Error> {
        let _lease = self.lease(&MEMORY)?;
        self.desk()?.memory_report()
    }

    pub(crate) fn desk(&self) -> Result<Desk<'_>, Error> {
        let Started { engine, plan, .. } = self.started(MEMORY.name())?;
        Ok(Desk { engine, plan })
    }
}

/// Device memory while a graph is built. Nothing of this is a task: it happens now, not in the order of the tasks, and
/// what an unfinished task uses is refused.
impl Orchestrator<'_> {
    /// As [`Worker::malloc`].
    ///
    /// # Errors
    ///
    /// As [`Worker::malloc`].
    pub fn malloc<T: Element>(
        &mut self,
        chip: u32,
        n_elements: usize,
    ) -> Result<DeviceBuffer<T>, Error> {
        self.desk().malloc(chip, n_elements)
    }

    /// As [`Worker::free`].
    ///
    /// # Errors
    ///
    /// As [`Worker::free`].
    pub fn free<T: Element>(&mut self, memory: DeviceBuffer<T>) -> Result<(), Error> {
        self.desk().free(memory)
    }

    /// As [`Worker::free_after_runs`]: what intermediate memory of a run wants, after its last task was submitted.
    ///
    /// # Errors
    ///
    /// As [`Worker::free_after_runs`].
    pub fn free_after_runs<T: Element>(&mut self, memory: DeviceBuffer<T>) -> Result<(), Error> {
        self.desk().free_after_runs(memory)
    }

    /// As [`Worker::copy_to`].
    ///
    /// # Errors
    ///
    /// As [`Worker::copy_to`].
    pub fn copy_to<T: Element>(
        &mut self,
        memory: DeviceBuffer<T>,
        elements: &[T],
    ) -> Result<(), Error> {
        self.desk().copy_to(memory, elements)
    }

    /// As [`Worker::copy_from`].
    ///
    /// # Errors
    ///
    /// As [`Worker::copy_from`].
    pub fn copy_from<T: Element>(
        &mut self,
        elements: &mut [T],
        memory: DeviceBuffer<T>,
    ) -> Result<(), Error> {
        self.desk().copy_from(elements, memory)
    }
}
