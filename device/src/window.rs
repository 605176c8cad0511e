//! Windows: memory that several chips map, each at an address of its own.
//!
//! The memory of a domain lives in one shared object; each member maps the part of every rank. A
//! mapped window is used like an allocation (copies, arguments of runs), and is unmapped instead of
//! freed. What the chips do to it at the same time is not this crate's to order: whoever maps one
//! memory on several chips keeps runs apart that conflict, as it does for the tasks of one chip.

use std::os::fd::BorrowedFd;

use thiserror::Error;

/// Every window begins at a multiple of this many bytes of the shared object.
pub const WINDOW_ALIGNMENT: u64 = 4096;

/// Bytes behind each window that nobody may write, where a write past its end is seen.
pub(crate) const WINDOW_GUARD_BYTES: u64 = 64;

/// Whose memory a window shows.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum WindowSide {
    /// This chip's own: it counts against the memory of this chip.
    Home,
    /// Another chip's: it takes address space only.
    Peer,
}

/// A part of a shared object, to be mapped by a chip.
#[derive(Clone, Copy, Debug)]
pub struct Window<'fd> {
    /// The shared object. Its size must never shrink: the caller's duty (seal it).
    pub memory: BorrowedFd<'fd>,
    /// Where the window begins in it: a multiple of [`WINDOW_ALIGNMENT`].
    pub offset: u64,
    /// Its length in bytes, above zero.
    pub bytes: u64,
    /// Whose memory it is.
    pub side: WindowSide,
}

/// How far apart two windows of `bytes` bytes begin in a shared object; `None` if that overflows.
///
/// ```
/// assert_eq!(device::window_stride(4000), Some(4096));
/// assert_eq!(device::window_stride(4096), Some(8192)); // room for the guard behind it
/// ```
#[must_use]
pub fn window_stride(bytes: u64) -> Option<u64> {
    bytes
        .checked_add(WINDOW_GUARD_BYTES)?
        .checked_next_multiple_of(WINDOW_ALIGNMENT)
}

/// Why a window cannot be mapped.
#[derive(Debug, Error)]
#[non_exhaustive]
pub enum WindowProblem {
    /// This kind of chip cannot do it yet.
    #[error("chips of this platform cannot share memory yet; use shared buffers")]
    NotBuilt,
    /// It does not begin where a page does.
    #[error(
        "it begins at byte {offset} of the shared memory, and must begin at a multiple of {WINDOW_ALIGNMENT}"
    )]
    Unaligned {
        /// Where it was to begin.
        offset: u64,
    },
    /// It has no bytes, or more than an address space.
    #[error("its size must be above zero and fit an address space")]
    Size,
    /// The shared object ends before the window does, guard included.
    #[error("it needs the shared memory up to byte {wanted}, which has {found}")]
    Short {
        /// The end of the window.
        wanted: u64,
        /// Bytes of the shared object.
        found: u64,
    },
    /// The host refused.
    #[error("the host refused: {0}")]
    Host(std::io::Error),
}
