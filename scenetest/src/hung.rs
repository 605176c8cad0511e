//! The HUNG block: where everything stands that belongs to a case whose time is over.
//!
//! It is made by the runner from outside, since a stuck process cannot be asked, and shown in the
//! runner's own report, whatever the case does to its output. One process after the other.

use std::fmt::Write as _;
use std::time::Duration;

use procfork::{Pid, ProcessInfo, descendants};

use crate::threads::threads;

/// How much of the output the block repeats.
const TAIL_LINES: usize = 20;

/// What the block says besides what it finds out.
pub(crate) struct Stuck<'a> {
    pub(crate) name: &'a str,
    pub(crate) pid: Pid,
    pub(crate) elapsed: Duration,
    pub(crate) limit: &'a str,
    pub(crate) devices: &'a [u32],
    pub(crate) output: &'a str,
}

/// Describes the process of the case and everything below it.
pub(crate) fn describe(stuck: &Stuck<'_>) -> String {
    let leader = ProcessInfo::of(stuck.pid).into_iter();
    let all: Vec<ProcessInfo> = leader
        .chain(descendants(stuck.pid).unwrap_or_default())
        .collect();
    let below: Vec<String> = all.iter().skip(1).map(name).collect();
    let mut text = format!(
        "HUNG {} after {:.1} s, limit {}, devices {:?}\n  descendants=[{}]\n",
        stuck.name,
        stuck.elapsed.as_secs_f64(),
        stuck.limit,
        stuck.devices,
        below.join(", ")
    );
    for process in &all {
        describe_process(&mut text, process);
    }
    text.push_str("  native frames: not built yet\n");
    tail(&mut text, stuck.output);
    text
}

fn name(process: &ProcessInfo) -> String {
    format!("{} ({})", process.name, process.pid)
}

fn describe_process(text: &mut String, process: &ProcessInfo) {
    let _ = writeln!(text, "  process {} {:?}", name(process), process.state);
    for thread in threads(process.pid) {
        let _ = writeln!(text, "    {thread}");
    }
}

fn tail(text: &mut String, output: &str) {
    let lines: Vec<&str> = output.lines().collect();
    let from = lines.len().saturating_sub(TAIL_LINES);
    let _ = writeln!(
        text,
        "  output, the last {} of {} lines:",
        lines.len() - from,
        lines.len()
    );
    for line in &lines[from..] {
        let _ = writeln!(text, "  | {line}");
    }
}
