//! All processes below one, breadth first.

use std::collections::HashSet;
use std::fs;
use std::io;

use crate::pid::Pid;
use crate::proc::{self, ProcessInfo};

/// The processes below `root`, children before grandchildren, zombies included; `root` itself not.
///
/// Reads `/proc/PID/task/*/children`; where the kernel does not have these files, every process's
/// parent. A process that is being made or is ending during the walk may be missing; an orphan is
/// not below its ancestor any more. Costs some 20 us per process, or per process of the machine
/// with the fallback.
///
/// # Errors
///
/// `/proc` cannot be read at all, or `root` does not exist.
pub fn descendants(root: Pid) -> io::Result<Vec<ProcessInfo>> {
    ProcessInfo::of(root)?;
    let mut walk = Walk::new()?;
    let mut found: Vec<ProcessInfo> = Vec::new();
    let mut seen = HashSet::from([root]);
    let mut next = 0;
    let mut parent = root;
    loop {
        for pid in walk.children(parent) {
            // A number may show up twice when a process is reparented during the walk.
            if seen.insert(pid) {
                found.extend(ProcessInfo::of(pid));
            }
        }
        let Some(process) = found.get(next) else {
            return Ok(found);
        };
        (parent, next) = (process.pid, next + 1);
    }
}

/// Where children are looked up.
enum Walk {
    /// In the kernel's own lists.
    Lists,
    /// In a table of all processes, made once.
    Table(Vec<ProcessInfo>),
}

impl Walk {
    fn new() -> io::Result<Self> {
        if fs::exists("/proc/thread-self/children")? {
            Ok(Self::Lists)
        } else {
            Self::table()
        }
    }

    fn table() -> io::Result<Self> {
        proc::all().map(Self::Table)
    }

    fn children(&mut self, parent: Pid) -> Vec<Pid> {
        match self {
            Self::Lists => listed(parent),
            Self::Table(all) => {
                let own = all.iter().filter(|process| process.parent == Some(parent));
                own.map(|process| process.pid).collect()
            }
        }
    }
}

/// Each thread has a list of the children that it made.
fn listed(parent: Pid) -> Vec<Pid> {
    let threads = proc::threads(parent).unwrap_or_default();
    let lists = threads
        .into_iter()
        .filter_map(|tid| fs::read_to_string(format!("/proc/{parent}/task/{tid}/children")).ok());
    lists.flat_map(|list| numbers(&list)).collect()
}

fn numbers(list: &str) -> Vec<Pid> {
    list.split_ascii_whitespace()
        .filter_map(|word| Pid::new(word.parse().ok()?))
        .collect()
}
