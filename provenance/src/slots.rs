//! The entries, in an array that grows without moving and is read without a lock.
//!
//! Beside the slots lies, densely, the one fact of each that changes while its handles are about:
//! which generation is live. A handle that the table made itself is checked against that alone,
//! and sixteen entries share a cache line of it.

use std::sync::OnceLock;

use crate::ptr::{DevicePtr, Span, WorkerRef};
use crate::sync::{AtomicU32, AtomicU64, Ordering};
use crate::word::Word;

/// log2 of how many slots the first chunk has; each further one has twice as many.
const FIRST_BITS: u32 = if cfg!(loom) { 1 } else { 6 };
/// Enough for every entry number that fits into 32 bits.
const CHUNKS: usize = (u32::BITS - FIRST_BITS + 1) as usize;

/// One entry: exactly a cache line, so that a check costs one miss at most and users of
/// neighbouring entries do not disturb each other.
#[derive(Debug)]
#[repr(align(64))]
pub(crate) struct Slot {
    pub(crate) word: Word,
    base: AtomicU64,
    bytes: AtomicU64,
    incarnation: AtomicU64,
    worker: AtomicU32,
    role: AtomicU32,
}

/// In which role an entry names its memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Role {
    /// The base of a native allocation: what can be freed.
    Allocation = 0,
    /// A view of memory that lives and dies elsewhere: released, never freed.
    Window = 1,
}

/// What an entry stands for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Facts {
    pub(crate) worker: WorkerRef,
    pub(crate) base: u64,
    pub(crate) bytes: u64,
    pub(crate) role: Role,
}

impl Facts {
    /// Whether the handle says the same about its owner and base.
    pub(crate) fn agree(&self, ptr: DevicePtr) -> bool {
        self.worker == ptr.worker && self.base == ptr.base
    }
}

impl Slot {
    fn new() -> Self {
        Self {
            word: Word::new(),
            base: AtomicU64::new(0),
            bytes: AtomicU64::new(0),
            incarnation: AtomicU64::new(0),
            worker: AtomicU32::new(0),
            role: AtomicU32::new(0),
        }
    }

    /// Release: pairs with the Acquire of `facts`. A reader that sees one of these stores also
    /// sees, in its second look at the word, that the entry was vacated before.
    pub(crate) fn set_facts(&self, facts: Facts) {
        self.base.store(facts.base, Ordering::Release);
        self.bytes.store(facts.bytes, Ordering::Release);
        self.incarnation
            .store(facts.worker.incarnation, Ordering::Release);
        self.worker.store(facts.worker.id, Ordering::Release);
        self.role.store(facts.role as u32, Ordering::Release);
    }

    /// Consistent under a pin, under the ledger's lock, or if the word is unchanged afterwards.
    #[inline(always)]
    pub(crate) fn facts(&self) -> Facts {
        // Acquire: pairs with the Release of `set_facts`, for the second look at the word.
        Facts {
            worker: WorkerRef {
                id: self.worker.load(Ordering::Acquire),
                incarnation: self.incarnation.load(Ordering::Acquire),
            },
            base: self.base.load(Ordering::Acquire),
            bytes: self.bytes.load(Ordering::Acquire),
            role: if self.role.load(Ordering::Acquire) == Role::Window as u32 {
                Role::Window
            } else {
                Role::Allocation
            },
        }
    }

    pub(crate) fn role(&self) -> Role {
        self.facts().role
    }

    /// Whether this is live memory that covers the span: true at one instant during the call, and
    /// perhaps no longer.
    ///
    /// One branch for all of it, so that the processor runs ahead and fetches the entries of
    /// several checks at once.
    #[inline(always)]
    pub(crate) fn covers(&self, span: Span) -> bool {
        let ptr = span.ptr;
        let word = self.word.load();
        let facts = self.facts();
        let again = if cfg!(weaken = "one_look") {
            word
        } else {
            self.word.load_again()
        };
        let wrong = word.apart_from_live(ptr.generation)
            | u64::from(again.generation() ^ ptr.generation)
            | u64::from(facts.worker.id ^ ptr.worker.id)
            | (facts.worker.incarnation ^ ptr.worker.incarnation)
            | (facts.base ^ ptr.base);
        (wrong == 0) & span.within(facts.bytes)
    }
}

/// Some entries: the slot of each, and apart from it which generation of it is live.
#[derive(Debug)]
struct Chunk {
    slots: Box<[Slot]>,
    /// The generation whose handles are worth something, or 0.
    live: Box<[AtomicU32]>,
}

/// All slots that were ever needed.
#[derive(Debug)]
pub(crate) struct Slots {
    chunks: [OnceLock<Chunk>; CHUNKS],
}

impl Slots {
    pub(crate) fn new() -> Self {
        Self {
            chunks: [const { OnceLock::new() }; CHUNKS],
        }
    }

    /// The slot of that number, if its chunk exists.
    #[inline(always)]
    pub(crate) fn at(&self, entry: u32) -> Option<&Slot> {
        let (chunk, index) = place(entry);
        self.chunks[chunk].get()?.slots.get(index)
    }

    /// Whether that generation of the entry is live: true at one instant during the call, and
    /// perhaps no longer.
    ///
    /// One load from a dense array, whose address depends on nothing but the number: the processor
    /// fetches for several checks at once.
    #[inline(always)]
    pub(crate) fn is_live(&self, entry: u32, generation: u32) -> bool {
        let (chunk, index) = place(entry);
        // Relaxed: nothing is read on the strength of it. Whoever was told of a record or a release
        // sees it by whatever told him.
        self.chunks[chunk]
            .get()
            .and_then(|chunk| chunk.live.get(index))
            .is_some_and(|live| live.load(Ordering::Relaxed) == generation)
    }

    /// Says which generation of the entry is live, if any. Under the ledger's lock, in the step
    /// that changes the word: whoever is refused looks again under that lock, so nobody sees one
    /// without the other.
    pub(crate) fn set_live(&self, entry: u32, generation: Option<u32>) {
        if cfg!(weaken = "live_kept") && generation.is_none() {
            return;
        }
        let (chunk, index) = place(entry);
        // Relaxed: see `is_live`.
        self.chunk(chunk).live[index].store(generation.unwrap_or(0), Ordering::Relaxed);
    }

    /// The slot of that number; its chunk is created when it is missing.
    pub(crate) fn ensure(&self, entry: u32) -> &Slot {
        let (chunk, index) = place(entry);
        &self.chunk(chunk).slots[index]
    }

    fn chunk(&self, chunk: usize) -> &Chunk {
        self.chunks[chunk].get_or_init(|| Chunk::new(1 << (FIRST_BITS as usize + chunk)))
    }
}

/// Chunk and index: with the size of the first chunk added, the highest bit of the number is the
/// chunk, and the others are the index in it.
#[inline(always)]
fn place(entry: u32) -> (usize, usize) {
    let shifted = u64::from(entry) + (1 << FIRST_BITS);
    let top = shifted.ilog2();
    ((top - FIRST_BITS) as usize, (shifted ^ (1 << top)) as usize)
}

impl Chunk {
    fn new(entries: usize) -> Self {
        let none_live = std::iter::repeat_with(|| AtomicU32::new(0));
        Self {
            slots: std::iter::repeat_with(Slot::new).take(entries).collect(),
            live: none_live.take(entries).collect(),
        }
    }
}

#[cfg(all(test, not(loom)))]
mod tests;
