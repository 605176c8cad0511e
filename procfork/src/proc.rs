//! What `/proc` says about a process.

use std::fmt;
use std::fs;
use std::io;

use crate::pid::Pid;

/// A process at one moment, as `/proc/PID/stat` shows it.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct ProcessInfo {
    /// Its number.
    pub pid: Pid,
    /// The name of its main thread, at most 15 bytes.
    pub name: String,
    /// What it is doing.
    pub state: ProcessState,
    /// Its parent; `None` when that is outside the pid namespace.
    pub parent: Option<Pid>,
    /// Its process group.
    pub group: Option<Pid>,
    /// When it was made, in clock ticks since the machine started. With the pid it names a process
    /// for ever: a number can come back, a start time cannot.
    pub start_time: u64,
}

/// The state letter of a process.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub enum ProcessState {
    /// `R`: on a core or waiting for one.
    Running,
    /// `S`: sleeps, a signal wakes it.
    Sleeping,
    /// `D`: sleeps in the kernel, no signal wakes it.
    Uninterruptible,
    /// `T`: stopped by a signal.
    Stopped,
    /// `t`: stopped by a tracer.
    Traced,
    /// `Z` or `X`: has ended and is not reaped.
    Zombie,
    /// Any other letter.
    Other(char),
}

impl ProcessState {
    fn from_letter(letter: char) -> Self {
        match letter {
            'R' => Self::Running,
            'S' | 'I' => Self::Sleeping,
            'D' => Self::Uninterruptible,
            'T' => Self::Stopped,
            't' => Self::Traced,
            'Z' | 'X' | 'x' => Self::Zombie,
            other => Self::Other(other),
        }
    }
}

impl fmt::Display for ProcessState {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Running => "running",
            Self::Sleeping => "sleeping",
            Self::Uninterruptible => "in uninterruptible sleep",
            Self::Stopped => "stopped",
            Self::Traced => "stopped by a tracer",
            Self::Zombie => "ended",
            Self::Other(letter) => return write!(f, "in state {letter}"),
        })
    }
}

impl ProcessInfo {
    /// Reads `/proc/PID/stat`.
    ///
    /// # Errors
    ///
    /// [`io::ErrorKind::NotFound`] when there is no such process; [`io::ErrorKind::InvalidData`]
    /// when the line is not as the kernel documents it.
    pub fn of(pid: Pid) -> io::Result<Self> {
        let stat = fs::read(format!("/proc/{pid}/stat"))?;
        Self::parse(&String::from_utf8_lossy(&stat))
            .ok_or_else(|| io::Error::new(io::ErrorKind::InvalidData, "malformed /proc stat line"))
    }

    /// Whether this is still the process that has this number now.
    pub fn is_current(&self) -> bool {
        Self::of(self.pid).is_ok_and(|now| now.is_same(self))
    }

    /// Whether both are about the same process, at whatever moments.
    pub fn is_same(&self, other: &Self) -> bool {
        (self.pid, self.start_time) == (other.pid, other.start_time)
    }

    /// `pid (name) state ppid pgrp …`; the name may contain anything, so that its end is the
    /// *last* closing parenthesis.
    pub(crate) fn parse(stat: &str) -> Option<Self> {
        let (pid, rest) = stat.split_once(" (")?;
        let (name, rest) = rest.rsplit_once(") ")?;
        let fields: Vec<&str> = rest.split_ascii_whitespace().collect();
        let number = |at: usize| fields.get(at)?.parse().ok();
        Some(Self {
            pid: Pid::new(pid.parse().ok()?)?,
            name: name.to_owned(),
            state: ProcessState::from_letter(fields.first()?.chars().next()?),
            parent: Pid::new(number(1)?),
            group: Pid::new(number(2)?),
            start_time: fields.get(START_TIME)?.parse().ok()?,
        })
    }
}

/// Field 22 of `proc(5)`, counted from the state, which is field 3.
const START_TIME: usize = 22 - 3;

/// Every process that this one can see. In no order, and not of one moment.
pub(crate) fn all() -> io::Result<Vec<ProcessInfo>> {
    let pids = numbers("/proc")?;
    Ok(pids
        .into_iter()
        .filter_map(|pid| ProcessInfo::of(pid).ok())
        .collect())
}

/// The threads of a process, in order of their numbers.
pub(crate) fn threads(pid: Pid) -> io::Result<Vec<Pid>> {
    let mut tids = numbers(&format!("/proc/{pid}/task"))?;
    tids.sort_unstable();
    Ok(tids)
}

fn numbers(folder: &str) -> io::Result<Vec<Pid>> {
    let entries = fs::read_dir(folder)?;
    let numbers = entries.filter_map(|entry| entry.ok()?.file_name().to_str()?.parse().ok());
    Ok(numbers.filter_map(Pid::new).collect())
}

#[cfg(test)]
mod tests;
