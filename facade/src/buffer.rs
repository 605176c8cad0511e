//! Shared buffers: memory that the root and every worker of the tree can reach, named by identity.
//!
//! A buffer is created at any time, before or after the start of the tree. Its memory is a nameless segment; a worker
//! maps it when the first task that names it arrives. The host looks into it through views, which exclude the tasks
//! that conflict with them, and tasks exclude conflicting views:
//!
//! | | no task | tasks that read | tasks that write |
//! | --- | --- | --- | --- |
//! | host view (`view`) | yes | yes | refused: in use |
//! | host view to write (`view_mut`) | yes | refused: in use | refused: in use |
//! | release | yes | refused: in use | refused: in use |
//!
//! "Tasks" are those that were submitted and have not ended.

use std::fmt;
use std::marker::PhantomData;
use std::ops::Range;
use std::os::fd::OwnedFd;
use std::sync::{Arc, Weak};

use mailbox::{Access, Segment, SegmentError};
use parking_lot::Mutex;
use procfork::Origin;
use taskgraph::{BufferId, Tag, Tensor};

use crate::args::Backing;
use crate::element::Element;
use crate::error::{BufferError, Error};
use crate::view::{HostView, HostViewMut};

/// Who is told when a buffer goes: the engine of the worker that owns or imported it.
pub(crate) trait Home: Send + Sync {
    /// The buffer is gone here; whoever mapped it below must unmap it.
    ///
    /// Called under any lock, so it must not wait for one.
    fn released(&self, id: BufferId);

    /// Tells those below at once, from a caller that holds no lock.
    fn prompt(&self);
}

/// Who uses a buffer now.
#[derive(Debug, Default, Clone, Copy)]
struct Uses {
    tasks_reading: u32,
    tasks_writing: u32,
    host_views: u32,
    host_writer: bool,
    released: bool,
}

/// How a task or a view is going to use a buffer.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(crate) enum Use {
    Read,
    Write,
}

impl Use {
    /// What a task may do to a tensor that it names with this tag. What the graph is not told of may be a write.
    pub(crate) fn of(tag: Tag) -> Self {
        if tag.writes() || tag == Tag::NoDep {
            Use::Write
        } else {
            Use::Read
        }
    }
}

/// A mapped buffer with its identity, shared by handles, views and unfinished tasks.
pub(crate) struct BufferCore {
    id: BufferId,
    segment: Segment,
    uses: Mutex<Uses>,
    home: Weak<dyn Home>,
    /// The process that mapped it: a forked copy of this value has no mapping.
    process: Origin,
}

impl fmt::Debug for BufferCore {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("BufferCore")
            .field("id", &self.id)
            .field("bytes", &self.bytes())
            .finish()
    }
}

impl BufferCore {
    pub(crate) fn new(id: BufferId, segment: Segment, home: Weak<dyn Home>) -> Arc<Self> {
        Arc::new(Self {
            id,
            segment,
            uses: Mutex::default(),
            home,
            process: Origin::here(),
        })
    }

    pub(crate) fn id(&self) -> BufferId {
        self.id
    }

    pub(crate) fn bytes(&self) -> u64 {
        self.segment.len() as u64
    }

    /// A descriptor of its memory for a child that uses it so: the kernel refuses a writable mapping of one for reading.
    pub(crate) fn descriptor(&self, how: Use) -> Result<OwnedFd, SegmentError> {
        match how {
            Use::Read if self.segment.access() == Access::ReadWrite => self.segment.readonly_fd(),
            _ => self.segment.try_clone_fd(),
        }
    }

    pub(crate) fn segment(&self) -> &Segment {
        &self.segment
    }

    /// Whether no unfinished task and no view uses it.
    pub(crate) fn is_idle(&self) -> bool {
        let uses = *self.uses.lock();
        uses.tasks_reading + uses.tasks_writing + uses.host_views == 0 && !uses.host_writer
    }

    /// Counts an unfinished task in, or refuses it because of a conflicting host view.
    pub(crate) fn begin_task(&self, how: Use) -> Result<(), BufferError> {
        self.check_process()?;
        let mut uses = self.uses.lock();
        if uses.released {
            return Err(BufferError::Released { buffer: self.id });
        }
        if how == Use::Write && self.segment.access() == Access::ReadOnly {
            return Err(BufferError::ReadOnly { buffer: self.id });
        }
        if uses.host_writer || (how == Use::Write && uses.host_views > 0) {
            return Err(BufferError::HostView { buffer: self.id });
        }
        match how {
            Use::Read => uses.tasks_reading += 1,
            Use::Write => uses.tasks_writing += 1,
        }
        Ok(())
    }

    /// Counts a task out that [`BufferCore::begin_task`] counted in.
    pub(crate) fn end_task(&self, how: Use) {
        let mut uses = self.uses.lock();
        match how {
            Use::Read => uses.tasks_reading -= 1,
            Use::Write => uses.tasks_writing -= 1,
        }
    }

    /// Refuses a handle that a function captured and that was copied into a worker by a fork.
    fn check_process(&self) -> Result<(), BufferError> {
        if self.process.is_here() {
            return Ok(());
        }
        Err(BufferError::Captured { buffer: self.id })
    }

    fn in_use(&self, operation: &'static str, uses: &Uses) -> BufferError {
        BufferError::InUse {
            operation,
            buffer: self.id,
            reading: uses.tasks_reading,
            writing: uses.tasks_writing,
            views: uses.host_views + u32::from(uses.host_writer),
        }
    }

    /// Counts a host view in, or refuses it because of conflicting tasks and views.
    pub(crate) fn begin_view(&self, how: Use) -> Result<(), BufferError> {
        self.check_process()?;
        let mut uses = self.uses.lock();
        if uses.released {
            return Err(BufferError::Released { buffer: self.id });
        }
        let free = match how {
            Use::Read => uses.tasks_writing == 0 && !uses.host_writer,
            Use::Write => {
                uses.tasks_writing + uses.tasks_reading + uses.host_views == 0 && !uses.host_writer
            }
        };
        if !free {
            let operation = if how == Use::Read { "read" } else { "write" };
            return Err(self.in_use(operation, &uses));
        }
        match how {
            Use::Read => uses.host_views += 1,
            Use::Write => uses.host_writer = true,
        }
        Ok(())
    }

    /// Counts a host view out that [`BufferCore::begin_view`] counted in.
    pub(crate) fn end_view(&self, how: Use) {
        let mut uses = self.uses.lock();
        match how {
            Use::Read => uses.host_views -= 1,
            Use::Write => uses.host_writer = false,
        }
    }

    /// Revokes the buffer. Idempotent.
    pub(crate) fn release(&self) -> Result<(), BufferError> {
        let mut uses = self.uses.lock();
        if uses.released {
            return Ok(());
        }
        if uses.tasks_reading + uses.tasks_writing + uses.host_views > 0 || uses.host_writer {
            return Err(self.in_use("release", &uses));
        }
        uses.released = true;
        drop(uses);
        if let Some(home) = self.home.upgrade() {
            home.released(self.id);
            home.prompt();
        }
        Ok(())
    }

    /// The owner has revoked an imported buffer: it goes when its last user does, and workers below are told.
    pub(crate) fn abandon(&self) {
        if !std::mem::replace(&mut self.uses.lock().released, true) {
            self.tell_home();
        }
    }

    fn tell_home(&self) {
        if let Some(home) = self.home.upgrade() {
            home.released(self.id);
        }
    }
}

impl Drop for BufferCore {
    fn drop(&mut self) {
        // The engine of a forked copy is a copy too, whose mailboxes are not mapped: it must not be told.
        if self.check_process().is_ok() && !self.uses.get_mut().released {
            self.tell_home();
        }
    }
}

/// A one-dimensional shared buffer of `T`, owned by the worker that created it.
///
/// Created by [`Worker::buffer`](crate::Worker::buffer) and
/// [`Worker::buffer_from`](crate::Worker::buffer_from). Dropping it gives the memory back as soon as no unfinished task
/// names it; [`Buffer::release`] does so now, or says who still uses it.
pub struct Buffer<T: Element> {
    core: Arc<BufferCore>,
    tensor: Tensor,
    element: PhantomData<T>,
}

impl<T: Element> fmt::Debug for Buffer<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Buffer")
            .field("id", &self.core.id)
            .field("len", &self.len())
            .finish()
    }
}

impl<T: Element> Buffer<T> {
    pub(crate) fn new(core: Arc<BufferCore>, n_elements: usize) -> Result<Self, Error> {
        let shape = [n_elements as u64];
        let tensor = Tensor::contiguous(core.id, T::DTYPE, &shape, core.bytes())
            .map_err(BufferError::View)?;
        Ok(Self {
            core,
            tensor,
            element: PhantomData,
        })
    }

    /// The number of elements.
    #[must_use]
    pub fn len(&self) -> usize {
        usize::try_from(self.tensor.num_elements()).expect("mapped, so it fits an address")
    }

    /// Whether there are no elements. Never true: an empty buffer cannot be created.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// The whole buffer as a view that task arguments are made of.
    #[must_use]
    pub fn whole(&self) -> View<T> {
        View {
            backing: Backing::Shared(Arc::clone(&self.core)),
            tensor: self.tensor,
            element: PhantomData,
        }
    }

    /// The elements `range` as a view, for example one tile of the work.
    ///
    /// # Errors
    ///
    /// [`Error::Buffer`] when the range leaves the buffer.
    pub fn slice(&self, range: Range<usize>) -> Result<View<T>, Error> {
        self.whole().slice(0, range)
    }

    /// The whole buffer seen in `shape`, row-major.
    ///
    /// # Errors
    ///
    /// [`Error::Buffer`] when the shape has another number of elements or more than five dimensions.
    pub fn reshape(&self, shape: &[usize]) -> Result<View<T>, Error> {
        self.whole().reshape(shape)
    }

    /// Looks at the elements, in place. The view keeps tasks that would write the buffer from being submitted.
    ///
    /// # Errors
    ///
    /// [`Error::Buffer`] while an unfinished task writes the buffer, or after its release.
    pub fn view(&self) -> Result<HostView<'_, T>, Error> {
        Ok(HostView::new(&self.core, self.len())?)
    }

    /// Looks at the elements to change them, in place. The view keeps all tasks on the buffer from being submitted.
    ///
    /// # Errors
    ///
    /// [`Error::Buffer`] while any unfinished task or view uses the buffer, or after its release.
    pub fn view_mut(&self) -> Result<HostViewMut<'_, T>, Error> {
        Ok(HostViewMut::new(&self.core, self.len())?)
    }

    /// A copy of the elements.
    ///
    /// # Errors
    ///
    /// As [`Buffer::view`].
    pub fn to_vec(&self) -> Result<Vec<T>, Error> {
        Ok(self.view()?.to_vec())
    }

    /// Overwrites the elements with `values`.
    ///
    /// # Errors
    ///
    /// As [`Buffer::view_mut`], or when the lengths differ.
    pub fn copy_from(&self, values: &[T]) -> Result<(), Error> {
        if values.len() != self.len() {
            let (expected, found) = (self.len(), values.len());
            return Err(BufferError::Length {
                buffer: self.core.id,
                expected,
                found,
            }
            .into());
        }
        self.view_mut()?.copy_from_slice(values);
        Ok(())
    }

    /// Gives the buffer back now: no view or task can be made of it afterwards, and every worker that mapped it is told
    /// to unmap it. A second release does nothing.
    ///
    /// # Errors
    ///
    /// [`Error::Buffer`] while an unfinished task or a view uses it; nothing has changed then.
    pub fn release(&self) -> Result<(), Error> {
        Ok(self.core.release()?)
    }
}

/// A typed view of a shared buffer: what tasks name as an argument. Cheap to clone, keeps the memory alive.
pub struct View<T: Element> {
    backing: Backing,
    tensor: Tensor,
    element: PhantomData<T>,
}

impl<T: Element> fmt::Debug for View<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("View")
            .field("tensor", &self.tensor)
            .finish()
    }
}

impl<T: Element> Clone for View<T> {
    fn clone(&self) -> Self {
        self.with(self.tensor)
    }
}

impl<T: Element> View<T> {
    fn with(&self, tensor: Tensor) -> Self {
        Self {
            backing: self.backing.clone(),
            tensor,
            element: PhantomData,
        }
    }

    pub(crate) fn tensor(&self) -> &Tensor {
        &self.tensor
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

    /// The elements `range` of dimension `dim`.
    ///
    /// # Errors
    ///
    /// [`Error::Buffer`] when the dimension does not exist or the range leaves it.
    pub fn slice(&self, dim: usize, range: Range<usize>) -> Result<Self, Error> {
        let range = range.start as u64..range.end as u64;
        Ok(self.with(self.tensor.slice(dim, range).map_err(BufferError::View)?))
    }

    /// The view with two dimensions exchanged.
    ///
    /// # Errors
    ///
    /// [`Error::Buffer`] when a dimension does not exist.
    pub fn transpose(&self, a: usize, b: usize) -> Result<Self, Error> {
        Ok(self.with(self.tensor.transpose(a, b).map_err(BufferError::View)?))
    }

    /// The same elements in another shape, row-major.
    ///
    /// # Errors
    ///
    /// [`Error::Buffer`] when the number of elements differs or the view is not contiguous.
    pub fn reshape(&self, shape: &[usize]) -> Result<Self, Error> {
        let shape: Vec<u64> = shape.iter().map(|&len| len as u64).collect();
        Ok(self.with(self.tensor.reshape(&shape).map_err(BufferError::View)?))
    }

    /// `tensor` lies in `backing` and holds elements of `T`.
    pub(crate) fn backed(backing: Backing, tensor: Tensor) -> Self {
        Self {
            backing,
            tensor,
            element: PhantomData,
        }
    }

    pub(crate) fn backing(&self) -> &Backing {
        &self.backing
    }
}

impl<T: Element> Buffer<T> {
    pub(crate) fn core(&self) -> &Arc<BufferCore> {
        &self.core
    }

    pub(crate) fn tensor(&self) -> &Tensor {
        &self.tensor
    }
}
