//! A feed: short records from any process of a tree to its root, which no writer ever waits for.
//!
//! Tasks and answers go through mailboxes, one parent and one child each. What a process wants to *tell*
//! (a log line, its last words) has another shape: many writers, one reader, nobody answers, and losing a
//! record is better than waiting. So a feed is a pipe with a small board beside it.
//!
//! ```text
//!  writer (any process)                 board                    reader (the root)
//!  wanted? -------------------- load -- wanted <-- store -------- ask_for
//!  write: pipe, whole or not at all --> told + 1, ring --------> changed? -> read: pipe until empty
//!         pipe full ------------------> lost + 1, told + 1
//! ```
//!
//! The kernel keeps a write of at most [`RECORD_MAX`] bytes whole and in order whatever else is written or
//! killed meanwhile, so a record is never half there, and a dead writer leaves nothing to clean up.
//! A writer costs a load when nobody asks; a reader costs a load while nothing came.
//!
//! A reading takes no more than the pipe can hold. That is enough for every record that was told before it
//! began, and it ends however fast others write: what they tell meanwhile raises the count, which is news.

use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::Arc;

use nix::errno::Errno;
use nix::fcntl::{FcntlArg, OFlag, fcntl};
use nix::unistd::{pipe2, read, write};

use crate::bell::Doorbell;
use crate::board::{self, Board};
use crate::segment::{Segment, SegmentError};
use crate::words::Words;

/// The longest record, in bytes: what the kernel keeps whole (`PIPE_BUF`), without the length in front.
pub const RECORD_MAX: usize = 4096 - LENGTH_BYTES;

const LENGTH_BYTES: usize = 2;
/// What the pipe holds before records are lost. A hint: where it is refused, the kernel's own size stays.
const PIPE_BYTES: libc::c_int = 256 << 10;
/// Bytes of the board's segment.
const BOARD_BYTES: usize = 4096;
/// Bytes that one call of the kernel copies.
const CHUNK_BYTES: usize = 64 << 10;

/// The reader's end, which also makes the writers' ends.
#[derive(Debug)]
pub struct Feed {
    writer: Arc<FeedWriter>,
    pipe: OwnedFd,
    /// Bytes that the pipe can hold, and that one reading takes.
    capacity: usize,
    /// The lost ones that have been reported.
    lost: u64,
    /// Where the kernel copies to.
    chunk: Vec<u8>,
    /// The start of a record whose end is still in the pipe.
    rest: Vec<u8>,
    framing: Framing,
}

/// Whether it is known where the next record begins.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Framing {
    Known,
    /// A writer broke it: nothing is taken until the pipe has been empty.
    Lost,
}

/// A writer's end. Several threads may share it.
#[derive(Debug)]
pub struct FeedWriter {
    segment: Arc<Segment>,
    board: Board,
    pipe: OwnedFd,
    bell: Doorbell,
}

/// What became of a record.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Told {
    /// It is in the pipe.
    Sent,
    /// It was too long, the pipe was full, or nobody reads any more. It is counted.
    Lost,
}

/// What one reading found beside records.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Missed {
    /// Records lost since the reading before.
    pub lost: u64,
    /// Times that a writer had broken the framing, and everything in the pipe was dropped.
    pub malformed: u64,
}

impl Feed {
    /// A new feed, which rings `bell` for every record.
    ///
    /// # Errors
    ///
    /// As [`Segment::create`]; [`SegmentError::Os`] when no pipe can be had.
    pub fn create(bell: &Doorbell) -> Result<Feed, SegmentError> {
        let segment = Segment::create("feed", BOARD_BYTES)?;
        let flags = OFlag::O_CLOEXEC | OFlag::O_NONBLOCK;
        let (pipe, tail) = pipe2(flags).map_err(|errno| SegmentError::Os {
            call: "pipe2",
            bytes: 0,
            source: errno.into(),
        })?;
        // Refused where this user has many pipes: fewer records fit then.
        let _ = fcntl(&tail, FcntlArg::F_SETPIPE_SZ(PIPE_BYTES));
        Ok(Feed {
            capacity: capacity_of(&tail)?,
            writer: Arc::new(FeedWriter::over(segment, tail, bell.clone())?),
            pipe,
            lost: 0,
            chunk: vec![0; CHUNK_BYTES],
            rest: Vec::new(),
            framing: Framing::Known,
        })
    }

    /// The end that writers get: its descriptors cross to other processes.
    #[must_use]
    pub fn writer(&self) -> &Arc<FeedWriter> {
        &self.writer
    }

    /// Hands every record that was told before the call to `each`, in the order of their writes, and perhaps
    /// some that are told meanwhile; never blocks, and takes no more than the pipe can hold.
    ///
    /// A record is a claim by its writer. Costs a system call, and one more per 64 KiB.
    pub fn read(&mut self, mut each: impl FnMut(&[u8])) -> Missed {
        let mut missed = Missed {
            lost: self.newly_lost(),
            malformed: 0,
        };
        let mut taken = 0;
        while taken < self.capacity {
            let n_bytes = fill(self.pipe.as_fd(), &mut self.chunk);
            missed.malformed += self.take(n_bytes, &mut each);
            if n_bytes < self.chunk.len() {
                // The kernel gives as much as there is: the pipe was empty afterwards.
                missed.malformed += self.end_of_pipe();
                break;
            }
            taken += n_bytes;
        }
        missed
    }

    fn newly_lost(&mut self) -> u64 {
        let before = std::mem::replace(&mut self.lost, self.writer.board.lost());
        self.lost.wrapping_sub(before)
    }

    /// Hands over what a call of the kernel has copied; 1 if that broke the framing.
    fn take(&mut self, n_bytes: usize, each: &mut impl FnMut(&[u8])) -> u64 {
        if self.framing == Framing::Lost {
            return 0;
        }
        self.rest.extend_from_slice(&self.chunk[..n_bytes]);
        match split(&self.rest, each) {
            Some(used) => {
                self.rest.drain(..used);
                0
            }
            None => {
                self.rest.clear();
                self.framing = Framing::Lost;
                1
            }
        }
    }

    /// Records are written whole: an empty pipe ends with one, unless a writer broke the framing, which is known
    /// again now. 1 if one did and that was not noticed before.
    fn end_of_pipe(&mut self) -> u64 {
        let broken = !self.rest.is_empty();
        self.rest.clear();
        self.framing = Framing::Known;
        u64::from(broken)
    }
}

/// The pipe: readable while a record is in it, for a reader that sleeps on several descriptors.
impl AsFd for Feed {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.pipe.as_fd()
    }
}

impl FeedWriter {
    fn over(segment: Segment, pipe: OwnedFd, bell: Doorbell) -> Result<FeedWriter, SegmentError> {
        let segment = Arc::new(segment);
        Ok(FeedWriter {
            board: Board::new(Words::new(&segment, 0, board::WORDS)?),
            segment,
            pipe,
            bell,
        })
    }

    /// A writer from descriptors that [`FeedWriter::fds`] gave in another process.
    ///
    /// # Errors
    ///
    /// As [`Segment::from_fd`].
    pub fn from_fds([board, pipe, bell]: [OwnedFd; 3]) -> Result<FeedWriter, SegmentError> {
        let segment = Segment::from_fd(board, BOARD_BYTES)?;
        FeedWriter::over(segment, pipe, Doorbell::from_fd(bell)?)
    }

    /// The descriptors that another process needs, in the order of [`FeedWriter::from_fds`].
    #[must_use]
    pub fn fds(&self) -> [BorrowedFd<'_>; 3] {
        [self.segment.as_fd(), self.pipe.as_fd(), self.bell.as_fd()]
    }

    /// Tells all writers what is asked for: a number whose meaning is theirs; 0, as at first, for nothing. For the reader.
    pub fn ask_for(&self, wanted: u64) {
        self.board.ask_for(wanted);
    }

    /// What the reader asks for. One load, of a line that stays in this processor's cache.
    #[inline]
    #[must_use]
    pub fn wanted(&self) -> u64 {
        self.board.wanted()
    }

    /// How many records were written or lost so far, by all writers: whoever reads looks again when it has changed.
    /// One load; who has seen a count finds its records in the pipe.
    #[inline]
    #[must_use]
    pub fn told(&self) -> u64 {
        self.board.told()
    }

    /// Writes one record, whole or not at all; never blocks. One system call, and a wake where the reader sleeps.
    ///
    /// Where the reader is gone and the process has not left SIGPIPE ignored, as programs in Rust do, that signal
    /// is raised.
    pub fn write(&self, record: &[u8]) -> Told {
        let sent = self.push(record);
        match sent {
            Told::Sent => self.board.tell_sent(),
            Told::Lost => self.board.tell_lost(),
        }
        self.bell.ring();
        sent
    }

    fn push(&self, record: &[u8]) -> Told {
        if record.is_empty() || record.len() > RECORD_MAX {
            return Told::Lost;
        }
        let mut packet = Vec::with_capacity(LENGTH_BYTES + record.len());
        packet.extend_from_slice(&(record.len() as u16).to_le_bytes());
        packet.extend_from_slice(record);
        loop {
            match write(&self.pipe, &packet) {
                Ok(_) => return Told::Sent,
                Err(Errno::EINTR) => {}
                // Full, or the root is gone: nothing that a writer could wait for.
                Err(_) => return Told::Lost,
            }
        }
    }
}

/// Bytes that a pipe can hold.
fn capacity_of(pipe: &OwnedFd) -> Result<usize, SegmentError> {
    let capacity = fcntl(pipe, FcntlArg::F_GETPIPE_SZ).map_err(|errno| SegmentError::Os {
        call: "fcntl(F_GETPIPE_SZ)",
        bytes: 0,
        source: errno.into(),
    })?;
    Ok(capacity.unsigned_abs() as usize)
}

/// The next bytes of the pipe, as many as there are and fit: less than fit says that it is empty now.
fn fill(pipe: BorrowedFd<'_>, chunk: &mut [u8]) -> usize {
    loop {
        match read(pipe, chunk) {
            Ok(n_bytes) => return n_bytes,
            Err(Errno::EINTR) => {}
            // Empty; nothing else can happen to a pipe of our own.
            Err(_) => return 0,
        }
    }
}

/// Hands the whole records of `bytes` to `each` and says how many bytes they took; `None` when a length is none.
fn split(bytes: &[u8], each: &mut impl FnMut(&[u8])) -> Option<usize> {
    let mut used = 0;
    while let Some((length, rest)) = bytes[used..].split_first_chunk::<LENGTH_BYTES>() {
        let length = usize::from(u16::from_le_bytes(*length));
        if length == 0 || length > RECORD_MAX {
            return None;
        }
        let Some(record) = rest.get(..length) else {
            break;
        };
        each(record);
        used += LENGTH_BYTES + length;
    }
    Some(used)
}
