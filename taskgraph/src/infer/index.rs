//! The records of one role on one buffer, found by the bytes they may meet.
//!
//! Up to [`FEW`] records are a plain list. More are a tree, whose nodes lie in a pool that all indexes
//! share.
//!
//! **The tree** is a B-tree ordered by the first byte. An entry of a leaf is a record with its
//! [`Bounds`]; an entry of an inner node is a child with a box around all that it holds. A search
//! follows the entries whose box it meets: one path for disjoint runs, however many there are. The
//! [`Key`]s that it is ordered by stand by themselves, so that a search through a node touches few cache
//! lines; that of a child is at most those of all that it holds, and above those of the child before it.
//!
//! **Columns.** All columns of a matrix lie between nearly the same bounds, so a search by bounds alone
//! would meet every one. The first strided view of a tree sets its `period`, the length of a row, and
//! from then on the boxes say which part of a row they touch, and the tree is ordered by the first
//! column, then by the first byte. Views cut along that period are found as fast as runs; for others the
//! columns are "all", and the exact test decides at the leaf.
//!
//! **Known tiles.** Writers in trees are found by exactly their bytes, too, without a search ([`Exact`]); that is all
//! there is to find while no two of them share a byte, which the index keeps account of.
//!
//! Boxes may be too large, never too small: an edge is decided by the exact test of the views.

use super::NONE;
use super::exact::Exact;
use super::records::{Bounds, Key, Records, Role};
use crate::view::View;

/// Records that need no tree.
const FEW: usize = 4;
/// Entries of a node.
const WIDTH: usize = 32;

/// Marks in the length of an index that it is a tree.
const TREE: u32 = 1 << 31;

/// The live records of one role on one buffer. Two of them and an identity are one cache line.
#[derive(Clone, Copy)]
pub(super) struct Index {
    /// How many records, and [`TREE`].
    len: u32,
    /// The records of a list; of a tree the root, the period, and whether two writers on it may have met.
    few: [u32; FEW],
}

#[derive(Clone, Copy, Default)]
struct Entry {
    bounds: Bounds,
    /// A record in a leaf, a node elsewhere.
    to: u32,
}

pub(super) struct Node {
    len: u32,
    parent: u32,
    is_leaf: bool,
    /// Whether the upper bounds ascend too, as they do for views that are disjoint.
    is_monotone: bool,
    keys: [Key; WIDTH],
    entries: [Entry; WIDTH],
}

/// The nodes of all trees, and the writers that stand in them.
#[derive(Default)]
pub(super) struct Nodes {
    all: Vec<Node>,
    free: Vec<u32>,
    pub(super) exact: Exact,
}

impl Index {
    pub(super) const EMPTY: Index = Index {
        len: 0,
        few: [NONE; FEW],
    };

    #[inline]
    pub(super) fn is_empty(&self) -> bool {
        self.len == 0
    }

    #[cfg(test)]
    pub(super) fn len(&self) -> usize {
        (self.len & !TREE) as usize
    }

    /// The records of a list; `None` for a tree. The places behind the length hold anything.
    #[inline]
    pub(super) fn list(&self) -> Option<([u32; FEW], usize)> {
        let len = self.len as usize;
        (len <= FEW).then_some((self.few, len))
    }

    /// The root and the period of a tree.
    fn tree(&self) -> Option<(u32, u32)> {
        (self.len & TREE != 0).then_some((self.few[0], self.few[1]))
    }

    /// The one writer of a tree that meets a view of this buffer, when it has exactly the same bytes. `None` where that
    /// is not plain to see.
    #[inline]
    pub(super) fn sole(
        &self,
        buffer: u32,
        view: &View,
        nodes: &Nodes,
        records: &Records,
    ) -> Option<u32> {
        let may_meet = self.few[2] != 0;
        if may_meet {
            return None;
        }
        nodes.exact.find(buffer, view, records)
    }

    /// A write took only a part of a writer's bytes from it, and that does not show in the writer's record.
    #[inline]
    pub(super) fn note_meeting(&mut self) {
        if self.tree().is_some() {
            self.few[2] = 1;
        }
    }

    /// Appends the records that really meet `view`.
    #[inline]
    pub(super) fn find(&self, view: &View, nodes: &Nodes, records: &Records, hits: &mut Vec<u32>) {
        let Some((root, period)) = self.tree() else {
            let list = self.few[..self.len as usize].iter().copied();
            return hits.extend(list.filter(|&record| records.meets(record, view)));
        };
        nodes.find(root, &Bounds::of(view, period), hits);
        hits.retain(|&record| records.meets(record, view));
    }

    #[inline]
    pub(super) fn insert(&mut self, record: u32, nodes: &mut Nodes, records: &mut Records) {
        let place = self.few.get_mut(self.len as usize);
        self.len += 1;
        match place {
            Some(place) => *place = record,
            None => self.insert_in_tree(record, nodes, records),
        }
    }

    #[inline]
    pub(super) fn remove(&mut self, record: u32, nodes: &mut Nodes, records: &mut Records) {
        self.len -= 1;
        let Some((root, period)) = self.tree() else {
            let len = self.len as usize;
            let at = self.few[..=len].iter().position(|&few| few == record);
            self.few.swap(at.expect("the record is on this index"), len);
            return;
        };
        self.remove_from_tree(record, root, period, nodes, records);
    }

    fn remove_from_tree(
        &mut self,
        record: u32,
        root: u32,
        period: u32,
        nodes: &mut Nodes,
        records: &mut Records,
    ) {
        if records[record].role == Role::Writer {
            nodes.exact.remove(record, records);
        }
        let leaf = records[record].leaf;
        let key = records.bounds(record, period).key();
        let at = nodes[leaf].position_of(record, key);
        match nodes.remove(leaf, at, period, root, records) {
            NONE => *self = Index::EMPTY,
            root => self.few[0] = root,
        }
    }

    /// Adds a record that is counted already, and makes the tree first where this is a list.
    fn insert_in_tree(&mut self, record: u32, nodes: &mut Nodes, records: &mut Records) {
        if self.tree().is_none() {
            let few = self.few;
            self.len |= TREE;
            let may_meet = records[record].role == Role::Writer && any_meet(&few, record, records);
            self.few = [nodes.add(true), 0, u32::from(may_meet), 0];
            for few in few {
                self.insert_in_tree(few, nodes, records);
            }
        }
        if self.few[1] == 0
            && let Some(period) = records.strided(record).and_then(|view| view.period())
        {
            self.few[1] = period;
            self.rebuild(nodes, records);
        }
        if records[record].role == Role::Writer {
            nodes.exact.insert(record, records);
        }
        self.insert_entry(record, nodes, records);
    }

    fn insert_entry(&mut self, record: u32, nodes: &mut Nodes, records: &mut Records) {
        let [root, period, ..] = self.few;
        let bounds = records.bounds(record, period);
        self.few[0] = nodes.insert(root, Entry { bounds, to: record }, records);
    }

    /// Makes all boxes anew, after the period was found.
    fn rebuild(&mut self, nodes: &mut Nodes, records: &mut Records) {
        let mut all = Vec::new();
        nodes.take_apart(self.few[0], &mut all);
        self.few[0] = nodes.add(true);
        for record in all {
            self.insert_entry(record, nodes, records);
        }
    }
}

/// Whether two of the records of a list, or one of them and a new one, may have a byte in common.
fn any_meet(few: &[u32; FEW], new: u32, records: &Records) -> bool {
    let meets_earlier = |at: usize, record: u32| {
        let view = records.view(record);
        few[..at].iter().any(|&other| records.meets(other, &view))
    };
    let mut all = few.iter().enumerate();
    all.any(|(at, &record)| meets_earlier(at, record)) || meets_earlier(FEW, new)
}

impl Node {
    fn entries(&self) -> &[Entry] {
        &self.entries[..self.len as usize]
    }

    fn keys(&self) -> &[Key] {
        &self.keys[..self.len as usize]
    }

    /// Where a record with this key stands in this leaf.
    fn position_of(&self, record: u32, key: Key) -> usize {
        let at = self.keys().partition_point(|other| *other < key);
        match self.entries().get(at) {
            Some(entry) if entry.to == record => at,
            _ => self.position(record),
        }
    }

    /// Where the entry that leads to `to` stands.
    fn position(&self, to: u32) -> usize {
        let at = self.entries().iter().position(|entry| entry.to == to);
        at.expect("a node holds what points back at it")
    }

    fn insert(&mut self, at: usize, key: Key, entry: Entry) {
        let len = self.len as usize;
        self.keys.copy_within(at..len, at + 1);
        self.entries.copy_within(at..len, at + 1);
        (self.keys[at], self.entries[at]) = (key, entry);
        self.len += 1;
        self.check_monotone_at(at);
    }

    fn remove(&mut self, at: usize) -> Entry {
        let entry = self.entries[at];
        self.keys.copy_within(at + 1..self.len as usize, at);
        self.entries.copy_within(at + 1..self.len as usize, at);
        self.len -= 1;
        if !self.is_monotone {
            self.check_monotone();
        }
        entry
    }

    fn check_monotone(&mut self) {
        let entries = self.entries();
        self.is_monotone = entries.is_sorted_by_key(|entry| entry.bounds.last_key());
    }

    /// The entry at `at` is new or has grown.
    fn check_monotone_at(&mut self, at: usize) {
        let near = at.saturating_sub(1)..(at + 2).min(self.len as usize);
        let near = &self.entries[near];
        self.is_monotone &= near.is_sorted_by_key(|entry| entry.bounds.last_key());
    }

    /// A box around all entries, of which there is one at least.
    fn bounds(&self) -> Bounds {
        let (first, rest) = self.entries().split_first().expect("no node is empty");
        rest.iter().fold(first.bounds, |mut all, entry| {
            all.grow(&entry.bounds);
            all
        })
    }
}

impl Nodes {
    /// Forgets all nodes; whoever had one forgets it too.
    pub(super) fn clear(&mut self) {
        self.all.clear();
        self.free.clear();
        self.exact.clear();
    }

    /// Number of nodes in use.
    #[cfg(test)]
    pub(super) fn len(&self) -> usize {
        self.all.len() - self.free.len()
    }

    fn add(&mut self, is_leaf: bool) -> u32 {
        if let Some(index) = self.free.pop() {
            // What lies behind the length is never looked at, and is too much to write for nothing.
            let node = &mut self[index];
            (node.len, node.parent) = (0, NONE);
            (node.is_leaf, node.is_monotone) = (is_leaf, true);
            return index;
        }
        self.all.push(Node {
            len: 0,
            parent: NONE,
            is_leaf,
            is_monotone: true,
            keys: [Key::default(); WIDTH],
            entries: [Entry::default(); WIDTH],
        });
        self.all.len() as u32 - 1
    }

    fn find(&self, index: u32, wanted: &Bounds, hits: &mut Vec<u32>) {
        let node = &self[index];
        let (end_key, first_key) = (wanted.end_key(), wanted.first_key());
        let end = node.keys().partition_point(|key| *key < end_key);
        let entries = &node.entries()[..end];
        let start = if node.is_monotone {
            // Mostly there is one that meets, the last: looked for from there.
            let is_before = |entry: &Entry| entry.bounds.last_key() <= first_key;
            entries.iter().rposition(is_before).map_or(0, |at| at + 1)
        } else {
            0
        };
        for entry in &entries[start..] {
            if !entry.bounds.meets(wanted) {
                continue;
            }
            if node.is_leaf {
                hits.push(entry.to);
            } else {
                self.find(entry.to, wanted, hits);
            }
        }
    }

    /// Adds an entry to the tree; the root after that. Full nodes are split on the way down, so that
    /// there is always room for the half that a split adds to the parent.
    fn insert(&mut self, mut root: u32, new: Entry, records: &mut Records) -> u32 {
        if self[root].len as usize == WIDTH {
            let above = self.add(false);
            let (key, bounds) = (self[root].keys[0], self[root].bounds());
            self[above].insert(0, key, Entry { bounds, to: root });
            self[root].parent = above;
            self.split(above, 0, &new, records);
            root = above;
        }
        let (mut node, key) = (root, new.bounds.key());
        while !self[node].is_leaf {
            let mut at = self.child_for(node, key);
            if self[self[node].entries[at].to].len as usize == WIDTH {
                self.split(node, at, &new, records);
                at = self.child_for(node, key);
            }
            self[node].keys[at] = self[node].keys[at].min(key);
            self[node].entries[at].bounds.grow(&new.bounds);
            self[node].check_monotone_at(at);
            node = self[node].entries[at].to;
        }
        let at = self[node].keys().partition_point(|other| *other <= key);
        self[node].insert(at, key, new);
        records[new.to].leaf = node;
        root
    }

    /// The last child that begins at or before the new entry, else the first.
    fn child_for(&self, node: u32, key: Key) -> usize {
        let keys = self[node].keys();
        keys.partition_point(|other| *other <= key)
            .saturating_sub(1)
    }

    /// Splits the full child at `at` of `parent`: in the middle, or, when the new entry comes behind
    /// all others, before its last entry, so that ascending insertions leave full nodes behind.
    fn split(&mut self, parent: u32, at: usize, new: &Entry, records: &mut Records) {
        let left = self[parent].entries[at].to;
        let is_append = self[left].keys[WIDTH - 1] <= new.bounds.key();
        let middle = if is_append { WIDTH - 1 } else { WIDTH / 2 };
        let right = self.add(self[left].is_leaf);
        self[right].parent = parent;
        self.shift(left, middle, right, records);
        self[left].check_monotone();
        self[parent].entries[at].bounds = self[left].bounds();
        let (key, bounds) = (self[right].keys[0], self[right].bounds());
        self[parent].insert(at + 1, key, Entry { bounds, to: right });
        self[parent].check_monotone_at(at);
    }

    /// Moves the entries of one node from `from` on to the end of another.
    fn shift(&mut self, source: u32, from: usize, target: u32, records: &mut Records) {
        let (keys, moved) = (self[source].keys, self[source].entries);
        let len = std::mem::replace(&mut self[source].len, from as u32) as usize;
        for (key, entry) in keys[from..len].iter().zip(&moved[from..len]) {
            let end = self[target].len as usize;
            self[target].insert(end, *key, *entry);
            if self[target].is_leaf {
                records[entry.to].leaf = target;
            } else {
                self[entry.to].parent = target;
            }
        }
    }

    /// Takes an entry out of a leaf; the root after that, [`NONE`] when nothing is left.
    fn remove(
        &mut self,
        leaf: u32,
        at: usize,
        period: u32,
        root: u32,
        records: &mut Records,
    ) -> u32 {
        let removed = self[leaf].remove(at).bounds;
        let mut node = leaf;
        while self[node].parent != NONE {
            let parent = self[node].parent;
            let at = self[parent].position(node);
            let before = self[parent].entries[at].bounds;
            if self[node].len == 0 {
                self[parent].remove(at);
                self.free.push(node);
            } else if self.merge(parent, at, records) {
                // The parent lost an entry; its own box is seen to next.
            } else if before.strictly_holds(&removed, period) {
                return root;
            } else {
                self[parent].entries[at].bounds = self[node].bounds();
                self[parent].check_monotone();
            }
            node = parent;
        }
        self.shrink_root(root)
    }

    /// Joins a sparse child with the one behind it, when both fit in half a node.
    fn merge(&mut self, parent: u32, at: usize, records: &mut Records) -> bool {
        let Some(&Entry { to: right, .. }) = self[parent].entries().get(at + 1) else {
            return false;
        };
        let left = self[parent].entries[at].to;
        if (self[left].len + self[right].len) as usize > WIDTH / 2 {
            return false;
        }
        self.shift(right, 0, left, records);
        self[parent].remove(at + 1);
        self.free.push(right);
        self[parent].entries[at].bounds = self[left].bounds();
        self[parent].check_monotone();
        true
    }

    fn shrink_root(&mut self, mut root: u32) -> u32 {
        while !self[root].is_leaf && self[root].len == 1 {
            self.free.push(root);
            root = self[root].entries[0].to;
            self[root].parent = NONE;
        }
        if self[root].len == 0 {
            self.free.push(root);
            root = NONE;
        }
        root
    }

    /// Frees the nodes of a tree and lists its records in order.
    fn take_apart(&mut self, node: u32, all: &mut Vec<u32>) {
        self.free.push(node);
        for at in 0..self[node].len as usize {
            let to = self[node].entries[at].to;
            if self[node].is_leaf {
                all.push(to);
            } else {
                self.take_apart(to, all);
            }
        }
    }
}

impl std::ops::Index<u32> for Nodes {
    type Output = Node;

    fn index(&self, node: u32) -> &Node {
        &self.all[node as usize]
    }
}

impl std::ops::IndexMut<u32> for Nodes {
    fn index_mut(&mut self, node: u32) -> &mut Node {
        &mut self.all[node as usize]
    }
}

#[cfg(test)]
mod tests;
