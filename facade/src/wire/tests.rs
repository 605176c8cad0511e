//! The payload of a task: what is encoded comes back, and nothing else is taken for a task.

use device::Digest;
use proptest::prelude::*;
use taskgraph::{BufferId, BufferKind, DType, Tag, TaskArgs, Tensor};

use crate::buffer::Use;

use super::{DIGEST_BYTES, WireBuffer, WireError, decode, encode};

const DIGEST: Digest = Digest([7; 32]);

fn sample() -> TaskArgs {
    let buffer = BufferId::new(1, 2, 3, BufferKind::Shared);
    let x = Tensor::contiguous(buffer, DType::F32, &[4, 4], 64).unwrap();
    let mut args = TaskArgs::new();
    args.tensor(x.slice(0, 0..2).unwrap(), Tag::Input).unwrap();
    args.tensor(x.slice(0, 2..4).unwrap(), Tag::InOut).unwrap();
    args.scalar(-5_i32).scalar(2.5_f64).scalar(true);
    args
}

#[test]
fn a_task_without_arguments_is_its_digest() {
    let payload = encode(&DIGEST, &TaskArgs::new(), |_| None);
    assert_eq!(&payload[..], &DIGEST.0);
    let task = decode(&payload).unwrap();
    assert!(task.tensors.is_empty() && task.scalars.is_empty());
}

#[test]
fn arguments_come_back_as_they_were() {
    let args = sample();
    let task = decode(&encode(&DIGEST, &args, |_| None)).unwrap();
    assert_eq!(task.digest, DIGEST);
    for ((raw, tag), arg) in task.tensors.iter().zip(args.tensors()) {
        assert_eq!((raw.validate(64).unwrap(), *tag), (arg.tensor, arg.tag));
    }
    let scalars: Vec<_> = args.scalars().iter().map(|arg| arg.to_send()).collect();
    assert_eq!(&task.scalars[..], &scalars[..]);
}

#[test]
fn every_cut_is_refused() {
    let payload = encode(&DIGEST, &sample(), |_| None);
    for len in (0..payload.len()).filter(|&len| len != DIGEST_BYTES) {
        assert!(
            matches!(decode(&payload[..len]), Err(WireError::Length { .. })),
            "{len}"
        );
    }
}

#[test]
fn a_buffer_announcement_crosses_in_one_message() {
    let buffer = WireBuffer::new(
        BufferId::new(u64::MAX, 9, u32::MAX, BufferKind::Shared),
        4096,
    );
    for how in [Use::Read, Use::Write] {
        let header = buffer.to_header(how);
        assert_eq!(WireBuffer::from_header(header), Some((buffer, how)));
    }
    let stranger = mailbox::FdHeader {
        kind: 77,
        ..buffer.to_header(Use::Read)
    };
    assert_eq!(WireBuffer::from_header(stranger), None);
}

proptest! {
    #[test]
    fn no_bytes_make_the_decoder_panic(bytes in proptest::collection::vec(any::<u8>(), 0..600)) {
        let _ = decode(&bytes);
    }

    #[test]
    fn no_changed_byte_makes_the_decoder_panic(at in 0_usize..400, value in any::<u8>()) {
        let mut payload = encode(&DIGEST, &sample(), |_| None);
        let at = at % payload.len();
        payload[at] = value;
        if let Ok(task) = decode(&payload) {
            for (raw, _) in &task.tensors {
                if let Ok(tensor) = raw.validate(64) {
                    prop_assert!(tensor.footprint().end <= 64);
                }
            }
        }
    }
}
