//! Is the parent still there: the child's side of "dies whole".
//!
//! A child must not outlive its parent, however the parent ends. Three layers see to it, and each
//! covers what the one above cannot:
//!
//! | layer | notices after | idle in the kernel | in foreign code |
//! | --- | --- | --- | --- |
//! | [`DeathWord`] of parent and root, sampled or waited on | 0.1 ms | yes | no |
//! | parent-death signal `SIGKILL`, sent by the kernel | as long as the kernel needs to free the parent's memory | yes | yes |
//! | `getppid()` against the pid handed in before the fork, sampled | the same | no | no |
//!
//! When the *root* of a tree is gone, whoever notices first kills the whole process group of the
//! tree at once. That is safe because the caller is a member of the group it signals: children
//! live in the tree's group, the root does not.
//!
//! # The pitfalls of the parent-death signal, and what closes each
//!
//! `prctl(2)` lists them under `PR_SET_PDEATHSIG`; the rest follow from the kernel's source.
//!
//! | pitfall | closed by |
//! | --- | --- |
//! | The parent may die before the child has armed the signal. | After arming, the child compares `getppid()` with the pid handed in from before the fork and asks the death word; if either says gone it ends with [`exit_code::ORPHANED`]. |
//! | "Parent" means the *thread* that created the child. | [`fork`](crate::fork) runs only in a process of one thread, which is the main thread. `spawn` from another thread goes through a keeper thread that never ends. |
//! | It is cleared in the child of a fork. | Every child that procfork makes arms its own. |
//! | It is cleared by exec of a set-user-ID, set-group-ID or capability binary. | Cannot be re-armed from outside; such a program is found by the group kill and by the sweep. |
//! | It is cleared when the effective or file-system user or group id changes, or capabilities are gained (`unshare` or `setns` into a user namespace). | [`ParentWatch::rearm`] after such a change; [`ParentWatch::armed`] reads it back. [`ParentWatch::is_alive`] works without it. |
//! | It is sent again when a subreaper that adopted the child dies. | Harmless: the child is dead by then, and a death signal other than `SIGKILL` is sent for a reason each time. |
//! | A signal can be blocked, ignored or caught. | The default is `SIGKILL`, which cannot. Masks and dispositions are reset before the child's function runs. |
//! | The sender needs the permission to signal the receiver. | A child that raises its privileges escapes the signal, not the check of words and pid. |
//! | It comes only after the parent's memory is freed. | The death words come first. |
//! | A parent outside the pid namespace reads as pid 0. | Pid 0 tells nothing and is not taken for death; words and signal still do. |
//! | A middle process that armed nothing shields everything below it. | Each process watches its own parent *and* the root. |

use std::io;
use std::time::{Duration, Instant};

use crate::cause::exit_code;
use crate::death_word::{DeathWord, OwnerDied};
use crate::lifeline::PageSource;
use crate::pid::Pid;
use crate::signal::Signal;
use crate::sync::{AtomicBool, AtomicU32, Mutex, Ordering, lock};
use crate::sys::futex::{self, Expect, MAX_WORDS, Waited};
use crate::sys::{prctl, process};

/// Watches the parent of this process, and the root of its tree. See the module.
///
/// Every child gets one in its [`ChildContext`](crate::ChildContext), and finds it again with
/// [`ParentWatch::current`].
#[derive(Debug)]
pub struct ParentWatch {
    /// Its pid is as `getpid()` of the parent said before this process was made; its words are
    /// none where robust mutexes are not as expected.
    lineage: Lineage,
    /// Of the parent, and of the root if that is another process: what a check looks at.
    words: [Option<DeathWord<'static>>; 2],
    signal: Option<Signal>,
    /// Counts calls of `is_alive`, to ask for the parent's pid now and then.
    checks: AtomicU32,
}

/// How [`ParentWatch::park`] ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[must_use]
pub enum Parked {
    /// Something changed, or a signal came: look at the own word again.
    Look,
    /// The deadline has passed.
    TimedOut,
    /// The parent or the root is dead. Clean up what must be, and [`ParentWatch::leave`].
    ParentGone,
}

/// What [`ParentWatch::rearm`] found.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[must_use]
pub enum Rearmed {
    /// The death signal was still armed.
    WasArmed,
    /// It had been cleared and is armed again; the parent was still there afterwards.
    Restored,
    /// The parent died while the signal was not armed: [`ParentWatch::leave`].
    ParentGone,
}

/// Calls of `is_alive` per question for the parent's pid: a system call of some 100 ns.
const CHECKS_PER_SYSCALL: u32 = 1024;
/// Where the kernel cannot wait for several words, a sleep ends after this long to look around.
const SLICE: Duration = Duration::from_millis(20);

static CURRENT: Mutex<Option<(Pid, ParentWatch)>> = Mutex::new(None);
static WAITV_MISSING: AtomicBool = AtomicBool::new(false);

impl ParentWatch {
    /// The watch of this process, if procfork made it.
    pub fn current() -> Option<Self> {
        let current = lock(&CURRENT);
        let (pid, watch) = current.as_ref()?;
        (*pid == Pid::this()).then(|| watch.clone())
    }

    /// The parent's pid, as it was before the fork.
    pub fn parent(&self) -> Pid {
        self.lineage.parent
    }

    /// Death words to wait on beside one's own word: of the parent, then of the root if that is
    /// another process. Empty where robust mutexes are not as expected.
    pub fn death_words(&self) -> impl Iterator<Item = DeathWord<'static>> {
        self.words.into_iter().flatten()
    }

    /// Whether parent and root are alive, as far as is known. For hot loops: one or two relaxed
    /// loads, and one system call in 1024 calls.
    #[inline]
    pub fn is_alive(&self) -> bool {
        if self.word_says_dead() {
            return false;
        }
        // Not an atomic increment: a lost count does no harm, a locked instruction would cost.
        let checks = self.checks.load(Ordering::Relaxed).wrapping_add(1);
        self.checks.store(checks, Ordering::Relaxed);
        !checks.is_multiple_of(CHECKS_PER_SYSCALL) || self.parent_has_pid()
    }

    /// Whether parent and root are alive, asking the kernel too. One system call.
    pub fn is_alive_now(&self) -> bool {
        !self.word_says_dead() && self.parent_has_pid()
    }

    /// Sleeps while `word` has the value `expected`, until the deadline, and wakes for the death
    /// of parent or root as well.
    ///
    /// One `futex_waitv` on Linux 5.16 and later. Elsewhere the sleep is cut into slices of 20 ms,
    /// with a check after each. Spurious returns of [`Parked::Look`] are allowed.
    ///
    /// Whoever changes `word` wakes it with a *shared* futex wake (not `FUTEX_PRIVATE_FLAG`).
    pub fn park(&self, word: &AtomicU32, expected: u32, deadline: Option<Instant>) -> Parked {
        self.park_on(
            Some(Expect {
                word,
                value: expected,
            }),
            deadline,
        )
    }

    /// Sleeps until the parent or the root is dead, or the deadline has passed: for a child that
    /// has nothing else to wait for.
    pub fn wait_gone(&self, deadline: Option<Instant>) -> Parked {
        loop {
            match self.park_on(None, deadline) {
                Parked::Look => continue,
                ended => return ended,
            }
        }
    }

    /// Ends this process because its parent is gone, and takes along what must go.
    ///
    /// If the root of the tree is dead and this process is still in the tree's group, the whole
    /// group is killed. Otherwise this process alone ends, with [`exit_code::ORPHANED`], and its
    /// own children notice that in turn. Other waiters are woken first. No destructor runs.
    pub fn leave(&self) -> ! {
        for word in self.death_words() {
            word.wake_all();
        }
        if self.root_is_dead() && self.is_in_tree_group() {
            // Refused only by the kernel's own rules; leaving alone is the answer to that.
            let _ = process::signal_own_group(Signal::KILL);
        }
        process::exit_now(exit_code::ORPHANED)
    }

    /// The death signal that is armed now, as the kernel has it.
    ///
    /// # Errors
    ///
    /// Those of `prctl(PR_GET_PDEATHSIG)`; none is known on Linux.
    pub fn armed(&self) -> io::Result<Option<Signal>> {
        prctl::death_signal()
    }

    /// Arms the death signal again after something that clears it: a change of user or group id.
    ///
    /// # Errors
    ///
    /// Those of `prctl`; none is known on Linux.
    pub fn rearm(&self) -> io::Result<Rearmed> {
        if prctl::death_signal()? == self.signal {
            return Ok(Rearmed::WasArmed);
        }
        prctl::set_death_signal(self.signal)?;
        Ok(if self.is_alive_now() {
            Rearmed::Restored
        } else {
            Rearmed::ParentGone
        })
    }

    pub(crate) fn new(lineage: Lineage, signal: Option<Signal>) -> Self {
        let root = lineage.root_word.filter(|_| !lineage.parent_is_root);
        let words = [lineage.parent_word, root];
        Self {
            lineage,
            words,
            signal,
            checks: AtomicU32::new(0),
        }
    }

    /// Makes this the watch that [`ParentWatch::current`] gives in this process.
    pub(crate) fn install(&self) {
        *lock(&CURRENT) = Some((Pid::this(), self.clone()));
    }

    pub(crate) fn lineage(&self) -> &Lineage {
        &self.lineage
    }

    fn park_on(&self, own: Option<Expect<'_>>, deadline: Option<Instant>) -> Parked {
        if !self.is_alive_now() {
            return Parked::ParentGone;
        }
        let Ok(waited) = self.sleep(own, deadline) else {
            return Parked::ParentGone;
        };
        if !self.is_alive_now() {
            return Parked::ParentGone;
        }
        match waited {
            Waited::Look => Parked::Look,
            Waited::TimedOut => Parked::TimedOut,
        }
    }

    fn sleep(
        &self,
        own: Option<Expect<'_>>,
        deadline: Option<Instant>,
    ) -> Result<Waited, OwnerDied> {
        let mut words = [own, None, None];
        for (slot, death) in words[1..].iter_mut().zip(self.death_words()) {
            *slot = death.expect()?;
        }
        if self.words[0].is_some() && !WAITV_MISSING.load(Ordering::Relaxed) {
            match futex::wait_any(&words, deadline) {
                Ok(waited) => return Ok(waited),
                // Too old a kernel, or a filter that knows no futex_waitv: never ask again.
                Err(_) => WAITV_MISSING.store(true, Ordering::Relaxed),
            }
        }
        Ok(sleep_slice(words, deadline))
    }

    #[inline]
    fn word_says_dead(&self) -> bool {
        self.words.iter().flatten().any(DeathWord::owner_died)
    }

    fn root_is_dead(&self) -> bool {
        self.lineage.root_word.is_some_and(|word| word.owner_died())
    }

    /// `None` is a parent outside the pid namespace, which tells nothing.
    fn parent_has_pid(&self) -> bool {
        process::parent_pid().is_none_or(|now| now == self.lineage.parent)
    }

    fn is_in_tree_group(&self) -> bool {
        self.lineage
            .tree
            .is_some_and(|tree| process::group_of(Pid::this()).is_ok_and(|own| own == tree))
    }
}

impl Clone for ParentWatch {
    fn clone(&self) -> Self {
        Self::new(self.lineage, self.signal)
    }
}

/// Where a child stands in its tree, collected before it is made.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Lineage {
    pub(crate) parent: Pid,
    pub(crate) parent_word: Option<DeathWord<'static>>,
    pub(crate) parent_is_root: bool,
    /// The same as the parent's when the parent is the root.
    pub(crate) root_word: Option<DeathWord<'static>>,
    /// Where a program that is started further down finds the root's page.
    pub(crate) root_source: Option<PageSource>,
    pub(crate) tree: Option<Pid>,
}

/// One slice of sleep on the first word there is: the caller looks around after it.
fn sleep_slice(words: [Option<Expect<'_>>; MAX_WORDS], deadline: Option<Instant>) -> Waited {
    let left = deadline.map(|deadline| deadline.saturating_duration_since(Instant::now()));
    let slice = left.unwrap_or(SLICE).min(SLICE);
    match words.into_iter().flatten().next() {
        // An error here means an argument that the kernel rejects; sleeping the slice is enough.
        Some(word) => futex::wait_one(word, Some(slice))
            .map(drop)
            .unwrap_or_default(),
        None => std::thread::sleep(slice),
    }
    if left.is_some_and(|left| left <= slice) {
        Waited::TimedOut
    } else {
        Waited::Look
    }
}
