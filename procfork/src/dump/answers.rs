//! Asking a process to write its stacks itself, where it may not be read from outside.

use std::fs::File;
use std::io;
use std::os::fd::{AsFd, AsRawFd as _, BorrowedFd, OwnedFd};
use std::os::unix::fs::FileExt as _;
use std::time::{Duration, Instant};

use super::Limits;
use super::capture::{Captured, Snapshot};
use super::report::{Unreadable, Way};
use crate::pid::Pid;
use crate::proc::ProcessInfo;
use crate::signal::Signal;
use crate::sys::answer::{self, Area};
use crate::sys::futex::{self, Expect};
use crate::sys::memory::memory_file;
use crate::sys::process;
use crate::sys::wait;

/// A memory file into which a process writes its stacks when it is signalled.
///
/// Made by the parent before the child; the child keeps the descriptor and calls
/// [`listen`](Answers::listen). One for each child: the parent asks one thread at a time.
///
/// ```no_run
/// use procfork::dump::{Answers, Dumper, Limits};
/// use procfork::{ForkOptions, fork};
///
/// # fn main() -> Result<(), Box<dyn std::error::Error>> {
/// let answers = Answers::new()?;
/// let given = answers.descriptor()?;
/// let child = fork(ForkOptions::new("worker").give(given), |mut context| {
///     Answers::from_descriptor(context.fds.remove(0))?.listen()?;
///     // … work …
///     std::io::Result::Ok(())
/// })?;
/// let dump = Dumper::new(Limits::default()).process(child.pid(), Some(&answers))?;
/// # Ok(())
/// # }
/// ```
#[derive(Debug)]
pub struct Answers {
    file: File,
    area: Area,
}

impl Answers {
    /// Makes the memory file. Its pages take memory only once they are written.
    ///
    /// # Errors
    ///
    /// No descriptor or no memory left.
    pub fn new() -> io::Result<Self> {
        Self::with(memory_file(c"procfork-answers", answer::AREA_BYTES)?)
    }

    /// The one that the parent made, in the child.
    ///
    /// # Errors
    ///
    /// The descriptor is not such a file.
    pub fn from_descriptor(fd: OwnedFd) -> io::Result<Self> {
        let file = File::from(fd);
        if file.metadata()?.len() < answer::AREA_BYTES as u64 {
            return Err(io::Error::new(
                io::ErrorKind::InvalidInput,
                "not a file for answers",
            ));
        }
        Self::with(file)
    }

    /// A descriptor to give to the child.
    ///
    /// # Errors
    ///
    /// No descriptor left.
    pub fn descriptor(&self) -> io::Result<OwnedFd> {
        self.file.as_fd().try_clone_to_owned()
    }

    /// In the child: answers from now on, for as long as the process lives.
    ///
    /// Takes [`Answers::signal`]; a program must not use that signal otherwise.
    ///
    /// # Errors
    ///
    /// Those of `sigaction`; none is known for a real-time signal.
    pub fn listen(self) -> io::Result<()> {
        let leaked: &'static Self = Box::leak(Box::new(self));
        answer::listen(Self::signal(), &leaked.area, leaked.file.as_raw_fd())
    }

    /// The signal that asks a thread: the fifth real-time signal.
    pub fn signal() -> Signal {
        Signal::new(libc::SIGRTMIN() + 4).expect("a real-time signal is a signal")
    }

    fn with(file: File) -> io::Result<Self> {
        let area = Area::of(file.as_fd())?;
        Ok(Self { file, area })
    }

    /// Asks every thread that was captured without a stack.
    pub(super) fn ask(
        &self,
        process: &ProcessInfo,
        limits: &Limits,
        mut captured: Captured,
    ) -> Captured {
        // The pidfd tells when the process ends; it does not hold its number, which is the process's own until somebody
        // reaps it. Of an own child that is this program. If another takes the number in the moment between the look at
        // what it catches and the signal, it is one that would be killed only if it did not catch that signal.
        let pinned = process::open_pidfd(process.pid).ok();
        let Some(pidfd) = pinned.filter(|_| process.is_current()) else {
            return captured;
        };
        for thread in &mut captured.threads {
            match self.ask_thread((process.pid, pidfd.as_fd()), thread.tid, limits) {
                Ok((snapshot, maps)) => {
                    captured.way = Way::Handler;
                    captured.maps = Some(maps);
                    thread.stack = Ok(snapshot);
                }
                Err(why) => thread.stack = Err(why),
            }
        }
        captured
    }

    fn ask_thread(
        &self,
        (pid, pidfd): (Pid, BorrowedFd<'_>),
        tid: Pid,
        limits: &Limits,
    ) -> Result<(Snapshot, String), Unreadable> {
        let failed = |error: io::Error| Unreadable::Failed(format!("failed to ask it: {error}"));
        if !handles(pid, Self::signal()) {
            return Err(Unreadable::NotPermitted(
                "from outside, and it does not listen".into(),
            ));
        }
        // It was given up on in the middle of an earlier answer, and may still write.
        if self.area.is_writing() {
            return Err(Unreadable::NoAnswer);
        }
        self.area.ask(tid);
        answer::signal_thread(pid, tid, Self::signal()).map_err(failed)?;
        self.wait(pidfd, Instant::now() + limits.per_thread)?;
        let answer = self.area.answer();
        let stack = (answer.stack.0, answer.stack.1.min(limits.stack_bytes));
        let bytes = self.read(stack).map_err(failed)?;
        let maps = String::from_utf8_lossy(&self.read(answer.maps).map_err(failed)?).into_owned();
        Ok((
            Snapshot {
                registers: answer.registers,
                bytes,
            },
            maps,
        ))
    }

    /// Until the thread has answered. One that is in the middle of it at the deadline needs only
    /// some system calls more, and gets [`FINISH`] for them: it may have been stopped or killed there.
    fn wait(&self, pidfd: BorrowedFd<'_>, deadline: Instant) -> Result<(), Unreadable> {
        while let Some((word, value)) = self.area.pending() {
            let now = Instant::now();
            let left = deadline.saturating_duration_since(now);
            if left.is_zero() && (self.area.withdraw() || now >= deadline + FINISH) {
                return Err(Unreadable::NoAnswer);
            }
            if wait::wait_readable(pidfd, now).unwrap_or(true) {
                return Err(Unreadable::Ended);
            }
            let pause = left.clamp(SLICE, 10 * SLICE);
            // Whatever it says, the word is looked at again.
            let _ = futex::wait_one(Expect { word, value }, Some(pause));
        }
        Ok(())
    }

    fn read(&self, (offset, len): (u64, usize)) -> io::Result<Vec<u8>> {
        let mut bytes = vec![0; len];
        self.file.read_exact_at(&mut bytes, offset)?;
        Ok(bytes)
    }
}

/// The memory file.
impl AsFd for Answers {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.file.as_fd()
    }
}

/// How long after its deadline a thread that is in the middle of its answer is waited for.
const FINISH: Duration = Duration::from_secs(1);

/// The shortest sleep between two looks at the answer; the longest is ten of them, after which the process is looked at.
const SLICE: Duration = Duration::from_millis(1);

/// Whether the process catches this signal: one that does not would be killed by it.
fn handles(pid: Pid, signal: Signal) -> bool {
    let status = std::fs::read_to_string(format!("/proc/{pid}/status")).unwrap_or_default();
    let caught = status.lines().find_map(|line| line.strip_prefix("SigCgt:"));
    let caught = caught
        .and_then(|mask| u64::from_str_radix(mask.trim(), 16).ok())
        .unwrap_or(0);
    caught & (1 << (signal.number() - 1)) != 0
}
