//! Buffers by identity: who owns a backing, which one it is, and how it can be reached.
//!
//! The graph never sees an address. Two views can only conflict when their buffer identities are
//! equal, so an identity must never be handed out twice: the owner's incarnation and the generation
//! make a reused id a different buffer.

use std::fmt;

/// How a buffer can be reached, and whether a task may write it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[repr(u32)]
#[non_exhaustive]
pub enum BufferKind {
    /// Shared memory that existed before the children were forked; every child sees it.
    ForkShared = 1,
    /// Private memory of the parent, seen by children as it was at the fork. Read only.
    ForkPrivate = 2,
    /// Shared memory created at any time; every child can reach it.
    Shared = 3,
    /// Memory of one device; only its own worker reaches it.
    Device = 4,
    /// No memory yet: an output that its submit gives memory to. Never crosses to another process.
    Unbacked = 5,
}

impl BufferKind {
    /// The code of this kind in a [`RawTensor`](crate::RawTensor).
    pub const fn code(self) -> u32 {
        self as u32
    }

    /// The kind with this wire code, or `None` for a code that no descriptor may carry.
    pub const fn from_code(code: u32) -> Option<BufferKind> {
        match code {
            1 => Some(BufferKind::ForkShared),
            2 => Some(BufferKind::ForkPrivate),
            3 => Some(BufferKind::Shared),
            4 => Some(BufferKind::Device),
            _ => None,
        }
    }

    /// Whether a task may write buffers of this kind.
    pub const fn is_writable(self) -> bool {
        !matches!(self, BufferKind::ForkPrivate)
    }
}

impl fmt::Display for BufferKind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            BufferKind::ForkShared => "fork-shared",
            BufferKind::ForkPrivate => "fork-private",
            BufferKind::Shared => "shared",
            BufferKind::Device => "device",
            BufferKind::Unbacked => "unbacked",
        })
    }
}

/// The identity of a buffer. Equal identities are one backing; anything else never overlaps.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct BufferId {
    /// Incarnation of the worker that owns the backing; never used twice.
    pub owner: u64,
    /// Number of the buffer at its owner.
    pub id: u64,
    /// Counts the uses of `id`, so that a freed and reused id is another buffer.
    pub generation: u32,
    /// How the backing can be reached.
    pub kind: BufferKind,
}

impl BufferId {
    /// An identity from its parts.
    pub const fn new(owner: u64, id: u64, generation: u32, kind: BufferKind) -> BufferId {
        BufferId {
            owner,
            id,
            generation,
            kind,
        }
    }

    /// A hash for the tables of the graph: fixed, so that every run of a program behaves alike.
    pub(crate) const fn hash(&self) -> u64 {
        let tag = ((self.generation as u64) << 32) | self.kind as u64;
        let mixed = self.id ^ self.owner.rotate_left(40) ^ tag.wrapping_mul(0xd1b5_4a32_d192_ed03);
        let spread = mixed.wrapping_mul(0x9e37_79b9_7f4a_7c15);
        spread ^ (spread >> 32)
    }
}

impl fmt::Display for BufferId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "{} buffer {}.{} of {:x}",
            self.kind, self.id, self.generation, self.owner
        )
    }
}
