//! Typed slices over mapped shared memory: the unsafe code of this crate, with that of `view/array.rs` (arrays) and `remake.rs`.
//!
//! # Safety
//!
//! Shared memory is written by other processes, so a reference into it is sound only while the protocol above rules
//! out every conflicting access. That protocol is:
//!
//! - in the process that owns a buffer, a [`HostView`] exists only between `begin_view` and `end_view` of its
//!   `BufferCore`, which exclude unfinished tasks and other views that conflict;
//! - in a worker, a [`Grant`] exists only while the task runs that named the view, allows what the task's tag allows,
//!   and the graph has ordered every conflicting task before or after it. A grant of writing is taken once.
//!
//! Who lies to the graph (a tag `NoDep` on memory that another task writes, a kernel that writes outside of its
//! arguments) breaks the protocol. That is the one thing this file cannot check, and why tags are a promise.
#![expect(
    unsafe_code,
    reason = "typed slices over mapped memory; see the module's safety section"
)]

#[cfg(feature = "ndarray")]
pub(crate) mod array;

use std::fmt;
use std::marker::PhantomData;
use std::ops::{Deref, DerefMut};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use bytemuck::Pod;
use mailbox::Segment;
use taskgraph::{Tag, Tensor};

use crate::buffer::{BufferCore, Use};
use crate::element::Element;
use crate::error::{ArgError, BufferError};

/// The elements of a buffer, for reading on the host. See [`Buffer::view`](crate::Buffer::view).
pub struct HostView<'a, T: Element> {
    core: &'a Arc<BufferCore>,
    n_elements: usize,
    element: PhantomData<T>,
}

impl<'a, T: Element> HostView<'a, T> {
    /// `n_elements` must be what the buffer holds.
    pub(crate) fn new(core: &'a Arc<BufferCore>, n_elements: usize) -> Result<Self, BufferError> {
        core.begin_view(Use::Read)?;
        Ok(Self {
            core,
            n_elements,
            element: PhantomData,
        })
    }
}

impl<T: Element> Deref for HostView<'_, T> {
    type Target = [T];

    fn deref(&self) -> &[T] {
        let first = element_at::<T>(self.core.segment(), 0, self.n_elements);
        // SAFETY: `element_at` checked bounds and alignment of a mapping that `core` keeps alive; every bit pattern is
        // a `T: Pod`; `begin_view` excludes writers until this view is dropped.
        unsafe { std::slice::from_raw_parts(first, self.n_elements) }
    }
}

impl<T: Element> Drop for HostView<'_, T> {
    fn drop(&mut self) {
        self.core.end_view(Use::Read);
    }
}

/// The elements of a buffer, for reading and writing on the host. See [`Buffer::view_mut`](crate::Buffer::view_mut).
pub struct HostViewMut<'a, T: Element> {
    core: &'a Arc<BufferCore>,
    n_elements: usize,
    element: PhantomData<T>,
}

impl<'a, T: Element> HostViewMut<'a, T> {
    /// `n_elements` must be what the buffer holds.
    pub(crate) fn new(core: &'a Arc<BufferCore>, n_elements: usize) -> Result<Self, BufferError> {
        core.begin_view(Use::Write)?;
        Ok(Self {
            core,
            n_elements,
            element: PhantomData,
        })
    }
}

impl<T: Element> Deref for HostViewMut<'_, T> {
    type Target = [T];

    fn deref(&self) -> &[T] {
        let first = element_at::<T>(self.core.segment(), 0, self.n_elements);
        // SAFETY: as in `HostView`; the only writer is this view, which is borrowed here.
        unsafe { std::slice::from_raw_parts(first, self.n_elements) }
    }
}

impl<T: Element> DerefMut for HostViewMut<'_, T> {
    fn deref_mut(&mut self) -> &mut [T] {
        let first = element_at::<T>(self.core.segment(), 0, self.n_elements);
        // SAFETY: as in `HostView`; a host buffer is mapped writable, `begin_view` excludes everybody else, and this
        // view is borrowed exclusively.
        unsafe { std::slice::from_raw_parts_mut(first, self.n_elements) }
    }
}

impl<T: Element> Drop for HostViewMut<'_, T> {
    fn drop(&mut self) {
        self.core.end_view(Use::Write);
    }
}

macro_rules! debug_as_length {
    ($($view:ident),*) => {$(
        impl<T: Element> fmt::Debug for $view<'_, T> {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.debug_struct(stringify!($view)).field("len", &self.n_elements).finish()
            }
        }
    )*};
}

debug_as_length!(HostView, HostViewMut);

/// One tensor argument of the task that runs now: the right to use a view as its tag says.
///
/// Made by the decoder of task frames only, and dropped with the task.
#[derive(Debug)]
pub(crate) struct Grant {
    /// The mapped memory; none for device memory, which only its own device reaches.
    core: Option<Arc<BufferCore>>,
    tensor: Tensor,
    tag: Tag,
    /// An input whose bytes another argument of the task writes: no slice of it can exist beside that one's.
    aliased: bool,
    taken: AtomicBool,
}

impl Grant {
    /// The caller has validated `tensor` against the real size of `core` and holds the task that named it.
    pub(crate) fn new(core: Arc<BufferCore>, tensor: Tensor, tag: Tag) -> Self {
        Self {
            core: Some(core),
            tensor,
            tag,
            aliased: false,
            taken: AtomicBool::new(false),
        }
    }

    /// A tensor in device memory. No host slice of it can be had.
    pub(crate) fn on_device(tensor: Tensor, tag: Tag) -> Self {
        Self {
            core: None,
            tensor,
            tag,
            aliased: false,
            taken: AtomicBool::new(false),
        }
    }

    /// Marks the inputs whose bytes another argument writes. Called once, when all arguments of the task are known.
    pub(crate) fn mark_aliases(grants: &mut [Grant]) {
        if grants.len() < 2 {
            return;
        }
        let written: Vec<(usize, Tensor)> = grants
            .iter()
            .enumerate()
            .filter(|(_, grant)| grant.may_write())
            .map(|(index, grant)| (index, grant.tensor))
            .collect();
        // Two outputs of a task do not overlap: the submit has refused them.
        let others = grants.iter_mut().enumerate();
        for (index, grant) in others.filter(|(_, grant)| !grant.tag.writes()) {
            grant.aliased = written.iter().any(|(at, other)| {
                *at != index
                    && other.buffer() == grant.tensor.buffer()
                    && other.view().overlaps(&grant.tensor.view())
            });
        }
    }

    /// Whether the task may write it: what it names as such, and what the graph is not told of.
    pub(crate) fn may_write(&self) -> bool {
        Use::of(self.tag) == Use::Write
    }

    pub(crate) fn core(&self) -> Option<&Arc<BufferCore>> {
        self.core.as_ref()
    }

    pub(crate) fn tensor(&self) -> &Tensor {
        &self.tensor
    }

    pub(crate) fn tag(&self) -> Tag {
        self.tag
    }

    /// The elements, for reading.
    pub(crate) fn read<T: Element>(&self, index: usize) -> Result<&[T], ArgError> {
        self.check_read(index)?;
        let (first, len) = self.elements::<T>(index)?;
        self.take_to_read(index)?;
        // SAFETY: `elements` checked type, bounds, alignment; the task that runs named these bytes as an input, so the
        // graph keeps other tasks' writes away until it ends (of what it named `no_dep` its author has promised that),
        // `aliased` is false, so that this task writes them through no other argument, `taken` says the same of this one,
        // and this grant is dropped before the task ends.
        Ok(unsafe { std::slice::from_raw_parts(first, len) })
    }

    /// The elements, for reading and writing; once.
    #[expect(
        clippy::mut_from_ref,
        reason = "`taken` makes the slice unique for the life of the grant"
    )]
    pub(crate) fn write<T: Element>(&self, index: usize) -> Result<&mut [T], ArgError> {
        self.check_write(index)?;
        let (first, len) = self.elements::<T>(index)?;
        self.take(index)?;
        // SAFETY: `elements` checked type, bounds, alignment and the mapping is writable; the task that runs named
        // these bytes as written, so the graph keeps everybody else away (of what it named `no_dep` its author has
        // promised that); two arguments of one task never write overlapping bytes; `taken` makes this the only slice.
        Ok(unsafe { std::slice::from_raw_parts_mut(first, len) })
    }

    /// Calls `look` with the bytes `offset..offset + len` of the backing, for as long as the call lasts.
    ///
    /// For staging to a device: the range lies within the tensor's footprint, and the caller holds no other slice.
    pub(crate) fn with_bytes<R>(
        &self,
        offset: usize,
        len: usize,
        look: impl FnOnce(&[u8]) -> R,
    ) -> Option<R> {
        let core = self.core.as_ref()?;
        let first = element_at::<u8>(core.segment(), offset, len);
        // SAFETY: `element_at` checked bounds; the running task named these bytes, so the graph keeps other tasks' writes
        // away, and the only thread of this worker is in `look`.
        let bytes = unsafe { std::slice::from_raw_parts(first, len) };
        Some(look(bytes))
    }

    /// As [`Grant::with_bytes`], to change them. `None` also when the tag does not allow writing.
    pub(crate) fn with_bytes_mut<R>(
        &self,
        offset: usize,
        len: usize,
        change: impl FnOnce(&mut [u8]) -> R,
    ) -> Option<R> {
        let core = self.core.as_ref().filter(|_| self.may_write())?;
        let first = element_at::<u8>(core.segment(), offset, len);
        // SAFETY: as in `with_bytes`; the tag is one of writing, so that the graph, or who named it `no_dep`, keeps every other task away.
        let bytes = unsafe { std::slice::from_raw_parts_mut(first, len) };
        Some(change(bytes))
    }

    /// Whether the task may read it, and writes it through no other argument.
    fn check_read(&self, index: usize) -> Result<(), ArgError> {
        self.check(matches!(self.tag, Tag::Input | Tag::NoDep), "read", index)
    }

    /// Whether the task may write it, and uses it through no other argument.
    fn check_write(&self, index: usize) -> Result<(), ArgError> {
        self.check(self.may_write(), "write", index)
    }

    fn check(&self, may: bool, asked: &'static str, index: usize) -> Result<(), ArgError> {
        match (may, self.aliased) {
            (true, false) => Ok(()),
            (true, true) => Err(ArgError::Aliased { index }),
            (false, _) => Err(ArgError::Tag {
                index,
                asked,
                tag: self.tag,
            }),
        }
    }

    /// What the graph does not order is read or written, and that once.
    fn take_to_read(&self, index: usize) -> Result<(), ArgError> {
        match self.tag {
            Tag::NoDep => self.take(index),
            _ => Ok(()),
        }
    }

    /// Takes the right to write, which there is once.
    fn take(&self, index: usize) -> Result<(), ArgError> {
        // Relaxed: only uniqueness matters; no memory is published through the flag.
        match self.taken.swap(true, Ordering::Relaxed) {
            false => Ok(()),
            true => Err(ArgError::Taken { index }),
        }
    }

    /// The mapped memory, if it holds elements of this type.
    fn host_core<T: Element>(&self, index: usize) -> Result<&Arc<BufferCore>, ArgError> {
        let core = self.core.as_ref().ok_or(ArgError::OnDevice { index })?;
        let (asked, found) = (T::DTYPE, self.tensor.dtype());
        match asked == found {
            true => Ok(core),
            false => Err(ArgError::DType {
                index,
                asked,
                found,
            }),
        }
    }

    fn elements<T: Element>(&self, index: usize) -> Result<(*mut T, usize), ArgError> {
        let core = self.host_core::<T>(index)?;
        if !self.tensor.is_contiguous() {
            return Err(ArgError::NotContiguous { index });
        }
        let len = usize::try_from(self.tensor.num_elements())
            .map_err(|_| ArgError::NotContiguous { index })?;
        let offset = usize::try_from(self.tensor.byte_offset())
            .map_err(|_| ArgError::NotContiguous { index })?;
        Ok((element_at(core.segment(), offset, len), len))
    }
}

/// A pointer to `n_elements` elements from byte `offset` on.
///
/// # Panics
///
/// When they leave the mapping or are not aligned: tensors are validated before they come here.
fn element_at<T: Pod>(segment: &Segment, offset: usize, n_elements: usize) -> *mut T {
    let bytes = n_elements
        .checked_mul(size_of::<T>())
        .expect("a validated length fits");
    let end = offset.checked_add(bytes).expect("a validated range fits");
    assert!(
        end <= segment.len(),
        "a validated range lies within its mapping"
    );
    // A mapping begins on a page, so an aligned offset is an aligned address.
    assert!(
        offset.is_multiple_of(align_of::<T>()),
        "a validated offset is aligned"
    );
    segment.as_ptr().wrapping_add(offset).cast::<T>()
}
