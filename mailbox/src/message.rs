//! What the two sides say to each other: outcomes, their wire form, and the labels of replies.

use crate::frame::{Bytes, Identity};

/// How a task or a control request ended, as the parent sees it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Outcome<'a> {
    /// It was done; what it gave back.
    Ok(&'a [u8]),
    /// It failed.
    Failed(Failure<'a>),
}

/// A failure as it crosses the border: a code for programs, a text for people.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Failure<'a> {
    /// What the caller's own table says it means.
    pub code: u32,
    /// The text; longer than the reply frame it is cut, and then ends in [`CUT_MARK`].
    pub message: &'a str,
}

/// What the end of a text that was cut looks like.
pub const CUT_MARK: &str = " [cut]";

/// Labels of replies: which facts their stamp states.
pub(crate) mod label {
    /// The task was accepted and is not done yet.
    pub(crate) const ACCEPTED: u8 = 1;
    /// It is done (and was therefore accepted).
    pub(crate) const DONE: u8 = 3;
    /// It failed before it was accepted.
    pub(crate) const REFUSED: u8 = 6;
    /// It failed after it was accepted.
    pub(crate) const FAILED: u8 = 7;
}

const CODE_BYTES: usize = size_of::<u32>();

/// Writes a failure into `out`, the text cut so that everything fits `limit` bytes.
pub(crate) fn encode_failure(failure: &Failure<'_>, limit: usize, out: &mut Vec<u8>) {
    out.clear();
    out.extend_from_slice(&failure.code.to_le_bytes());
    let room = limit - CODE_BYTES;
    if failure.message.len() <= room {
        out.extend_from_slice(failure.message.as_bytes());
        return;
    }
    let mut kept = room - CUT_MARK.len();
    while !failure.message.is_char_boundary(kept) {
        kept -= 1;
    }
    out.extend_from_slice(&failure.message.as_bytes()[..kept]);
    out.extend_from_slice(CUT_MARK.as_bytes());
}

/// Reads a failure that a peer claims to have written. Bytes that are no text are dropped, from the
/// first one on: a message is for people, and half of one is better than none.
pub(crate) fn decode_failure(bytes: &[u8]) -> Failure<'_> {
    let Some((code, text)) = bytes.split_first_chunk::<CODE_BYTES>() else {
        return Failure {
            code: 0,
            message: "",
        };
    };
    let valid = match std::str::from_utf8(text) {
        Ok(text) => text,
        Err(e) => std::str::from_utf8(&text[..e.valid_up_to()]).unwrap_or_default(),
    };
    Failure {
        code: u32::from_le_bytes(*code),
        message: valid,
    }
}

/// The outcome under a final label.
#[inline]
pub(crate) fn decode_outcome(label: u8, payload: &Bytes) -> Outcome<'_> {
    match label {
        label::DONE => Outcome::Ok(payload.as_slice()),
        _ => Outcome::Failed(decode_failure(payload.as_slice())),
    }
}

/// What a child has to do with one frame: the common part of tasks and control requests.
///
/// There is one per frame, and it moves between the end and whoever works on it: one word to hand over.
#[derive(Debug, Default)]
pub(crate) struct Ticket {
    pub(crate) frame: usize,
    pub(crate) sequence: u32,
    pub(crate) kind: u8,
    pub(crate) accepted: bool,
    pub(crate) identity: Identity,
    pub(crate) payload: Bytes,
}
