//! Where the threads of a process stand, as far as the kernel tells everybody.

use std::fmt;
use std::fs;
use std::path::Path;

use procfork::Pid;

/// A thread at one moment.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Thread {
    pub(crate) id: String,
    pub(crate) name: String,
    /// The state letter, as in `ps`.
    pub(crate) state: String,
    /// The function of the kernel in which it sleeps.
    pub(crate) sleeps_in: Option<String>,
    /// The number of the system call that it is in.
    pub(crate) system_call: Option<String>,
}

/// The threads of a process in the order of their numbers; none when it is gone.
pub(crate) fn threads(pid: Pid) -> Vec<Thread> {
    let dir = format!("/proc/{pid}/task");
    let Ok(entries) = fs::read_dir(dir) else {
        return Vec::new();
    };
    let mut threads: Vec<Thread> = entries
        .flatten()
        .filter_map(|entry| Thread::read(&entry.path()))
        .collect();
    threads.sort_by_key(|thread| thread.id.parse::<u64>().unwrap_or(u64::MAX));
    threads
}

impl Thread {
    fn read(task: &Path) -> Option<Self> {
        let file = |name| fs::read_to_string(task.join(name)).ok();
        let stat = file("stat")?;
        let (before, after) = stat.rsplit_once(')')?;
        let (id, name) = before.split_once('(')?;
        let sleeps_in = file("wchan").filter(|text| !text.is_empty() && text != "0");
        let system_call = file("syscall")
            .and_then(|text| text.split_whitespace().next().map(str::to_owned))
            .filter(|number| number.parse::<i64>().is_ok_and(|number| number >= 0));
        Some(Self {
            id: id.trim().to_owned(),
            name: name.to_owned(),
            state: after.split_whitespace().next()?.to_owned(),
            sleeps_in,
            system_call,
        })
    }
}

impl fmt::Display for Thread {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self {
            id, name, state, ..
        } = self;
        write!(f, "thread {id} `{name}` {state}")?;
        if let Some(place) = &self.sleeps_in {
            write!(f, ", sleeps in {place}")?;
        }
        if let Some(number) = &self.system_call {
            write!(f, ", system call {number}")?;
        }
        Ok(())
    }
}
