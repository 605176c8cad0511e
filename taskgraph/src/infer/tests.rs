//! What a ledger finds and keeps, access by access.

use super::*;
use crate::args::Tag;
use crate::buffer::{BufferId, BufferKind};
use crate::dtype::DType;
use crate::tensor::Tensor;

/// A ledger with the chain of every task, task 0 first.
#[derive(Default)]
struct Tasks {
    ledger: Ledger,
    chains: Vec<u32>,
}

impl Tasks {
    /// The tasks that a new one must follow.
    fn task(&mut self, accesses: &[(Tensor, Tag)]) -> Vec<(u32, Why)> {
        let task = self.chains.len() as u32;
        let (mut chain, mut found) = (NONE, Vec::new());
        for writes in [false, true] {
            for (tensor, tag) in accesses.iter().filter(|(_, tag)| tag.writes() == writes) {
                let access = Access::new(tensor, *tag);
                self.ledger
                    .access_all(task, &mut chain, [&access].into_iter(), |_, other, why| {
                        found.push((other, why));
                    });
            }
        }
        self.chains.push(chain);
        found.sort_by_key(|&(other, _)| other);
        found
    }

    fn retire(&mut self, task: usize) {
        self.ledger
            .retire(std::mem::replace(&mut self.chains[task], NONE));
    }
}

fn bytes(lo: u64, hi: u64) -> Tensor {
    let buffer = BufferId::new(1, 1, 0, BufferKind::Shared);
    let whole = Tensor::contiguous(buffer, DType::U8, &[1000], 1000).unwrap();
    whole.slice(0, lo..hi).unwrap()
}

use Tag::{InOut, Input, NoDep, Output};
use Why::{Data, Order};

#[test]
fn a_write_follows_the_readers_and_hides_what_was_before() {
    let (mut tasks, x) = (Tasks::default(), bytes(0, 100));
    assert_eq!(tasks.task(&[(x, InOut)]), []);
    assert_eq!(tasks.task(&[(x, Input)]), [(0, Data)]);
    assert_eq!(tasks.task(&[(x, Input)]), [(0, Data)]);
    assert_eq!(
        tasks.task(&[(x, InOut)]),
        [(0, Data), (1, Order), (2, Order)]
    );
    assert_eq!(tasks.task(&[(x, Output)]), [(3, Order)]);
    assert_eq!(tasks.task(&[(x, Input)]), [(4, Data)]);
}

#[test]
fn a_partial_write_keeps_the_older_writer_for_the_rest() {
    let mut tasks = Tasks::default();
    tasks.task(&[(bytes(0, 100), Output)]);
    assert_eq!(tasks.task(&[(bytes(40, 60), Output)]), [(0, Order)]);
    assert_eq!(tasks.task(&[(bytes(0, 10), Input)]), [(0, Data)]);
    assert_eq!(tasks.task(&[(bytes(45, 50), Input)]), [(1, Data)]);
    assert_eq!(tasks.task(&[(bytes(60, 61), Input)]), [(0, Data)]);
    assert_eq!(
        tasks.task(&[(bytes(0, 100), Input)]),
        [(0, Data), (0, Data), (1, Data)]
    );
}

#[test]
fn a_task_never_follows_itself() {
    let (mut tasks, x) = (Tasks::default(), bytes(0, 100));
    tasks.task(&[(x, Output)]);
    assert_eq!(
        tasks.task(&[(x, Output), (x, Input)]),
        [(0, Data), (0, Order)]
    );
    assert_eq!(
        tasks
            .task(&[(bytes(0, 50), Output), (bytes(50, 100), InOut)])
            .len(),
        2
    );
}

#[test]
fn other_buffers_and_untracked_views_never_meet() {
    let mut tasks = Tasks::default();
    tasks.task(&[(bytes(0, 100), Output)]);
    let other = BufferId::new(1, 1, 1, BufferKind::Shared);
    let other = Tensor::contiguous(other, DType::U8, &[1000], 1000).unwrap();
    assert_eq!(
        tasks.task(&[(other, Input), (bytes(0, 9), NoDep), (bytes(5, 5), InOut)]),
        []
    );
}

#[test]
fn a_retired_task_takes_its_own_records_only() {
    let mut tasks = Tasks::default();
    tasks.task(&[(bytes(0, 100), Output)]);
    tasks.task(&[(bytes(0, 100), Input)]);
    tasks.task(&[(bytes(20, 30), InOut)]);
    tasks.retire(0);
    assert_eq!(
        tasks.task(&[(bytes(0, 100), Output)]),
        [(1, Order), (1, Order), (2, Order)]
    );
    (1..4).for_each(|task| tasks.retire(task));
    assert_eq!(tasks.ledger.n_records(), 0);
    assert_eq!(tasks.ledger.buffers.n_used(), 0);
    assert_eq!(tasks.ledger.nodes.len(), 0);
}

#[test]
fn a_write_over_an_end_leaves_the_other_bytes_to_the_older_writer() {
    for (write, left, gone) in [
        ((0, 60), (60, 61), (59, 60)),
        ((40, 100), (39, 40), (40, 41)),
    ] {
        let mut tasks = Tasks::default();
        tasks.task(&[(bytes(0, 100), Output)]);
        tasks.task(&[(bytes(write.0, write.1), Output)]);
        assert_eq!(tasks.task(&[(bytes(left.0, left.1), Input)]), [(0, Data)]);
        assert_eq!(tasks.task(&[(bytes(gone.0, gone.1), Input)]), [(1, Data)]);
    }
}

#[test]
fn strided_tiles_are_told_apart_and_taken_over_whole() {
    let buffer = BufferId::new(1, 2, 0, BufferKind::Shared);
    let x = Tensor::contiguous(buffer, DType::F32, &[16, 16], 1024).unwrap();
    let columns = |a, b| x.slice(1, a..b).unwrap();
    let mut tasks = Tasks::default();
    assert_eq!(tasks.task(&[(columns(0, 4), Output)]), []);
    assert_eq!(tasks.task(&[(columns(4, 8), Output)]), []);
    assert_eq!(
        tasks.task(&[(columns(0, 8), InOut)]),
        [(0, Data), (1, Data)]
    );
    assert_eq!(tasks.task(&[(columns(2, 6), Input)]), [(2, Data)]);
    assert_eq!(tasks.task(&[(x, Output)]), [(2, Order), (3, Order)]);
    (0..5).for_each(|task| tasks.retire(task));
    assert_eq!(tasks.ledger.records.n_shapes(), 0);
}

impl Tasks {
    /// The same for a task of which no byte that it reads is one that it writes.
    fn task_apart(&mut self, accesses: &[(Tensor, Tag)]) -> Vec<(u32, Why)> {
        let all: Vec<_> = accesses
            .iter()
            .map(|(tensor, tag)| Access::new(tensor, *tag))
            .collect();
        let (mut chain, mut found) = (NONE, Vec::new());
        self.ledger
            .access_apart(self.chains.len() as u32, &mut chain, &all, |other, why| {
                found.push((other, why));
            });
        self.chains.push(chain);
        found.sort_by_key(|&(other, _)| other);
        found
    }

    fn n_readers(&mut self, tensor: &Tensor) -> usize {
        let buffer = self.ledger.buffers.enter(&tensor.buffer());
        self.ledger.buffers[buffer].readers.len()
    }
}

fn buffer(id: u64) -> Tensor {
    let buffer = BufferId::new(1, id, 0, BufferKind::Shared);
    Tensor::contiguous(buffer, DType::U8, &[100], 100).unwrap()
}

#[test]
fn what_a_chain_of_tasks_reads_has_one_record_and_its_writer_follows_the_last_of_them() {
    let mut tasks = Tasks::default();
    let (x, weights, other) = (buffer(1), buffer(2), buffer(3));
    let layer = [(weights, Input), (x, InOut), (other, Input)];
    assert_eq!(tasks.task_apart(&layer), []);
    for earlier in 0..9 {
        assert_eq!(tasks.task_apart(&layer), [(earlier, Data)]);
    }
    assert_eq!((tasks.n_readers(&weights), tasks.n_readers(&other)), (1, 1));
    assert_eq!(tasks.task(&[(weights, Output)]), [(9, Order)]);
    assert_eq!(tasks.task(&[(other, Output)]), [(9, Order)]);
    (0..12).for_each(|task| tasks.retire(task));
    assert_eq!(tasks.ledger.n_records(), 0);
}

#[test]
fn a_reader_of_the_same_bytes_that_is_not_followed_keeps_its_record() {
    let mut tasks = Tasks::default();
    let (x, y, weights) = (buffer(1), buffer(2), buffer(3));
    tasks.task_apart(&[(weights, Input), (x, InOut)]);
    assert_eq!(tasks.task_apart(&[(weights, Input), (y, InOut)]), []);
    // Follows the first of them: the second one has its record still.
    assert_eq!(
        tasks.task_apart(&[(weights, Input), (x, InOut)]),
        [(0, Data)]
    );
    assert_eq!(tasks.task(&[(weights, Output)]), [(1, Order), (2, Order)]);
}

#[test]
fn a_chain_that_changes_what_it_reads_finds_the_writers_of_all_of_it() {
    let mut tasks = Tasks::default();
    let (x, weights, half) = (buffer(1), buffer(2), buffer(2).slice(0, 0..50).unwrap());
    tasks.task_apart(&[(weights, Input), (x, InOut)]);
    // Other bytes of the same buffer, then another buffer, in the place of the first.
    assert_eq!(tasks.task_apart(&[(half, Input), (x, InOut)]), [(0, Data)]);
    assert_eq!(
        tasks.task_apart(&[(buffer(3), Input), (x, InOut)]),
        [(1, Data)]
    );
    assert_eq!(tasks.task(&[(weights, Output)]), [(0, Order), (1, Order)]);
    assert_eq!(tasks.task(&[(buffer(3), Output)]), [(2, Order)]);
    // The writer between two of the chain is found, though nothing else has changed.
    assert_eq!(
        tasks.task_apart(&[(buffer(3), Input), (x, InOut)]),
        [(2, Data), (4, Data)]
    );
}

#[test]
fn a_writer_whose_bytes_cannot_be_taken_is_found_below_a_reader_that_is_known() {
    let mut tasks = Tasks::default();
    let x = buffer(1);
    let backing = BufferId::new(1, 2, 0, BufferKind::Shared);
    let square = Tensor::contiguous(backing, DType::U8, &[10, 10], 100).unwrap();
    let columns = square.slice(1, 2..5).unwrap();
    tasks.task_apart(&[(square, Input), (x, InOut)]);
    // Writes a part of what was read, whose record stays as it is.
    assert_eq!(tasks.task(&[(columns, Output)]), [(0, Order)]);
    assert_eq!(
        tasks.task_apart(&[(square, Input), (x, InOut)]),
        [(0, Data), (1, Data)]
    );
}

/// The list of writers becomes a tree by the last piece of a run that a write cuts, before that write stands in it.
#[test]
fn a_write_that_makes_a_tree_of_the_writers_is_seen_by_who_uses_a_part_of_it() {
    for (tag, why) in [(Input, Data), (Output, Order)] {
        let mut tasks = Tasks::default();
        let both_ends = bytes(150, 260);
        let both_ends = Tensor::strided(
            both_ends.buffer(),
            DType::U8,
            150,
            &[2, 10],
            &[100, 1],
            1000,
        );
        let both_ends = both_ends.unwrap();
        tasks.task(&[(both_ends, Output)]);
        tasks.task(&[(bytes(100, 200), Output)]);
        tasks.task(&[(bytes(500, 510), Output)]);
        tasks.task(&[(bytes(600, 610), Output)]);
        let found = tasks.task(&[(bytes(120, 180), Output)]);
        assert_eq!(found, [(0, Order), (1, Order)]);
        let found = tasks.task(&[(both_ends, tag)]);
        assert!(found.contains(&(4, why)), "{tag:?}: {found:?}");
    }
}
