//! Host tensors from and to arrays of `ndarray`, with the feature of that name.

use facade::Element;
use ndarray::{ArrayD, ArrayView, Dimension, IxDyn};

use crate::tensor::{HostTensor, TensorError, dense_strides};

impl HostTensor {
    /// Copies an array that is contiguous in row-major order.
    ///
    /// # Errors
    /// [`TensorError::NotContiguous`] for any other, as after a transposition or of a slice with
    /// gaps: a silent copy into another order would hide what is tested.
    pub fn from_array<T: Element, D: Dimension>(
        array: ArrayView<'_, T, D>,
    ) -> Result<Self, TensorError> {
        match array.as_slice() {
            Some(elements) => Self::new(elements, array.shape()),
            None => Err(TensorError::NotContiguous {
                shape: array.shape().to_vec(),
                strides: array.strides().to_vec(),
                dense: dense_strides(array.shape()),
            }),
        }
    }

    /// A copy as an array of as many dimensions as the tensor has.
    ///
    /// # Errors
    /// [`TensorError::DType`] when the elements are of another type.
    pub fn to_array<T: Element>(&self) -> Result<ArrayD<T>, TensorError> {
        let elements = self.elements()?;
        let array = ArrayD::from_shape_vec(IxDyn(self.shape()), elements);
        Ok(array.expect("a tensor has as many elements as its shape"))
    }
}

#[cfg(test)]
mod tests;
