//! Making and reading tensors.

use super::*;

#[test]
fn a_tensor_gives_back_what_it_was_made_of() {
    let tensor = HostTensor::new(&[1_i16, -2, 3, -4, 5, -6], &[2, 3]).expect("made");
    assert_eq!(tensor.elements::<i16>(), Ok(vec![1, -2, 3, -4, 5, -6]));
    assert_eq!(
        (tensor.dtype(), tensor.shape(), tensor.len()),
        (DType::I16, &[2, 3][..], 6)
    );
    let wrong = tensor.elements::<u16>();
    assert_eq!(
        wrong,
        Err(TensorError::DType {
            wanted: DType::U16,
            found: DType::I16
        })
    );
}

#[test]
fn elements_must_fill_the_shape() {
    let error = HostTensor::new(&[1.0_f32; 5], &[2, 3]).expect_err("one is missing");
    assert_eq!(
        error,
        TensorError::Count {
            shape: vec![2, 3],
            wanted: 6,
            found: 5
        }
    );
    let scalar = HostTensor::new(&[1.0_f32], &[]).expect("a single element");
    assert_eq!(scalar.len(), 1);
    let huge = HostTensor::new::<u8>(&[], &[usize::MAX, 2]);
    assert_eq!(
        huge,
        Err(TensorError::TooLarge {
            shape: vec![usize::MAX, 2]
        })
    );
}

#[test]
fn only_contiguous_inputs_are_taken_and_the_error_says_how_to_fix_others() {
    let elements = [0_u8; 6];
    assert!(HostTensor::from_strided(&elements, &[2, 3], &[3, 1]).is_ok());
    assert!(
        HostTensor::from_strided(&elements, &[1, 6], &[99, 1]).is_ok(),
        "never used"
    );
    let transposed = HostTensor::from_strided(&elements, &[2, 3], &[1, 2]);
    let text = transposed.expect_err("transposed").to_string();
    assert!(text.contains("[1, 2]") && text.contains("[3, 1]"), "{text}");
    assert!(
        text.contains("copy it into row-major order first"),
        "{text}"
    );
    assert!(HostTensor::from_strided(&elements, &[2, 3], &[1]).is_err());
}

#[test]
fn tensors_are_found_by_name_or_the_names_are_listed() {
    let one = HostTensor::zeros::<f32>(&[1]).expect("made");
    let two = HostTensor::zeros::<f32>(&[2]).expect("made");
    let tensors = Tensors::new()
        .with("x", one.clone())
        .with("y", one)
        .with("x", two.clone());
    assert_eq!(tensors.len(), 2);
    assert_eq!(tensors.get("x"), Ok(&two));
    let error = tensors.get("z").expect_err("no such tensor").to_string();
    assert_eq!(error, "find tensor `z`: there are only [\"x\", \"y\"]");
}
