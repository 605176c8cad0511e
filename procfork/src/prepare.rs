//! What both ways of making a child refuse, check and prepare.

use std::ffi::{CString, OsStr, OsString};
use std::io;
use std::os::fd::AsRawFd as _;
use std::os::unix::ffi::OsStrExt as _;
use std::time::SystemTime;

use crate::death_word::DeathWord;
use crate::lifeline;
use crate::options::{ForkOptions, Group};
use crate::pid::Pid;
use crate::sweep::MARK;
use crate::sys::signals;
use crate::threads::ThreadName;
use crate::watch::{Lineage, ParentWatch};

/// Why a child could not be started. Nothing of it is left.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum StartError {
    /// The process has other threads, whose locks the child would inherit without the threads.
    #[error(
        "start child {child}: the process has other threads ({}); fork before starting them, stop \
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
        "start child {child}: SIGCHLD is ignored in this process, so that the kernel would discard \
         how the child ends; set it to the default first"
    )]
    ChildrenDiscarded {
        /// The child that was to be.
        child: String,
    },
    /// The name has a zero byte, which no process name can have.
    #[error("start child {child:?}: a process name has no zero byte")]
    BadName {
        /// The name.
        child: String,
    },
    /// No function of this name is registered in the program.
    #[error(
        "start child {child}: no function {function:?} is registered; there are: {}",
        names(known)
    )]
    UnknownFunction {
        /// The child that was to be.
        child: String,
        /// The name that was asked for.
        function: String,
        /// The names that are registered, sorted.
        known: Vec<&'static str>,
    },
    /// Several functions are registered under this name, so that none can be meant.
    #[error("start child {child}: function {function:?} is registered {} times: {}", places.len(), names(places))]
    DuplicateFunction {
        /// The child that was to be.
        child: String,
        /// The name that was asked for.
        function: String,
        /// Where, as file and line.
        places: Vec<String>,
    },
    /// This code is in a shared library, so that the program would not reach it when started again.
    #[error(
        "start child {child}: this code is in a shared library and not in the program itself, which \
         would do its own work when it is started again; fork the child instead"
    )]
    NotInProgram {
        /// The child that was to be.
        child: String,
    },
    /// The group to join is gone, or not one of this session.
    #[error("start child {child}: join process group {group}, which no process of ours is in")]
    GroupGone {
        /// The child that was to be.
        child: String,
        /// The group.
        group: Pid,
        /// What the kernel said.
        source: io::Error,
    },
    /// A step failed in the kernel.
    #[error("start child {child}: {step}")]
    System {
        /// The child that was to be.
        child: String,
        /// What was attempted.
        step: &'static str,
        /// What the kernel said.
        source: io::Error,
    },
}

/// What is refused whichever way the child is made.
pub(crate) fn check(options: &ForkOptions<'_>) -> Result<(), StartError> {
    let child = || options.name.clone();
    if options.name.contains('\0') {
        return Err(StartError::BadName { child: child() });
    }
    match signals::children_reap_themselves() {
        Ok(false) => Ok(()),
        Ok(true) => Err(StartError::ChildrenDiscarded { child: child() }),
        Err(source) => Err(system(options, "read the disposition of SIGCHLD", source)),
    }
}

/// A process that was started without 0, 1 or 2 gets these numbers for its own descriptors; the
/// child's streams would then overwrite what it was given.
pub(crate) fn lift_above_streams(options: &mut ForkOptions<'_>) -> Result<(), StartError> {
    for index in 0..options.given.len() {
        if options.given[index].as_raw_fd() < 3 {
            let lifted = options.given[index].try_clone();
            options.given[index] = lifted.map_err(|e| system(options, "move a descriptor", e))?;
        }
    }
    Ok(())
}

/// Where the child will stand: the maker of a group is the root of the tree in it. The word is
/// that of this process.
pub(crate) fn lineage(group: Group, own_word: Option<DeathWord<'static>>) -> Lineage {
    let here = ParentWatch::current();
    let here = here.as_ref().map(ParentWatch::lineage);
    let tree = here.and_then(|here| here.tree);
    let own_root = Lineage {
        parent: Pid::this(),
        parent_word: own_word,
        parent_is_root: true,
        root_word: own_word,
        root_source: lifeline::known_source(),
        // The child fills in its own number when it leads the group.
        tree: None,
    };
    let inherited = here.map_or(own_root, |here| Lineage {
        parent_is_root: false,
        root_word: here.root_word,
        root_source: here.root_source,
        tree,
        ..own_root
    });
    match group {
        Group::Inherit => inherited,
        Group::Join(group) if tree == Some(group) => inherited,
        Group::Join(group) => Lineage {
            tree: Some(group),
            ..own_root
        },
        Group::New => own_root,
    }
}

/// A mark for one child, unlike any other of this machine's present run: no two children of one
/// process are made in the same nanosecond.
pub(crate) fn mark() -> String {
    let now = SystemTime::now()
        .duration_since(SystemTime::UNIX_EPOCH)
        .unwrap_or_default();
    format!("{}.{}", Pid::this(), now.as_nanos())
}

/// The marks of a child and of its ancestors, for its environment.
pub(crate) fn ancestors(mark: &str) -> OsString {
    let mut marks = std::env::var_os(OsStr::from_bytes(MARK.to_bytes())).unwrap_or_default();
    marks.push("/");
    marks.push(mark);
    marks
}

/// The setting of the environment that says so. `None` where an environment cannot hold it.
pub(crate) fn ancestry(mark: &str) -> Option<CString> {
    let mut setting = MARK.to_bytes().to_vec();
    setting.push(b'=');
    setting.extend_from_slice(ancestors(mark).as_bytes());
    CString::new(setting).ok()
}

pub(crate) fn system(
    options: &ForkOptions<'_>,
    step: &'static str,
    source: io::Error,
) -> StartError {
    StartError::System {
        child: options.name.clone(),
        step,
        source,
    }
}

fn list(threads: &[ThreadName]) -> String {
    let names: Vec<String> = threads.iter().map(ToString::to_string).collect();
    names.join(", ")
}

fn names<T: AsRef<str>>(names: &[T]) -> String {
    let names: Vec<&str> = names.iter().map(AsRef::as_ref).collect();
    if names.is_empty() {
        "none".to_owned()
    } else {
        names.join(", ")
    }
}
