//! Many children: signal all, then wait for all under one absolute deadline.

use std::io;
use std::os::fd::{AsFd, BorrowedFd};
use std::time::{Duration, Instant};

use crate::cause::ExitCause;
use crate::child::{Child, ChildError, ChildStatus};
use crate::escalation::{Attempt, Escalation, Stage};
use crate::options::Group;
use crate::pid::Pid;
use crate::signal::Signal;
use crate::sweep::Stray;
use crate::sync::{Mutex, lock};
use crate::sys::epoll::Epoll;
use crate::sys::own::Own;

/// The children of one parent, usually of one tree.
///
/// In a forked copy of the parent the value is inert, as each [`Child`] of it is: it takes no new child, and an attempt to
/// end those that it has signals nobody and names them all as survivors.
///
/// ```
/// # fn main() -> Result<(), Box<dyn std::error::Error>> {
/// use std::time::{Duration, Instant};
/// use procfork::Children;
///
/// let mut children = Children::new()?;
/// // children.push(procfork::fork(ForkOptions::new("worker").group(children.group()), work)?)?;
/// for (pid, cause) in children.poll_ended()? {
///     eprintln!("{pid} {cause}");
/// }
/// let closing = children.terminate(Duration::from_millis(200), Instant::now() + Duration::from_secs(1));
/// assert!(closing.survivors.is_empty());
/// # Ok(())
/// # }
/// ```
#[derive(Debug)]
pub struct Children {
    members: Vec<Member>,
    epoll: Own<Epoll>,
}

#[derive(Debug)]
struct Member {
    child: Child,
    /// Whether its end has been reported, and its pidfd is out of the epoll set.
    reported: Mutex<bool>,
}

/// A child that has been ended and reaped.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct Ended {
    /// Its name.
    pub name: String,
    /// The number it had.
    pub pid: Pid,
    /// How it ended.
    pub cause: ExitCause,
    /// How far the escalation had gone when it ended.
    pub stage: Stage,
}

/// A child that could not be ended in time. It stays among the [`Children`], for another attempt.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct Survivor {
    /// Its name.
    pub name: String,
    /// Its number.
    pub pid: Pid,
    /// What it was doing at the deadline.
    pub status: ChildStatus,
}

/// What became of all children in one attempt to end them.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
#[non_exhaustive]
#[must_use]
pub struct Closing {
    /// Ended and reaped, in the order in which they were added.
    pub ended: Vec<Ended>,
    /// Not ended by the deadline.
    pub survivors: Vec<Survivor>,
    /// Descendants that had to be swept up, with [`Reach::Descendants`](crate::Reach::Descendants).
    pub strays: Vec<Stray>,
}

impl Children {
    /// No children yet. Takes one descriptor.
    ///
    /// # Errors
    ///
    /// Those of `epoll_create1`: no descriptor left.
    pub fn new() -> io::Result<Self> {
        Ok(Self {
            members: Vec::new(),
            epoll: Own::new(Epoll::new()?),
        })
    }

    /// Makes room for so many more, so that adding them allocates nothing: between forks each page that is written is
    /// copied.
    pub fn reserve(&mut self, n_children: usize) {
        self.members.reserve(n_children);
    }

    /// Adds a child.
    ///
    /// # Errors
    ///
    /// Those of `epoll_ctl`: no memory in the kernel; and the set or the child is that of another
    /// process. The child is killed then, as when dropped.
    pub fn push(&mut self, child: Child) -> io::Result<()> {
        let own = self.epoll.get().filter(|_| child.is_own());
        let epoll = own.ok_or_else(|| io::Error::other("made in another process"))?;
        epoll.add(child.pidfd(), key(child.pid()))?;
        self.members.push(Member {
            child,
            reported: Mutex::new(false),
        });
        Ok(())
    }

    /// Takes a child out again, running or not.
    pub fn remove(&mut self, pid: Pid) -> Option<Child> {
        let at = self
            .members
            .iter()
            .position(|member| member.child.pid() == pid)?;
        let member = self.members.remove(at);
        member.forget_in(&self.epoll);
        Some(member.child)
    }

    /// The child of this number.
    pub fn get(&self, pid: Pid) -> Option<&Child> {
        self.iter().find(|child| child.pid() == pid)
    }

    /// All of them, in the order in which they were added.
    pub fn iter(&self) -> impl ExactSizeIterator<Item = &Child> {
        self.members.iter().map(|member| &member.child)
    }

    /// How many there are, ended ones that were not taken out included.
    pub fn len(&self) -> usize {
        self.members.len()
    }

    /// Whether there are none.
    pub fn is_empty(&self) -> bool {
        self.members.is_empty()
    }

    /// The group for the next child of the same tree: that of a child which still proves that the
    /// group is ours, or a new one.
    pub fn group(&self) -> Group {
        self.iter()
            .find_map(Child::proven_group)
            .map_or(Group::New, Group::Join)
    }

    /// Those that have ended since the last call, with how. For liveness probes inside a wait: one
    /// system call and no allocation while all are alive, however many there are.
    ///
    /// # Errors
    ///
    /// Those of the kernel; none is known for children of this process.
    pub fn poll_ended(&self) -> Result<Vec<(Pid, ExitCause)>, ChildError> {
        let mut ended = Vec::new();
        loop {
            let ready = self.epoll.get().map(|epoll| epoll.ready(None));
            let ready = ready.and_then(Result::ok).unwrap_or_default();
            let known = ended.len();
            for member in self
                .members
                .iter()
                .filter(|member| ready.contains(&member.key()))
            {
                ended.extend(member.report(&self.epoll)?);
            }
            if ended.len() == known {
                return Ok(ended);
            }
        }
    }

    /// Sends a signal to each child that has not ended; how many that were.
    pub fn signal_all(&self, signal: Signal) -> usize {
        self.iter()
            .filter(|child| child.signal(signal).is_ok())
            .count()
    }

    /// Sleeps until all have ended or the deadline has passed, and sends nothing; true if all have.
    pub fn wait_all(&self, deadline: Instant) -> Result<bool, ChildError> {
        for child in self.iter() {
            match child.wait(deadline) {
                Ok(_) => {}
                Err(ChildError::StillThere { .. }) => return Ok(false),
                Err(error) => return Err(error),
            }
        }
        Ok(true)
    }

    /// Ends all children: asks all, waits for the grace period, kills the groups and the children
    /// that are left, waits until the deadline. See [`Stage`] for the steps.
    ///
    /// One deadline for all: the time does not grow with their number. The grace period is cut at
    /// the deadline. Ended children are reaped and leave this set; survivors are named and stay.
    ///
    /// A group is killed whole: children of the same group in another set go too.
    pub fn terminate(&mut self, grace: Duration, deadline: Instant) -> Closing {
        self.terminate_with(Escalation::after(grace), deadline)
    }

    /// Ends all children by this plan, until the deadline.
    pub fn terminate_with(&mut self, plan: Escalation, deadline: Instant) -> Closing {
        let children: Vec<&Child> = self.iter().collect();
        let group_of = &Child::proven_group;
        let attempt = Attempt {
            children: &children,
            plan,
            deadline,
            group_of,
        };
        let (stages, strays) = attempt.run();
        self.settle(stages, strays)
    }

    /// Reaps what has ended; the rest stays.
    fn settle(&mut self, stages: Vec<Stage>, strays: Vec<Stray>) -> Closing {
        let mut closing = Closing {
            strays,
            ..Closing::default()
        };
        for (member, stage) in std::mem::take(&mut self.members).into_iter().zip(stages) {
            let child = &member.child;
            let (name, pid) = (child.name().to_owned(), child.pid());
            if let Ok(Some(cause)) = child.reap() {
                member.forget_in(&self.epoll);
                closing.ended.push(Ended {
                    name,
                    pid,
                    cause,
                    stage,
                });
            } else {
                let status = child.status().unwrap_or(ChildStatus::Running);
                closing.survivors.push(Survivor { name, pid, status });
                self.members.push(member);
            }
        }
        closing
    }
}

/// Readable while a child has ended that [`Children::poll_ended`] has not reported yet.
impl AsFd for Children {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.epoll.anywhere().as_fd()
    }
}

impl Member {
    fn key(&self) -> u64 {
        key(self.child.pid())
    }

    /// The end, once.
    fn report(&self, epoll: &Own<Epoll>) -> Result<Option<(Pid, ExitCause)>, ChildError> {
        let Some(cause) = self.child.try_wait()? else {
            return Ok(None);
        };
        Ok(self.forget_in(epoll).then(|| (self.child.pid(), cause)))
    }

    /// Takes the pidfd out of the epoll set; true for the first caller.
    fn forget_in(&self, epoll: &Own<Epoll>) -> bool {
        let mut reported = lock(&self.reported);
        if let (false, Some(epoll)) = (*reported, epoll.get()) {
            // It was added by `push`, and this is the only place that removes it.
            let _ = epoll.remove(self.child.pidfd());
        }
        !std::mem::replace(&mut *reported, true)
    }
}

/// Pids of unreaped children are unique, so that they can name members.
fn key(pid: Pid) -> u64 {
    u64::from(pid.raw().cast_unsigned())
}
