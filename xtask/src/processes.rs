//! The processes below this one: who is there, and ending the ones a step left behind.
//!
//! xtask makes itself the *subreaper* of what it starts: a process whose parent has died becomes a
//! child of xtask instead of vanishing to pid 1. So when a step has ended, whatever is still a
//! child of xtask was left behind by it. Only own children are ever signalled, and an own child's
//! pid cannot be handed out again before xtask has reaped it.

use std::{
    collections::BTreeMap,
    fs,
    path::Path,
    thread,
    time::{Duration, Instant},
};

use nix::{
    sys::{
        signal::{Signal, kill},
        wait::{WaitPidFlag, waitpid},
    },
    unistd::Pid,
};

/// Orphans of steps become children of this process from now on.
///
/// Answers whether leftovers can be found here: the kernel must list children
/// (`CONFIG_PROC_CHILDREN`).
pub(crate) fn adopt_orphans() -> bool {
    nix::sys::prctl::set_child_subreaper(true).is_ok() && Path::new("/proc/self/task").is_dir() && {
        let own = std::process::id();
        Path::new(&format!("/proc/{own}/task/{own}/children")).exists()
    }
}

/// Waits until this process has no children any more, and ends those that outstay `grace`.
///
/// Returns a line for each process that had to be ended.
pub(crate) fn end_leftovers(grace: Duration) -> Vec<String> {
    let deadline = Instant::now() + grace;
    let mut ended = BTreeMap::new();
    loop {
        let children = living_children();
        if children.is_empty() {
            return ended.into_values().collect();
        }
        if Instant::now() >= deadline {
            // Their own children become ours, and are met in the next round.
            for pid in children {
                ended.entry(pid).or_insert_with(|| describe(pid));
                let _already_gone = kill(Pid::from_raw(pid), Signal::SIGKILL);
            }
        }
        thread::sleep(Duration::from_millis(10));
    }
}

/// The children of this process that still run; those that have ended are reaped on the way.
fn living_children() -> Vec<i32> {
    let alive = |pid: &i32| {
        let state = waitpid(Pid::from_raw(*pid), Some(WaitPidFlag::WNOHANG));
        matches!(state, Ok(nix::sys::wait::WaitStatus::StillAlive))
    };
    children(std::process::id().cast_signed())
        .into_iter()
        .filter(alive)
        .collect()
}

/// The children of `pid`, of all its threads. Empty when it is gone.
fn children(pid: i32) -> Vec<i32> {
    let Ok(threads) = fs::read_dir(format!("/proc/{pid}/task")) else {
        return Vec::new();
    };
    threads
        .flatten()
        .filter_map(|thread| fs::read_to_string(thread.path().join("children")).ok())
        .flat_map(|list| {
            list.split_whitespace()
                .filter_map(|n| n.parse().ok())
                .collect::<Vec<_>>()
        })
        .collect()
}

/// A line for `pid` and each of its descendants, breadth first: what a hung step was waiting in.
pub(crate) fn describe_tree(pid: u32) -> Vec<String> {
    let mut found = vec![pid.cast_signed()];
    let mut next = 0;
    while let Some(&pid) = found.get(next) {
        found.extend(children(pid));
        next += 1;
    }
    found.into_iter().map(describe).collect()
}

/// `pid`, its command line, its state, and the kernel function it waits in.
fn describe(pid: i32) -> String {
    let read = |file: &str| fs::read_to_string(format!("/proc/{pid}/{file}")).unwrap_or_default();
    let command = read("cmdline").replace('\0', " ");
    let state = read("stat")
        .rsplit(") ")
        .next()
        .and_then(|rest| rest.chars().next())
        .unwrap_or('?');
    let waits_in = read("wchan");
    let waits_in = if waits_in.is_empty() || waits_in == "0" {
        "running"
    } else {
        waits_in.trim()
    };
    format!(
        "pid {pid} [{state}, {waits_in}] {}",
        shortened(command.trim(), 120)
    )
}

/// At most `chars` characters of `text`.
fn shortened(text: &str, chars: usize) -> String {
    let mut short: String = text.chars().take(chars).collect();
    if short.len() < text.len() {
        short.push_str("...");
    }
    short
}
