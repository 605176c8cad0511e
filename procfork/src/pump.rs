//! Draining what a child prints, into a bounded buffer that keeps the head and the tail.
//!
//! A child that prints more than a pipe holds waits until somebody reads; a parent that reads only
//! after the child has ended waits for ever. So the output is drained while the child runs, and
//! bounded, because a child may print for ever: the first bytes say what it was about to do, the
//! last ones what it did before it ended; what lies between is counted.
//!
//! [`Pump`] drains when it is told that there is something, for programs with a poll loop and for
//! those that must stay single-threaded to fork. [`PumpThread`] does it on a thread of its own.
//! Either is *joined* before the output is used: a tail that is read while the child still prints
//! is not the tail.

use std::collections::VecDeque;
use std::fmt;
use std::io::{self, PipeReader, PipeWriter};
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::thread::{self, JoinHandle};
use std::time::Instant;

use crate::sync::{Arc, Mutex, lock};
use crate::sys::fds;
use crate::sys::wait;

/// How many bytes of an output are kept.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Bounds {
    /// From the beginning.
    pub head_bytes: usize,
    /// From the end.
    pub tail_bytes: usize,
}

impl Default for Bounds {
    /// 16 KiB of the head, 64 KiB of the tail.
    fn default() -> Self {
        Self {
            head_bytes: 16 << 10,
            tail_bytes: 64 << 10,
        }
    }
}

/// What was kept of an output.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct Output {
    /// The first bytes.
    pub head: Vec<u8>,
    /// How many bytes between head and tail were dropped.
    pub dropped: u64,
    /// The last bytes; empty while everything fits into the head.
    pub tail: Vec<u8>,
    /// Whether the end was seen. If not, somebody still holds the other side open.
    pub complete: bool,
}

/// Text, with a line in place of what was dropped; bytes that are not UTF-8 are replaced.
impl fmt::Display for Output {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.dropped == 0 {
            let whole = [&self.head[..], &self.tail[..]].concat();
            return f.write_str(&String::from_utf8_lossy(&whole));
        }
        f.write_str(&String::from_utf8_lossy(&self.head))?;
        write!(f, "\n[... {} bytes dropped ...]\n", self.dropped)?;
        f.write_str(&String::from_utf8_lossy(&self.tail))
    }
}

/// The bounded buffer.
#[derive(Debug, Default)]
struct HeadAndTail {
    bounds: Bounds,
    head: Vec<u8>,
    tail: VecDeque<u8>,
    dropped: u64,
}

impl HeadAndTail {
    fn new(bounds: Bounds) -> Self {
        Self {
            bounds,
            ..Self::default()
        }
    }

    fn push(&mut self, bytes: &[u8]) {
        let room = self.bounds.head_bytes - self.head.len();
        let (head, rest) = bytes.split_at(bytes.len().min(room));
        self.head.extend_from_slice(head);
        self.tail.extend(rest);
        let over = self.tail.len().saturating_sub(self.bounds.tail_bytes);
        self.tail.drain(..over);
        self.dropped += over as u64;
    }

    fn output(&self, complete: bool) -> Output {
        let (head, tail) = (self.head.clone(), self.tail.iter().copied().collect());
        Output {
            head,
            dropped: self.dropped,
            tail,
            complete,
        }
    }
}

/// Drains a descriptor when told that it is readable. See the module.
#[derive(Debug)]
pub struct Pump {
    fd: OwnedFd,
    kept: HeadAndTail,
    ended: bool,
}

/// Bytes per read; a turn of [`Pump::advance`] reads at most 16 times as many.
const CHUNK: usize = 16 << 10;
const CHUNKS_PER_TURN: usize = 16;

impl Pump {
    /// Takes the reading side of a pipe, socket or terminal, and makes it non-blocking.
    ///
    /// # Errors
    ///
    /// Those of `fcntl`: none for an open descriptor.
    pub fn new(fd: OwnedFd, bounds: Bounds) -> io::Result<Self> {
        fds::set_nonblocking(fd.as_fd())?;
        Ok(Self {
            fd,
            kept: HeadAndTail::new(bounds),
            ended: false,
        })
    }

    /// Reads what there is, and returns whether the end was reached. Never blocks; leaves some for
    /// the next turn when there is very much.
    ///
    /// # Errors
    ///
    /// Those of `read`, apart from "nothing there now". A terminal whose other side is gone
    /// (`EIO`) is at its end.
    pub fn advance(&mut self) -> io::Result<bool> {
        let mut chunk = [0; CHUNK];
        for _ in 0..CHUNKS_PER_TURN {
            match fds::read(self.fd.as_fd(), &mut chunk) {
                Ok(0) => self.ended = true,
                Ok(count) => self.kept.push(&chunk[..count]),
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => break,
                Err(error) if error.raw_os_error() == Some(libc::EIO) => self.ended = true,
                Err(error) => return Err(error),
            }
            if self.ended {
                break;
            }
        }
        Ok(self.ended)
    }

    /// Drains until the end, or until the deadline if somebody still holds the other side open or
    /// writes to it (a descendant that nobody ended), and returns what was kept.
    ///
    /// # Errors
    ///
    /// Those of `read` and `poll`.
    pub fn join(mut self, deadline: Instant) -> io::Result<Output> {
        // Asked beside the poll, which at the deadline still says that a busy writer left something.
        let in_time = || Instant::now() < deadline;
        while !self.advance()? && in_time() && wait::wait_readable(self.as_fd(), deadline)? {}
        Ok(self.so_far())
    }

    /// What was kept until now.
    pub fn so_far(&self) -> Output {
        self.kept.output(self.ended)
    }
}

/// Readable while there is something to [`advance`](Pump::advance) on.
impl AsFd for Pump {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.fd.as_fd()
    }
}

/// Drains a descriptor on a thread of its own. See the module.
#[derive(Debug)]
pub struct PumpThread {
    pump: Arc<Mutex<Pump>>,
    /// Closed to tell the thread to stop.
    stop: PipeWriter,
    thread: JoinHandle<io::Result<()>>,
}

impl PumpThread {
    /// Starts to drain.
    ///
    /// # Errors
    ///
    /// No descriptor or no thread left.
    pub fn start(fd: OwnedFd, bounds: Bounds) -> io::Result<Self> {
        let pump = Arc::new(Mutex::new(Pump::new(fd, bounds)?));
        let watched = lock(&pump).fd.try_clone()?;
        let (stopped, stop) = io::pipe()?;
        let shared = Arc::clone(&pump);
        let work = move || drain(&shared, &watched, &stopped);
        let thread = thread::Builder::new()
            .name("procfork-pump".to_owned())
            .spawn(work)?;
        Ok(Self { pump, stop, thread })
    }

    /// What was kept until now; for progress displays. The tail is not final before the join.
    pub fn so_far(&self) -> Output {
        lock(&self.pump).so_far()
    }

    /// Waits for the end of the output, or until the deadline if somebody still holds the other
    /// side open, stops the thread, and returns what was kept.
    ///
    /// # Errors
    ///
    /// What stopped the draining early.
    pub fn join(self, deadline: Instant) -> io::Result<Output> {
        let Self { pump, stop, thread } = self;
        while !thread.is_finished() && Instant::now() < deadline {
            // The other side of the stop pipe is closed when the thread ends.
            if wait::wait_hung_up(stop.as_fd(), deadline)? {
                break;
            }
        }
        drop(stop);
        let ended = thread
            .join()
            .unwrap_or_else(|_| Err(io::Error::other("the pump panicked")));
        ended.map(|()| lock(&pump).so_far())
    }
}

/// Until the end of the output, or until nobody holds the stop pipe.
fn drain(pump: &Mutex<Pump>, watched: &OwnedFd, stopped: &PipeReader) -> io::Result<()> {
    loop {
        // Readable also means: the stop pipe is closed, which must not keep the last bytes away.
        let stop = wait::wait_either(watched.as_fd(), stopped.as_fd())?;
        if lock(pump).advance()? || stop {
            return Ok(());
        }
    }
}

#[cfg(test)]
mod tests;
