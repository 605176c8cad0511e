//! Where does it hang: the native stack of every thread of a process, or of a whole tree.
//!
//! A stuck process cannot be asked to cooperate, so it is read from outside: each thread is
//! stopped for some 0.1 ms, its registers and its stack are copied, and it goes on. Everything else
//! (unwinding by `.eh_frame`, names, files, lines, inlined functions, of C code too) happens in the
//! asking process afterwards, from the copy.
//!
//! ```no_run
//! use procfork::dump::{Dumper, Limits};
//!
//! # fn main() -> std::io::Result<()> {
//! # let pid = procfork::Pid::this();
//! for process in Dumper::new(Limits::default()).tree(pid)? {
//!     eprintln!("{process}");
//! }
//! # Ok(())
//! # }
//! ```
//!
//! ```text
//! process 4711 worker-0: sleeping, read from outside
//!   thread 4711 worker-0: sleeping in futex_wait_queue
//!      0 0x7f2ad8c8f2d9 syscall+0x19 in libc.so.6
//!      1 0x55e0c1a2b0c4 decode::wait_for_input at src/decode.rs:88:9 (inlined)
//!        0x55e0c1a2b0c4 decode::run at src/decode.rs:41:5
//!      ...
//! ```
//!
//! # Ways
//!
//! - **From outside** ([`Way::Outside`]): `ptrace` (seize, interrupt, registers, detach) and
//!   `process_vm_readv`. Needs nothing from the process. Permitted for own descendants on most systems.
//! - **By its handler** ([`Way::Handler`]): where that is not permitted, a process that has
//!   called [`Answers::listen`] is sent a signal per thread; the handler writes registers and raw
//!   stack to a memory file chosen before. It allocates nothing, takes no lock and unwinds nothing.
//!   A thread that blocks the signal or hangs in the kernel does not answer.
//!
//! The dump says which way was used, and for each thread what could not be read and why.
//!
//! A process that crashes is gone before anybody looks: with a [`CrashDesk`] it waits until it was read.
//!
//! # What it leaves behind
//!
//! The process runs on as it was; a stopped one stays stopped; a signal that arrived meanwhile is
//! delivered. A system call that is interrupted is restarted by the kernel, except those that
//! `signal(7)` lists as failing with `EINTR` after a stop, such as `epoll_wait`. No thread costs more
//! than [`Limits::per_thread`].

mod answers;
mod capture;
mod crash;
mod image;
mod maps;
mod report;
mod unwind;

/// Any text as the mappings of a process.
#[cfg(any(test, fuzzing))]
pub(crate) fn check_maps(text: &str) {
    let mappings = maps::parse(text);
    assert!(mappings.len() <= text.lines().count());
    mappings.iter().for_each(|mapping| {
        mapping.has_code();
    });
}

/// Any bytes as the image of a program: what it says of its code is used as a dump would.
#[cfg(any(test, fuzzing))]
pub(crate) fn check_image(bytes: &[u8]) {
    let Ok(image) = image::Image::from_memory(bytes) else {
        return;
    };
    drop(image.sections());
    for address in [0, 0x1000, u64::MAX] {
        let _ = (image.bias(address, 0x7000_0000), image.calls(address));
    }
}

pub use answers::Answers;
pub use crash::{Crash, CrashDesk, report_crashes};
pub use report::{Call, Frame, ProcessDump, StackEnd, ThreadDump, Unreadable, Way};

use std::io;
use std::time::Duration;

use crate::descendants::descendants;
use crate::pid::Pid;
use crate::proc::ProcessInfo;
use capture::Captured;
use image::Images;
use unwind::AddressSpace;

/// Bounds of a dump, so that it ends whatever it meets.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Limits {
    /// How long one thread may take to stop or to answer.
    pub per_thread: Duration,
    /// How much of a stack is read; deeper frames are cut.
    pub stack_bytes: usize,
    /// How many frames of a thread are shown.
    pub frames: usize,
    /// How many threads of a process are read.
    pub threads: usize,
}

impl Default for Limits {
    /// 200 ms, 1 MiB, 256 frames, 256 threads.
    fn default() -> Self {
        let per_thread = Duration::from_millis(200);
        Self {
            per_thread,
            stack_bytes: 1 << 20,
            frames: 256,
            threads: 256,
        }
    }
}

/// Reads stacks of other processes, and remembers the programs and libraries that it has parsed.
#[derive(Debug)]
pub struct Dumper {
    limits: Limits,
    images: Images,
}

impl Dumper {
    /// Nothing is parsed yet.
    pub fn new(limits: Limits) -> Self {
        Self {
            limits,
            images: Images::default(),
        }
    }

    /// The process and everything below it, breadth first, one after the other.
    ///
    /// # Errors
    ///
    /// There is no such process, or `/proc` cannot be read.
    pub fn tree(&mut self, root: Pid) -> io::Result<Vec<ProcessDump>> {
        let below = descendants(root)?;
        let pids = [root]
            .into_iter()
            .chain(below.into_iter().map(|process| process.pid));
        Ok(pids
            .filter_map(|pid| self.process(pid, None).ok())
            .collect())
    }

    /// One process. Where it may not be read from outside, it is asked through its answers, if
    /// there are any.
    ///
    /// # Errors
    ///
    /// There is no such process. What cannot be read of one that is there is in the dump.
    pub fn process(&mut self, pid: Pid, answers: Option<&Answers>) -> io::Result<ProcessDump> {
        let process = ProcessInfo::of(pid)?;
        let captured = capture::threads(&process, &self.limits);
        let refused = captured.threads.iter().all(|thread| thread.stack.is_err());
        let captured = match answers {
            Some(answers) if refused => answers.ask(&process, &self.limits, captured),
            _ => captured,
        };
        Ok(self.explain(process, captured))
    }

    /// Unwinds and names what was captured.
    fn explain(&mut self, process: ProcessInfo, captured: Captured) -> ProcessDump {
        let space = AddressSpace::of(process.pid, captured.maps.as_deref(), &mut self.images);
        let frames = self.limits.frames;
        let threads = captured
            .threads
            .into_iter()
            .map(|thread| thread.explain(&space, frames));
        let (threads, way) = (threads.collect(), captured.way);
        ProcessDump {
            process,
            way,
            threads,
            not_read: captured.not_read,
            notes: space.notes,
        }
    }
}
