//! A first-in-first-out list of slots, chained through the slots themselves.
//!
//! A slot is on at most one list: the line it waits in, the backlog of its run, or the failed tasks of
//! its run.

use super::arena::Arena;
use crate::infer::NONE;

/// Head and tail of a list; the links stand in the slots.
#[derive(Clone, Copy, Debug)]
pub(super) struct List {
    head: u32,
    tail: u32,
}

impl Default for List {
    fn default() -> List {
        List {
            head: NONE,
            tail: NONE,
        }
    }
}

impl List {
    #[inline]
    pub(super) fn head(&self) -> Option<u32> {
        (self.head != NONE).then_some(self.head)
    }

    #[inline]
    pub(super) fn push(&mut self, arena: &mut Arena, slot: u32) {
        arena[slot].link = NONE;
        match self.tail {
            NONE => self.head = slot,
            tail => arena[tail].link = slot,
        }
        self.tail = slot;
    }

    #[inline]
    pub(super) fn pop(&mut self, arena: &Arena) -> Option<u32> {
        let head = self.head()?;
        self.head = arena[head].link;
        if self.head == NONE {
            self.tail = NONE;
        }
        Some(head)
    }
}
