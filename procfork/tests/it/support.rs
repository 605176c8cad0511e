//! What the tests share: forking in one line, gates, and counting what is left.

use std::io::{self, BufRead as _, BufReader, PipeReader, PipeWriter, Read as _, Write as _};
use std::os::fd::{AsFd as _, BorrowedFd};
use std::sync::Mutex;
use std::time::{Duration, Instant};

use procfork::{
    Child, ChildContext, Ending, ExitCause, ForkOptions, Pid, ProcessInfo, ProcessState,
    descendants, fork,
};

/// A deadline that only a hanging test reaches.
pub(crate) fn soon() -> Instant {
    Instant::now() + Duration::from_secs(10)
}

/// Forks with the defaults.
#[track_caller]
pub(crate) fn child<R: Ending>(name: &str, f: impl FnOnce(ChildContext) -> R) -> Child {
    fork(ForkOptions::new(name), f).unwrap()
}

/// How a child of this function ends.
#[track_caller]
pub(crate) fn cause_of<R: Ending>(f: impl FnOnce(ChildContext) -> R) -> ExitCause {
    child("child", f).wait(soon()).unwrap()
}

/// A line over which processes below the test tell it what they have reached.
pub(crate) struct Line {
    reader: Mutex<BufReader<PipeReader>>,
    writer: PipeWriter,
}

impl Line {
    pub(crate) fn new() -> Self {
        let (reader, writer) = io::pipe().unwrap();
        Self {
            reader: Mutex::new(BufReader::new(reader)),
            writer,
        }
    }

    /// To be kept by every process that speaks.
    pub(crate) fn fd(&self) -> BorrowedFd<'_> {
        self.writer.as_fd()
    }

    /// Short enough to arrive in one piece.
    pub(crate) fn say(&self, text: impl ToString) {
        let text = text.to_string() + "\n";
        (&self.writer).write_all(text.as_bytes()).unwrap();
    }

    /// The next thing said. Hangs until the deadline of the test when nothing is.
    #[track_caller]
    pub(crate) fn hear(&self) -> String {
        let mut text = String::new();
        self.reader.lock().unwrap().read_line(&mut text).unwrap();
        text.trim_end().to_owned()
    }

    /// The next thing said, which is a pid.
    #[track_caller]
    pub(crate) fn hear_pid(&self) -> Pid {
        Pid::new(self.hear().parse().unwrap()).unwrap()
    }

    /// All that is still to be heard, once every other speaker has ended.
    pub(crate) fn rest(self) -> String {
        drop(self.writer);
        let mut text = String::new();
        self.reader
            .into_inner()
            .unwrap()
            .read_to_string(&mut text)
            .unwrap();
        text
    }
}

/// A door that stays shut until it is opened or dropped.
pub(crate) struct Gate {
    reader: PipeReader,
    writer: PipeWriter,
}

impl Gate {
    pub(crate) fn new() -> Self {
        let (reader, writer) = io::pipe().unwrap();
        Self { reader, writer }
    }

    /// To be kept by whoever waits.
    pub(crate) fn fd(&self) -> BorrowedFd<'_> {
        self.reader.as_fd()
    }

    /// To be kept by whoever opens it from another process.
    pub(crate) fn writer(&self) -> BorrowedFd<'_> {
        self.writer.as_fd()
    }

    pub(crate) fn wait(&self) {
        let mut byte = [0];
        (&self.reader).read_exact(&mut byte).unwrap();
    }

    /// Lets one waiter through.
    pub(crate) fn open(&self) {
        (&self.writer).write_all(&[1]).unwrap();
    }
}

/// Repeats a question until it is answered with true; the test's own deadline ends it otherwise.
pub(crate) fn until(mut question: impl FnMut() -> bool) {
    while !question() {
        std::thread::yield_now();
    }
}

/// Whether a process is there and not a zombie.
pub(crate) fn runs(pid: Pid) -> bool {
    ProcessInfo::of(pid).is_ok_and(|process| process.state != ProcessState::Zombie)
}

/// Whether a process sleeps in the kernel.
pub(crate) fn sleeps(pid: Pid) -> bool {
    ProcessInfo::of(pid).is_ok_and(|process| process.state == ProcessState::Sleeping)
}

/// Everything below this process that still runs.
pub(crate) fn running_below() -> Vec<Pid> {
    let mut all = descendants(Pid::this()).unwrap();
    all.retain(|process| process.state != ProcessState::Zombie);
    all.into_iter().map(|process| process.pid).collect()
}

/// Sleeps in the kernel for ever, without asking for anybody's life.
pub(crate) fn sleep_for_ever() -> ! {
    loop {
        std::thread::sleep(Duration::from_secs(3600));
    }
}
