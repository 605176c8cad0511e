//! What each worker is doing, for somebody who watches from outside.
//!
//! A stuck process cannot be asked. So a watcher makes a [`Board`] before the tree starts and publishes it in the
//! process that starts the tree; every worker that is forked from there writes on it what it begins and ends. The
//! watcher reads it at any time, also after the workers were killed. Without a board a worker writes nothing, which
//! costs one load per task.
//!
//! ```text
//!   watcher      Board::new --- read ----------------------.
//!     | fork                                               |
//!   root         publish ---- say ---> | pid | run | since | worker | what |   shared memory, a place per process
//!     | fork                             ^
//!   worker       ------------ say ------'
//! ```
//!
//! The place of a process follows from its number, so that nothing has to be agreed upon. Of two living processes
//! whose numbers are a multiple of [`PLACES`] apart the one that wrote last is seen; of the other one nothing. A reader
//! may meet a writer: each place carries a checksum, and one that does not match is read again.
//!
//! A forked worker has the mapping of its parent; a spawned one is given the descriptor and maps it anew. So the
//! descriptor stays open all the way down: whoever forks a process that is to publish the board keeps it for it.

use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use mailbox::{Segment, SegmentError};

use crate::clock::WireInstant;
use crate::error::{BufferError, Error};

/// How many processes have a place of their own.
pub const PLACES: usize = 1_024;

/// Bytes of one place.
const PLACE: usize = 192;
/// Bytes before the text: checksum (8), pid (4), length of the text (4), since (8), run (8).
const HEAD: usize = 32;
/// `run` of a worker that is in none.
const NO_RUN: u64 = u64::MAX;

static PUBLISHED: OnceLock<Board> = OnceLock::new();

/// Shared memory in which workers say what they are doing. A clone is the same board.
#[derive(Clone, Debug)]
pub struct Board {
    segment: Arc<Segment>,
}

/// What a worker is doing.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct Doing {
    /// Its process.
    pub pid: u32,
    /// Its path in the tree.
    pub worker: String,
    /// What it does, as `run chip callable \`add\`` or `idle`.
    pub what: String,
    /// In which run of its parent, if it is in one.
    pub run: Option<u64>,
    /// For how long it has done so.
    pub elapsed: Duration,
}

/// `node/chip0: run chip callable \`add\`, run 3, for 12.3 s`
impl std::fmt::Display for Doing {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{}: {}", self.worker, self.what)?;
        if let Some(run) = self.run {
            write!(f, ", run {run}")?;
        }
        write!(f, ", for {:.1} s", self.elapsed.as_secs_f64())
    }
}

impl Board {
    /// An empty board of some 200 KiB.
    ///
    /// # Errors
    ///
    /// [`Error::Buffer`] when the memory cannot be had.
    pub fn new() -> Result<Self, Error> {
        let bytes = PLACES * PLACE;
        // Reserved now: a worker has the mapping alone, and must not fault where it writes.
        let segment = Segment::create("activity", bytes);
        let segment = segment.map_err(|error| BufferError::Memory {
            bytes,
            reason: error.to_string(),
        })?;
        Ok(Self {
            segment: Arc::new(segment),
        })
    }

    /// The board that a parent handed over.
    fn attach(fd: OwnedFd) -> Result<Self, SegmentError> {
        let segment = Segment::from_fd(fd, PLACES * PLACE)?;
        Ok(Self {
            segment: Arc::new(segment),
        })
    }

    /// What the worker in this process says; `None` if there is none, or it said nothing.
    #[must_use]
    pub fn read(&self, pid: u32) -> Option<Doing> {
        // A writer is done within a microsecond; one that was killed while it wrote never is.
        (0..64).find_map(|_| {
            let mut place = [0; PLACE];
            self.segment.read_at(offset(pid), &mut place).ok()?;
            decode(&place, pid, WireInstant::now())
        })
    }

    fn write(&self, worker: &str, run: Option<u64>, what: &str) {
        let pid = std::process::id();
        let place = encode(pid, WireInstant::now(), run.unwrap_or(NO_RUN), worker, what);
        // Every place is within the segment.
        let _ = self.segment.write_at(offset(pid), &place);
    }
}

/// The memory file behind it, to be kept open for a process that is to [`publish`] it.
impl AsFd for Board {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.segment.as_fd()
    }
}

/// Makes this process and all workers below it say on the board what they do. The first board stays.
///
/// Spawned workers do so only if the board's descriptor is open in this process: see [`Board::as_fd`].
pub fn publish(board: Board) {
    let _ = PUBLISHED.set(board);
}

/// The published board's memory file, for workers that this process forks; none if it was not kept open.
pub(crate) fn published_fd() -> Option<BorrowedFd<'static>> {
    let fd = PUBLISHED.get()?.as_fd();
    fd.try_clone_to_owned().is_ok().then_some(fd)
}

/// A descriptor of the published board for a worker that this process spawns.
pub(crate) fn published_copy() -> Option<OwnedFd> {
    PUBLISHED.get()?.as_fd().try_clone_to_owned().ok()
}

/// In a spawned worker: says what it does on its parent's board. One that cannot be mapped is no reason to end.
pub(crate) fn publish_fd(fd: OwnedFd) {
    match Board::attach(fd) {
        Ok(board) => publish(board),
        Err(error) => tracing::warn!(%error, "nobody will see what this worker does"),
    }
}

/// Whether somebody may be watching.
pub(crate) fn is_watched() -> bool {
    PUBLISHED.get().is_some()
}

/// Says what this worker begins to do.
pub(crate) fn say(worker: &str, run: Option<u64>, what: &str) {
    if let Some(board) = PUBLISHED.get() {
        board.write(worker, run, what);
    }
}

/// Says what this worker does until the guard is dropped; idle after that.
pub(crate) fn while_doing<'a>(
    worker: &'a str,
    run: Option<u64>,
    what: impl FnOnce() -> String,
) -> Option<Busy<'a>> {
    let board = PUBLISHED.get()?;
    board.write(worker, run, &what());
    Some(Busy(worker))
}

/// A worker that does something.
pub(crate) struct Busy<'a>(&'a str);

impl Drop for Busy<'_> {
    fn drop(&mut self) {
        say(self.0, None, "idle");
    }
}

fn offset(pid: u32) -> usize {
    pid as usize % PLACES * PLACE
}

fn encode(pid: u32, since: WireInstant, run: u64, worker: &str, what: &str) -> [u8; PLACE] {
    let mut place = [0; PLACE];
    let text = format!("{worker}\0{what}");
    let text = cut(&text, PLACE - HEAD).as_bytes();
    place[8..12].copy_from_slice(&pid.to_le_bytes());
    place[12..16].copy_from_slice(&(text.len() as u32).to_le_bytes());
    place[16..24].copy_from_slice(&since.0.to_le_bytes());
    place[24..32].copy_from_slice(&run.to_le_bytes());
    place[HEAD..HEAD + text.len()].copy_from_slice(text);
    let sum = checksum(&place[8..]);
    place[..8].copy_from_slice(&sum.to_le_bytes());
    place
}

/// What stands at a place, if it is whole and of this process. Nothing in it is trusted.
fn decode(place: &[u8; PLACE], pid: u32, now: WireInstant) -> Option<Doing> {
    let word = |at: usize| u64::from_le_bytes(place[at..at + 8].try_into().expect("eight bytes"));
    let half = |at: usize| u32::from_le_bytes(place[at..at + 4].try_into().expect("four bytes"));
    if word(0) != checksum(&place[8..]) || half(8) != pid {
        return None;
    }
    let text = place.get(HEAD..HEAD.checked_add(half(12) as usize)?)?;
    let text = String::from_utf8_lossy(text);
    let (worker, what) = text.split_once('\0')?;
    let run = Some(word(24)).filter(|&run| run != NO_RUN);
    Some(Doing {
        pid,
        worker: worker.to_owned(),
        what: what.to_owned(),
        run,
        elapsed: now.since(WireInstant(word(16))),
    })
}

/// Any bytes at a place, under a sum that fits and of the process that they claim.
#[cfg(any(test, fuzzing))]
pub(crate) fn check_place(bytes: &[u8], now: WireInstant) {
    let mut place = [0; PLACE];
    let n_bytes = bytes.len().min(PLACE - 8);
    place[8..8 + n_bytes].copy_from_slice(&bytes[..n_bytes]);
    let sum = checksum(&place[8..]);
    place[..8].copy_from_slice(&sum.to_le_bytes());
    let pid = u32::from_le_bytes([place[8], place[9], place[10], place[11]]);
    if let Some(doing) = decode(&place, pid, now) {
        // What is no text may take three bytes for one.
        assert!(doing.worker.len() + doing.what.len() < 3 * PLACE);
    }
}

/// FNV-1a over words, which is quick; never zero, which an empty place is.
fn checksum(bytes: &[u8]) -> u64 {
    let words = bytes.chunks_exact(8);
    words.fold(0xcbf2_9ce4_8422_2325, |sum, word| {
        let word = u64::from_le_bytes(word.try_into().expect("eight bytes"));
        (sum ^ word).wrapping_mul(0x0000_0100_0000_01b3)
    })
}

/// The longest head of the text that fits and ends with a whole character.
fn cut(text: &str, bytes: usize) -> &str {
    let fits = |end: &usize| text.is_char_boundary(*end);
    let end = (0..=text.len().min(bytes)).rev().find(fits);
    &text[..end.unwrap_or(0)]
}

#[cfg(test)]
mod tests;
