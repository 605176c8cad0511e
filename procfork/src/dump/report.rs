//! What a dump says, as data and as text.

use std::fmt;

use crate::pid::Pid;
use crate::proc::{ProcessInfo, ProcessState};

/// One process at one moment.
#[derive(Debug, Clone, PartialEq)]
#[non_exhaustive]
pub struct ProcessDump {
    /// The process.
    pub process: ProcessInfo,
    /// How its stacks were read.
    pub way: Way,
    /// Its threads, the main one first.
    pub threads: Vec<ThreadDump>,
    /// How many threads there were beyond the limit.
    pub not_read: usize,
    /// What could not be used for unwinding or for names, and why.
    pub notes: Vec<String>,
}

/// How the stacks of a process were read.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub enum Way {
    /// By tracing it.
    Outside,
    /// By its own signal handler.
    Handler,
    /// Not at all; each thread says why.
    Unreadable,
}

/// One thread of a process.
#[derive(Debug, Clone, PartialEq)]
#[non_exhaustive]
pub struct ThreadDump {
    /// Its number.
    pub tid: Pid,
    /// Its name.
    pub name: String,
    /// What it is doing.
    pub state: ProcessState,
    /// The kernel function in which it sleeps, if the kernel tells.
    pub waits_in: Option<String>,
    /// Its frames, the innermost first.
    pub frames: Vec<Frame>,
    /// Where the frames end.
    pub end: StackEnd,
}

/// One physical frame: an address, and the calls that the compiler put there.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct Frame {
    /// The address of the instruction, or the one after a call.
    pub address: u64,
    /// The program or library, if known.
    pub module: Option<String>,
    /// The functions at this address: inlined ones first, each in the one that follows. Empty when
    /// no name is known.
    pub calls: Vec<Call>,
}

/// One function at an address.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct Call {
    /// The name, demangled; with `+0x…` when only the symbol before the address is known.
    pub function: String,
    /// Source file, line and column, as far as the program has line tables.
    pub place: Option<String>,
    /// Whether it was inlined into the next one.
    pub inlined: bool,
}

/// Where the frames of a thread end.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub enum StackEnd {
    /// At the outermost frame.
    Complete,
    /// Before that: the limit of frames or of stack bytes, or the unwinder could not go on.
    Cut(String),
    /// Nothing could be read.
    Unreadable(Unreadable),
}

/// Why a thread could not be read.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub enum Unreadable {
    /// It has ended.
    Ended,
    /// The kernel does not permit it; with what it said.
    NotPermitted(String),
    /// It did not stop, or did not answer, in time. In state [`ProcessState::Uninterruptible`] no
    /// signal reaches it.
    NoAnswer,
    /// A call failed.
    Failed(String),
}

impl fmt::Display for ProcessDump {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let ProcessInfo {
            pid, name, state, ..
        } = &self.process;
        write!(f, "process {pid} {name}: {state}, {}", self.way)?;
        for thread in &self.threads {
            write!(f, "\n{thread}")?;
        }
        if self.not_read > 0 {
            write!(f, "\n  {} more threads were not read", self.not_read)?;
        }
        for note in &self.notes {
            write!(f, "\n  note: {note}")?;
        }
        Ok(())
    }
}

impl fmt::Display for Way {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Outside => "read from outside",
            Self::Handler => "read by its own handler",
            Self::Unreadable => "not readable",
        })
    }
}

impl fmt::Display for ThreadDump {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "  thread {} {}: {}", self.tid, self.name, self.state)?;
        if let Some(function) = &self.waits_in {
            write!(f, " in {function}")?;
        }
        for (index, frame) in self.frames.iter().enumerate() {
            frame.write(f, index)?;
        }
        match &self.end {
            StackEnd::Complete => Ok(()),
            StackEnd::Cut(why) => write!(f, "\n    [cut: {why}]"),
            StackEnd::Unreadable(why) => write!(f, "\n    [{why}]"),
        }
    }
}

impl Frame {
    fn write(&self, f: &mut fmt::Formatter<'_>, index: usize) -> fmt::Result {
        let module = self.module.as_deref().unwrap_or("unknown module");
        if self.calls.is_empty() {
            return write!(f, "\n    {index:>3} {:#014x} ? in {module}", self.address);
        }
        for (nth, call) in self.calls.iter().enumerate() {
            match nth {
                0 => write!(f, "\n    {index:>3} {:#014x} {call}", self.address)?,
                _ => write!(f, "\n    {:>3} {:#014x} {call}", "", self.address)?,
            }
            if call.place.is_none() {
                write!(f, " in {module}")?;
            }
        }
        Ok(())
    }
}

impl fmt::Display for Call {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.function)?;
        if let Some(place) = &self.place {
            write!(f, " at {place}")?;
        }
        if self.inlined {
            f.write_str(" (inlined)")
        } else {
            Ok(())
        }
    }
}

impl fmt::Display for Unreadable {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Ended => write!(f, "it has ended"),
            Self::NotPermitted(why) => write!(f, "the kernel does not permit it: {why}"),
            Self::NoAnswer => write!(f, "it did not stop in time"),
            Self::Failed(why) => write!(f, "{why}"),
        }
    }
}

#[cfg(test)]
mod tests;
