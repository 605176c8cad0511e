//! Stacks of processes that crash: a thread that is about to be ended by its own fault waits until it
//! was read.
//!
//! ```no_run
//! use procfork::dump::{CrashDesk, Dumper, Limits, report_crashes};
//! use procfork::{ForkOptions, fork};
//!
//! # fn main() -> Result<(), Box<dyn std::error::Error>> {
//! let mut desk = CrashDesk::new()?;
//! let [pipe, page] = desk.descriptors()?;
//! let child = fork(ForkOptions::new("worker").give(pipe).give(page), |context| {
//!     let given = context.fds.try_into().expect("two were given");
//!     report_crashes(given)?; // here and in everything that is forked or spawned from here
//!     std::process::abort();
//!     #[expect(unreachable_code, reason = "says how the closure ends")]
//!     std::io::Result::Ok(())
//! })?;
//! // Once `desk` is readable:
//! if let Some(crash) = desk.try_next()? {
//!     eprintln!("{crash}\n{}", Dumper::new(Limits::default()).crash(&crash)?);
//!     desk.let_go(&crash);
//! }
//! # Ok(())
//! # }
//! ```

use std::fmt;
use std::fs::File;
use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};

use super::Dumper;
use super::capture::{self, Captured};
use super::report::{ProcessDump, Way};
use crate::pid::Pid;
use crate::proc::ProcessInfo;
use crate::signal::Signal;
use crate::sys::crash::{self, Desk, NO_ADDRESS, RECORD_BYTES, Record};
use crate::sys::fds;

/// Where crashing processes report and wait. Held by a parent.
#[derive(Debug)]
pub struct CrashDesk {
    reader: File,
    writer: OwnedFd,
    file: OwnedFd,
    desk: Desk,
    /// What came, up to a whole record.
    unread: Vec<u8>,
}

/// A thread that crashed and waits to be read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Crash {
    /// Its process.
    pub pid: Pid,
    /// Itself.
    pub tid: Pid,
    /// What is going to end the process.
    pub signal: Signal,
    /// Where memory was accessed in vain, if the processor found that.
    pub address: Option<u64>,
    record: Record,
}

impl CrashDesk {
    /// A desk for any number of children and all that they make.
    ///
    /// # Errors
    ///
    /// No descriptor or no memory left.
    pub fn new() -> io::Result<Self> {
        let (reader, writer) = io::pipe()?;
        let reader = OwnedFd::from(reader);
        fds::set_nonblocking(reader.as_fd())?;
        let file = Desk::file()?;
        Ok(Self {
            reader: reader.into(),
            writer: writer.into(),
            desk: Desk::of(file.as_fd())?,
            file,
            unread: Vec::new(),
        })
    }

    /// To be given to the child, for [`report_crashes`] there.
    ///
    /// # Errors
    ///
    /// No descriptor left.
    pub fn descriptors(&self) -> io::Result<[OwnedFd; 2]> {
        Ok([self.writer.try_clone()?, self.file.try_clone()?])
    }

    /// The next crash, if one waits. Never blocks. What is no record of a crash is skipped.
    ///
    /// # Errors
    ///
    /// Those of `read`.
    pub fn try_next(&mut self) -> io::Result<Option<Crash>> {
        let mut bytes = [0; RECORD_BYTES];
        loop {
            let room = RECORD_BYTES - self.unread.len();
            match fds::read(self.reader.as_fd(), &mut bytes[..room]) {
                Ok(0) => return Ok(None),
                Ok(count) => self.unread.extend_from_slice(&bytes[..count]),
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => return Ok(None),
                Err(error) => return Err(error),
            }
            if let Some(whole) = self.unread.first_chunk() {
                let crash = Crash::of(Record::from_bytes(whole));
                self.unread.clear();
                if crash.is_some() {
                    return Ok(crash);
                }
            }
        }
    }

    /// Lets the thread go on to its end. One that nobody lets go waits ten seconds.
    pub fn let_go(&self, crash: &Crash) {
        self.desk.let_go(crash.record.ticket);
    }
}

/// Readable while there may be a crash.
impl AsFd for CrashDesk {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.reader.as_fd()
    }
}

/// In the child, with the [descriptors](CrashDesk::descriptors) of a desk: `SIGSEGV`, `SIGBUS`,
/// `SIGILL`, `SIGFPE`, `SIGABRT`, `SIGTRAP` and `SIGSYS` are reported from now on, here and in what is
/// forked or spawned from here by this crate. The process then ends by that signal, as it would have.
///
/// # Errors
///
/// [`io::ErrorKind::InvalidInput`] when these are other descriptors; no memory left.
pub fn report_crashes(descriptors: [OwnedFd; 2]) -> io::Result<()> {
    crash::arm(descriptors)
}

impl Crash {
    /// Numbers that can be a process's: what came through the pipe is not trusted.
    fn of(record: Record) -> Option<Self> {
        Some(Self {
            pid: Pid::new(record.pid)?,
            tid: Pid::new(record.tid)?,
            signal: Signal::new(record.signal)?,
            address: Some(record.address).filter(|&address| address != NO_ADDRESS),
            record,
        })
    }
}

/// `11 (SIGSEGV) at 0x0 in thread 4711 of process 4711`
impl fmt::Display for Crash {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self {
            pid, tid, signal, ..
        } = self;
        write!(f, "{signal}")?;
        if let Some(address) = self.address {
            write!(f, " at {address:#x}")?;
        }
        write!(f, " in thread {tid} of process {pid}")
    }
}

impl Dumper {
    /// A process that crashed and waits: the thread's frames begin where it crashed, not in the
    /// handler, and it comes first.
    ///
    /// # Errors
    ///
    /// There is no such process any more.
    pub fn crash(&mut self, crash: &Crash) -> io::Result<ProcessDump> {
        let process = ProcessInfo::of(crash.pid)?;
        let mut captured = capture::threads(&process, &self.limits);
        self.replace(crash, &mut captured);
        Ok(self.explain(process, captured))
    }

    fn replace(&self, crash: &Crash, captured: &mut Captured) {
        let threads = &mut captured.threads;
        let Some(at) = threads.iter().position(|thread| thread.tid == crash.tid) else {
            return;
        };
        threads[..=at].rotate_right(1);
        let snapshot = capture::at(crash.pid, crash.record.registers, &self.limits);
        if !snapshot.bytes.is_empty() {
            threads[0].stack = Ok(snapshot);
            captured.way = Way::Outside;
        }
    }
}
