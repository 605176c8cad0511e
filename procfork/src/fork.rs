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
use std::os::fd::{AsRawFd, OwnedFd};

use crate::birth::{self, Birth};
use crate::child::Child;
use crate::context::ChildContext;
use crate::ending::Ending;
use crate::lifeline;
use crate::options::{ForkOptions, Group};
use crate::pid::Pid;
use crate::sys::page::LifePage;
use crate::sys::process::{self, Side};
use crate::sys::signals::{self, Mask};
use crate::threads::{self, Alone, NotAlone, ThreadName};
use crate::watch::{Lineage, ParentWatch};

/// Why a child could not be forked. Nothing of it is left.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ForkError {
    /// The process has other threads, whose locks the child would inherit without the threads.
    #[error(
        "fork child {child}: the process has other threads ({}); fork before starting them, stop \
         them first, or start the child with spawn, which works from any process",
        list(threads)
    )]
    OtherThreads {
        /// The child that was to be.
        child: String,
        /// The threads besides the calling one.
        threads: Vec<ThreadName>,
    },
    /// `SIGCHLD` is ignored, so that the kernel throws exit statuses away.
    #[error(
        "fork child {child}: SIGCHLD is ignored in this process, so that the kernel would discard \
         how the child ends; set it to the default first"
    )]
    ChildrenDiscarded {
        /// The child that was to be.
        child: String,
    },
    /// The name has a zero byte, which no process name can have.
    #[error("fork child {child:?}: a process name has no zero byte")]
    BadName {
        /// The name.
        child: String,
    },
    /// The group to join is gone, or not one of this session.
    #[error("fork child {child}: join process group {group}, which no process of ours is in")]
    GroupGone {
        /// The child that was to be.
        child: String,
        /// The group.
        group: Pid,
        /// What the kernel said.
        source: io::Error,
    },
    /// A step failed in the kernel.
    #[error("fork child {child}: {step}")]
    System {
        /// The child that was to be.
        child: String,
        /// What was attempted.
        step: &'static str,
        /// What the kernel said.
        source: io::Error,
    },
}

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
/// See [`ForkError`]. A failure of the child to set itself up comes later, as
/// [`exit_code::SETUP_FAILED`](crate::exit_code::SETUP_FAILED).
///
/// # Cost
///
/// That of `fork`, which grows with the resident memory (some 20 us per MiB), and about ten cheap
/// system calls. The parent then pays a page fault for each page it changes while the child lives.
pub fn fork<F, R>(options: ForkOptions<'_>, f: F) -> Result<Child, ForkError>
where
    F: FnOnce(ChildContext) -> R,
    R: Ending,
{
    let mut options = options;
    let alone = check(&options)?;
    lift_above_streams(&mut options)?;
    let page = LifePage::anonymous().map_err(|e| system(&options, "map its page", e))?;
    let lineage = lineage(options.group);
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
            },
            f,
        ),
        Ok(Side::ParentOf(pid)) => adopt(pid, &options, page),
        Err(source) => Err(system(&options, "duplicate the process", source)),
    };
    // The mask was valid when it was read, so that putting it back cannot fail.
    let _ = mask.install();
    child
}

/// Everything that can be refused before anything is made.
fn check(options: &ForkOptions<'_>) -> Result<Alone, ForkError> {
    let child = || options.name.clone();
    if options.name.contains('\0') {
        return Err(ForkError::BadName { child: child() });
    }
    match signals::children_reap_themselves() {
        Ok(false) => {}
        Ok(true) => return Err(ForkError::ChildrenDiscarded { child: child() }),
        Err(source) => return Err(system(options, "read the disposition of SIGCHLD", source)),
    }
    threads::alone().map_err(|error| match error {
        NotAlone::Others(threads) => ForkError::OtherThreads {
            child: child(),
            threads,
        },
        NotAlone::Unknown(source) => system(options, "count the threads in /proc", source),
    })
}

/// A process that was started without 0, 1 or 2 gets these numbers for its own descriptors; the
/// child's streams would then overwrite what it was given.
fn lift_above_streams(options: &mut ForkOptions<'_>) -> Result<(), ForkError> {
    for index in 0..options.given.len() {
        if options.given[index].as_raw_fd() < 3 {
            let lifted = options.given[index].try_clone();
            options.given[index] = lifted.map_err(|e| system(options, "move a descriptor", e))?;
        }
    }
    Ok(())
}

/// Where the child will stand: the maker of a group is the root of the tree in it.
fn lineage(group: Group) -> Lineage {
    let parent = Pid::this();
    let parent_word = lifeline::own_word();
    let inherited = ParentWatch::current();
    let inherited = inherited.as_ref();
    let stays = match group {
        Group::Inherit => true,
        Group::New => false,
        Group::Join(group) => inherited.and_then(ParentWatch::tree) == Some(group),
    };
    match (stays, group) {
        (true, _) => Lineage {
            parent,
            parent_word,
            root_word: inherited.map_or(parent_word, ParentWatch::root_word),
            tree: inherited.and_then(ParentWatch::tree),
        },
        (false, Group::Join(tree)) => Lineage {
            parent,
            parent_word,
            root_word: parent_word,
            tree: Some(tree),
        },
        // The child fills in its own number when it leads the group.
        (false, _) => Lineage {
            parent,
            parent_word,
            root_word: parent_word,
            tree: None,
        },
    }
}

/// What is buffered must be written once: by the parent, now.
///
/// A stream that cannot be written (a closed pipe) would fail in the same way in the child.
fn flush() {
    let _ = io::stdout().flush();
    process::flush_c_streams();
}

/// The parent's half of the child's start. On failure the child is killed and reaped.
fn adopt(pid: Pid, options: &ForkOptions<'_>, page: LifePage) -> Result<Child, ForkError> {
    let adopted = open(pid, options, &page);
    match adopted {
        Ok((pidfd, group)) => Ok(Child::new(options.name.clone(), pid, pidfd, page, group)),
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
) -> Result<(OwnedFd, Option<Pid>), ForkError> {
    let pidfd = process::open_pidfd(pid).map_err(|e| system(options, "open its pidfd", e))?;
    let group = set_group(pid, options)?;
    page.hide_from_children()
        .map_err(|e| system(options, "keep its page to itself", e))?;
    Ok((pidfd, group))
}

/// Puts the child into its group, as the child does too; the group, unless inherited.
fn set_group(pid: Pid, options: &ForkOptions<'_>) -> Result<Option<Pid>, ForkError> {
    let target = match options.group {
        Group::Inherit => return Ok(None),
        Group::New => pid,
        Group::Join(group) => group,
    };
    match process::set_group(pid, target) {
        // The child has executed another program already, after it did this itself.
        Err(error) if error.raw_os_error() == Some(libc::EACCES) => Ok(Some(target)),
        Err(source) => Err(match options.group {
            Group::Join(group) => ForkError::GroupGone {
                child: options.name.clone(),
                group,
                source,
            },
            _ => system(options, "make its process group", source),
        }),
        Ok(()) => Ok(Some(target)),
    }
}

fn system(options: &ForkOptions<'_>, step: &'static str, source: io::Error) -> ForkError {
    ForkError::System {
        child: options.name.clone(),
        step,
        source,
    }
}

fn list(threads: &[ThreadName]) -> String {
    let names: Vec<String> = threads.iter().map(ToString::to_string).collect();
    names.join(", ")
}
