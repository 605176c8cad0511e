//! Forking, the parent's side.
//!
//! ```text
//! parent                                   child (see `birth`)
//! only thread? SIGCHLD kept? else refused
//! own death word, page for the child
//! flush stdout and the C streams
//! block all signals
//! fork -------------------------------->   death signal, is the parent still there
//! pidfd, group (both sides set it)         group, dispositions, descriptors, name
//! hide the page from later children        own the page's death word
//! signal mask as before                    signal mask empty
//! close what was given away                the function; its result or panic; _exit
//! ```
//!
//! Both sides set the group, because either may need it first. Signals are blocked over the fork
//! so that no handler of the parent runs in the child before it is reset.

use std::io::{self, Write as _};
use std::os::fd::OwnedFd;

use crate::birth::{self, Birth};
use crate::child::{Child, Made};
use crate::context::ChildContext;
use crate::ending::Ending;
use crate::lifeline;
use crate::options::{ForkOptions, Group};
use crate::pid::Pid;
use crate::prepare::{self, StartError, system};
use crate::sys::page::LifePage;
use crate::sys::process::{self, Side};
use crate::sys::signals::Mask;
use crate::threads::{self, Alone, NotAlone};

/// `fork()`: makes a child that runs `f` and ends with it.
///
/// The child has a copy of the parent's memory and nothing else of it: only the descriptors it was
/// given, default signal dispositions (`SIGPIPE` ignored, as in every Rust program), an empty
/// signal mask, and a name. It never returns into the caller's frames: the result of `f`
/// becomes its exit code, a panic becomes [`exit_code::PANICKED`](crate::exit_code::PANICKED), and
/// it leaves with `_exit`, so that no exit handler, destructor or buffer of the parent runs twice.
/// What it prints itself is flushed.
///
/// `f` is dropped in the parent without being called, and with it what it captured. In the child a
/// captured descriptor that is not listed in the options is closed; dropping its owner there
/// aborts in debug builds.
///
/// # Errors
///
/// See [`StartError`]. A failure of the child to set itself up comes later, as
/// [`exit_code::SETUP_FAILED`](crate::exit_code::SETUP_FAILED).
///
/// # Cost
///
/// That of `fork`, which grows with the resident memory (some 20 us per MiB), and about ten cheap
/// system calls. The parent then pays a page fault for each page it changes while the child lives.
pub fn fork<F, R>(options: ForkOptions<'_>, f: F) -> Result<Child, StartError>
where
    F: FnOnce(ChildContext) -> R,
    R: Ending,
{
    let mut options = options;
    prepare::check(&options)?;
    let alone = only_thread(&options)?;
    prepare::lift_above_streams(&mut options)?;
    let page = LifePage::anonymous().map_err(|e| system(&options, "map its page", e))?;
    let lineage = prepare::lineage(options.group, lifeline::own_word());
    let mark = prepare::mark();
    let ancestry = prepare::ancestry(&mark);
    flush();
    let mask = Mask::full()
        .install()
        .map_err(|e| system(&options, "block signals", e))?;
    let child = match process::fork(&alone) {
        Ok(Side::Child) => birth::run(
            Birth {
                options,
                page,
                lineage,
                ancestry,
            },
            f,
        ),
        Ok(Side::ParentOf(pid)) => adopt(pid, &options, page, mark),
        Err(source) => Err(system(&options, "duplicate the process", source)),
    };
    // The mask was valid when it was read, so that putting it back cannot fail.
    let _ = mask.install();
    child
}

fn only_thread(options: &ForkOptions<'_>) -> Result<Alone, StartError> {
    threads::alone().map_err(|error| match error {
        NotAlone::Others(threads) => StartError::OtherThreads {
            child: options.name.clone(),
            threads,
        },
        NotAlone::Unknown(source) => system(options, "count the threads in /proc", source),
    })
}

/// What is buffered must be written once: by the parent, now.
///
/// A stream that cannot be written (a closed pipe) would fail in the same way in the child.
fn flush() {
    let _ = io::stdout().flush();
    process::flush_c_streams();
}

/// The parent's half of the child's start. On failure the child is killed and reaped.
fn adopt(
    pid: Pid,
    options: &ForkOptions<'_>,
    page: LifePage,
    mark: String,
) -> Result<Child, StartError> {
    match open(pid, options, &page) {
        Ok((pidfd, group)) => Ok(Child::new(
            Made {
                name: options.name.clone(),
                mark,
                pid,
                pidfd,
                page,
            },
            group,
        )),
        Err(error) => {
            process::kill_and_reap(pid);
            Err(error)
        }
    }
}

fn open(
    pid: Pid,
    options: &ForkOptions<'_>,
    page: &LifePage,
) -> Result<(OwnedFd, Option<Pid>), StartError> {
    let pidfd = process::open_pidfd(pid).map_err(|e| system(options, "open its pidfd", e))?;
    let group = set_group(pid, options)?;
    page.hide_from_children()
        .map_err(|e| system(options, "keep its page to itself", e))?;
    Ok((pidfd, group))
}

/// Puts the child into its group, as the child does too; the group, unless inherited.
fn set_group(pid: Pid, options: &ForkOptions<'_>) -> Result<Option<Pid>, StartError> {
    let target = match options.group {
        Group::Inherit => return Ok(None),
        Group::New => pid,
        Group::Join(group) => group,
    };
    match process::set_group(pid, target) {
        // The child has executed another program already, after it did this itself.
        Err(error) if error.raw_os_error() == Some(libc::EACCES) => Ok(Some(target)),
        Err(source) => Err(match options.group {
            Group::Join(group) => StartError::GroupGone {
                child: options.name.clone(),
                group,
                source,
            },
            _ => system(options, "make its process group", source),
        }),
        Ok(()) => Ok(Some(target)),
    }
}
