//! Views of shared memory as atomic words: the only way that the protocol touches it.
//!
//! # Safety
//!
//! The references made here are to atomics, which both processes may use at once without undefined
//! behaviour; there is no other reference into memory that a peer may write. Bounds and alignment are
//! checked when a view is made, and a view keeps its mapping alive.
#![cfg_attr(
    not(loom),
    expect(unsafe_code, reason = "views of a shared mapping as slices of atomics")
)]

#[cfg(not(loom))]
pub(crate) use mapped::{BellWord, Words};
#[cfg(loom)]
pub(crate) use modelled::{BellWord, Words};

use crate::sync::{AtomicU64, BODY};

/// Bytes of one word.
pub(crate) const WORD: usize = size_of::<u64>();

/// Words that are stored in one go: half a cache line. (A plain loop is twice the instructions; that of the loads the
/// compiler unrolls by itself.)
const QUAD: usize = 4;

impl Words {
    /// Stores `bytes` from word `first` on, the last word padded with zeros.
    ///
    /// The caller has checked that they fit: a violation is a bug of this crate and panics.
    #[inline(always)]
    pub(crate) fn write(&self, first: usize, bytes: &[u8]) {
        let words = &self.as_slice()[first..];
        assert!(
            bytes.len() <= words.len() * WORD,
            "the caller has checked that the bytes fit"
        );
        let (quads, rest) = bytes.as_chunks::<{ QUAD * WORD }>();
        for (words, quad) in words.as_chunks::<QUAD>().0.iter().zip(quads) {
            let (values, _) = quad.as_chunks::<WORD>();
            for (word, value) in words.iter().zip(values) {
                word.store(u64::from_ne_bytes(*value), BODY);
            }
        }
        if !rest.is_empty() {
            write_rest(&words[quads.len() * QUAD..], rest);
        }
    }

    /// Copies `out.len()` words from word `first` on.
    ///
    /// The caller has checked that they exist: a violation is a bug of this crate and panics.
    #[inline]
    pub(crate) fn read(&self, first: usize, out: &mut [u64]) {
        let words = &self.as_slice()[first..first + out.len()];
        for (copy, word) in out.iter_mut().zip(words) {
            *copy = word.load(BODY);
        }
    }
}

/// Stores fewer bytes than a quad has, the last word padded with zeros.
#[inline]
fn write_rest(words: &[AtomicU64], bytes: &[u8]) {
    let (chunks, tail) = bytes.as_chunks::<WORD>();
    for (word, chunk) in words.iter().zip(chunks) {
        word.store(u64::from_ne_bytes(*chunk), BODY);
    }
    if !tail.is_empty() {
        let mut last = [0; WORD];
        last[..tail.len()].copy_from_slice(tail);
        words[chunks.len()].store(u64::from_ne_bytes(last), BODY);
    }
}

#[cfg(not(loom))]
mod mapped {
    use std::sync::Arc;

    use crate::segment::{Segment, SegmentError};
    use crate::sync::{AtomicU32, AtomicU64};

    /// A run of words in a mapped segment.
    #[derive(Clone, Debug)]
    pub(crate) struct Words {
        first: *const AtomicU64,
        len: usize,
        _mapping: Arc<Segment>,
    }

    // SAFETY: the memory behind `first` is kept mapped by `_mapping` and is only used as atomics.
    unsafe impl Send for Words {}
    // SAFETY: as above.
    unsafe impl Sync for Words {}

    impl Words {
        /// A view of `len` words at byte `offset`, which must be a multiple of eight.
        pub(crate) fn new(
            segment: &Arc<Segment>,
            offset: usize,
            len: usize,
        ) -> Result<Words, SegmentError> {
            let first = segment.at(offset, len * super::WORD)?.cast::<AtomicU64>();
            assert!(
                first.is_aligned(),
                "a view of words begins at a multiple of eight"
            );
            Ok(Words {
                first,
                len,
                _mapping: Arc::clone(segment),
            })
        }

        /// The words.
        #[inline(always)]
        pub(crate) fn as_slice(&self) -> &[AtomicU64] {
            // SAFETY: `new` checked bounds and alignment, `_mapping` keeps the memory mapped, any bytes
            // are a valid `AtomicU64`, and both sides use the words as atomics only.
            unsafe { std::slice::from_raw_parts(self.first, self.len) }
        }
    }

    impl Words {
        /// Asks for the cache line of a word, without waiting for it.
        #[inline(always)]
        pub(crate) fn prefetch(&self, word: usize) {
            let word = std::ptr::from_ref(&self.as_slice()[word]);
            #[cfg(target_arch = "x86_64")]
            // SAFETY: a hint that cannot fault, on an address that is mapped anyway.
            unsafe {
                use std::arch::x86_64::{_MM_HINT_T0, _mm_prefetch};
                _mm_prefetch::<_MM_HINT_T0>(word.cast());
            }
            #[cfg(target_arch = "aarch64")]
            // SAFETY: a hint that cannot fault, on an address that is mapped anyway.
            unsafe {
                std::arch::asm!("prfm pldl1keep, [{}]", in(reg) word, options(nostack, readonly));
            }
            #[cfg(not(any(target_arch = "x86_64", target_arch = "aarch64")))]
            let _ = word;
        }
    }

    /// A bell's word in a mapped segment.
    #[derive(Clone, Debug)]
    pub(crate) struct BellWord {
        word: *const AtomicU32,
        _mapping: Arc<Segment>,
    }

    // SAFETY: the memory behind `word` is kept mapped by `_mapping` and is only used as an atomic.
    unsafe impl Send for BellWord {}
    // SAFETY: as above.
    unsafe impl Sync for BellWord {}

    impl BellWord {
        /// The word at byte `offset`, which must be a multiple of four.
        pub(crate) fn new(segment: &Arc<Segment>, offset: usize) -> Result<BellWord, SegmentError> {
            let word = segment
                .at(offset, size_of::<AtomicU32>())?
                .cast::<AtomicU32>();
            assert!(word.is_aligned(), "a bell begins at a multiple of four");
            Ok(BellWord {
                word,
                _mapping: Arc::clone(segment),
            })
        }

        /// The word.
        #[inline(always)]
        pub(crate) fn get(&self) -> &AtomicU32 {
            // SAFETY: `new` checked bounds and alignment, `_mapping` keeps the memory mapped, any bytes
            // are a valid `AtomicU32`, and both sides use the word as an atomic only.
            unsafe { &*self.word }
        }
    }
}

#[cfg(loom)]
mod modelled {
    use std::sync::Arc;

    use crate::sync::{AtomicU32, AtomicU64};

    /// A bell's word that the model checker watches.
    #[derive(Clone, Debug)]
    pub(crate) struct BellWord(Arc<AtomicU32>);

    impl BellWord {
        pub(crate) fn modelled() -> BellWord {
            BellWord(Arc::new(AtomicU32::new(0)))
        }

        pub(crate) fn get(&self) -> &AtomicU32 {
            &self.0
        }
    }

    /// A run of words that the model checker watches.
    #[derive(Clone, Debug)]
    pub(crate) struct Words(Arc<[AtomicU64]>);

    impl Words {
        /// `len` words of zero.
        pub(crate) fn modelled(len: usize) -> Words {
            Words((0..len).map(|_| AtomicU64::new(0)).collect())
        }

        /// The words.
        pub(crate) fn as_slice(&self) -> &[AtomicU64] {
            &self.0
        }
    }
}
