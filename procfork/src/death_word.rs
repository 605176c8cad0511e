//! The earliest notice of a process's death: one word in shared memory.
//!
//! The kernel tells of a death in several ways, and most of them come late. It frees the memory
//! of a dying process first (for 1 GiB in small pages that takes 70 to 80 ms) and only then closes
//! its descriptors, makes its pidfd readable and sends the parent-death signals. But before all of
//! that it walks the list of *robust futexes* that the dying threads own, sets
//! `FUTEX_OWNER_DIED` in each and wakes a waiter: some 0.1 ms after the kill, whatever the size.
//!
//! So every process of a tree owns two such words, in a page that its parent made: one that its
//! children watch, and one that its parent watches. They are on the thread's list because the C
//! library put them there: each is the lock word of a robust process-shared mutex, locked once and
//! never unlocked.
//!
//! # How a waiter uses it
//!
//! A busy waiter calls [`DeathWord::owner_died`] in its loop: one relaxed load of a line that
//! nobody writes.
//!
//! An idle waiter sleeps on its own word *and* the death words in one call:
//!
//! 1. [`DeathWord::arm`] on each; [`Armed::Wait`] has the value to expect, with `FUTEX_WAITERS`
//!    set. Without that bit the kernel marks the word but wakes nobody.
//! 2. `futex_waitv` (Linux 5.16) on all of them, 32-bit words, *not* private.
//! 3. After any return, ask [`DeathWord::owner_died`] before anything else.
//! 4. Whoever finds a death calls [`DeathWord::wake_all`] before it acts: the kernel woke one
//!    waiter only, and the others may be processes that nobody else would tell.
//!
//! There is no lost wake-up: if the death comes between 1 and 2 the kernel's mark has changed the
//! value, and the wait returns at once. [`ParentWatch::park`](crate::ParentWatch::park) does all
//! of this, with a fallback for older kernels; a crate with a wait of its own follows the list.
//!
//! # What it does not promise
//!
//! It is a notice, not the truth. A child that is woken first and killed before it could wake its
//! siblings leaves them to the layers below (the parent-death signal, the check of the parent's
//! pid). The parent has no such layer, which is why it has a word of its own: there it is the only
//! process that waits. The word is tied to one *thread*, the main thread, or the keeper thread in a program
//! that started children from elsewhere: if a program ends its main thread with `pthread_exit`
//! and goes on, its children take it for dead, as the parent-death signal would. `exec` by the
//! owner counts as its end too. The word of a [`Child`](crate::Child) reads [`Armed::Unborn`]
//! until the child has come up. The truth about a child is its pidfd.

use crate::pid::Pid;
use crate::sync::{AtomicU32, Ordering};
use crate::sys::futex::{self, Expect, OWNER, OWNER_DIED, WAITERS};

/// The word that the kernel marks first when a process dies. See the module.
#[derive(Debug, Clone, Copy)]
pub struct DeathWord<'a> {
    word: &'a AtomicU32,
    owner: Pid,
}

/// What a waiter finds when it arms a [`DeathWord`].
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[must_use]
pub enum Armed {
    /// Sleep while the word has this value.
    Wait(u32),
    /// The owner is dead; do not sleep.
    Died,
    /// The owner has not come up far enough to own the word; this word tells nothing yet.
    Unborn,
}

impl<'a> DeathWord<'a> {
    pub(crate) fn new(word: &'a AtomicU32, owner: Pid) -> Self {
        Self { word, owner }
    }

    /// The thread that owns the word; its number is the process's pid unless a keeper thread owns
    /// it.
    pub fn owner(&self) -> Pid {
        self.owner
    }

    /// Whether the owner is known to be dead. One relaxed load; for hot loops.
    #[inline]
    pub fn owner_died(&self) -> bool {
        // Relaxed: nothing else is read on the strength of it.
        self.word.load(Ordering::Relaxed) & OWNER_DIED != 0
    }

    /// Whether the owner has come up far enough to own the word. Before that, its death does not show here: ask
    /// [`Child::try_wait`](crate::Child::try_wait). One relaxed load.
    #[inline]
    pub fn is_born(&self) -> bool {
        let seen = self.word.load(Ordering::Relaxed);
        seen & OWNER_DIED != 0 || seen & OWNER == self.owner.raw().cast_unsigned()
    }

    /// Asks the kernel to wake waiters of this word when the owner dies, and says what value to
    /// sleep on. One load once somebody has armed it.
    pub fn arm(&self) -> Armed {
        let mut seen = self.word.load(Ordering::Relaxed);
        loop {
            if seen & OWNER_DIED != 0 {
                return Armed::Died;
            }
            if seen & OWNER != self.owner.raw().cast_unsigned() {
                return Armed::Unborn;
            }
            if seen & WAITERS != 0 {
                return Armed::Wait(seen);
            }
            seen = self.set_waiters(seen);
        }
    }

    /// The word itself, for a wait of the caller's own.
    pub fn address(&self) -> &'a AtomicU32 {
        self.word
    }

    /// Wakes every other waiter of this word: the kernel woke only one.
    pub fn wake_all(&self) {
        futex::wake_all(self.word);
    }

    /// What to put into a wait for several words; `Err` when the owner is dead.
    pub(crate) fn expect(&self) -> Result<Option<Expect<'a>>, OwnerDied> {
        match self.arm() {
            Armed::Wait(value) => Ok(Some(Expect {
                word: self.word,
                value,
            })),
            Armed::Died => Err(OwnerDied),
            Armed::Unborn => Ok(None),
        }
    }

    /// Sets the waiters bit if nothing changed; the value to judge next. Only ever on a word that
    /// has its owner: on an unowned one the bit would make the owner's lock wait for ever.
    fn set_waiters(&self, seen: u32) -> u32 {
        let armed = seen | WAITERS;
        // Relaxed: the futex calls order what matters.
        match self
            .word
            .compare_exchange(seen, armed, Ordering::Relaxed, Ordering::Relaxed)
        {
            Ok(_) => armed,
            Err(now) => now,
        }
    }
}

/// The owner of a word is dead.
pub(crate) struct OwnerDied;
