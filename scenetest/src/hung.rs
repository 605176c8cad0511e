//! The HUNG block: where everything stands that belongs to a case.
//!
//! It is made by the runner from outside, since a stuck process cannot be asked, and shown in the
//! runner's own report, whatever the case does to its output. Processes are read one after the
//! other, and then those that have come up meanwhile, until there is none or the budget is spent.
//!
//! ```text
//! HUNG scene::case after 60.0 s, limit 60.0 s (its time is over), devices [0]
//!   descendants=[chip0 (4712)]
//!   process 4711 scene::case: sleeping, read from outside
//!     doing node: build and drive a run, run 1, for 59.9 s
//!     thread 4711 scene::case: sleeping in futex_do_wait
//!        0 0x7f2ad8c8f2d9 syscall+0x19 in libc.so.6
//!        ...
//!   output, the last 20 of 312 lines:
//!   | ...
//! ```

use std::collections::HashSet;
use std::fmt::{self, Write as _};
use std::time::{Duration, Instant};

use facade::activity::Board;
use procfork::dump::{Crash, Dumper, Limits, ProcessDump, StackEnd};
use procfork::{Child, Pid, ProcessInfo};

use crate::limits::DUMP;

/// How much of the output the block repeats.
const TAIL_LINES: usize = 20;

/// Functions from which on a stack says how its process was started and nothing else.
const HARNESS: [&str; 2] = ["scenetest::case_process::", "procfork::birth::"];

/// What the block says besides what it finds out.
pub(crate) struct Stuck<'a> {
    pub(crate) name: &'a str,
    pub(crate) child: &'a Child,
    pub(crate) elapsed: Duration,
    pub(crate) limit: &'a str,
    pub(crate) devices: &'a [u32],
    pub(crate) output: &'a str,
    pub(crate) board: &'a Board,
}

/// Reads stacks, and remembers the programs whose symbols it has parsed.
pub(crate) struct Stacks(Dumper);

impl fmt::Debug for Stacks {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Stacks")
    }
}

impl Stacks {
    /// Nothing is parsed yet.
    pub(crate) fn new() -> Self {
        Self(Dumper::new(Limits::default()))
    }

    /// Describes the process of a case and everything below it.
    pub(crate) fn describe(&mut self, stuck: &Stuck<'_>) -> String {
        let below: Vec<String> = stuck.child.descendants().iter().map(name).collect();
        let mut text = format!(
            "HUNG {} after {:.1} s, limit {}, devices {:?}\n  descendants=[{}]\n",
            stuck.name,
            stuck.elapsed.as_secs_f64(),
            stuck.limit,
            stuck.devices,
            below.join(", ")
        );
        self.processes(&mut text, stuck);
        tail(&mut text, stuck.output);
        text
    }

    /// Adds where a process stood that crashed; it waits meanwhile.
    pub(crate) fn describe_crash(&mut self, text: &mut String, crash: &Crash, board: &Board) {
        let _ = writeln!(text, "CRASH {crash}");
        match self.0.crash(crash) {
            Ok(dump) => write_process(text, dump, board),
            Err(error) => {
                let _ = writeln!(text, "  it was gone before it could be read: {error}");
            }
        }
    }

    /// One process after the other, until no new one is found.
    fn processes(&mut self, text: &mut String, stuck: &Stuck<'_>) {
        let deadline = Instant::now() + DUMP;
        let mut seen = HashSet::new();
        loop {
            let below = stuck.child.descendants();
            let mut waiting: Vec<Pid> = std::iter::once(stuck.child.pid())
                .chain(below.into_iter().map(|process| process.pid))
                .collect();
            waiting.retain(|pid| !seen.contains(pid));
            if waiting.is_empty() {
                return;
            }
            for (nth, &pid) in waiting.iter().enumerate() {
                if Instant::now() >= deadline {
                    let (left, budget) = (waiting.len() - nth, DUMP);
                    let _ = writeln!(
                        text,
                        "  {left} more processes: not read within {budget:?} for all"
                    );
                    return;
                }
                seen.insert(pid);
                // One that has ended in between has nothing to show.
                if let Ok(dump) = self.0.process(pid, None) {
                    write_process(text, dump, stuck.board);
                }
            }
        }
    }
}

/// Leaves out the frames of the harness below those of the scene and its workers.
fn leave_out_harness(dump: &mut ProcessDump) {
    for thread in &mut dump.threads {
        let of_harness = |function: &str| HARNESS.iter().any(|head| function.starts_with(head));
        let from = thread.frames.iter().position(|frame| {
            let mut calls = frame.calls.iter();
            calls.any(|call| of_harness(&call.function))
        });
        if let Some(from) = from {
            let left_out = thread.frames.len() - from;
            thread.frames.truncate(from);
            thread.end = StackEnd::Cut(format!("{left_out} frames of how the process was started"));
        }
    }
}

fn name(process: &ProcessInfo) -> String {
    format!("{} ({})", process.name, process.pid)
}

/// The dump, two columns in, with what the process says of itself after its first line.
fn write_process(text: &mut String, mut dump: ProcessDump, board: &Board) {
    leave_out_harness(&mut dump);
    let pid = u32::try_from(dump.process.pid.raw()).unwrap_or(0);
    let dump = dump.to_string();
    for (nth, line) in dump.lines().enumerate() {
        let _ = writeln!(text, "  {line}");
        if let Some(doing) = board.read(pid).filter(|_| nth == 0) {
            let _ = writeln!(text, "    doing {doing}");
        }
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
