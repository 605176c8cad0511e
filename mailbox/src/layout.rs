//! Layouts: how large the frames of a mailbox are, and where everything lies in its segment.
//!
//! ```text
//! header   magic, version, the layout, who has attached          written once, then checked
//! parent   life word (open, shut down, poisoned)                 written by the parent only
//! child    fault word                                            written by the child only
//! bell     the child's bell                                      set by the child, cleared by the parent
//! frames   control, task 0, task 1: a request and a reply each
//! spill    a spill area per frame and direction                  no pages until first used
//! ```
//!
//! What different sides write lies at least 128 bytes apart, because processors fetch lines in pairs.

use crate::frame::{HEADER_WORDS, INLINE_BYTES, LINE, PAYLOAD_MAX};
use crate::segment::SegmentError;
use crate::words::WORD;

/// The sizes of a mailbox, chosen when it is created; the other side reads and checks them.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Layout {
    /// Task frames: 1, or 2 so that a second task can be staged or published while one executes.
    pub task_frames: usize,
    /// Bytes of payload that a task frame holds in each direction; at least 96 are kept. The first 32
    /// share a cache line with the header.
    pub task_bytes: usize,
    /// Bytes of payload that the control frame holds in each direction; at least 96 are kept.
    pub control_bytes: usize,
    /// Bytes to which one payload may grow by spilling, rounded up to pages. Costs address space, and memory once used.
    /// At most 16 MiB - 1 of a payload can be used.
    pub spill_bytes: usize,
}

impl Default for Layout {
    /// Two task frames and a control frame of 4 KiB each, spilling up to 1 MiB.
    fn default() -> Layout {
        Layout {
            task_frames: 2,
            task_bytes: 4064,
            control_bytes: 4064,
            spill_bytes: 1 << 20,
        }
    }
}

/// Why a mailbox could not be created or attached.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum AttachError {
    /// The layout asks for something that does not exist.
    #[error("lay out a mailbox: {what} is {found}, it must be from {min} to {max}")]
    Layout {
        /// The field.
        what: &'static str,
        /// Its value.
        found: usize,
        /// The least value.
        min: usize,
        /// The greatest value.
        max: usize,
    },
    /// The segment does not begin like a mailbox of this version.
    #[error(
        "attach to a mailbox: the segment begins with {found:#x} (expected {expected:#x}); it is no mailbox of this version"
    )]
    NotAMailbox {
        /// The word that was found.
        found: u64,
        /// The word of this version.
        expected: u64,
    },
    /// That side of this mailbox has been attached before. A mailbox serves one parent and one child,
    /// once: a new child gets a new mailbox, so that nothing half-written can reach it.
    #[error(
        "attach to a mailbox as {side}: that side has been attached before (create a new mailbox for a new child)"
    )]
    Taken {
        /// The side.
        side: Side,
    },
    /// The shared memory failed.
    #[error("attach to a mailbox")]
    Segment(#[from] SegmentError),
}

/// The two sides of a mailbox.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Side {
    /// The side that submits.
    Parent,
    /// The side that serves.
    Child,
}

impl std::fmt::Display for Side {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(match self {
            Side::Parent => "the parent",
            Side::Child => "the child",
        })
    }
}

/// Says what the segment is, and in which version of this layout; changes whenever the layout does.
pub(crate) const MAGIC: u64 = u64::from_le_bytes(*b"mailbox\x01");

/// Words of the header.
pub(crate) mod header {
    pub(crate) const MAGIC: usize = 0;
    pub(crate) const LAYOUT: usize = 1;
    pub(crate) const ATTACHED: usize = 5;
    pub(crate) const WORDS: usize = 6;
}

/// The most task frames.
pub(crate) const TASK_FRAMES_MAX: usize = 2;

/// What different sides write lies this far apart.
const APART: usize = 128;
const PAGE: usize = 4096;

/// Where one direction of one frame lies, in bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Place {
    pub(crate) offset: usize,
    pub(crate) n_words: usize,
    /// Which spill area is its own.
    pub(crate) index: usize,
}

/// A frame's two directions.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Pair {
    pub(crate) request: Place,
    pub(crate) reply: Place,
}

/// Where everything lies, in bytes from the start of the segment.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Map {
    pub(crate) life: usize,
    pub(crate) fault: usize,
    pub(crate) bell: usize,
    pub(crate) control: Pair,
    pub(crate) tasks: [Pair; TASK_FRAMES_MAX],
    pub(crate) spill_bytes: usize,
    /// Bytes that are reserved from the start.
    pub(crate) fixed: usize,
    pub(crate) total: usize,
}

const _: () = assert!(header::WORDS * WORD <= APART);

impl Layout {
    /// Bytes of a segment of this layout, spill areas included.
    ///
    /// # Errors
    ///
    /// [`AttachError::Layout`] with the field that is out of its range.
    pub fn segment_bytes(&self) -> Result<usize, AttachError> {
        self.map().map(|map| map.total)
    }

    /// Checks the sizes and lays everything out. Both sides call it: there is one layout, not two.
    pub(crate) fn map(&self) -> Result<Map, AttachError> {
        within("task_frames", self.task_frames, 1, TASK_FRAMES_MAX)?;
        within("task_bytes", self.task_bytes, 0, PAYLOAD_MAX)?;
        within("control_bytes", self.control_bytes, 0, PAYLOAD_MAX)?;
        within("spill_bytes", self.spill_bytes, 0, PAYLOAD_MAX + 1)?;
        let mut cursor = Cursor {
            offset: 4 * APART,
            index: 0,
        };
        let control = cursor.pair(self.control_bytes);
        let tasks = std::array::from_fn(|i| match i < self.task_frames {
            true => cursor.pair(self.task_bytes),
            false => control,
        });
        let spill_bytes = self.spill_bytes.next_multiple_of(PAGE);
        let fixed = cursor.offset.next_multiple_of(PAGE);
        Ok(Map {
            life: APART,
            fault: 2 * APART,
            bell: 3 * APART,
            control,
            tasks,
            spill_bytes,
            fixed,
            total: fixed + cursor.index * spill_bytes,
        })
    }

    /// The layout as the words of a header.
    pub(crate) fn to_words(self) -> [u64; 4] {
        let sizes = [
            self.task_frames,
            self.task_bytes,
            self.control_bytes,
            self.spill_bytes,
        ];
        sizes.map(|size| size as u64)
    }

    /// The layout that a header claims; [`Layout::map`] checks it.
    pub(crate) fn from_claim(words: [u64; 4]) -> Layout {
        let [task_frames, task_bytes, control_bytes, spill_bytes] =
            words.map(|word| usize::try_from(word).unwrap_or(usize::MAX));
        Layout {
            task_frames,
            task_bytes,
            control_bytes,
            spill_bytes,
        }
    }
}

impl Map {
    /// Where the spill area of a place begins.
    pub(crate) fn spill_offset(&self, place: Place) -> usize {
        self.fixed + place.index * self.spill_bytes
    }
}

/// Lays frames out one after another.
struct Cursor {
    offset: usize,
    index: usize,
}

impl Cursor {
    fn pair(&mut self, payload_bytes: usize) -> Pair {
        Pair {
            request: self.place(payload_bytes),
            reply: self.place(payload_bytes),
        }
    }

    fn place(&mut self, payload_bytes: usize) -> Place {
        let n_words = HEADER_WORDS + payload_bytes.max(INLINE_BYTES + LINE).div_ceil(WORD);
        let place = Place {
            offset: self.offset,
            n_words,
            index: self.index,
        };
        // Frames of a page each would begin at one offset in their pages: processors mistake stores to
        // one for stores to the other, and their lines would crowd into one set of the cache.
        self.offset = (self.offset + n_words * WORD).next_multiple_of(APART) + 2 * APART;
        self.index += 1;
        place
    }
}

fn within(what: &'static str, found: usize, min: usize, max: usize) -> Result<(), AttachError> {
    if (min..=max).contains(&found) {
        return Ok(());
    }
    Err(AttachError::Layout {
        what,
        found,
        min,
        max,
    })
}
