//! The index against a plain list, through random insertions and removals.

use proptest::prelude::*;

use super::super::records::Role;
use super::*;
use crate::buffer::{BufferId, BufferKind};
use crate::dtype::DType;
use crate::tensor::Tensor;

#[derive(Clone, Debug)]
enum Op {
    Insert(View),
    /// The record at this place among the live ones, wrapped round.
    Remove(usize),
    Find(View),
}

/// Runs and tiles of a matrix of 64 rows, and a few whole ones.
fn view() -> impl Strategy<Value = View> {
    let buffer = BufferId::new(1, 1, 0, BufferKind::Shared);
    let matrix = Tensor::contiguous(buffer, DType::U8, &[64, 64], 4096).unwrap();
    let flat = matrix.reshape(&[4096]).unwrap();
    let run = move |lo: u64, len: u64| flat.slice(0, lo..(lo + len).min(4096)).unwrap().view();
    let tile = move |r: u64, c: u64, h: u64, w: u64| {
        let rows = matrix.slice(0, r..(r + h).min(64)).unwrap();
        rows.slice(1, c..(c + w).min(64)).unwrap().view()
    };
    prop_oneof![
        6 => (0..4090u64, 1..40u64).prop_map(move |(lo, len)| run(lo, len)),
        6 => (0..64u64, 0..64u64, 1..9u64, 1..9u64).prop_map(move |(r, c, h, w)| tile(r, c, h, w)),
        2 => (0..60u64).prop_map(move |c| tile(0, c, 64, 4)),
        1 => Just(matrix.view()),
    ]
}

fn op() -> impl Strategy<Value = Op> {
    prop_oneof![
        5 => view().prop_map(Op::Insert),
        3 => any::<usize>().prop_map(Op::Remove),
        1 => view().prop_map(Op::Find),
    ]
}

/// An index, and beside it the list of what is on it.
struct Pair {
    index: Index,
    nodes: Nodes,
    records: Records,
    list: Vec<u32>,
}

impl Pair {
    fn new() -> Pair {
        let (nodes, records) = (Nodes::default(), Records::default());
        Pair {
            index: Index::EMPTY,
            nodes,
            records,
            list: Vec::new(),
        }
    }

    fn insert(&mut self, view: &View) {
        let record = self.records.add((0, NONE), 0, view, Role::Writer);
        self.index
            .insert(record, &mut self.nodes, &mut self.records);
        self.list.push(record);
    }

    fn remove(&mut self, at: usize) {
        let record = self.list.swap_remove(at);
        self.index
            .remove(record, &mut self.nodes, &mut self.records);
        self.records.remove(record);
    }

    /// What the index finds, and what the list holds.
    fn find(&self, view: &View) -> (Vec<u32>, Vec<u32>) {
        let mut hits = Vec::new();
        self.index.find(view, &self.nodes, &self.records, &mut hits);
        hits.sort_unstable();
        let meets = |record: &u32| self.records.meets(*record, view);
        let mut expected: Vec<_> = self.list.iter().copied().filter(meets).collect();
        expected.sort_unstable();
        (hits, expected)
    }

    fn apply(&mut self, op: &Op) {
        let n = self.list.len();
        match op {
            Op::Insert(view) => self.insert(view),
            Op::Remove(at) if n > 0 => self.remove(at % n),
            _ => {}
        }
    }

    fn check_nodes(&self) {
        let mut n_exact = 0;
        if let Some((root, _)) = self.index.tree() {
            let depth = self.check_node(root, NONE);
            assert!(depth < 8);
            n_exact = self.list.len();
        }
        assert_eq!(self.nodes.exact.len(), n_exact, "all writers of a tree");
    }

    /// The sole writer that meets a view, where the index knows one.
    fn sole(&self, view: &View) -> Option<u32> {
        self.index.tree()?;
        self.index.sole(0, view, &self.nodes, &self.records)
    }

    /// The shape of the tree: order, boxes, back pointers, equal depth.
    fn check_node(&self, at: u32, parent: u32) -> usize {
        let node = &self.nodes[at];
        assert_eq!(node.parent, parent);
        assert!(node.len > 0);
        assert!(node.keys().is_sorted());
        let entries = node.entries();
        let monotone = entries.is_sorted_by_key(|entry| entry.bounds.last_key());
        assert!(monotone || !node.is_monotone);
        let mut depths = node.entries().iter().zip(node.keys()).map(|(entry, key)| {
            if node.is_leaf {
                assert_eq!(self.records[entry.to].leaf, at);
                assert_eq!(*key, entry.bounds.key());
                return 0;
            }
            assert!(*key <= self.nodes[entry.to].keys[0]);
            let mut held = entry.bounds;
            held.grow(&self.nodes[entry.to].bounds());
            assert_eq!(held, entry.bounds, "a box is too small");
            1 + self.check_node(entry.to, at)
        });
        let first = depths.next().unwrap_or(0);
        assert!(depths.all(|depth| depth == first));
        first
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]
    #[test]
    fn an_index_finds_what_a_list_would(ops in prop::collection::vec(op(), 0..600)) {
        let mut pair = Pair::new();
        for op in &ops {
            pair.apply(op);
            if let Op::Find(view) = op {
                let (found, expected) = pair.find(view);
                prop_assert_eq!(found, expected);
                pair.check_nodes();
            }
        }
        while !pair.list.is_empty() {
            pair.remove(0);
        }
        prop_assert_eq!(pair.nodes.len(), 0, "nodes are left");
        prop_assert_eq!(pair.records.len(), 0);
    }
}

#[test]
fn ascending_insertions_leave_full_nodes_behind() {
    let mut pair = Pair::new();
    for i in 0..10_000 {
        pair.insert(&View::dense(8 * i, 8 * i + 8));
    }
    let full = 10_000_usize.div_ceil(WIDTH);
    assert!(
        pair.nodes.len() < full * 11 / 10 + 8,
        "{} nodes",
        pair.nodes.len()
    );
}

#[test]
fn sparse_nodes_are_joined() {
    let mut pair = Pair::new();
    for i in 0..10_000 {
        pair.insert(&View::dense(8 * i, 8 * i + 8));
    }
    for at in (0..10_000).rev().filter(|at| at % 32 != 0) {
        pair.remove(at);
    }
    assert_eq!(pair.list.len(), 313);
    assert!(
        pair.nodes.len() < 64,
        "{} nodes for 313 records",
        pair.nodes.len()
    );
}

#[test]
fn a_search_among_columns_meets_few_of_them() {
    let mut pair = Pair::new();
    (0..4096).for_each(|c| pair.insert(&column(c)));
    let mut hits = Vec::new();
    let (root, period) = pair.index.tree().unwrap();
    let bounds = Bounds::of(&column(1234), period);
    pair.nodes.find(root, &bounds, &mut hits);
    assert_eq!(hits, [1234]);
}

fn column(c: u64) -> View {
    let buffer = BufferId::new(1, 1, 0, BufferKind::Shared);
    let matrix = Tensor::contiguous(buffer, DType::U8, &[64, 4096], 1 << 20).unwrap();
    matrix.slice(1, c..c + 1).unwrap().view()
}

#[test]
fn a_tile_of_many_that_share_no_byte_is_found_by_its_bytes_alone() {
    let mut pair = Pair::new();
    (0..100).for_each(|c| pair.insert(&column(c)));
    for c in 0..100 {
        assert_eq!(pair.sole(&column(c)), Some(c as u32));
    }
    assert_eq!(pair.sole(&column(100)), None, "no writer has these bytes");
    assert_eq!(pair.sole(&View::dense(0, 1)), None, "a part of a column");
    pair.remove(7);
    assert_eq!(pair.sole(&column(7)), None, "it is gone");
}

#[test]
fn no_writer_is_sole_where_two_have_met() {
    let mut pair = Pair::new();
    (0..5).for_each(|c| pair.insert(&column(c)));
    pair.index.note_meeting();
    assert_eq!(pair.sole(&column(0)), None);
    // In a list nobody noted it; it shows when the list becomes a tree, wherever the two stand.
    for meeting in 0..5 {
        let mut pair = Pair::new();
        for c in 0..5 {
            let whole = View::dense(0, 1 << 18);
            pair.insert(&if c == meeting { whole } else { column(c) });
        }
        assert!((0..5).all(|c| pair.sole(&column(c)).is_none()));
    }
}
