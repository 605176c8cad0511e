//! When each task did what, and the same as JSON for trace viewers.

use std::io::{self, Write};

/// One task on one worker; times are nanoseconds since the trace began.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct TaskTrace {
    /// The callable.
    pub callable: String,
    /// The child it was sent to: an index into [`Trace::workers`].
    pub worker: usize,
    /// The run.
    pub run: u64,
    /// Which member of its group; 0 for a task that is no group.
    pub member: u32,
    /// It was submitted.
    pub submitted_ns: u64,
    /// It was written into the worker's mailbox.
    pub dispatched_ns: u64,
    /// The worker was seen to have begun, where it says so before the end.
    pub accepted_ns: Option<u64>,
    /// Its end was seen.
    pub done_ns: u64,
    /// Whether it ended well.
    pub is_ok: bool,
}

/// What the tasks of a worker's graph did while it was traced, in the order of their ends.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct Trace {
    /// Path of the worker whose engine this is.
    pub root: String,
    /// Paths of its children.
    pub workers: Vec<String>,
    /// The tasks.
    pub tasks: Vec<TaskTrace>,
}

impl Trace {
    /// Writes the trace in the Trace Event Format, which Perfetto and Chromium show: a lane per worker, on which a task
    /// is a slice from its begin to its end, marks where it was dispatched and accepted, and above the lanes how long
    /// each task was queued.
    ///
    /// A worker works on one task at a time, so a task that was dispatched while another one ran begins with that one's
    /// end.
    ///
    /// # Errors
    ///
    /// Those of `out`.
    pub fn write_json(&self, out: impl Write) -> io::Result<()> {
        self.write_from(out, 0)
    }

    /// As [`Trace::write_json`], with times that count from `began_ns` before the trace's own zero.
    pub(crate) fn write_from(&self, mut out: impl Write, began_ns: u64) -> io::Result<()> {
        write!(out, "{{\"displayTimeUnit\":\"ns\",\"traceEvents\":[")?;
        write!(
            out,
            "{{\"ph\":\"M\",\"pid\":1,\"name\":\"process_name\",\"args\":{{\"name\":{}}}}}",
            quoted(&self.root)
        )?;
        for (lane, path) in self.workers.iter().enumerate() {
            write!(
                out,
                ",\n{{\"ph\":\"M\",\"pid\":1,\"tid\":{lane},\"name\":\"thread_name\",\"args\":{{\"name\":{}}}}}",
                quoted(path)
            )?;
        }
        let mut free_from = vec![0; self.workers.len()];
        for (id, task) in self.tasks.iter().enumerate() {
            let begun = task.accepted_ns.unwrap_or(task.dispatched_ns);
            let begun = begun.max(free_from[task.worker]).min(task.done_ns);
            free_from[task.worker] = task.done_ns;
            task.write_events(&mut out, id, began_ns, begun)?;
        }
        writeln!(out, "]}}")
    }
}

impl TaskTrace {
    fn write_events(
        &self,
        out: &mut impl Write,
        id: usize,
        began: u64,
        begun: u64,
    ) -> io::Result<()> {
        let at = |ns: u64| Micros(began + ns);
        let (name, lane) = (quoted(&self.callable), self.worker);
        write!(
            out,
            ",\n{{\"ph\":\"X\",\"pid\":1,\"tid\":{lane},\"name\":{name},\"ts\":{},\"dur\":{},\"args\":{{\"run\":{},\"member\":{},\"ok\":{},\"queued_us\":{},\"dispatched_to_done_us\":{}}}}}",
            at(begun),
            Micros(self.done_ns - begun),
            self.run,
            self.member,
            self.is_ok,
            Micros(self.dispatched_ns - self.submitted_ns),
            Micros(self.done_ns - self.dispatched_ns),
        )?;
        let marks = [
            ("dispatched", Some(self.dispatched_ns)),
            ("accepted", self.accepted_ns),
        ];
        for (mark, ns) in marks {
            if let Some(ns) = ns {
                write!(
                    out,
                    ",\n{{\"ph\":\"i\",\"s\":\"t\",\"pid\":1,\"tid\":{lane},\"name\":\"{mark}\",\"ts\":{}}}",
                    at(ns)
                )?;
            }
        }
        for (phase, ns) in [("b", self.submitted_ns), ("e", self.dispatched_ns)] {
            write!(
                out,
                ",\n{{\"ph\":\"{phase}\",\"cat\":\"queued\",\"id\":{id},\"pid\":1,\"tid\":{lane},\"name\":{name},\"ts\":{}}}",
                at(ns)
            )?;
        }
        Ok(())
    }
}

/// Nanoseconds, shown as microseconds, which is the unit of the format.
struct Micros(u64);

impl std::fmt::Display for Micros {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{}.{:03}", self.0 / 1000, self.0 % 1000)
    }
}

/// A text as a JSON string.
fn quoted(text: &str) -> String {
    let mut out = String::with_capacity(text.len() + 2);
    out.push('"');
    for c in text.chars() {
        match c {
            '"' | '\\' => out.extend(['\\', c]),
            c if c < ' ' => out.push_str(&format!("\\u{:04x}", u32::from(c))),
            c => out.push(c),
        }
    }
    out.push('"');
    out
}
