//! Stopping each thread for a moment and copying its registers and its stack.

use std::fs;
use std::io;
use std::thread;
use std::time::{Duration, Instant};

use super::Limits;
use super::report::{StackEnd, ThreadDump, Unreadable, Way};
use super::unwind::AddressSpace;
use crate::pid::Pid;
use crate::proc::{self, ProcessInfo, ProcessState};
use crate::sys::ptrace::{self, Registers, Stop, Traced};

/// What was copied of a process.
pub(super) struct Captured {
    pub(super) way: Way,
    pub(super) threads: Vec<CapturedThread>,
    pub(super) not_read: usize,
    /// Its memory map, when the process itself had to tell it.
    pub(super) maps: Option<String>,
}

/// What was copied of a thread.
pub(super) struct CapturedThread {
    pub(super) tid: Pid,
    name: String,
    state: ProcessState,
    waits_in: Option<String>,
    pub(super) stack: Result<Snapshot, Unreadable>,
}

/// Registers, and the stack from the stack pointer upwards.
pub(super) struct Snapshot {
    pub(super) registers: Registers,
    pub(super) bytes: Vec<u8>,
}

/// Reads every thread of a process from outside.
///
/// On a thread of its own: if one does not stop in time it cannot be let go of either, and the
/// end of the tracing thread does that.
pub(super) fn threads(process: &ProcessInfo, limits: &Limits) -> Captured {
    let reader = || read_all(process, limits);
    thread::scope(|scope| scope.spawn(reader).join()).unwrap_or_else(|_| Captured {
        way: Way::Unreadable,
        threads: Vec::new(),
        not_read: 0,
        maps: None,
    })
}

fn read_all(process: &ProcessInfo, limits: &Limits) -> Captured {
    let tids = proc::threads(process.pid).unwrap_or_default();
    let read = |tid: &Pid| {
        // Before it is stopped: a stop changes the state.
        let mut thread = CapturedThread::describe(process.pid, *tid);
        if process.state != ProcessState::Zombie {
            thread.stack = read_stack(process.pid, *tid, limits);
        }
        thread
    };
    let threads: Vec<CapturedThread> = tids.iter().take(limits.threads).map(read).collect();
    let any = threads.iter().any(|thread| thread.stack.is_ok());
    let way = if any { Way::Outside } else { Way::Unreadable };
    Captured {
        way,
        threads,
        not_read: tids.len().saturating_sub(limits.threads),
        maps: None,
    }
}

/// Stops the thread, copies, lets it go.
fn read_stack(pid: Pid, tid: Pid, limits: &Limits) -> Result<Snapshot, Unreadable> {
    let deadline = Instant::now() + limits.per_thread;
    let traced = Traced::seize(tid).map_err(|error| why("seize it", error))?;
    traced
        .interrupt()
        .map_err(|error| why("interrupt it", error))?;
    let stop = wait_for_stop(&traced, deadline)?;
    let snapshot = copy(pid, &traced, limits);
    let detached = traced
        .detach(stop)
        .map_err(|error| why("let go of it", error));
    let snapshot = snapshot.map_err(|error| why("read its registers", error))?;
    detached.map(|()| snapshot)
}

/// It stops within microseconds, unless it hangs in the kernel. There is no wait with a deadline
/// for this, hence the short sleeps, which grow.
fn wait_for_stop(traced: &Traced, deadline: Instant) -> Result<Stop, Unreadable> {
    let mut pause = Duration::from_micros(20);
    loop {
        match traced.stop() {
            Ok(Some(stop)) => return Ok(stop),
            Ok(None) if Instant::now() >= deadline => return Err(Unreadable::NoAnswer),
            Ok(None) => thread::sleep(pause),
            Err(error) => return Err(why("wait for its stop", error)),
        }
        pause = (pause * 2).min(Duration::from_millis(2));
    }
}

/// The stack of a thread that told its registers itself.
///
/// After an overflow the stack pointer is in what is not mapped below the stack: zeros stand for it.
pub(super) fn at(pid: Pid, registers: Registers, limits: &Limits) -> Snapshot {
    let to_page_end = PAGE - registers.sp as usize % PAGE;
    let gaps = std::iter::once(0).chain((0..GUARD_PAGES).map(|pages| to_page_end + pages * PAGE));
    let read = |gap: usize| {
        let start = registers.sp.saturating_add(gap as u64);
        let stack = stack_bytes(pid, start, limits.stack_bytes.saturating_sub(gap));
        (!stack.is_empty()).then(|| [vec![0; gap], stack].concat())
    };
    let bytes = gaps.into_iter().find_map(read).unwrap_or_default();
    Snapshot { registers, bytes }
}

fn copy(pid: Pid, traced: &Traced, limits: &Limits) -> io::Result<Snapshot> {
    Ok(at(pid, traced.registers()?, limits))
}

/// Memory from an address upwards, until the limit or the end of what is mapped.
fn stack_bytes(pid: Pid, start: u64, limit: usize) -> Vec<u8> {
    let mut bytes = vec![0; limit];
    let mut filled = 0;
    while filled < limit {
        // To the end of a page first: a read that runs into an unmapped page may give nothing.
        let at = start.saturating_add(filled as u64);
        let to_page_end = PAGE - at as usize % PAGE;
        let piece = if filled == 0 { to_page_end } else { PIECE };
        let end = limit.min(filled + piece);
        match ptrace::read_memory(pid, at, &mut bytes[filled..end]) {
            Ok(count) if count > 0 => filled += count,
            _ => break,
        }
    }
    bytes.truncate(filled);
    bytes
}

/// How far below a stack that is full its pointer is looked for.
const GUARD_PAGES: usize = 16;

const PAGE: usize = 4096;
const PIECE: usize = 16 * PAGE;

fn why(step: &str, error: io::Error) -> Unreadable {
    match error.raw_os_error() {
        Some(libc::ESRCH | libc::ECHILD) => Unreadable::Ended,
        Some(libc::EPERM | libc::EACCES | libc::ENOSYS) => {
            Unreadable::NotPermitted(format!("to {step}: {error}"))
        }
        _ => Unreadable::Failed(format!("failed to {step}: {error}")),
    }
}

impl CapturedThread {
    /// What `/proc` says about the thread.
    fn describe(pid: Pid, tid: Pid) -> Self {
        let folder = format!("/proc/{pid}/task/{tid}");
        let stat = fs::read_to_string(format!("{folder}/stat")).unwrap_or_default();
        let info = ProcessInfo::parse(&stat);
        let waits_in = fs::read_to_string(format!("{folder}/wchan")).ok();
        Self {
            tid,
            state: info
                .as_ref()
                .map_or(ProcessState::Zombie, |info| info.state),
            name: info.map(|info| info.name).unwrap_or_default(),
            waits_in: waits_in.filter(|function| !function.is_empty() && function != "0"),
            stack: Err(Unreadable::Ended),
        }
    }

    /// Unwinds and names the frames.
    pub(super) fn explain(self, space: &AddressSpace, limit: usize) -> ThreadDump {
        let Self {
            tid,
            name,
            state,
            waits_in,
            stack,
        } = self;
        let (frames, end) = match stack {
            Ok(snapshot) => space.frames(&snapshot, limit),
            Err(why) => (Vec::new(), StackEnd::Unreadable(why)),
        };
        ThreadDump {
            tid,
            name,
            state,
            waits_in,
            frames,
            end,
        }
    }
}
