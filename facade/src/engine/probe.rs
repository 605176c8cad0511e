//! Tells a sleeping driver that a child, or its own parent, has died.

use std::cell::Cell;

use mailbox::{DeathWords, Probe};
use procfork::{Armed, Children, DeathWord, ParentWatch, Rearmed};

use super::lines::Lines;

/// The living children of one worker, and its parent.
pub(super) struct TreeProbe<'a> {
    children: &'a Children,
    lines: &'a Lines,
    watch: Option<&'a ParentWatch>,
    calls: Cell<u32>,
}

/// One in so many questions asks the kernel too; the others read death words only.
const CALLS_PER_SYSCALL: u32 = 256;

impl<'a> TreeProbe<'a> {
    pub(super) fn new(
        children: &'a Children,
        lines: &'a Lines,
        watch: Option<&'a ParentWatch>,
    ) -> Self {
        Self {
            children,
            lines,
            watch,
            calls: Cell::new(0),
        }
    }

    fn living(&self) -> impl Iterator<Item = &'a procfork::Child> + use<'a> {
        let lines = self.lines;
        self.children.iter().filter(|child| {
            lines
                .index_of(child)
                .is_some_and(|index| lines.is_alive(index))
        })
    }

    /// A child that dies before it owns its death word is known to the kernel only. Starts wait in short slices, so that
    /// this is asked soon enough.
    fn is_dead(child: &procfork::Child, ask_kernel: bool) -> bool {
        let word = child.death_word();
        let ask_kernel = ask_kernel || !word.is_born();
        word.owner_died() || (ask_kernel && !matches!(child.try_wait(), Ok(None)))
    }
}

impl Probe for TreeProbe<'_> {
    fn alive(&self) -> bool {
        self.calls.set(self.calls.get().wrapping_add(1));
        let ask_kernel = self.calls.get().is_multiple_of(CALLS_PER_SYSCALL);
        self.watch.is_none_or(ParentWatch::is_alive)
            && !self.living().any(|child| Self::is_dead(child, ask_kernel))
    }

    fn death_words<'w>(&'w self, words: &mut DeathWords<'w>) {
        self.living()
            .for_each(|child| watch(child.death_word(), words));
        self.watch
            .into_iter()
            .flat_map(ParentWatch::death_words)
            .for_each(|word| watch(word, words));
    }
}

/// Adds one death word. An owner that is dead already, or not born yet, is found by [`Probe::alive`].
fn watch<'w>(word: DeathWord<'w>, words: &mut DeathWords<'w>) {
    if let Armed::Wait(value) = word.arm() {
        words.watch(word.address(), value);
    }
}

/// A child's view: its parent and the root of its tree.
pub(crate) struct ParentProbe<'a>(pub(crate) &'a ParentWatch);

impl Probe for ParentProbe<'_> {
    fn alive(&self) -> bool {
        self.0.is_alive()
    }

    /// Asked before a sleep, and not while spinning: time to see whether user code has changed its ids, which makes the
    /// kernel forget the death signal.
    fn death_words<'w>(&'w self, words: &mut DeathWords<'w>) {
        if let Ok(Rearmed::Restored) = self.0.rearm() {
            tracing::warn!("a task changed its user or group id; the death signal is armed again");
        }
        self.0.death_words().for_each(|word| watch(word, words));
    }
}
