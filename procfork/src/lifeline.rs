//! This process's own death word: made once, owned until the process ends.
//!
//! A forked process has the page that its parent made for it. The first process of a tree makes
//! one when it forks its first child. A process that *spawns* needs a page that can be handed to
//! another program by descriptor, and makes one in a memory file; it keeps that one descriptor
//! open, close-on-exec, so that programs further down can find the page too.

use std::fs::{self, File};
use std::io;
use std::os::fd::{AsFd as _, AsRawFd as _, BorrowedFd};
use std::os::unix::fs::MetadataExt as _;

use crate::death_word::DeathWord;
use crate::keeper;
use crate::pid::Pid;
use crate::sync::{Mutex, lock};
use crate::sys::memory::memory_file;
use crate::sys::page::{LifePage, PAGE_BYTES};
use crate::sys::process::this_tid;

/// A page that this process owns.
#[derive(Clone, Copy)]
struct Owned {
    page: &'static LifePage,
    /// The thread that owns the word.
    owner: Pid,
}

struct Own {
    /// The process that made this entry: a child forked by other means inherits the static but
    /// not the ownership.
    pid: Pid,
    inherited: Option<Owned>,
    /// That no page can be owned here, which each attempt would leave one for.
    refused: bool,
    shareable: Option<Shareable>,
}

/// A death word of this process that another program can map.
#[derive(Clone, Copy)]
pub(crate) struct Shareable {
    owned: Owned,
    file: &'static File,
    source: PageSource,
}

/// Where a program that was handed no descriptor finds a page: open in its owner.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct PageSource {
    /// The owner.
    pub(crate) pid: Pid,
    /// The descriptor that the owner keeps.
    pub(crate) fd: i32,
    /// The file behind it, to tell it from another of the same number.
    pub(crate) inode: u64,
    /// The thread that owns the word.
    pub(crate) owner: Pid,
}

static OWN: Mutex<Option<Own>> = Mutex::new(None);

/// The word that forked children of this process watch; made at the first call, by the calling
/// thread.
///
/// `None` where robust mutexes are not as expected: liveness then rests on the other layers.
pub(crate) fn own_word() -> Option<DeathWord<'static>> {
    with_own(|own| {
        let spare = own.shareable.map(|shareable| shareable.owned);
        if own.inherited.or(spare).is_none() && !own.refused {
            own.inherited = take(LifePage::anonymous().ok()?);
            own.refused = own.inherited.is_none();
        }
        own.inherited.or(spare).map(Owned::word)
    })
}

/// The word that spawned children of this process watch; made at the first call.
pub(crate) fn shareable() -> Option<Shareable> {
    if let Some(shareable) = with_own(|own| own.shareable) {
        return Some(shareable);
    }
    let made = keeper::run(make_shareable).ok()?.ok()?;
    with_own(|own| Some(*own.shareable.get_or_insert(made)))
}

/// Where programs further down find the page of this process, if it has made one for them.
pub(crate) fn known_source() -> Option<PageSource> {
    with_own(|own| own.shareable.map(|shareable| shareable.source))
}

/// The page that the parent made for this process becomes its own, from the calling thread.
/// Returns it for the last words.
pub(crate) fn adopt(page: LifePage) -> &'static LifePage {
    let page = leak(page);
    // Where the word cannot be owned the page still carries the last words.
    let inherited = own(page);
    *lock(&OWN) = Some(Own {
        pid: Pid::this(),
        inherited,
        refused: inherited.is_none(),
        shareable: None,
    });
    page
}

/// Maps the page of another process, for as long as this one lives.
pub(crate) fn map(fd: BorrowedFd<'_>, owner: Pid) -> Option<DeathWord<'static>> {
    let page = leak(LifePage::of(fd).ok()?);
    Some(DeathWord::new(page.word(), owner))
}

impl Shareable {
    pub(crate) fn word(&self) -> DeathWord<'static> {
        self.owned.word()
    }

    pub(crate) fn fd(&self) -> BorrowedFd<'static> {
        self.file.as_fd()
    }
}

impl PageSource {
    /// Opens the page in its owner and maps it; `None` when it is gone or may not be opened.
    pub(crate) fn map(&self) -> Option<DeathWord<'static>> {
        let path = format!("/proc/{}/fd/{}", self.pid, self.fd);
        let file = fs::OpenOptions::new()
            .read(true)
            .write(true)
            .open(path)
            .ok()?;
        let found = file.metadata().ok()?.ino() == self.inode;
        found.then(|| map(file.as_fd(), self.owner))?
    }
}

impl Owned {
    fn word(self) -> DeathWord<'static> {
        DeathWord::new(self.page.word(), self.owner)
    }
}

fn with_own<T>(f: impl FnOnce(&mut Own) -> Option<T>) -> Option<T> {
    let mut own = lock(&OWN);
    let this = Pid::this();
    let current = own.take().filter(|own| own.pid == this);
    f(own.insert(current.unwrap_or(Own {
        pid: this,
        inherited: None,
        refused: false,
        shareable: None,
    })))
}

/// On a thread that lasts.
fn make_shareable() -> io::Result<Shareable> {
    let file = memory_file(c"procfork-life", PAGE_BYTES)?;
    let owned = take(LifePage::of(file.as_fd())?).ok_or(io::ErrorKind::Unsupported)?;
    let source = PageSource {
        pid: Pid::this(),
        fd: file.as_raw_fd(),
        inode: file.metadata()?.ino(),
        owner: owned.owner,
    };
    Ok(Shareable {
        owned,
        file: Box::leak(Box::new(file)),
        source,
    })
}

fn take(page: LifePage) -> Option<Owned> {
    own(leak(page))
}

fn own(page: &'static LifePage) -> Option<Owned> {
    page.own().ok()?;
    Some(Owned {
        page,
        owner: this_tid(),
    })
}

/// The page stays mapped until the process ends: the kernel will walk through it then.
fn leak(page: LifePage) -> &'static LifePage {
    Box::leak(Box::new(page))
}
