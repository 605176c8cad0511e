//! What strided views look like, apart from where they begin.
//!
//! Tiles of one tensor differ in their first byte only, so one shape serves all of them: a record of a tile is as
//! small as one of a run, and two tiles are compared in memory that all of them share.
//!
//! A shape is shared with the one that was seen last among those of one kind; otherwise it is written down a second
//! time, which costs memory and nothing else. So there is nothing to search and nothing to sweep.

use super::NONE;
use crate::view::View;

/// Kinds of shapes for which the last one is remembered; a power of two.
const KINDS: usize = 16;

struct Shape {
    /// The view that begins at byte 0.
    view: View,
    /// How many records have it.
    n_users: u32,
}

/// All shapes that records have.
pub(super) struct Shapes {
    all: Vec<Shape>,
    free: Vec<u32>,
    /// By kind, the shape that was seen last, though it may be another by now.
    last: [u32; KINDS],
}

impl Default for Shapes {
    fn default() -> Shapes {
        Shapes {
            all: Vec::new(),
            free: Vec::new(),
            last: [NONE; KINDS],
        }
    }
}

impl Shapes {
    /// Forgets all shapes.
    pub(super) fn clear(&mut self) {
        self.all.clear();
        self.free.clear();
        self.last = [NONE; KINDS];
    }

    /// The shape of a view, for one record more.
    pub(super) fn add(&mut self, view: &View) -> u32 {
        let kind = kind(view);
        let last = self.last[kind];
        if let Some(shape) = self.all.get_mut(last as usize)
            && shape.n_users > 0
            && shape.view.is_moved(view)
        {
            shape.n_users += 1;
            return last;
        }
        let shape = Shape {
            view: view.moved_to(0),
            n_users: 1,
        };
        let index = self.free.pop().unwrap_or(self.all.len() as u32);
        match self.all.get_mut(index as usize) {
            Some(free) => *free = shape,
            None => self.all.push(shape),
        }
        self.last[kind] = index;
        index
    }

    /// A record less has this shape.
    pub(super) fn remove(&mut self, shape: u32) {
        let n_users = &mut self.all[shape as usize].n_users;
        *n_users -= 1;
        if *n_users == 0 {
            self.free.push(shape);
        }
    }

    /// The view of this shape that begins at byte 0; `None` for [`NONE`].
    #[inline]
    pub(super) fn get(&self, shape: u32) -> Option<&View> {
        Some(&self.all.get(shape as usize)?.view)
    }

    #[cfg(test)]
    pub(super) fn len(&self) -> usize {
        self.all.len() - self.free.len()
    }
}

/// Something that views of one shape have in common, and others mostly not.
fn kind(view: &View) -> usize {
    let length = view.hi() - view.lo();
    (length.wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 32) as usize % KINDS
}

#[cfg(test)]
mod tests;
