//! The decoders of this crate, for fuzz targets and for the tests that repeat what those found: compiled for them only.
//!
//! Each function takes any bytes and must not panic, and what a decoder takes must come back from its encoder unchanged.

use crate::clock::WireInstant;
use crate::control::{self, ControlReply, ControlRequest};
use crate::{activity, child, graph, logs, wire};

/// The payload of a task frame, and the tensors in it against a backing of their own claim.
pub fn task(bytes: &[u8]) {
    let Ok(task) = wire::decode(bytes) else {
        return;
    };
    for (raw, _) in &task.tensors {
        if let Ok(tensor) = raw.validate(raw.backing_bytes) {
            assert!(tensor.footprint().end <= raw.backing_bytes);
        }
    }
    let encoded = |task: &wire::ClaimedTask| {
        let scalars = task.scalars.iter().copied();
        wire::encode_parts(&task.digest.0, task.tensors.iter().copied(), scalars)
    };
    let once = encoded(&task);
    let again = wire::decode(&once).expect("what was encoded is decoded");
    // Bytes, because a scalar that is no number equals nothing.
    assert_eq!(encoded(&again), once);
}

/// A control request, a control reply, and what a spawned child gets.
pub fn control(bytes: &[u8]) {
    if let Ok(request) = control::decode::<ControlRequest>(bytes) {
        assert_eq!(
            control::decode::<ControlRequest>(&control::encode(&request)),
            Ok(request)
        );
    }
    if let Ok(reply) = control::decode::<ControlReply>(bytes) {
        assert_eq!(
            control::decode::<ControlReply>(&control::encode(&reply)),
            Ok(reply)
        );
    }
    let _ = child::is_seat(bytes);
}

/// A record of the feed that workers log to.
pub fn record(bytes: &[u8]) {
    logs::check_record(bytes);
}

/// The key of a graph in a file of recorded graphs.
pub fn graph_key(bytes: &[u8]) {
    graph::check_key(bytes);
}

/// A place of the board on which workers say what they do.
pub fn activity(bytes: &[u8]) {
    activity::check_place(bytes, WireInstant(1_000_000_000));
}

#[cfg(test)]
mod tests;
