//! Arrays of `ndarray` over mapped shared memory, with the feature of that name: any strides, any number of dimensions.
//!
//! What a slice cannot show, an array can: a tile of columns, a transposed matrix. In a worker the arrays come from
//! [`Args`], in the process that owns a buffer from a [`View`].
//!
//! # Safety
//!
//! The protocol is that of the parent module, and one thing more: the gaps of a strided view are not its own, other
//! tasks may write them meanwhile. So no slice over its whole extent is ever made; an array is made from a pointer, and
//! touches its own elements only.
#![expect(
    unsafe_code,
    reason = "arrays over mapped memory; see the module's safety section"
)]

use std::fmt;
use std::marker::PhantomData;
use std::sync::Arc;

use ndarray::{ArrayView, ArrayViewMut, Dimension, ShapeBuilder as _, StrideShape};
use taskgraph::Tensor;

use super::{Grant, element_at};
use crate::args::{Args, Backing};
use crate::buffer::{BufferCore, Use, View};
use crate::element::Element;
pub use crate::error::ArrayError;
use crate::error::{ArgError, BufferError, Error};

/// Where the elements of a tensor lie in its mapping.
#[derive(Debug, Clone)]
struct Place<D: Dimension> {
    /// Of the first element, in bytes.
    offset: usize,
    /// Elements from the first to the last, gaps included.
    extent: usize,
    shape: StrideShape<D>,
}

impl<D: Dimension> Place<D> {
    /// The place of a tensor that was validated against its mapping, for reading.
    fn of(tensor: &Tensor) -> Result<Self, ArrayError> {
        let (asked, found) = (D::NDIM.unwrap_or(tensor.rank()), tensor.rank());
        if asked != found {
            return Err(ArrayError::Rank { asked, found });
        }
        check_count(tensor.shape())?;
        let lengths = tensor.shape().iter().copied();
        // Nobody goes along a dimension of one element, and a peer may claim any stride there.
        let strides = lengths.clone().zip(tensor.strides());
        let strides = strides.map(|(len, &stride)| if len > 1 { stride } else { 0 });
        let bytes = tensor.footprint();
        let shape = dimension::<D>(found, lengths);
        Ok(Self {
            offset: bytes.start as usize,
            extent: ((bytes.end - bytes.start) / (tensor.dtype().bits() / 8)) as usize,
            shape: shape.strides(dimension(found, strides)),
        })
    }

    /// The same, for writing: no two elements may be one.
    fn to_write(tensor: &Tensor) -> Result<Self, ArrayError> {
        let mut dims: Vec<(u64, u64)> = tensor
            .strides()
            .iter()
            .zip(tensor.shape())
            .filter(|(_, len)| **len > 1)
            .map(|(stride, len)| (*stride, *len))
            .collect();
        dims.sort_unstable();
        let mut extent = 1;
        for (stride, len) in dims {
            if stride < extent {
                return Err(ArrayError::Overlap);
            }
            extent += stride * (len - 1);
        }
        Self::of(tensor)
    }
}

/// Refuses views with more elements than an address space has bytes, which only a view whose elements overlap can have.
fn check_count(shape: &[u64]) -> Result<(), ArrayError> {
    let mut lengths = shape.iter().filter(|len| **len > 0);
    let n_elements = lengths.try_fold(1_u64, |n, len| n.checked_mul(*len));
    match n_elements.map(isize::try_from) {
        Some(Ok(_)) => Ok(()),
        _ => Err(ArrayError::TooLarge),
    }
}

fn dimension<D: Dimension>(rank: usize, values: impl Iterator<Item = u64>) -> D {
    let mut dimension = D::zeros(rank);
    for (dim, value) in values.enumerate() {
        dimension[dim] = value as usize;
    }
    dimension
}

impl Grant {
    fn input_array<T: Element, D: Dimension>(
        &self,
        index: usize,
    ) -> Result<ArrayView<'_, T, D>, ArgError> {
        self.check_read(index)?;
        let core = self.host_core::<T>(index)?;
        let place = Place::<D>::of(self.tensor()).map_err(|source| source.of_arg(index))?;
        let first = element_at::<T>(core.segment(), place.offset, place.extent);
        self.take_to_read(index)?;
        // SAFETY: `element_at` checked bounds and alignment of the extent, in which shape and strides stay as the tensor
        // was validated; the elements are an input of the task that runs (or what it named `no_dep`, of which its author
        // has promised the same) and `check_read` knows of no writer among its arguments, so nobody writes them until it
        // ends, and this grant is dropped before.
        Ok(unsafe { ArrayView::from_shape_ptr(place.shape, first.cast_const()) })
    }

    fn output_array<T: Element, D: Dimension>(
        &self,
        index: usize,
    ) -> Result<ArrayViewMut<'_, T, D>, ArgError> {
        self.check_write(index)?;
        let core = self.host_core::<T>(index)?;
        let place = Place::<D>::to_write(self.tensor()).map_err(|source| source.of_arg(index))?;
        let first = element_at::<T>(core.segment(), place.offset, place.extent);
        self.take(index)?;
        // SAFETY: as in `input_array`; the mapping is writable, `to_write` found no element twice, the graph keeps every
        // other task away from these elements, two arguments of one task never write the same bytes, and `take` makes
        // this the only array or slice of the grant.
        Ok(unsafe { ArrayViewMut::from_shape_ptr(place.shape, first) })
    }
}

impl Args {
    /// The elements of tensor `index`, which the task named as an input, as an array of any strides. Nothing is copied.
    ///
    /// # Errors
    ///
    /// [`ArgError`] when there is no such tensor, its type, tag or number of dimensions differs, it is in device memory,
    /// or the task also writes the same bytes through another argument.
    pub fn input_array<T: Element, D: Dimension>(
        &self,
        index: usize,
    ) -> Result<ArrayView<'_, T, D>, ArgError> {
        self.grant(index)?.input_array(index)
    }

    /// The elements of tensor `index`, which the task named as an output or as in-out, as an array of any strides. Can be
    /// taken once, as this or as [`Args::output`]. Nothing is copied.
    ///
    /// ```standalone_crate
    /// use facade::{Worker, args};
    /// use ndarray::{Ix2, arr2};
    ///
    /// let node = Worker::node().sub_workers(1).build()?;
    /// let scale = node.register_fn("scale", |args| {
    ///     let factor: f32 = args.scalar(0)?;
    ///     let mut tile = args.output_array::<f32, Ix2>(0)?;
    ///     tile.mapv_inplace(|x| x * factor);
    ///     Ok(())
    /// })?;
    /// node.init()?;
    /// let x = node.buffer_from(&[1.0_f32, 2.0, 3.0, 4.0, 5.0, 6.0])?;
    /// let matrix = x.reshape(&[2, 3])?;
    /// let columns = matrix.slice(1, 1..3)?;
    /// node.run(|orch| orch.submit_sub(&scale, args().inout(&columns).scalar(10.0_f32)))?;
    /// let result = matrix.array::<Ix2>()?;
    /// assert_eq!(result.view(), arr2(&[[1.0, 20.0, 30.0], [4.0, 50.0, 60.0]]));
    /// # drop(result);
    /// node.close()?;
    /// # Ok::<(), facade::Error>(())
    /// ```
    ///
    /// # Errors
    ///
    /// [`ArgError`] as for [`Args::input_array`], when it was taken before, or when elements of the view share bytes.
    pub fn output_array<T: Element, D: Dimension>(
        &self,
        index: usize,
    ) -> Result<ArrayViewMut<'_, T, D>, ArgError> {
        self.grant(index)?.output_array(index)
    }
}

/// The right to read a view's elements on the host as an array; tasks that would write the buffer are refused as long as
/// it lives. See [`View::array`].
pub struct HostArray<T: Element, D: Dimension> {
    core: Arc<BufferCore>,
    place: Place<D>,
    element: PhantomData<T>,
}

/// The right to read and write a view's elements on the host as an array; all tasks on the buffer are refused as long as
/// it lives. See [`View::array_mut`].
pub struct HostArrayMut<T: Element, D: Dimension> {
    core: Arc<BufferCore>,
    place: Place<D>,
    element: PhantomData<T>,
}

impl<T: Element> View<T> {
    /// Looks at the elements, in place, as an array of as many dimensions as the view has. A whole buffer is one of one:
    /// [`Buffer::whole`](crate::Buffer::whole), or [`Buffer::reshape`](crate::Buffer::reshape) for more.
    ///
    /// # Errors
    ///
    /// [`Error::Buffer`] when the view has another number of dimensions, while an unfinished task writes the buffer,
    /// after its release, or for intermediate memory of a graph that is being recorded.
    pub fn array<D: Dimension>(&self) -> Result<HostArray<T, D>, Error> {
        let (core, place) = self.host_place(Place::of)?;
        core.begin_view(Use::Read)?;
        Ok(HostArray {
            core,
            place,
            element: PhantomData,
        })
    }

    /// Looks at the elements to change them, in place, as an array of as many dimensions as the view has.
    ///
    /// # Errors
    ///
    /// [`Error::Buffer`] as for [`View::array`], and while any unfinished task or view uses the buffer.
    pub fn array_mut<D: Dimension>(&self) -> Result<HostArrayMut<T, D>, Error> {
        let (core, place) = self.host_place(Place::to_write)?;
        core.begin_view(Use::Write)?;
        Ok(HostArrayMut {
            core,
            place,
            element: PhantomData,
        })
    }

    fn host_place<D: Dimension>(
        &self,
        place: impl FnOnce(&Tensor) -> Result<Place<D>, ArrayError>,
    ) -> Result<(Arc<BufferCore>, Place<D>), BufferError> {
        let Backing::Shared(core) = self.backing() else {
            return Err(BufferError::Recorded);
        };
        let buffer = core.id();
        let place = place(self.tensor()).map_err(|reason| BufferError::Array { buffer, reason })?;
        Ok((Arc::clone(core), place))
    }
}

impl<T: Element, D: Dimension> HostArray<T, D> {
    /// The array. Costs a few instructions.
    #[must_use]
    pub fn view(&self) -> ArrayView<'_, T, D> {
        let first = element_at::<T>(self.core.segment(), self.place.offset, self.place.extent);
        // SAFETY: `element_at` checked bounds and alignment of the extent, in which shape and strides stay as the tensor
        // was validated; `core` keeps the mapping alive and `begin_view` excludes writers while `self` lives.
        unsafe { ArrayView::from_shape_ptr(self.place.shape.clone(), first.cast_const()) }
    }
}

impl<T: Element, D: Dimension> HostArrayMut<T, D> {
    /// The array, for reading. Costs a few instructions.
    #[must_use]
    pub fn view(&self) -> ArrayView<'_, T, D> {
        let first = element_at::<T>(self.core.segment(), self.place.offset, self.place.extent);
        // SAFETY: as in `HostArray::view`; the only writer is this value, which is borrowed.
        unsafe { ArrayView::from_shape_ptr(self.place.shape.clone(), first.cast_const()) }
    }

    /// The array, for reading and writing. Costs a few instructions.
    #[must_use]
    pub fn view_mut(&mut self) -> ArrayViewMut<'_, T, D> {
        let first = element_at::<T>(self.core.segment(), self.place.offset, self.place.extent);
        // SAFETY: as in `HostArray::view`; a host buffer is mapped writable, `begin_view` excludes everybody else, this
        // value is borrowed exclusively, and `to_write` found no element twice.
        unsafe { ArrayViewMut::from_shape_ptr(self.place.shape.clone(), first) }
    }
}

impl<T: Element, D: Dimension> Drop for HostArray<T, D> {
    fn drop(&mut self) {
        self.core.end_view(Use::Read);
    }
}

impl<T: Element, D: Dimension> Drop for HostArrayMut<T, D> {
    fn drop(&mut self) {
        self.core.end_view(Use::Write);
    }
}

macro_rules! debug_as_extent {
    ($($array:ident),*) => {$(
        impl<T: Element, D: Dimension> fmt::Debug for $array<T, D> {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.debug_struct(stringify!($array)).field("shape", &self.view().shape()).finish()
            }
        }
    )*};
}

debug_as_extent!(HostArray, HostArrayMut);

#[cfg(test)]
mod tests;
