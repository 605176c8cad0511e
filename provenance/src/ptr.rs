//! The handles: a worker and its life, a device pointer, a range of it.

use std::fmt;
use std::hash::{Hash, Hasher};

/// One life of one worker.
///
/// `id` is the stable number that tasks use to name the worker; `incarnation` is different each
/// time it is started, and best unique on the machine (a random number), so that a handle that
/// strayed in from another tree is recognised.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct WorkerRef {
    /// The stable number of the worker.
    pub id: u32,
    /// Which of its lives.
    pub incarnation: u64,
}

impl fmt::Display for WorkerRef {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "worker {} (life {:x})", self.id, self.incarnation)
    }
}

/// A place in the memory of one device: whose it is, which allocation, how far into it.
///
/// A handle is a *claim*: holding one proves nothing, it may be old, forged or meant for
/// somebody else. [`Table`](crate::Table) is the one door that turns it into an address.
/// It is plain data: copy it, send it, write it to shared memory with [`to_bytes`](Self::to_bytes).
///
/// ```
/// # use provenance::{Table, WorkerRef};
/// # let table = Table::new();
/// # let worker = WorkerRef { id: 0, incarnation: 1 };
/// let base = table.record(worker, 0x1000, 4096)?;
/// let middle = base.plus(2048)?;
/// assert_eq!(middle.offset(), 2048);
/// assert!(base.plus(u64::MAX).is_err());
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
///
/// Two handles are equal when they make the same claim, whichever way they came.
#[derive(Clone, Copy, Debug)]
pub struct DevicePtr {
    pub(crate) worker: WorkerRef,
    pub(crate) entry: u32,
    pub(crate) generation: u32,
    pub(crate) base: u64,
    pub(crate) offset: u64,
    pub(crate) made: Made,
}

/// Where a handle comes from. One that a table made itself says of its entry and generation what
/// that table knows, since nothing but the offset of a handle can be changed; so the table only
/// asks whether the generation lives. All others are compared word by word.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Made {
    /// The number of the table that made it, or 0.
    pub(crate) by: u32,
    /// The bytes of the allocation or window, if a table made it.
    pub(crate) extent: u64,
}

impl Made {
    /// Of a claim whose words say nothing of each other: it came as bytes.
    pub(crate) const BY_NOBODY: Self = Self { by: 0, extent: 0 };
}

impl PartialEq for DevicePtr {
    fn eq(&self, other: &Self) -> bool {
        self.claim() == other.claim()
    }
}

impl Eq for DevicePtr {}

impl Hash for DevicePtr {
    fn hash<H: Hasher>(&self, state: &mut H) {
        self.claim().hash(state);
    }
}

impl DevicePtr {
    fn claim(&self) -> (WorkerRef, u32, u32, u64, u64) {
        (
            self.worker,
            self.entry,
            self.generation,
            self.base,
            self.offset,
        )
    }

    /// How many bytes [`to_bytes`](Self::to_bytes) yields.
    pub const ENCODED_BYTES: usize = 40;

    /// The worker that owns the memory, in the life in which it was allocated.
    pub fn worker(self) -> WorkerRef {
        self.worker
    }

    /// The number of the table entry that this handle names.
    pub fn entry(self) -> u32 {
        self.entry
    }

    /// Which use of the entry this handle belongs to. Never 0, never used again.
    pub fn generation(self) -> u32 {
        self.generation
    }

    /// The first device address of the allocation or window. For keys and reports only: a number
    /// that means nothing on another worker and promises nothing about being alive.
    pub fn base(self) -> u64 {
        self.base
    }

    /// How many bytes past the base this handle points.
    pub fn offset(self) -> u64 {
        self.offset
    }

    /// The same handle at the base of its allocation.
    #[must_use]
    pub fn to_base(self) -> Self {
        Self { offset: 0, ..self }
    }

    /// The place `bytes` further on. Whether it is still inside the allocation is checked at use.
    ///
    /// # Errors
    /// When the offset or the address would not fit into 64 bits.
    pub fn plus(self, bytes: u64) -> Result<Self, Overflow> {
        let moved = self.offset.checked_add(bytes);
        self.moved(moved).ok_or(Overflow { ptr: self, bytes })
    }

    /// The place `bytes` before.
    ///
    /// # Errors
    /// When that lies before the base.
    pub fn minus(self, bytes: u64) -> Result<Self, Overflow> {
        let moved = self.offset.checked_sub(bytes);
        self.moved(moved).ok_or(Overflow { ptr: self, bytes })
    }

    fn moved(self, offset: Option<u64>) -> Option<Self> {
        let offset = offset?;
        self.base.checked_add(offset)?;
        Some(Self { offset, ..self })
    }

    /// The `bytes` from here on, as something to check.
    pub fn span(self, bytes: u64) -> Span {
        Span { ptr: self, bytes }
    }

    /// The handle as 40 bytes, little endian, without padding: for frames and shared memory.
    pub fn to_bytes(self) -> [u8; Self::ENCODED_BYTES] {
        let mut out = [0; Self::ENCODED_BYTES];
        out[0..4].copy_from_slice(&self.worker.id.to_le_bytes());
        out[4..8].copy_from_slice(&self.entry.to_le_bytes());
        out[8..16].copy_from_slice(&self.worker.incarnation.to_le_bytes());
        out[16..20].copy_from_slice(&self.generation.to_le_bytes());
        // Bytes 20 to 24 stay zero: they keep the wide fields aligned.
        out[24..32].copy_from_slice(&self.base.to_le_bytes());
        out[32..40].copy_from_slice(&self.offset.to_le_bytes());
        out
    }

    /// Reads what [`to_bytes`](Self::to_bytes) wrote. Any bytes decode, since the result is only
    /// a claim: the table decides what it is worth.
    pub fn from_bytes(bytes: &[u8; Self::ENCODED_BYTES]) -> Self {
        Self {
            worker: WorkerRef {
                id: word32(bytes, 0),
                incarnation: word64(bytes, 8),
            },
            entry: word32(bytes, 4),
            generation: word32(bytes, 16),
            base: word64(bytes, 24),
            offset: word64(bytes, 32),
            made: Made::BY_NOBODY,
        }
    }
}

fn word32(bytes: &[u8; DevicePtr::ENCODED_BYTES], at: usize) -> u32 {
    let mut word = [0; 4];
    word.copy_from_slice(&bytes[at..at + 4]);
    u32::from_le_bytes(word)
}

fn word64(bytes: &[u8; DevicePtr::ENCODED_BYTES], at: usize) -> u64 {
    let mut word = [0; 8];
    word.copy_from_slice(&bytes[at..at + 8]);
    u64::from_le_bytes(word)
}

/// `w2:0x1000+64 (#17.3)`: worker 2, base 0x1000, 64 bytes in; entry 17, generation 3.
impl fmt::Display for DevicePtr {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "w{}:{:#x}", self.worker.id, self.base)?;
        if self.offset != 0 {
            write!(f, "+{}", self.offset)?;
        }
        write!(f, " (#{}.{})", self.entry, self.generation)
    }
}

/// A range of device memory: so many bytes from a handle on.
///
/// An empty range touches nothing and is inside wherever a slice of it would be: from offset 0
/// up to and including the end.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Span {
    /// Where it begins.
    pub ptr: DevicePtr,
    /// How long it is, in bytes.
    pub bytes: u64,
}

impl Span {
    /// Whether the range lies within an extent of `extent` bytes. Cannot overflow.
    #[inline(always)]
    pub(crate) fn within(self, extent: u64) -> bool {
        let (rest, before) = extent.overflowing_sub(self.ptr.offset);
        !before & (self.bytes <= rest)
    }
}

/// An empty range reads as the place itself: it is how a release names its memory.
impl fmt::Display for Span {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.bytes {
            0 => write!(f, "{}", self.ptr),
            bytes => write!(f, "{bytes} bytes at {}", self.ptr),
        }
    }
}

/// Pointer arithmetic that left the 64-bit address space, or went below the base.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("move {ptr} by {bytes} bytes: the result is outside of any address space")]
pub struct Overflow {
    /// The handle that was to be moved.
    pub ptr: DevicePtr,
    /// By how much.
    pub bytes: u64,
}

#[cfg(all(test, not(loom)))]
mod tests;
