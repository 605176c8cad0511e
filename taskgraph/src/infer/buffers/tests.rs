//! The table of buffers stays as large as what was in use at once, whatever passes through.

use super::super::index::Nodes;
use super::super::records::Records;
use super::{Buffers, ROOM_MIN, Role};
use crate::buffer::{BufferId, BufferKind};
use crate::infer::NONE;
use crate::view::View;

/// A table, and the records that keep its buffers.
struct Table {
    buffers: Buffers,
    records: Records,
    nodes: Nodes,
}

fn id(number: u64) -> BufferId {
    BufferId::new(1, number, 0, BufferKind::Shared)
}

impl Table {
    fn new() -> Table {
        Table {
            buffers: Buffers::default(),
            records: Records::default(),
            nodes: Nodes::default(),
        }
    }

    /// A record on this buffer.
    fn enter(&mut self, number: u64) -> (u32, u32) {
        let buffer = self.buffers.enter(&id(number));
        let view = View::dense(0, 8);
        let record = self.records.add((0, NONE), buffer, &view, Role::Writer);
        let index = self.buffers[buffer].index(Role::Writer);
        index.insert(record, &mut self.nodes, &mut self.records);
        (buffer, record)
    }

    fn leave(&mut self, (buffer, record): (u32, u32)) {
        let index = self.buffers[buffer].index(Role::Writer);
        index.remove(record, &mut self.nodes, &mut self.records);
        self.records.remove(record);
    }

    /// Buffers pass through, `at_once` of them at a time; each is found while it has its record.
    fn pass(&mut self, numbers: std::ops::Range<u64>, at_once: usize) {
        for start in numbers.step_by(at_once) {
            let all = start..start + at_once as u64;
            let entered: Vec<_> = all.clone().map(|number| self.enter(number)).collect();
            for (number, (buffer, _)) in all.zip(&entered) {
                assert_eq!(self.buffers.enter(&id(number)), *buffer);
            }
            entered.into_iter().for_each(|entered| self.leave(entered));
        }
        assert_eq!(self.buffers.n_used(), 0);
    }
}

#[test]
fn buffers_that_come_once_do_not_make_the_table_grow() {
    for at_once in [1, 100, 3000] {
        let mut table = Table::new();
        table.pass(0..150_000, at_once);
        let n_buckets = table.buffers.table.len();
        assert!(
            n_buckets <= (8 * at_once).max(2 * ROOM_MIN),
            "{n_buckets} for {at_once}"
        );
        assert!(table.buffers.all.len() <= n_buckets / 2);
    }
}

#[test]
fn a_buffer_that_is_kept_is_found_again() {
    let mut table = Table::new();
    let first = table.enter(7);
    table.leave(first);
    assert_eq!(table.buffers.enter(&id(7)), first.0);
}

#[test]
fn buffers_of_one_bucket_are_told_apart() {
    let mut table = Table::new();
    let mask = table.buffers.table.len() as u64 - 1;
    let colliding = (0..u64::MAX).filter(|&number| id(number).hash() & mask == mask);
    let colliding: Vec<_> = colliding.take(20).collect();
    let entered: Vec<_> = colliding.iter().map(|&n| table.enter(n).0).collect();
    let mut distinct = entered.clone();
    distinct.sort_unstable();
    distinct.dedup();
    assert_eq!(distinct.len(), 20, "each has a number of its own");
    for (number, buffer) in colliding.iter().zip(entered) {
        assert_eq!(table.buffers.enter(&id(*number)), buffer);
    }
}
