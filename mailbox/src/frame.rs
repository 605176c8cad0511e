//! Frames: one message in one direction, and the stamp that publishes it.
//!
//! ```text
//! word  0        1      2                   3         4 ..
//!       stamp    run    slot | generation   dispatch  payload
//! stamp = sequence number (32 bits) | label (8 bits) | payload length in bytes (24 bits)
//! ```
//!
//! Only one side ever writes a frame, and it writes the stamp last: whoever sees a stamp sees the body
//! under it. Header and 32 bytes of payload share one cache line, so that a small task is one transfer
//! and a task of up to 96 bytes is two. A payload longer than the frame lies in the frame's spill area
//! instead, which its length alone says: there is no flag that could contradict it.
//!
//! What a stamp says is a claim by the peer. [`Frame::read`] is the only door: it checks the length
//! against the places that exist before it copies anything.

use crate::segment::SegmentError;
use crate::sync::{BODY, OBSERVE, PUBLISH};
use crate::words::{WORD, Words};

/// Who a task is: repeated in every frame of it, so that an answer can never be taken for another's.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct Identity {
    /// The run that the task belongs to.
    pub run: u64,
    /// The task's slot in the graph.
    pub slot: u32,
    /// How often the slot has been used.
    pub generation: u32,
    /// Number of this hand-over, as the caller counts.
    pub dispatch: u64,
}

/// Words of a frame before its payload.
pub(crate) const HEADER_WORDS: usize = 4;

/// Bytes of payload that share a cache line with the header.
pub(crate) const INLINE_BYTES: usize = 32;

/// Bytes of a cache line on the machines we run on.
pub(crate) const LINE: usize = 64;

/// The longest payload that a stamp can express, in bytes.
pub(crate) const PAYLOAD_MAX: usize = (1 << LEN_BITS) - 1;

const LEN_BITS: u32 = 24;
const LABEL_SHIFT: u32 = LEN_BITS;
const SEQUENCE_SHIFT: u32 = 32;

const _: () = assert!(HEADER_WORDS * WORD + INLINE_BYTES == LINE);
const _: () = assert!(LABEL_SHIFT + u8::BITS == SEQUENCE_SHIFT);

/// The word that publishes a frame: which message it is, what kind, and how long.
///
/// Sequence numbers begin at 1 and wrap; 0 is a frame that was never used.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Stamp(u64);

impl Stamp {
    /// The stamp of a frame that was never used.
    pub(crate) const UNUSED: Stamp = Stamp(0);

    pub(crate) fn new(sequence: u32, label: u8, len: usize) -> Stamp {
        debug_assert!(len <= PAYLOAD_MAX, "the frame has refused longer payloads");
        Stamp(
            (u64::from(sequence) << SEQUENCE_SHIFT)
                | (u64::from(label) << LABEL_SHIFT)
                | len as u64,
        )
    }

    pub(crate) fn sequence(self) -> u32 {
        (self.0 >> SEQUENCE_SHIFT) as u32
    }

    pub(crate) fn label(self) -> u8 {
        (self.0 >> LABEL_SHIFT) as u8
    }

    /// The length that the writer claims, in bytes.
    pub(crate) fn claimed_len(self) -> usize {
        (self.0 & PAYLOAD_MAX as u64) as usize
    }

    pub(crate) fn to_bits(self) -> u64 {
        self.0
    }
}

/// The sequence number after `sequence`: 0 is never used again.
pub(crate) fn following(sequence: u32) -> u32 {
    match sequence.wrapping_add(1) {
        0 => 1,
        next => next,
    }
}

/// A payload length that no place of the frame can hold.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct TooLong {
    /// Bytes claimed or wanted.
    pub(crate) len: usize,
    /// Bytes of the largest place.
    pub(crate) limit: usize,
}

/// Why a frame could not be filled or read.
#[derive(Debug)]
pub(crate) enum FrameError {
    TooLong(TooLong),
    Spill(SegmentError),
}

/// One direction of one frame: its words and its spill area.
#[derive(Debug)]
pub(crate) struct Frame {
    words: Words,
    spill: Spill,
    /// Bytes that fit without spilling.
    capacity: usize,
    /// Bytes that fit at all.
    limit: usize,
}

impl Frame {
    pub(crate) fn new(words: Words, spill: Spill) -> Frame {
        let n_words = words.as_slice().len();
        assert!(
            n_words >= 2 * LINE / WORD,
            "a frame has two cache lines at least"
        );
        let capacity = (n_words - HEADER_WORDS) * WORD;
        let limit = capacity.max(spill.bytes()).min(PAYLOAD_MAX);
        Frame {
            words,
            spill,
            capacity,
            limit,
        }
    }

    /// Bytes that fit without spilling.
    pub(crate) fn capacity(&self) -> usize {
        self.capacity
    }

    /// The newest stamp. Partner of [`Frame::publish`].
    #[inline(always)]
    pub(crate) fn stamp(&self) -> Stamp {
        Stamp(self.words.as_slice()[0].load(OBSERVE))
    }

    /// Asks for the line with the stamp, for who will look at it soon and has something to do until then.
    #[inline(always)]
    pub(crate) fn prefetch_stamp(&self) {
        #[cfg(not(loom))]
        self.words.prefetch(0);
    }

    /// The newest stamp, for a loop that waits for a new one: asks for the second line of the frame along
    /// with the first, so that a payload of up to 96 bytes comes in the time of one transfer.
    #[inline(always)]
    pub(crate) fn watched_stamp(&self) -> Stamp {
        #[cfg(not(loom))]
        self.words.prefetch(HEADER_WORDS + INLINE_BYTES / WORD);
        self.stamp()
    }

    /// Makes the body that was written visible to the peer. Partner of [`Frame::stamp`].
    #[inline(always)]
    pub(crate) fn publish(&self, stamp: Stamp) {
        self.words.as_slice()[0].store(stamp.0, PUBLISH);
    }

    /// Writes identity and payload; nothing is visible before [`Frame::publish`].
    #[inline(always)]
    pub(crate) fn write(&mut self, identity: &Identity, payload: &[u8]) -> Result<(), FrameError> {
        if payload.len() <= INLINE_BYTES {
            self.words.write(HEADER_WORDS, payload);
        } else {
            self.write_beyond(payload)?;
        }
        self.write_identity(identity);
        Ok(())
    }

    /// The line with the stamp comes last and in one go: stores become visible in order, and the peer, which
    /// watches that line, would fetch it while this processor waits for another one.
    #[inline]
    fn write_beyond(&mut self, payload: &[u8]) -> Result<(), FrameError> {
        if payload.len() > self.capacity {
            return self.write_spilled(payload);
        }
        let (inline, beyond) = payload.split_at(INLINE_BYTES);
        self.words.write(HEADER_WORDS + INLINE_BYTES / WORD, beyond);
        self.words.write(HEADER_WORDS, inline);
        Ok(())
    }

    #[cold]
    fn write_spilled(&mut self, payload: &[u8]) -> Result<(), FrameError> {
        self.check_len(payload.len())?;
        self.spill.write(payload).map_err(FrameError::Spill)
    }

    fn check_len(&self, len: usize) -> Result<(), FrameError> {
        match len <= self.limit {
            true => Ok(()),
            false => Err(FrameError::TooLong(TooLong {
                len,
                limit: self.limit,
            })),
        }
    }

    /// Writes the identity alone.
    #[inline]
    pub(crate) fn write_identity(&self, identity: &Identity) {
        let words = self.words.as_slice();
        words[1].store(identity.run, BODY);
        words[2].store(
            u64::from(identity.slot) << 32 | u64::from(identity.generation),
            BODY,
        );
        words[3].store(identity.dispatch, BODY);
    }

    /// The identity that the writer claims.
    #[inline]
    pub(crate) fn claimed_identity(&self) -> Identity {
        let words = self.words.as_slice();
        let slot_generation = words[2].load(BODY);
        Identity {
            run: words[1].load(BODY),
            slot: (slot_generation >> 32) as u32,
            generation: slot_generation as u32,
            dispatch: words[3].load(BODY),
        }
    }

    /// Copies the payload under `stamp` into `out`, after checking the length it claims.
    #[inline]
    pub(crate) fn read(&mut self, stamp: Stamp, out: &mut Bytes) -> Result<(), FrameError> {
        let len = stamp.claimed_len();
        if len > self.capacity {
            return self.read_spilled(len, out);
        }
        self.words.read(HEADER_WORDS, out.resize(len));
        Ok(())
    }

    #[cold]
    fn read_spilled(&mut self, len: usize, out: &mut Bytes) -> Result<(), FrameError> {
        self.check_len(len)?;
        self.spill.read(len, out).map_err(FrameError::Spill)
    }
}

/// Room for payloads that do not fit their frame: part of the segment, without pages until first used.
#[derive(Debug)]
pub(crate) struct Spill {
    words: Words,
    /// Bytes from the start whose pages are known to exist.
    reserved: usize,
    #[cfg(not(loom))]
    place: (std::sync::Arc<crate::segment::Segment>, usize),
}

impl Spill {
    /// The spill area at byte `offset` of a segment.
    #[cfg(not(loom))]
    pub(crate) fn new(
        segment: &std::sync::Arc<crate::segment::Segment>,
        offset: usize,
        bytes: usize,
    ) -> Result<Spill, SegmentError> {
        let words = Words::new(segment, offset, bytes / WORD)?;
        Ok(Spill {
            words,
            reserved: 0,
            place: (std::sync::Arc::clone(segment), offset),
        })
    }

    /// A model needs no room beyond its frames.
    #[cfg(loom)]
    pub(crate) fn none() -> Spill {
        Spill {
            words: Words::modelled(0),
            reserved: 0,
        }
    }

    fn bytes(&self) -> usize {
        self.words.as_slice().len() * WORD
    }

    fn write(&mut self, payload: &[u8]) -> Result<(), SegmentError> {
        self.reserve(payload.len())?;
        self.words.write(0, payload);
        Ok(())
    }

    /// The reader reserves too: a peer that claims a spilled payload without having reserved it must
    /// not be able to make our copy fault.
    fn read(&mut self, len: usize, out: &mut Bytes) -> Result<(), SegmentError> {
        self.reserve(len)?;
        self.words.read(0, out.resize(len));
        Ok(())
    }

    fn reserve(&mut self, bytes: usize) -> Result<(), SegmentError> {
        if bytes > self.reserved {
            #[cfg(not(loom))]
            self.place
                .0
                .reserve(self.place.1, bytes.next_multiple_of(WORD))?;
            self.reserved = bytes;
        }
        Ok(())
    }
}

/// A private copy of a payload: words inside, bytes outside; grows and is reused.
#[derive(Debug, Default)]
pub(crate) struct Bytes {
    words: Box<[u64]>,
    len: usize,
}

impl Bytes {
    pub(crate) fn with_capacity(bytes: usize) -> Bytes {
        Bytes {
            words: vec![0; bytes.div_ceil(WORD)].into(),
            len: 0,
        }
    }

    /// The words that hold `len` bytes from now on.
    #[inline]
    fn resize(&mut self, len: usize) -> &mut [u64] {
        let n_words = len.div_ceil(WORD);
        if n_words > self.words.len() {
            self.grow(n_words);
        }
        self.len = len;
        &mut self.words[..n_words]
    }

    /// Apart, so that the path of every message saves no register for it.
    #[cold]
    #[inline(never)]
    fn grow(&mut self, n_words: usize) {
        self.words = vec![0; n_words].into();
    }

    #[inline]
    pub(crate) fn as_slice(&self) -> &[u8] {
        &bytemuck::cast_slice(&self.words)[..self.len]
    }
}
