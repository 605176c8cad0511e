//! What was written is read back; what is not such a file is refused.

use super::*;

fn some() -> Tensors {
    let z = HostTensor::new(&[1.0_f32, -2.5, f32::NAN, 0.0], &[2, 2]).expect("it fits");
    let n = HostTensor::new(&[7_i64], &[]).expect("it fits");
    let none = HostTensor::new::<u8>(&[], &[0, 3]).expect("it fits");
    Tensors::new().with("z", z).with("n", n).with("none", none)
}

#[test]
fn tensors_survive_a_file() {
    let read = decode(&encode(&some())).expect("it is well-formed");
    assert_eq!(read.len(), 3);
    for (name, tensor) in some().iter() {
        let found = read.get(name).expect("it is there");
        assert_eq!(
            (found.dtype(), found.shape(), found.as_bytes()),
            (tensor.dtype(), tensor.shape(), tensor.as_bytes())
        );
    }
    assert_eq!(encode(&read), encode(&some()), "whatever the order was");
}

/// A file as another program writes it: with metadata, unpadded.
#[test]
fn files_of_others_are_read() {
    let header =
        br#"{"__metadata__":{"by":"x"},"y":{"dtype":"BF16","shape":[1,2],"data_offsets":[0,4]}}"#;
    let mut file = (header.len() as u64).to_le_bytes().to_vec();
    file.extend_from_slice(header);
    file.extend_from_slice(&[0x80, 0x3f, 0x00, 0x40]);
    let read = decode(&file).expect("it is well-formed");
    let y = read.get("y").expect("it is there");
    let y = y.elements::<half::bf16>().expect("bf16");
    assert_eq!(y.iter().map(|y| y.to_f32()).collect::<Vec<_>>(), [1.0, 2.0]);
}

#[test]
fn every_prefix_of_a_file_is_refused() {
    let file = encode(&some());
    for end in 0..file.len() {
        assert!(decode(&file[..end]).is_err(), "the first {end} bytes");
    }
}

#[test]
fn a_header_that_lies_is_refused() {
    let with = |header: &str| {
        let mut file = (header.len() as u64).to_le_bytes().to_vec();
        file.extend_from_slice(header.as_bytes());
        file.extend_from_slice(&[0; 8]);
        decode(&file).expect_err("it lies").to_string()
    };
    let range = with(r#"{"y":{"dtype":"F32","shape":[4],"data_offsets":[0,8]}}"#);
    assert_eq!(
        range,
        "tensor `y` of shape [4] needs 16 bytes, its range [0, 8] of 8 gives others"
    );
    with(r#"{"y":{"dtype":"F32","shape":[2],"data_offsets":[4,12]}}"#);
    with(r#"{"y":{"dtype":"F32","shape":[18446744073709551615,2],"data_offsets":[0,8]}}"#);
    with(r#"{"y":{"dtype":"F32","shape":[2],"data_offsets":[8,0]}}"#);
    let dtype = with(r#"{"y":{"dtype":"C64","shape":[1],"data_offsets":[0,8]}}"#);
    assert_eq!(
        dtype,
        "tensor `y` has element type C64, which no host tensor has"
    );
    with("[]");
    let long = decode(&u64::MAX.to_le_bytes()).expect_err("no machine has so much");
    assert!(matches!(long, Malformed::Long { .. }));
}
