//! The records of live accesses: one pool for all buffers.

use super::NONE;
use super::shapes::Shapes;
use crate::heap::BlockId;
use crate::view::View;

/// What a record says about its bytes, and on which index it stands.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Role {
    Reader,
    Writer,
    /// No access at all: the task holds a block of the heap.
    Holder,
}

/// One access of one live task.
#[derive(Clone, Copy)]
pub(super) struct Record {
    pub(super) lo: u64,
    pub(super) hi: u64,
    pub(super) task: u32,
    /// The token of that task that stands for it. Another token that leads here stands for nothing.
    pub(super) owner: u32,
    pub(super) buffer: u32,
    /// The shape of a view that is more than the run from `lo` to `hi`.
    shape: u32,
    /// The tree leaf that holds it, when its index is a tree; of a record that nobody uses, the next such one.
    pub(super) leaf: u32,
    pub(super) role: Role,
}

/// A box around a view: its bounds, and the columns it touches when the buffer is cut into rows of
/// `period` bytes. Without a period there is one column, 0.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Bounds {
    pub(super) lo: u64,
    pub(super) hi: u64,
    pub(super) column_lo: u32,
    pub(super) column_hi: u32,
}

/// Where a box stands in a tree: by its first column, then by its first byte. One number, compared at once.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Key(u128);

impl Key {
    const fn new(column: u32, byte: u64) -> Key {
        Key((column as u128) << 64 | byte as u128)
    }
}

impl Bounds {
    #[inline]
    pub(super) fn of(view: &View, period: u32) -> Bounds {
        let width = match period {
            0 => 0,
            _ => view.width(u64::from(period)),
        };
        Bounds::between(view.lo(), view.hi(), width, period)
    }

    /// The box around what lies between `lo` and `hi` and is so wide in a buffer cut into rows.
    #[inline]
    fn between(lo: u64, hi: u64, width: u64, period: u32) -> Bounds {
        let all = Bounds {
            lo,
            hi,
            column_lo: 0,
            column_hi: period.max(1),
        };
        if period == 0 {
            return all;
        }
        let first = lo % u64::from(period);
        if first + width > u64::from(period) {
            return all;
        }
        Bounds {
            column_lo: first as u32,
            column_hi: (first + width) as u32,
            ..all
        }
    }

    pub(super) fn key(&self) -> Key {
        Key::new(self.column_lo, self.lo)
    }

    /// The key from which on no box meets this one. There is a column and a byte in every box.
    pub(super) fn end_key(&self) -> Key {
        Key::new(self.column_hi - 1, self.hi)
    }

    /// Boxes whose last key is up to the [first key](Bounds::first_key) of this one do not meet it.
    pub(super) fn last_key(&self) -> Key {
        Key::new(self.column_hi, self.hi)
    }

    /// See [`last_key`](Bounds::last_key).
    pub(super) fn first_key(&self) -> Key {
        Key::new(self.column_lo + 1, self.lo)
    }

    #[inline]
    pub(super) fn meets(&self, other: &Bounds) -> bool {
        self.lo < other.hi
            && other.lo < self.hi
            && self.column_lo < other.column_hi
            && other.column_lo < self.column_hi
    }

    pub(super) fn grow(&mut self, other: &Bounds) {
        self.lo = self.lo.min(other.lo);
        self.hi = self.hi.max(other.hi);
        self.column_lo = self.column_lo.min(other.column_lo);
        self.column_hi = self.column_hi.max(other.column_hi);
    }

    /// Whether no side of `other` lies on a side of `self`: taking it away leaves `self` as it is.
    pub(super) fn strictly_holds(&self, other: &Bounds, period: u32) -> bool {
        let rows = self.lo < other.lo && other.hi < self.hi;
        let columns = self.column_lo < other.column_lo && other.column_hi < self.column_hi;
        rows && (columns || period == 0)
    }
}

/// All records.
pub(super) struct Records {
    all: Vec<Record>,
    /// First of the records that nobody uses, the one that was given up last: what it takes is in the cache.
    free: u32,
    n_free: usize,
    shapes: Shapes,
}

impl Default for Records {
    fn default() -> Records {
        Records {
            all: Vec::new(),
            free: NONE,
            n_free: 0,
            shapes: Shapes::default(),
        }
    }
}

impl Records {
    /// Forgets all records.
    pub(super) fn clear(&mut self) {
        self.all.clear();
        (self.free, self.n_free) = (NONE, 0);
        self.shapes.clear();
    }

    /// A record of a task's access, for which this token of the task stands.
    #[inline]
    pub(super) fn add(
        &mut self,
        (task, owner): (u32, u32),
        buffer: u32,
        view: &View,
        role: Role,
    ) -> u32 {
        let (lo, hi) = (view.lo(), view.hi());
        let shape = match view.is_dense() {
            true => NONE,
            false => self.shapes.add(view),
        };
        let record = Record {
            lo,
            hi,
            task,
            owner,
            buffer,
            shape,
            leaf: NONE,
            role,
        };
        let index = self.free;
        if let Some(free) = self.all.get_mut(index as usize) {
            (self.free, self.n_free) = (free.leaf, self.n_free - 1);
            *free = record;
            return index;
        }
        self.all.push(record);
        self.all.len() as u32 - 1
    }

    /// A record that a task holds a block; it stands on no index.
    pub(super) fn add_holder(&mut self, whose: (u32, u32), block: BlockId) -> u32 {
        let at = self.add(whose, NONE, &View::dense(0, 0), Role::Holder);
        self[at].lo = u64::from(block.generation);
        self[at].hi = u64::from(block.ring);
        at
    }

    /// The block that such a record is about.
    pub(super) fn held(&self, at: u32) -> BlockId {
        let Record { lo, hi, .. } = self[at];
        BlockId {
            generation: lo as u32,
            ring: hi as u32,
        }
    }

    /// The record is no more: whatever token leads to it stands for nothing.
    #[inline]
    pub(super) fn remove(&mut self, index: u32) {
        let record = &mut self.all[index as usize];
        if record.shape != NONE {
            self.shapes.remove(record.shape);
        }
        (record.owner, record.leaf) = (NONE, self.free);
        (self.free, self.n_free) = (index, self.n_free + 1);
    }

    #[cfg(test)]
    pub(super) fn len(&self) -> usize {
        self.all.len() - self.n_free
    }

    #[cfg(test)]
    pub(super) fn n_shapes(&self) -> usize {
        self.shapes.len()
    }

    /// The bytes of a record.
    pub(super) fn view(&self, at: u32) -> View {
        let Record { lo, hi, .. } = self[at];
        self.strided(at)
            .map_or_else(|| View::dense(lo, hi), |shape| shape.moved_to(lo))
    }

    /// The view of a record that is not one run, moved to byte 0.
    #[inline]
    pub(super) fn strided(&self, at: u32) -> Option<&View> {
        self.shapes.get(self[at].shape)
    }

    /// Whether the record is one run.
    #[inline]
    pub(super) fn is_dense(&self, at: u32) -> bool {
        self[at].shape == NONE
    }

    /// The box around a record.
    pub(super) fn bounds(&self, at: u32, period: u32) -> Bounds {
        let Record { lo, hi, .. } = self[at];
        let width = match self.strided(at) {
            Some(shape) if period > 0 => shape.width(u64::from(period)),
            _ => hi - lo,
        };
        Bounds::between(lo, hi, width, period)
    }

    /// Whether the bytes of the record and of the view have one in common.
    #[inline]
    pub(super) fn meets(&self, at: u32, view: &View) -> bool {
        let record = &self[at];
        let is_near = record.lo < view.hi() && view.lo() < record.hi;
        is_near && (record.shape == NONE && view.is_dense() || self.really_meets(at, view))
    }

    #[cold]
    fn really_meets(&self, at: u32, view: &View) -> bool {
        self.view(at).overlaps(view)
    }

    /// Whether every byte of the record is one of the view.
    #[inline]
    pub(super) fn is_covered(&self, at: u32, view: &View) -> bool {
        let Record { lo, hi, .. } = self[at];
        let is_within = view.lo() <= lo && hi <= view.hi();
        is_within && (view.is_dense() || view.covers(&self.view(at)))
    }

    /// Whether the record has exactly the bytes of the view.
    #[inline]
    pub(super) fn is_exactly(&self, at: u32, view: &View) -> bool {
        let Record { lo, hi, .. } = self[at];
        let is_same_range = (lo, hi) == (view.lo(), view.hi());
        is_same_range
            && match self.strided(at) {
                None => view.is_dense(),
                Some(shape) => view.is_same_set_moved(shape),
            }
    }
}

impl std::ops::Index<u32> for Records {
    type Output = Record;

    #[inline]
    fn index(&self, index: u32) -> &Record {
        &self.all[index as usize]
    }
}

impl std::ops::IndexMut<u32> for Records {
    #[inline]
    fn index_mut(&mut self, index: u32) -> &mut Record {
        &mut self.all[index as usize]
    }
}
