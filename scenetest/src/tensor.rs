//! Host tensors: what a scene starts from, and what it is compared with.

use std::fmt;

use facade::{DType, Element};

use crate::value::Reader;

/// A dense row-major tensor in the memory of this process, of any element type that has a Rust
/// type.
///
/// ```
/// use scenetest::HostTensor;
///
/// let tensor = HostTensor::new(&[1.0_f32, 2.0, 3.0, 4.0, 5.0, 6.0], &[2, 3])?;
/// assert_eq!(tensor.elements::<f32>()?[4], 5.0);
/// assert!(tensor.elements::<i32>().is_err());
/// # Ok::<(), scenetest::TensorError>(())
/// ```
#[derive(Clone, PartialEq)]
pub struct HostTensor {
    dtype: DType,
    shape: Vec<usize>,
    /// `len() * bytes of the type`, row-major.
    bytes: Vec<u8>,
}

impl HostTensor {
    /// Copies the elements, in row-major order.
    ///
    /// # Errors
    /// [`TensorError::Count`] when the shape has another number of elements.
    pub fn new<T: Element>(elements: &[T], shape: &[usize]) -> Result<Self, TensorError> {
        let wanted = count(shape)?;
        if wanted != elements.len() {
            let (shape, found) = (shape.to_vec(), elements.len());
            return Err(TensorError::Count {
                shape,
                wanted,
                found,
            });
        }
        let bytes = bytemuck::cast_slice(elements).to_vec();
        Ok(Self {
            dtype: T::DTYPE,
            shape: shape.to_vec(),
            bytes,
        })
    }

    /// Copies elements that lie `strides` apart, if these are the strides of a dense row-major
    /// tensor.
    ///
    /// # Errors
    /// [`TensorError::NotContiguous`] for any others: a scene's inputs are copied into shared
    /// buffers as they are, and a silent copy into another order would hide what is tested.
    pub fn from_strided<T: Element>(
        elements: &[T],
        shape: &[usize],
        strides: &[usize],
    ) -> Result<Self, TensorError> {
        let dense = dense_strides(shape);
        // The stride of a dimension of one element is never used.
        let same =
            |((&stride, &wanted), &size): ((&usize, &usize), &usize)| size == 1 || stride == wanted;
        if strides.len() != shape.len() || !strides.iter().zip(&dense).zip(shape).all(same) {
            let strides = strides.iter().map(|&stride| stride as isize).collect();
            let shape = shape.to_vec();
            return Err(TensorError::NotContiguous {
                shape,
                strides,
                dense,
            });
        }
        Self::new(elements, shape)
    }

    /// From elements as a file has them; `None` when they do not fill the shape.
    pub(crate) fn from_bytes(dtype: DType, shape: &[usize], bytes: &[u8]) -> Option<Self> {
        let fits = Self::bytes_of(dtype, shape) == Some(bytes.len());
        fits.then(|| Self {
            dtype,
            shape: shape.to_vec(),
            bytes: bytes.to_vec(),
        })
    }

    /// How many bytes a tensor takes; `None` for a type without a Rust type, or too many.
    pub(crate) fn bytes_of(dtype: DType, shape: &[usize]) -> Option<usize> {
        count(shape).ok()?.checked_mul(Reader::of(dtype)?.bytes)
    }

    /// All elements zero.
    ///
    /// # Errors
    /// [`TensorError::TooLarge`] when the shape has more elements than memory has addresses.
    pub fn zeros<T: Element>(shape: &[usize]) -> Result<Self, TensorError> {
        Self::new(&vec![T::zeroed(); count(shape)?], shape)
    }

    /// The type of the elements.
    pub fn dtype(&self) -> DType {
        self.dtype
    }

    /// The size of each dimension; none for a single element.
    pub fn shape(&self) -> &[usize] {
        &self.shape
    }

    /// How many elements there are.
    pub fn len(&self) -> usize {
        self.shape.iter().product()
    }

    /// Whether a dimension is zero.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// The elements in row-major order, little endian.
    pub fn as_bytes(&self) -> &[u8] {
        &self.bytes
    }

    /// A copy of the elements, in row-major order.
    ///
    /// # Errors
    /// [`TensorError::DType`] when they are of another type.
    pub fn elements<T: Element>(&self) -> Result<Vec<T>, TensorError> {
        if self.dtype != T::DTYPE {
            return Err(TensorError::DType {
                wanted: T::DTYPE,
                found: self.dtype,
            });
        }
        let elements = self.bytes.chunks_exact(size_of::<T>());
        Ok(elements.map(bytemuck::pod_read_unaligned).collect())
    }
}

/// How many elements a shape has.
pub(crate) fn count(shape: &[usize]) -> Result<usize, TensorError> {
    let product = shape
        .iter()
        .try_fold(1_usize, |product, &size| product.checked_mul(size));
    product.ok_or_else(|| TensorError::TooLarge {
        shape: shape.to_vec(),
    })
}

/// The strides of a row-major tensor without gaps.
pub(crate) fn dense_strides(shape: &[usize]) -> Vec<usize> {
    let mut strides = vec![1; shape.len()];
    for dim in (1..shape.len()).rev() {
        strides[dim - 1] = strides[dim] * shape[dim];
    }
    strides
}

impl fmt::Debug for HostTensor {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "HostTensor({:?}, {:?})", self.dtype, self.shape)
    }
}

/// A tensor that cannot be made or read as asked.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum TensorError {
    /// The elements do not fill the shape.
    #[error("fill a tensor of shape {shape:?}: it has {wanted} elements, {found} were given")]
    Count {
        /// The shape.
        shape: Vec<usize>,
        /// How many elements it has.
        wanted: usize,
        /// How many there were.
        found: usize,
    },
    /// The elements are of another type.
    #[error("read elements as {wanted:?}: they are {found:?}")]
    DType {
        /// The type that was asked for.
        wanted: DType,
        /// The type of the elements.
        found: DType,
    },
    /// The elements are not dense and row-major.
    #[error(
        "take a tensor of shape {shape:?} with strides {strides:?}: it is not contiguous, which \
         needs {dense:?}; copy it into row-major order first (in ndarray: `as_standard_layout`)"
    )]
    NotContiguous {
        /// The shape.
        shape: Vec<usize>,
        /// The strides, in elements.
        strides: Vec<isize>,
        /// What they would have to be.
        dense: Vec<usize>,
    },
    /// More elements than memory has addresses.
    #[error("make a tensor of shape {shape:?}: it has more elements than memory has addresses")]
    TooLarge {
        /// The shape.
        shape: Vec<usize>,
    },
    /// There is no tensor of that name.
    #[error("find tensor `{name}`: there are only {known:?}")]
    Unknown {
        /// The name.
        name: String,
        /// The names that there are.
        known: Vec<String>,
    },
}

/// Tensors by name, in the order in which they were put in.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Tensors(Vec<(String, HostTensor)>);

impl Tensors {
    /// None yet.
    pub fn new() -> Self {
        Self::default()
    }

    /// One more, or another in place of the one of that name.
    #[must_use]
    pub fn with(mut self, name: impl Into<String>, tensor: HostTensor) -> Self {
        self.put(name, tensor);
        self
    }

    /// Puts a tensor in, in place of the one of that name if there is one.
    pub fn put(&mut self, name: impl Into<String>, tensor: HostTensor) {
        let name = name.into();
        match self.0.iter_mut().find(|(known, _)| *known == name) {
            Some((_, old)) => *old = tensor,
            None => self.0.push((name, tensor)),
        }
    }

    /// The tensor of that name.
    ///
    /// # Errors
    /// [`TensorError::Unknown`] with the names that there are.
    pub fn get(&self, name: &str) -> Result<&HostTensor, TensorError> {
        let found = self
            .iter()
            .find(|(known, _)| *known == name)
            .map(|(_, tensor)| tensor);
        found.ok_or_else(|| TensorError::Unknown {
            name: name.to_owned(),
            known: self.iter().map(|(known, _)| known.to_owned()).collect(),
        })
    }

    /// All of them, in order.
    pub fn iter(&self) -> impl Iterator<Item = (&str, &HostTensor)> {
        self.0.iter().map(|(name, tensor)| (name.as_str(), tensor))
    }

    /// How many there are.
    pub fn len(&self) -> usize {
        self.0.len()
    }

    /// Whether there is none.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }
}

#[cfg(test)]
mod tests;
