//! Finding and ending what descends from a child and is still there after it.
//!
//! A process can leave its group (`setsid`), lose its parent (a double fork), and so get out of the
//! way of a group kill and of a walk down from the child. It is found by one of these, each of
//! which *proves* that it descends from the child:
//!
//! - **walk**: its parent was the child, or a process already proved, when both were looked at;
//! - **group**: it was in the group that the child leads, while the child's zombie held the number;
//! - **mark**: it has the child's page mapped, which only processes forked from the child
//!   have; or its environment names the child among its ancestors ([`MARK`]), which only
//!   programs have that were started below it.
//!
//! A number alone proves nothing. Each find is pinned by a pidfd, and its start time is read again
//! after that: it is signalled through the pidfd and can never be another process.
//!
//! Where to look: among all processes of the machine, since an orphan is a child of process 1. Unless
//! this process adopts orphans ([`adopt_orphans`](crate::adopt_orphans)) and did so when the child was
//! made: then whatever descends from the child is below this process, in place of its parents if not
//! below them, and looking there costs what the tree costs and not what the machine costs.

use std::collections::HashSet;
use std::fmt;
use std::fs;
use std::os::fd::{AsFd as _, OwnedFd};
use std::time::Instant;

use crate::child::Child;
use crate::descendants::descendants;
use crate::pid::Pid;
use crate::proc::{self, ProcessInfo};
use crate::signal::Signal;
use crate::sys::process;
use crate::sys::wait::{self, Take};

/// A process that was left over and had to be killed.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct Stray {
    /// The process, as it was when it was found.
    pub process: ProcessInfo,
    /// What proved that it was ours.
    pub proof: Proof,
    /// Whether it was gone by the deadline.
    pub gone: bool,
}

/// What proves that a process descends from a child. See the module.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub enum Proof {
    /// Its parent was proved.
    Parent,
    /// It was in the child's group.
    Group,
    /// It carries the child's mark.
    Mark,
}

impl fmt::Display for Stray {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let found = match self.proof {
            Proof::Parent => "found below it",
            Proof::Group => "found in its group",
            Proof::Mark => "found by its mark",
        };
        let gone = if self.gone {
            "killed"
        } else {
            "killed and not gone yet"
        };
        write!(
            f,
            "{} ({}), {found}, {gone}",
            self.process.name, self.process.pid
        )
    }
}

/// The environment variable that names the ancestors of a program, the youngest last.
pub(crate) const MARK: &std::ffi::CStr = c"PROCFORK_ANCESTORS";

impl Child {
    /// What descends from this child and lives, each proved in one of the ways of a sweep: also those that left its group,
    /// and those whose parents have ended. In no order; they may have ended, and others begun, when this returns.
    ///
    /// Reads the environment and the mappings of every process that may be one: of those below this process where it
    /// [adopts orphans](crate::adopt_orphans), else of all processes of the machine.
    #[must_use]
    pub fn descendants(&self) -> Vec<ProcessInfo> {
        let mut family = Family::of(&[self]);
        family.look();
        let found = family.found.into_iter();
        found
            .filter(|found| !found.has_ended())
            .map(|found| found.info)
            .collect()
    }
}

/// The children that are being ended, and everything found to descend from them.
pub(crate) struct Family<'a> {
    roots: Vec<Root<'a>>,
    found: Vec<Pinned>,
    /// Whether all that may be found is below this process.
    all_below: bool,
}

/// A child, and what is needed of it after it has ended.
struct Root<'a> {
    child: &'a Child,
    /// When it was made: older processes do not descend from it.
    born: u64,
    leads: Option<Pid>,
    mark: String,
    page: Option<Mapped>,
}

struct Pinned {
    info: ProcessInfo,
    pidfd: OwnedFd,
    proof: Proof,
}

impl<'a> Family<'a> {
    /// The children and what is below them now.
    pub(crate) fn of(children: &[&'a Child]) -> Self {
        let roots = children.iter().filter_map(|child| Root::of(child));
        let mut family = Self {
            roots: roots.collect(),
            found: Vec::new(),
            all_below: children.iter().all(|child| child.orphans_come_here()),
        };
        family.grow();
        family
    }

    /// Adds what is below the children and below what was found.
    pub(crate) fn grow(&mut self) {
        let all = self.candidates();
        self.grow_from(&all);
    }

    /// Every process that may be one of the family.
    fn candidates(&self) -> Vec<ProcessInfo> {
        let all = if self.all_below {
            descendants(Pid::this())
        } else {
            proc::all()
        };
        all.unwrap_or_default()
    }

    /// Adds everything that is found to be of the family now.
    fn look(&mut self) {
        let all = self.candidates();
        self.grow_from(&all);
        self.add_groups(&all);
        self.add_marked(&all);
        self.grow_from(&all);
    }

    /// Kills what is left until nothing is, or the deadline has passed. Returns what there was.
    pub(crate) fn sweep(mut self, deadline: Instant) -> Vec<Stray> {
        let mut strays: Vec<Pid> = Vec::new();
        loop {
            self.look();
            let left: Vec<&Pinned> = self
                .found
                .iter()
                .filter(|found| !found.has_ended())
                .collect();
            for found in &left {
                strays.push(found.info.pid);
                let _ = process::signal_pidfd(found.pidfd.as_fd(), Signal::KILL);
            }
            let gone = left.iter().all(|found| found.wait(deadline));
            if left.is_empty() || !gone {
                break;
            }
        }
        self.report(&strays)
    }

    fn report(self, strays: &[Pid]) -> Vec<Stray> {
        self.found.iter().for_each(Pinned::reap_if_adopted);
        let found = self
            .found
            .into_iter()
            .filter(|found| strays.contains(&found.info.pid));
        let stray = |found: Pinned| {
            let gone = found.has_ended();
            Stray {
                process: found.info,
                proof: found.proof,
                gone,
            }
        };
        found.map(stray).collect()
    }

    /// A process whose parent is proved is proved. The table may list it before its parent, hence
    /// the repetition.
    fn grow_from(&mut self, all: &[ProcessInfo]) {
        loop {
            let known: HashSet<Pid> = self.known().collect();
            let below = |info: &&ProcessInfo| info.parent.is_some_and(|pid| known.contains(&pid));
            let new: Vec<ProcessInfo> = all.iter().filter(below).cloned().collect();
            if !self.pin(new, Proof::Parent) {
                return;
            }
        }
    }

    /// The group that an unreaped child leads is that child's. Other children of this process in
    /// it are known to it as such, and theirs to end and to reap.
    fn add_groups(&mut self, all: &[ProcessInfo]) {
        let held = self.roots.iter().filter(|root| root.child.is_held());
        let led: HashSet<Pid> = held.filter_map(|root| root.leads).collect();
        let own = Some(Pid::this());
        let inside = |info: &&ProcessInfo| {
            info.parent != own && info.group.is_some_and(|group| led.contains(&group))
        };
        let members: Vec<ProcessInfo> = all.iter().filter(inside).cloned().collect();
        self.pin(members, Proof::Group);
    }

    fn add_marked(&mut self, all: &[ProcessInfo]) {
        let known: HashSet<Pid> = self.known().collect();
        let own = Pid::this();
        let unknown = all
            .iter()
            .filter(|info| !known.contains(&info.pid) && info.pid != own);
        let marked = unknown.filter(|info| self.roots.iter().any(|root| root.marked(info)));
        let marked: Vec<ProcessInfo> = marked.cloned().collect();
        self.pin(marked, Proof::Mark);
    }

    /// Numbers that are held just now: by a child that nobody has reaped, or by a process that lives. Asked after the
    /// table was read, so that they meant the same processes in it.
    fn known(&self) -> impl Iterator<Item = Pid> {
        let roots = self.roots.iter().filter(|root| root.child.is_held());
        let roots = roots.map(|root| root.child.pid());
        let alive = self.found.iter().filter(|found| !found.has_ended());
        roots.chain(alive.map(|found| found.info.pid))
    }

    /// Pins what is new; true if anything was. Zombies too: this process may adopt them.
    fn pin(&mut self, processes: Vec<ProcessInfo>, proof: Proof) -> bool {
        let before = self.found.len();
        for info in processes {
            let root = self.roots.iter().any(|root| root.child.pid() == info.pid);
            if !root && !self.found.iter().any(|found| found.info.is_same(&info)) {
                self.found.extend(Pinned::new(info, proof));
            }
        }
        self.found.len() > before
    }
}

impl<'a> Root<'a> {
    /// `None` for a child that is reaped, and for a copy of another process's: its number may be anybody's.
    fn of(child: &'a Child) -> Option<Self> {
        let born = ProcessInfo::of(child.pid()).ok()?.start_time;
        if !child.is_held() {
            return None;
        }
        let leads = child.proven_group().filter(|group| *group == child.pid());
        let page = child.page_address().and_then(Mapped::find);
        Some(Self {
            child,
            born,
            leads,
            mark: child.mark().to_owned(),
            page,
        })
    }

    /// Whether a process carries the mark of this child.
    fn marked(&self, process: &ProcessInfo) -> bool {
        process.start_time >= self.born
            && (self.marked_by_environment(process.pid) || self.marked_by_page(process.pid))
    }

    fn marked_by_environment(&self, pid: Pid) -> bool {
        let environment = fs::read(format!("/proc/{pid}/environ")).unwrap_or_default();
        let key = MARK.to_bytes();
        let mut values = environment
            .split(|byte| *byte == 0)
            .filter_map(|entry| entry.strip_prefix(key)?.strip_prefix(b"="));
        values.any(|value| {
            value
                .split(|byte| *byte == b'/')
                .any(|m| m == self.mark.as_bytes())
        })
    }

    fn marked_by_page(&self, pid: Pid) -> bool {
        let Some(page) = &self.page else {
            return false;
        };
        let maps = fs::read_to_string(format!("/proc/{pid}/maps")).unwrap_or_default();
        maps.lines()
            .filter_map(Mapped::parse)
            .any(|(_, mapped)| mapped == *page)
    }
}

impl Pinned {
    /// Holds the process by a pidfd, if it is still the one that was looked at.
    fn new(info: ProcessInfo, proof: Proof) -> Option<Self> {
        let pidfd = process::open_pidfd(info.pid).ok()?;
        info.is_current().then_some(Self { info, pidfd, proof })
    }

    fn has_ended(&self) -> bool {
        self.wait(Instant::now())
    }

    fn wait(&self, deadline: Instant) -> bool {
        wait::wait_readable(self.pidfd.as_fd(), deadline).unwrap_or(true)
    }

    /// An orphan may have become a child of this process, if it adopts orphans. Its zombie then
    /// is this process's to remove; anybody else's is not (`ECHILD`).
    fn reap_if_adopted(&self) {
        let _ = wait::ended(self.pidfd.as_fd(), Take::Reap);
    }
}

/// The file behind a mapping, as `/proc/PID/maps` shows it.
#[derive(Debug, PartialEq, Eq)]
struct Mapped {
    device: String,
    inode: u64,
}

impl Mapped {
    /// What is mapped at an address of this process.
    fn find(address: usize) -> Option<Self> {
        let maps = fs::read_to_string("/proc/self/maps").ok()?;
        let found = maps
            .lines()
            .filter_map(Self::parse)
            .find(|(start, _)| *start == address);
        found.map(|(_, mapped)| mapped)
    }

    /// `start-end access offset device inode …`; no inode is 0 and names nothing.
    fn parse(line: &str) -> Option<(usize, Self)> {
        let mut fields = line.split_ascii_whitespace();
        let (start, _) = fields.next()?.split_once('-')?;
        let start = usize::from_str_radix(start, 16).ok()?;
        let device = fields.nth(2)?.to_owned();
        let inode = fields.next()?.parse().ok().filter(|inode| *inode != 0)?;
        Some((start, Self { device, inode }))
    }
}

#[cfg(test)]
mod tests;
