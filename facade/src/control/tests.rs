//! Failures that cross a process.

use super::{ControlReply, ControlRequest, FaultKind, RemoteError, decode, encode};

#[test]
fn a_failure_comes_back_as_it_was_and_cut_ones_keep_their_place() {
    for kind in FaultKind::ALL {
        let error = RemoteError::new(kind, "node/sub0", "run function `f`", "it: was, odd");
        let (code, message) = error.to_parts();
        let failure = mailbox::Failure {
            code,
            message: &message,
        };
        assert_eq!(RemoteError::from_failure(&failure), error);
        let cut = mailbox::Failure {
            code,
            message: &message[..message.len() - 4],
        };
        let cut = RemoteError::from_failure(&cut);
        assert_eq!((cut.path, cut.operation), (error.path, error.operation));
    }
}

#[test]
fn the_chip_of_a_failure_is_known_from_its_path() {
    let of = |path| RemoteError::new(FaultKind::Unusable, path, "run", "").chip_index();
    assert_eq!(of("rack/node1/chip12"), Some(12));
    assert_eq!((of("node/sub3"), of("chip"), of("")), (None, None, None));
}

#[test]
fn whatever_a_child_writes_is_a_failure_of_some_kind() {
    for message in ["", "only a path", "\u{1f}\u{1f}\u{1f}"] {
        let failure = mailbox::Failure {
            code: 4000,
            message,
        };
        assert_eq!(RemoteError::from_failure(&failure).kind, FaultKind::Runtime);
    }
}

#[test]
fn a_cut_or_changed_message_is_an_error_and_never_a_panic() {
    let bytes = encode(&ControlRequest::Init {
        until: crate::clock::WireInstant(7),
    });
    for len in 0..bytes.len() {
        assert!(decode::<ControlRequest>(&bytes[..len]).is_err());
    }
    for at in 0..bytes.len() {
        for value in 0..=u8::MAX {
            let mut changed = bytes.clone();
            changed[at] = value;
            let _ = decode::<ControlRequest>(&changed);
            let _ = decode::<ControlReply>(&changed);
        }
    }
}
