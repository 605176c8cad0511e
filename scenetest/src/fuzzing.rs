//! The decoders of this crate, for fuzz targets and for the tests that repeat what those found: compiled for them only.
//!
//! Each function takes any bytes and must not panic.

use crate::{channel, record, safetensors};

/// What a scene writes to its runner, in pieces of any size: whole messages between garbage are found.
pub fn channel(bytes: &[u8]) {
    let (size, bytes) = match bytes.split_first() {
        Some((&size, rest)) => (usize::from(size) + 1, rest),
        None => return,
    };
    let mut receiver = channel::Receiver::default();
    let pieces = bytes.chunks(size);
    let messages: Vec<_> = pieces.flat_map(|piece| receiver.push(piece)).collect();
    let mut whole = channel::Receiver::default();
    assert_eq!(messages, whole.push(bytes), "pieces make no difference");
    assert_eq!(receiver.torn(), whole.torn());
}

/// One message of a scene.
pub fn event(bytes: &[u8]) {
    let _ = record::decode(bytes);
}

/// A file of golden tensors: what is read is written as a file that reads the same.
pub fn tensors(bytes: &[u8]) {
    if let Ok(tensors) = safetensors::decode(bytes) {
        let written = safetensors::encode(&tensors);
        let again = safetensors::decode(&written).expect("what was written is read");
        assert_eq!(safetensors::encode(&again), written);
    }
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    type Body = fn(&[u8]);

    const BODIES: [(&str, Body); 3] = [
        ("channel", super::channel),
        ("event", super::event),
        ("tensors", super::tensors),
    ];

    #[test]
    fn inputs_of_the_fuzz_targets_are_survived() {
        let dir = Path::new(env!("CARGO_MANIFEST_DIR")).join("fuzz/regressions");
        for (name, body) in BODIES {
            let files = std::fs::read_dir(dir.join(name)).expect("inputs of this target");
            for file in files {
                body(&std::fs::read(file.unwrap().path()).unwrap());
            }
        }
    }
}
