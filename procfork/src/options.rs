//! What a child is given: name, descriptors, group, death signal.

use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd, RawFd};

use crate::pid::Pid;
use crate::signal::Signal;

/// What a forked child is given. Everything that is not listed here it does not have.
///
/// ```
/// use procfork::{ForkOptions, Group, Signal};
/// # fn main() -> std::io::Result<()> {
/// let (reader, writer) = std::io::pipe()?;
/// let options = ForkOptions::new("decoder-3")
///     .group(Group::New)
///     .give(writer.into()); // the child owns the writing end now; the parent has none
/// # Ok(())
/// # }
/// ```
#[derive(Debug)]
#[must_use]
pub struct ForkOptions<'fd> {
    pub(crate) name: String,
    pub(crate) given: Vec<OwnedFd>,
    pub(crate) kept: Vec<BorrowedFd<'fd>>,
    pub(crate) streams: [Option<OwnedFd>; 3],
    pub(crate) group: Group,
    pub(crate) death_signal: Option<Signal>,
}

/// The process group that a child lives in. Its descendants inherit it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub enum Group {
    /// The group of its parent.
    Inherit,
    /// A new group that it leads. The forking process is the *root* of the tree in it, and
    /// stays outside: when it dies, any member may kill the whole group.
    New,
    /// An existing group, named by its leader's number, which another child of this process is in.
    /// [`Children::group`](crate::Children::group) gives the right one for the next child of a tree.
    Join(Pid),
}

/// One of the three descriptors that every process has.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Stream {
    /// Descriptor 0.
    Stdin,
    /// Descriptor 1.
    Stdout,
    /// Descriptor 2.
    Stderr,
}

impl<'fd> ForkOptions<'fd> {
    /// A child of this name, with 0, 1 and 2 as its parent has them, in its parent's group, killed
    /// with its parent.
    ///
    /// The kernel shows the first 15 bytes of the name, cut at a character; errors show it whole.
    pub fn new(name: impl Into<String>) -> Self {
        Self {
            name: name.into(),
            given: Vec::new(),
            kept: Vec::new(),
            streams: [None, None, None],
            group: Group::Inherit,
            death_signal: Some(Signal::KILL),
        }
    }

    /// Gives a descriptor away: the child finds it in
    /// [`ChildContext::fds`](crate::ChildContext::fds), in the order of these calls, and the
    /// parent's copy is closed when the fork returns.
    pub fn give(mut self, fd: OwnedFd) -> Self {
        self.given.push(fd);
        self
    }

    /// Leaves a descriptor open in the child, under its number, while the parent keeps it too.
    ///
    /// The child owns it through whatever value the closure has captured, or not at all.
    pub fn keep(mut self, fd: BorrowedFd<'fd>) -> Self {
        self.kept.push(fd);
        self
    }

    /// Replaces one of the three standard descriptors of the child. The parent's copy is closed
    /// when the fork returns.
    pub fn stream(mut self, stream: Stream, fd: OwnedFd) -> Self {
        self.streams[stream.index()] = Some(fd);
        self
    }

    /// The process group that the child lives in.
    pub fn group(mut self, group: Group) -> Self {
        self.group = group;
        self
    }

    /// What the kernel sends to the child when its parent ends; `SIGKILL` unless changed. `None`
    /// leaves the child with the checks of its [`ParentWatch`](crate::ParentWatch) alone.
    pub fn death_signal(mut self, signal: impl Into<Option<Signal>>) -> Self {
        self.death_signal = signal.into();
        self
    }

    /// Numbers that stay open in the child, besides 0, 1 and 2.
    pub(crate) fn open_numbers(&self) -> Vec<RawFd> {
        let given = self.given.iter().map(OwnedFd::as_fd);
        given
            .chain(self.kept.iter().copied())
            .map(|fd| fd.as_raw_fd())
            .collect()
    }
}

impl Stream {
    pub(crate) fn index(self) -> usize {
        match self {
            Self::Stdin => 0,
            Self::Stdout => 1,
            Self::Stderr => 2,
        }
    }
}
