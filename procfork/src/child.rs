//! A child, seen from its parent.

use std::fmt;
use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::time::{Duration, Instant};

use crate::cause::ExitCause;
use crate::death_word::DeathWord;
use crate::pid::Pid;
use crate::signal::Signal;
use crate::sync::{AtomicU32, Mutex, MutexGuard, lock};
use crate::sys::own::Own;
use crate::sys::page::LifePage;
use crate::sys::prctl;
use crate::sys::process;
use crate::sys::wait::{self, Take};

/// A child process of this process.
///
/// Its end is *observed* by any of the waits and kept for ever; it is *reaped* by
/// [`terminate`](Child::terminate) or by dropping this value. Until then an ended child stays a
/// zombie, on purpose: its pid and its process group cannot be given to anybody else, so that
/// [`pid`](Child::pid) keeps naming this child, and a signal to its group cannot hit a stranger.
///
/// Dropping a child that still runs kills it.
///
/// All methods take `&self` and may be called from several threads. In a forked copy of the
/// parent the value is inert: every operation says [`ChildError::NotParent`], and nothing is
/// signalled, closed or unmapped when it is dropped.
pub struct Child {
    name: String,
    pid: Pid,
    /// The process that forked it.
    parent: Pid,
    pidfd: Own<OwnedFd>,
    /// Hidden from the children that this process forks later.
    page: Own<LifePage>,
    /// What its descendants are known by; see `sweep`.
    mark: String,
    /// The process group that it was put into, unless it inherited its parent's.
    group: Option<Pid>,
    /// Whether its parent adopted orphans when it was made.
    parent_adopts: bool,
    fate: Mutex<Fate>,
}

/// A process that was just made, before its parent knows it as a [`Child`].
pub(crate) struct Made {
    pub(crate) name: String,
    pub(crate) mark: String,
    pub(crate) pid: Pid,
    pub(crate) pidfd: OwnedFd,
    pub(crate) page: LifePage,
}

/// What is known of the end, and whether the kernel still has the zombie.
#[derive(Debug, Clone, Copy)]
pub(crate) enum Fate {
    /// No end was seen.
    Unknown,
    /// It has ended; the zombie reserves its numbers.
    Ended(ExitCause),
    /// It has ended and its numbers are free.
    Reaped(ExitCause),
}

/// What a child is doing.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub enum ChildStatus {
    /// It runs, or sleeps in the kernel.
    Running,
    /// A signal stopped it; it goes on with `SIGCONT`.
    Stopped(Signal),
    /// It has ended in this way.
    Ended(ExitCause),
}

impl fmt::Display for ChildStatus {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Running => write!(f, "running"),
            Self::Stopped(signal) => write!(f, "stopped by signal {signal}"),
            Self::Ended(cause) => cause.fmt(f),
        }
    }
}

/// Why an operation on a child did not do what was asked.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ChildError {
    /// The child has ended, so that it cannot be signalled.
    #[error("signal child {name} ({pid}): it has ended: {cause}")]
    Ended {
        /// Its name.
        name: String,
        /// Its pid.
        pid: Pid,
        /// How it ended.
        cause: ExitCause,
    },
    /// The caller is a forked copy of the process that made the child.
    #[error("use child {name} ({pid}) in process {caller}: it is a child of process {parent}")]
    NotParent {
        /// Its name.
        name: String,
        /// Its pid.
        pid: Pid,
        /// Its parent.
        parent: Pid,
        /// The calling process.
        caller: Pid,
    },
    /// The deadline has passed and the child has not ended.
    #[error("see the end of child {name} ({pid}) within its deadline: it is {status}")]
    StillThere {
        /// Its name.
        name: String,
        /// Its pid.
        pid: Pid,
        /// What it was doing.
        status: ChildStatus,
    },
    /// A call failed in the kernel.
    #[error("{step} child {name} ({pid})")]
    System {
        /// Its name.
        name: String,
        /// Its pid.
        pid: Pid,
        /// What was attempted.
        step: &'static str,
        /// What the kernel said.
        source: io::Error,
    },
}

impl Child {
    pub(crate) fn new(made: Made, group: Option<Pid>) -> Self {
        let Made {
            name,
            mark,
            pid,
            pidfd,
            page,
        } = made;
        let (parent, fate) = (Pid::this(), Mutex::new(Fate::Unknown));
        Self {
            name,
            pid,
            parent,
            pidfd: Own::new(pidfd),
            page: Own::new(page),
            mark,
            group,
            // Asked after it was made, by the same thread that made it.
            parent_adopts: adopts_orphans(),
            fate,
        }
    }

    /// The name that it was given, whole.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// Its number; reserved until it is terminated or this value is dropped.
    pub fn pid(&self) -> Pid {
        self.pid
    }

    /// Its pidfd: readable once it has ended, for `poll` beside other descriptors.
    ///
    /// In a forked copy of the parent a mere number, which this process may have given to another
    /// descriptor.
    pub fn pidfd(&self) -> BorrowedFd<'_> {
        self.pidfd.anywhere().as_fd()
    }

    /// The process group that it was put into; `None` if it inherited its parent's.
    pub fn group(&self) -> Option<Pid> {
        self.group
    }

    /// The word that the kernel marks first when the child dies, long before the pidfd becomes
    /// readable if the child has much memory. For waiters that sleep on futex words.
    ///
    /// In a forked copy of the parent a word that tells nothing, as before the child has come up.
    /// Ask there again: a word that was taken before the fork is not mapped after it.
    pub fn death_word(&self) -> DeathWord<'_> {
        let word = self.page.get().map_or(&NO_WORD, LifePage::parents_word);
        DeathWord::new(word, self.pid)
    }

    /// What the child left to say: the error that its function returned, the message of its panic,
    /// or the step of its set-up that failed. `None` if there was nothing, or not yet, and in a
    /// forked copy of the parent.
    ///
    /// At most some 3900 bytes; what the child wrote is not trusted to be well-formed text.
    pub fn last_words(&self) -> Option<String> {
        self.page.get()?.words()
    }

    /// How the child ended, or `None` while it has not. One system call, none once it is known.
    ///
    /// # Errors
    ///
    /// [`ChildError::NotParent`] in a forked copy of the parent.
    pub fn try_wait(&self) -> Result<Option<ExitCause>, ChildError> {
        self.check_parent()?;
        self.observe(&mut lock(&self.fate))
    }

    /// Sleeps until the child has ended or the deadline has passed.
    ///
    /// Signals to this process do not end the wait early.
    ///
    /// # Errors
    ///
    /// [`ChildError::StillThere`] at the deadline, with what the child was doing; it goes on.
    pub fn wait(&self, deadline: Instant) -> Result<ExitCause, ChildError> {
        loop {
            if let Some(cause) = self.try_wait()? {
                return Ok(cause);
            }
            let ended = wait::wait_readable(self.pidfd(), deadline);
            if !ended.map_err(|source| self.failed("wait for", source))? {
                let status = self.status()?;
                return match status {
                    ChildStatus::Ended(cause) => Ok(cause),
                    status => Err(self.still_there(status)),
                };
            }
        }
    }

    /// What the child is doing now. A stopped child is stopped, not ended.
    ///
    /// # Errors
    ///
    /// [`ChildError::NotParent`] in a forked copy of the parent.
    pub fn status(&self) -> Result<ChildStatus, ChildError> {
        if let Some(cause) = self.try_wait()? {
            return Ok(ChildStatus::Ended(cause));
        }
        match wait::stopped(self.pidfd()) {
            Ok(stop) => Ok(stop.map_or(ChildStatus::Running, ChildStatus::Stopped)),
            // It ended in between and somebody else's wait took it.
            Err(error) if error.raw_os_error() == Some(libc::ECHILD) => Ok(ChildStatus::Ended(
                self.try_wait()?.unwrap_or(ExitCause::Lost),
            )),
            Err(source) => Err(self.failed("look at", source)),
        }
    }

    /// `pidfd_send_signal()`: signals this child and nobody else.
    ///
    /// # Errors
    ///
    /// [`ChildError::Ended`] when it is known to have ended.
    pub fn signal(&self, signal: Signal) -> Result<(), ChildError> {
        if let Some(cause) = self.try_wait()? {
            return Err(ChildError::Ended {
                name: self.name.clone(),
                pid: self.pid,
                cause,
            });
        }
        let sent = process::signal_pidfd(self.pidfd(), signal);
        sent.map_err(|source| self.failed("signal", source))
    }

    pub(crate) fn mark(&self) -> &str {
        &self.mark
    }

    /// Where its page is mapped, in the process that forked it.
    pub(crate) fn page_address(&self) -> Option<usize> {
        self.page.get().map(LifePage::address)
    }

    /// Whether all that descends from it is below this process, also what has lost its parents.
    pub(crate) fn orphans_come_here(&self) -> bool {
        self.parent_adopts && self.is_own() && adopts_orphans()
    }

    fn fate(&self) -> Fate {
        *lock(&self.fate)
    }

    /// Whether this process forked it.
    pub(crate) fn is_own(&self) -> bool {
        self.pidfd.is_own()
    }

    /// Whether the kernel still has it, running or as a zombie: then its number was its own in
    /// whatever was asked about that number before. Not so once it is reaped, by this process's
    /// own wait or by somebody else's (`waitpid(-1)`). One system call.
    pub(crate) fn is_held(&self) -> bool {
        let seen = self.is_own().then(|| wait::ended(self.pidfd(), Take::Peek));
        matches!(seen, Some(Ok(None)))
            || matches!(seen, Some(Ok(Some(cause))) if cause != ExitCause::Lost)
    }

    /// Takes an ended child out of the kernel's table. From here on its numbers may be reused.
    pub(crate) fn reap(&self) -> Result<Option<ExitCause>, ChildError> {
        self.check_parent()?;
        let mut fate = lock(&self.fate);
        let Some(cause) = self.observe(&mut fate)? else {
            return Ok(None);
        };
        if let Fate::Ended(_) = *fate {
            let reaped = wait::ended(self.pidfd(), Take::Reap);
            reaped.map_err(|source| self.failed("reap", source))?;
            *fate = Fate::Reaped(cause);
        }
        Ok(Some(cause))
    }

    pub(crate) fn still_there(&self, status: ChildStatus) -> ChildError {
        ChildError::StillThere {
            name: self.name.clone(),
            pid: self.pid,
            status,
        }
    }

    pub(crate) fn failed(&self, step: &'static str, source: io::Error) -> ChildError {
        ChildError::System {
            name: self.name.clone(),
            pid: self.pid,
            step,
            source,
        }
    }

    /// The group that it was put into, while this child proves that the group is still the one
    /// meant: it is in it, or its zombie is, so that the number cannot name another.
    pub(crate) fn proven_group(&self) -> Option<Pid> {
        // Not reaped by another thread between the two questions.
        let _fate = lock(&self.fate);
        let group = self.group?;
        let inside = process::group_of(self.pid).is_ok_and(|now| now == group);
        // Asked last: it says whose group that was.
        (inside && self.is_held()).then_some(group)
    }

    /// Looks for the end and keeps it. The zombie stays.
    fn observe(&self, fate: &mut MutexGuard<'_, Fate>) -> Result<Option<ExitCause>, ChildError> {
        match **fate {
            Fate::Ended(cause) | Fate::Reaped(cause) => Ok(Some(cause)),
            Fate::Unknown => {
                let ended = wait::ended(self.pidfd(), Take::Peek);
                let ended = ended.map_err(|source| self.failed("wait for", source))?;
                if let Some(cause) = ended {
                    **fate = Fate::Ended(cause);
                }
                Ok(ended)
            }
        }
    }

    fn check_parent(&self) -> Result<(), ChildError> {
        if self.is_own() {
            return Ok(());
        }
        let (name, pid, parent) = (self.name.clone(), self.pid, self.parent);
        let caller = Pid::this();
        Err(ChildError::NotParent {
            name,
            pid,
            parent,
            caller,
        })
    }
}

fn adopts_orphans() -> bool {
    prctl::is_subreaper().unwrap_or(false)
}

/// How long dropping a running child waits for the kernel to end it.
const DROP_PATIENCE: Duration = Duration::from_secs(1);

/// Dropped children that the kernel had not ended in time (they hang in a driver). Reaped when the
/// next one is dropped.
static LEFT: Mutex<Vec<Own<OwnedFd>>> = Mutex::new(Vec::new());

/// Stands for the death word where there is none.
static NO_WORD: AtomicU32 = AtomicU32::new(0);

impl Drop for Child {
    fn drop(&mut self) {
        if !self.is_own() || matches!(self.fate(), Fate::Reaped(_)) {
            return;
        }
        if let Ok(None) = self.try_wait() {
            let _ = process::signal_pidfd(self.pidfd(), Signal::KILL);
            let _ = self.wait(Instant::now() + DROP_PATIENCE);
        }
        reap_left();
        if let Ok(None) = self.reap()
            && let Ok(pidfd) = self.pidfd().try_clone_to_owned()
        {
            lock(&LEFT).push(Own::new(pidfd));
        }
    }
}

/// Reaps what was left, as far as it has ended by now. Entries that came with a fork go.
fn reap_left() {
    let still_there = |pidfd: &OwnedFd| matches!(wait::ended(pidfd.as_fd(), Take::Reap), Ok(None));
    lock(&LEFT).retain(|left| left.get().is_some_and(still_there));
}

impl fmt::Debug for Child {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (name, pid, fate) = (&self.name, self.pid, self.fate());
        f.debug_struct("Child")
            .field("name", name)
            .field("pid", &pid)
            .field("group", &self.group)
            .field("fate", &fate)
            .finish_non_exhaustive()
    }
}
