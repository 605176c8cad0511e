//! Type, shape and values survive both ways; other orders are refused with what to do.

use ndarray::{Array, Axis, Slice, arr2};

use super::*;

#[test]
fn an_array_keeps_type_shape_and_values() {
    let array = arr2(&[[1_i16, 2, 3], [4, 5, 6]]);
    let tensor = HostTensor::from_array(array.view()).expect("it is contiguous");
    assert_eq!(
        tensor,
        HostTensor::new(&[1_i16, 2, 3, 4, 5, 6], &[2, 3]).expect("it fits")
    );
    assert_eq!(
        tensor.to_array::<i16>().expect("of this type"),
        array.into_dyn()
    );
    assert!(tensor.to_array::<i32>().is_err());
    let rows = Array::from_iter(0..12_u8)
        .into_shape_with_order((4, 3))
        .expect("it fits");
    let two = rows.slice_axis(Axis(0), Slice::from(1..3));
    let two = HostTensor::from_array(two).expect("whole rows");
    assert_eq!(
        two.elements::<u8>().expect("of this type"),
        [3, 4, 5, 6, 7, 8]
    );
}

#[test]
fn a_transposed_array_is_refused_with_what_to_do() {
    let array = arr2(&[[1.0_f32, 2.0, 3.0], [4.0, 5.0, 6.0]]);
    let error = HostTensor::from_array(array.t()).expect_err("it is not row-major");
    assert_eq!(
        error.to_string(),
        "take a tensor of shape [3, 2] with strides [1, 3]: it is not contiguous, which needs \
         [2, 1]; copy it into row-major order first (in ndarray: `as_standard_layout`)"
    );
    let order = array.t().as_standard_layout().into_owned();
    HostTensor::from_array(order.view()).expect("as advised");
    let reversed = array.slice_axis(Axis(1), Slice::new(0, None, -1));
    assert!(HostTensor::from_array(reversed).is_err());
}
