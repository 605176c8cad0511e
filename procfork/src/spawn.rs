//! Spawning: the same program started again, for programs that cannot fork.
//!
//! ```text
//! parent                                     child
//! the function is registered once?
//! memory file: the child's page, the record
//! posix_spawn /proc/self/exe ------------>   the loader, then the constructor of `sys::spawn`:
//!   group, mask, dispositions, streams         finds the marker in the environment, takes it out
//!   and inherited descriptors by the kernel    reads the record, arms the death signal,
//!   and the C library, before exec             is the parent still there
//! pidfd                                        closes what it was not given, name, page
//!                                              the registered function; _exit
//! ```
//!
//! Everything happens before `main` of the program: it needs no call there, and works under a
//! `main` that somebody else wrote (the standard test harness, an async runtime). The price is that
//! constructors of the program that the linker put behind this one have not run: the C++
//! globals of objects that are linked *into the program*. Those of shared libraries have.
//!
//! A spawned child costs the same from a parent of any size: nothing of its memory is copied.

use std::env;
use std::ffi::{CStr, CString, OsStr, OsString};
use std::fs::{self, File};
use std::io;
use std::os::fd::{AsFd as _, AsRawFd as _, OwnedFd, RawFd};
use std::os::unix::ffi::{OsStrExt as _, OsStringExt as _};
use std::os::unix::fs::FileExt as _;

use crate::birth;
use crate::boot::Boot;
use crate::child::{Child, Made};
use crate::keeper;
use crate::lifeline::{self, Shareable};
use crate::options::{ForkOptions, Group};
use crate::pid::Pid;
use crate::prepare::{self, StartError, system};
use crate::registry;
use crate::signal::Signal;
use crate::sweep::MARK;
use crate::sys;
use crate::sys::memory::memory_file;
use crate::sys::page::{LifePage, PAGE_BYTES};
use crate::sys::process;
use crate::sys::spawn::{Program, is_in_program};

/// Starts this program again as a child that runs a registered function and ends with it.
///
/// The same [`Child`] and the same guarantees as after a [`fork`](crate::fork()), from any thread of
/// any process. The function is named by [`register!`](crate::register); it finds the bytes of
/// `args` in its [`ChildContext`](crate::ChildContext). Descriptors that are given or kept have the
/// same numbers in the child.
///
/// From a thread that is not the main one, the child is made by a keeper thread, which lasts; the
/// process cannot [`fork`](crate::fork()) after that. The child has the CPUs and the nice value of
/// the calling thread all the same; what else the kernel keeps by thread is that of the first caller
/// with this nice value. A process that spawns keeps
/// one descriptor of its own open, for its children to watch it by.
///
/// # Errors
///
/// See [`StartError`].
///
/// # Cost
///
/// That of `posix_spawn`: about half a millisecond until the function runs, whatever the size of
/// the parent.
pub fn spawn(options: ForkOptions<'_>, function: &str, args: &[u8]) -> Result<Child, StartError> {
    let mut options = options;
    prepare::check(&options)?;
    registry::find(&options, function)?;
    if !is_in_program() {
        return Err(StartError::NotInProgram {
            child: options.name,
        });
    }
    prepare::lift_above_streams(&mut options)?;
    let own = lifeline::shareable();
    let boot = boot(&options, own, function, args);
    let (file, page) = store(&boot).map_err(|e| system(&options, "write its record", e))?;
    let mark = prepare::mark();
    let order = Order::new(&mut options, &boot, &file, &mark);
    let order = order.map_err(|e| system(&options, "describe its program", e))?;
    let started = keeper::run(move || order.start());
    let pid = started.map_err(|e| system(&options, "start the keeper thread", e))?;
    let pid = pid.map_err(|source| refused(&options, source))?;
    match process::open_pidfd(pid) {
        Ok(pidfd) => {
            let group = match options.group {
                Group::Inherit => None,
                Group::New => Some(pid),
                Group::Join(group) => Some(group),
            };
            Ok(Child::new(
                Made {
                    name: options.name,
                    mark,
                    pid,
                    pidfd,
                    page,
                },
                group,
            ))
        }
        Err(source) => {
            process::kill_and_reap(pid);
            Err(system(&options, "open its pidfd", source))
        }
    }
}

/// The variable whose value is the number of the memory file.
pub(crate) const MARKER: &CStr = c"PROCFORK_SPAWNED";

/// In the constructor of a program that has the marker: becomes the child, if the marker is true.
pub(crate) fn begin(marker: &OsStr) {
    let fd = marker.to_str().and_then(|text| text.parse::<RawFd>().ok());
    if let Some((boot, page)) = fd.and_then(load) {
        birth::run_spawned(boot, page)
    }
    // Not ours: a variable that leaked into some other program, which now runs as it would have.
}

/// The record and the page behind the descriptor, if it is a memory file of ours.
fn load(fd: RawFd) -> Option<(Boot, LifePage)> {
    let behind = fs::read_link(format!("/proc/self/fd/{fd}")).ok()?;
    if !behind.to_str()?.starts_with("/memfd:procfork-boot") {
        return None;
    }
    let file = File::from(sys::spawn::inherited(fd).ok()?);
    let length = usize::try_from(file.metadata().ok()?.len()).ok()?;
    let mut record = vec![0; length.checked_sub(PAGE_BYTES)?];
    file.read_exact_at(&mut record, PAGE_BYTES as u64).ok()?;
    Some((Boot::decode(&record)?, LifePage::of(file.as_fd()).ok()?))
}

fn boot(options: &ForkOptions<'_>, own: Option<Shareable>, function: &str, args: &[u8]) -> Boot {
    let lineage = prepare::lineage(options.group, own.map(|own| own.word()));
    Boot {
        parent: lineage.parent,
        parent_page: own.map(|own| (own.fd().as_raw_fd(), own.word().owner())),
        parent_is_root: lineage.parent_is_root,
        root_page: lineage.root_source,
        tree: lineage.tree,
        leads: options.group == Group::New,
        death_signal: options.death_signal.map_or(0, Signal::number),
        given: options.given.iter().map(|fd| fd.as_raw_fd()).collect(),
        kept: options.kept.iter().map(|fd| fd.as_raw_fd()).collect(),
        crashes: birth::where_crashes_go(),
        name: options.name.clone(),
        function: function.to_owned(),
        args: args.to_vec(),
    }
}

fn store(boot: &Boot) -> io::Result<(File, LifePage)> {
    let record = boot.encode();
    let file = memory_file(c"procfork-boot", PAGE_BYTES + record.len())?;
    file.write_all_at(&record, PAGE_BYTES as u64)?;
    let page = LifePage::of(file.as_fd())?;
    page.hide_from_children()?;
    Ok((file, page))
}

/// All that the keeper needs to start the program, owned, so that it can go to that thread.
struct Order {
    args: Vec<CString>,
    env: Vec<CString>,
    streams: [Option<OwnedFd>; 3],
    inherit: Vec<RawFd>,
    group: Option<i32>,
}

impl Order {
    fn new(
        options: &mut ForkOptions<'_>,
        boot: &Boot,
        file: &File,
        mark: &str,
    ) -> io::Result<Self> {
        let program = env::current_exe()?.into_os_string();
        let args = [program, OsString::from(&options.name)].map(terminated);
        let page = boot.parent_page.map(|(fd, _)| fd);
        let crashes = boot.crashes.into_iter().flatten();
        let own = [file.as_raw_fd()].into_iter().chain(page).chain(crashes);
        let group = match options.group {
            Group::Inherit => None,
            Group::New => Some(0),
            Group::Join(group) => Some(group.raw()),
        };
        Ok(Self {
            args: args.into_iter().collect::<io::Result<_>>()?,
            env: environment(file.as_raw_fd(), mark)?,
            streams: std::mem::take(&mut options.streams),
            inherit: own.chain(options.open_numbers()).collect(),
            group,
        })
    }

    fn start(self) -> io::Result<Pid> {
        let program = Program {
            // The file that this process was started from, even if it has been replaced since.
            path: c"/proc/self/exe",
            args: &self.args,
            env: &self.env,
            streams: &self.streams,
            inherit: &self.inherit,
            group: self.group,
        };
        program.start()
    }
}

/// The environment of this process, with the marker and the marks of its line.
fn environment(fd: RawFd, mark: &str) -> io::Result<Vec<CString>> {
    let key = |name: &CStr| OsStr::from_bytes(name.to_bytes()).to_owned();
    let own = [
        (key(MARKER), OsString::from(fd.to_string())),
        (key(MARK), prepare::ancestors(mark)),
    ];
    let others = env::vars_os().filter(|(name, _)| own.iter().all(|(key, _)| key != name));
    let entry = |(mut name, value): (OsString, OsString)| {
        name.push("=");
        name.push(value);
        terminated(name)
    };
    others.chain(own.iter().cloned()).map(entry).collect()
}

fn terminated(text: OsString) -> io::Result<CString> {
    Ok(CString::new(text.into_vec())?)
}

fn refused(options: &ForkOptions<'_>, source: io::Error) -> StartError {
    match (options.group, source.raw_os_error()) {
        (Group::Join(group), Some(libc::EPERM | libc::ESRCH)) => StartError::GroupGone {
            child: options.name.clone(),
            group,
            source,
        },
        _ => system(options, "start the program again", source),
    }
}

#[cfg(test)]
mod tests;
