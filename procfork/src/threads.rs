//! May this process fork: has it exactly one thread?
//!
//! A fork copies one thread and all of the memory. A lock that another thread held at that moment
//! stays locked in the child for ever, the allocator's included, so that a fork of a process with
//! several threads works until it hangs. The check is refused early and tells which threads.

use std::fmt;
use std::fs;
use std::io;
use std::os::unix::fs::MetadataExt;
use std::time::{Duration, Instant};

use crate::pid::Pid;
use crate::sys::process::{self, yield_now};

/// A thread of the calling process.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct ThreadName {
    /// Its number.
    pub tid: Pid,
    /// Its name as the kernel shows it.
    pub name: String,
}

impl fmt::Display for ThreadName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} ({})", self.name, self.tid)
    }
}

/// Proof that the calling thread is the only one of its process. Not to be sent anywhere: it is
/// used by the caller at once.
pub(crate) struct Alone {
    _not_send: std::marker::PhantomData<*const ()>,
}

/// Why there is no proof.
pub(crate) enum NotAlone {
    /// These threads run beside the calling one.
    Others(Vec<ThreadName>),
    /// `/proc` could not be read.
    Unknown(io::Error),
}

/// A thread that has been joined may still be on its way out of the kernel, without any lock.
const LEAVING: Duration = Duration::from_millis(20);

/// Whether the calling thread is the only one of its process, which is what [`fork`](crate::fork()) asks for. One short
/// system call when it is; false also when that cannot be found out.
pub fn is_single_threaded() -> bool {
    process::has_one_thread() || one_task().unwrap_or(false)
}

/// Checks that the calling thread is alone. One short system call when it is.
pub(crate) fn alone() -> Result<Alone, NotAlone> {
    let proof = Alone {
        _not_send: std::marker::PhantomData,
    };
    if process::has_one_thread() {
        return Ok(proof);
    }
    let give_up = Instant::now() + LEAVING;
    while !one_task().map_err(NotAlone::Unknown)? {
        if Instant::now() >= give_up {
            return Err(others().map_or_else(NotAlone::Unknown, NotAlone::Others));
        }
        yield_now();
    }
    Ok(proof)
}

/// The directory has one link for itself, one for its parent and one for each thread.
fn one_task() -> io::Result<bool> {
    fs::metadata(TASKS).map(|tasks| tasks.nlink() == 3)
}

fn others() -> io::Result<Vec<ThreadName>> {
    let this = process::this_tid();
    let tids = fs::read_dir(TASKS)?.filter_map(|entry| {
        entry
            .ok()?
            .file_name()
            .to_str()?
            .parse()
            .ok()
            .and_then(Pid::new)
    });
    Ok(tids.filter(|tid| *tid != this).map(named).collect())
}

fn named(tid: Pid) -> ThreadName {
    let name = fs::read_to_string(format!("{TASKS}/{tid}/comm")).unwrap_or_default();
    ThreadName {
        tid,
        name: name.trim_end().to_owned(),
    }
}

const TASKS: &str = "/proc/self/task";
