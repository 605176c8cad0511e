//! Arrays show exactly the elements of their tensors, whatever the strides, and only one writer exists.

use std::sync::Weak;

use mailbox::Segment;
use ndarray::{Ix1, Ix2, Ix3, IxDyn, arr1, arr2};
use taskgraph::{BufferId, BufferKind, DType, RawTensor, Tag, Tensor};

use super::*;
use crate::buffer::{Buffer, Home};

struct Nobody;

impl Home for Nobody {
    fn released(&self, _: BufferId) {}
    fn prompt(&self) {}
}

/// A buffer of the numbers from 0.
fn numbers(n_elements: usize) -> Buffer<u32> {
    let id = BufferId::new(1, 2, 3, BufferKind::Shared);
    let segment = Segment::create("test", n_elements * 4).unwrap();
    let core = BufferCore::new(id, segment, Weak::<Nobody>::new());
    let buffer = Buffer::new(core, n_elements).unwrap();
    let values: Vec<u32> = (0..n_elements as u32).collect();
    buffer.copy_from(&values).unwrap();
    buffer
}

/// The arguments of a task on one view of a buffer.
fn task(buffer: &Buffer<u32>, tensor: Tensor, tag: Tag) -> Args {
    let grant = Grant::new(Arc::clone(buffer.core()), tensor, tag);
    Args::new([grant].into_iter().collect(), Default::default())
}

/// What a peer claims about the memory of a buffer, as far as it is valid.
fn claimed(buffer: &Buffer<u32>, shape: &[u64], strides: &[u64]) -> Tensor {
    let mut raw: RawTensor = buffer.tensor().to_raw();
    raw.rank = shape.len() as u8;
    raw.shape = Default::default();
    raw.strides = Default::default();
    raw.shape[..shape.len()].copy_from_slice(shape);
    raw.strides[..strides.len()].copy_from_slice(strides);
    raw.validate(buffer.core().bytes()).unwrap()
}

#[test]
fn columns_and_transposed_matrices_are_seen_in_place() {
    let x = numbers(12);
    let matrix = x.reshape(&[3, 4]).unwrap();
    let columns = matrix.slice(1, 1..3).unwrap();
    let seen = columns.array::<Ix2>().unwrap();
    assert_eq!(seen.view(), arr2(&[[1, 2], [5, 6], [9, 10]]));
    let turned = columns.transpose(0, 1).unwrap();
    let seen = turned.array::<Ix2>().unwrap();
    assert_eq!(seen.view(), arr2(&[[1, 5, 9], [2, 6, 10]]));
    let seen = turned.array::<IxDyn>().unwrap();
    assert_eq!(seen.view().shape(), [2, 3]);
}

#[test]
fn what_is_written_through_a_strided_array_leaves_the_gaps_alone() {
    let x = numbers(12);
    let columns = x.reshape(&[3, 4]).unwrap().slice(1, 1..3).unwrap();
    let args = task(&x, *columns.tensor(), Tag::InOut);
    args.output_array::<u32, Ix2>(0)
        .unwrap()
        .mapv_inplace(|element| element + 100);
    drop(args);
    let expected = [0, 101, 102, 3, 4, 105, 106, 7, 8, 109, 110, 11];
    assert_eq!(x.to_vec().unwrap(), expected);
    columns.array_mut::<Ix2>().unwrap().view_mut().fill(0);
    assert_eq!(x.to_vec().unwrap(), [0, 0, 0, 3, 4, 0, 0, 7, 8, 0, 0, 11]);
}

#[test]
fn the_wrong_type_rank_or_tag_is_an_error_that_says_what_there_is() {
    let x = numbers(6);
    let matrix = *x.reshape(&[2, 3]).unwrap().tensor();
    let input = task(&x, matrix, Tag::Input);
    let check = |error: ArgError, expected: &str| assert_eq!(error.to_string(), expected);
    check(
        input.input_array::<u32, Ix3>(0).unwrap_err(),
        "take tensor argument 0 as an array: asked for 3 dimensions, the view has 2",
    );
    check(
        input.input_array::<f32, Ix2>(0).unwrap_err(),
        "take tensor argument 0 as f32: it holds u32",
    );
    check(
        input.output_array::<u32, Ix2>(0).unwrap_err(),
        "write tensor argument 0: the task named it as Input",
    );
    check(
        input.input_array::<u32, Ix2>(1).unwrap_err(),
        "take tensor argument 1: the task has 1 of them, numbered from 0",
    );
    let on_device = Grant::on_device(matrix, Tag::Input);
    let on_device = Args::new([on_device].into_iter().collect(), Default::default());
    assert!(matches!(
        on_device.input_array::<u32, Ix2>(0),
        Err(ArgError::OnDevice { index: 0 })
    ));
    let refused = x.whole().array::<Ix2>().unwrap_err();
    assert!(
        refused
            .to_string()
            .ends_with("as an array: asked for 2 dimensions, the view has 1"),
        "{refused}"
    );
}

#[test]
fn an_output_is_taken_once_as_a_slice_or_as_an_array() {
    let x = numbers(6);
    let args = task(&x, *x.tensor(), Tag::Output);
    assert!(args.output_array::<u32, Ix2>(0).is_err(), "of rank 1");
    args.output_array::<u32, Ix1>(0).unwrap();
    assert!(matches!(
        args.output::<u32>(0),
        Err(ArgError::Taken { index: 0 })
    ));
    assert!(matches!(
        args.output_array::<u32, Ix1>(0),
        Err(ArgError::Taken { index: 0 })
    ));
}

#[test]
fn what_the_graph_does_not_order_is_read_or_written_and_that_once() {
    fn read(args: &Args) -> bool {
        args.input_array::<u32, Ix1>(0).is_ok()
    }
    fn write(args: &Args) -> bool {
        args.output_array::<u32, Ix1>(0).is_ok()
    }
    type Use = fn(&Args) -> bool;
    let x = numbers(6);
    let orders: [(Use, Use); 3] = [(read, write), (write, read), (read, read)];
    for (first, second) in orders {
        let args = task(&x, *x.tensor(), Tag::NoDep);
        assert_eq!((first(&args), second(&args)), (true, false));
    }
}

#[test]
fn elements_that_share_bytes_are_read_and_never_written() {
    let x = numbers(6);
    let windows = claimed(&x, &[4, 3], &[1, 1]);
    let read = task(&x, windows, Tag::Input);
    let expected = arr2(&[[0, 1, 2], [1, 2, 3], [2, 3, 4], [3, 4, 5]]);
    assert_eq!(read.input_array::<u32, Ix2>(0).unwrap(), expected);
    let write = task(&x, windows, Tag::InOut);
    let refused = write.output_array::<u32, Ix2>(0).unwrap_err();
    let ArgError::Array { reason, .. } = refused else {
        panic!("{refused}");
    };
    assert_eq!(reason, ArrayError::Overlap);
}

#[test]
fn odd_claims_of_a_peer_are_empty_small_or_refused() {
    let x = numbers(6);
    let huge = 1 << 62;
    // A dimension of one element may have any stride.
    let single = task(&x, claimed(&x, &[1, 6], &[huge, 1]), Tag::InOut);
    assert_eq!(single.output_array::<u32, Ix2>(0).unwrap().len(), 6);
    let empty = task(&x, claimed(&x, &[0, 1 << 40], &[huge, 7]), Tag::InOut);
    assert!(empty.output_array::<u32, Ix2>(0).unwrap().is_empty());
    let scalar = task(&x, claimed(&x, &[], &[]), Tag::Input);
    assert_eq!(scalar.input_array::<u32, IxDyn>(0).unwrap().len(), 1);
    let endless = task(&x, claimed(&x, &[0, huge, huge], &[1, 1, 1]), Tag::Input);
    let refused = endless.input_array::<u32, Ix3>(0).unwrap_err();
    let ArgError::Array { reason, .. } = refused else {
        panic!("{refused}");
    };
    assert_eq!(reason, ArrayError::TooLarge);
}

#[test]
fn arrays_on_the_host_exclude_what_slices_exclude() {
    let x = numbers(6);
    let matrix = x.reshape(&[2, 3]).unwrap();
    {
        let _reading = matrix.array::<Ix2>().unwrap();
        x.view().unwrap();
        assert!(matrix.array_mut::<Ix2>().is_err() && x.release().is_err());
    }
    {
        let mut writing = matrix.array_mut::<Ix2>().unwrap();
        assert!(matrix.array::<Ix2>().is_err() && x.view().is_err());
        writing.view_mut().row_mut(1).fill(9);
        assert_eq!(writing.view().row(1), arr1(&[9, 9, 9]));
    }
    assert_eq!(x.to_vec().unwrap(), [0, 1, 2, 9, 9, 9]);
    x.release().unwrap();
    let refused = matrix.array::<Ix2>().unwrap_err();
    assert!(refused.to_string().contains("it was released"), "{refused}");
}

#[test]
fn every_half_type_is_an_array_too() {
    let id = BufferId::new(1, 2, 3, BufferKind::Shared);
    let segment = Segment::create("test", 8).unwrap();
    let core = BufferCore::new(id, segment, Weak::<Nobody>::new());
    let x = Buffer::<half::bf16>::new(core, 4).unwrap();
    assert_eq!(x.tensor().dtype(), DType::Bf16);
    let square = x.reshape(&[2, 2]).unwrap();
    let mut array = square.array_mut::<Ix2>().unwrap();
    array.view_mut()[[1, 0]] = half::bf16::from_f32(2.5);
    assert_eq!(
        array.view().map(|x| x.to_f32()),
        arr2(&[[0.0, 0.0], [2.5, 0.0]])
    );
}
