//! This process's own death word: made once, owned until the process ends.

use crate::death_word::DeathWord;
use crate::pid::Pid;
use crate::sync::{Mutex, lock};
use crate::sys::page::LifePage;
use crate::sys::process::this_tid;

struct Own {
    /// The process that made this entry: a child forked by other means inherits the static but
    /// not the ownership.
    pid: Pid,
    /// The thread that owns the word.
    owner: Pid,
    page: &'static LifePage,
}

static OWN: Mutex<Option<Own>> = Mutex::new(None);

/// The word that children of this process watch; made at the first call, by the calling thread.
///
/// `None` where robust mutexes are not as expected: liveness then rests on the other layers.
pub(crate) fn own_word() -> Option<DeathWord<'static>> {
    let mut own = lock(&OWN);
    let this = Pid::this();
    if own.as_ref().is_none_or(|own| own.pid != this) {
        let page = LifePage::anonymous().ok()?;
        *own = take(page);
    }
    own.as_ref()
        .map(|own| DeathWord::new(own.page.word(), own.owner))
}

/// The page that the parent made for this process becomes its own, from the calling thread.
/// Returns it for the last words.
pub(crate) fn adopt(page: LifePage) -> &'static LifePage {
    let page = leak(page);
    // Where the word cannot be owned the page still carries the last words.
    *lock(&OWN) = own(page);
    page
}

fn take(page: LifePage) -> Option<Own> {
    own(leak(page))
}

fn own(page: &'static LifePage) -> Option<Own> {
    page.own().ok()?;
    Some(Own {
        pid: Pid::this(),
        owner: this_tid(),
        page,
    })
}

/// The page stays mapped until the process ends: the kernel will walk through it then.
fn leak(page: LifePage) -> &'static LifePage {
    Box::leak(Box::new(page))
}
