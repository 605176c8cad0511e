//! Random programs against an oracle that knows every byte: who wrote it last, who read it since.
//!
//! `TASKGRAPH_PROGRAMS` sets how many programs of each kind run.

use super::*;
use crate::args::Tag;
use crate::buffer::{BufferId, BufferKind};
use crate::dtype::DType;
use crate::tensor::Tensor;

const N_BUFFERS: usize = 2;
/// Rows and columns of a buffer, in bytes.
const SIDE: u64 = 8;
const N_TASKS: usize = 120;

/// Xorshift: equal seeds give equal programs.
struct Random(u64);

impl Random {
    fn below(&mut self, bound: u64) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        (self.0 >> 11) % bound
    }

    /// A range inside of `0..len`.
    fn range(&mut self, len: u64) -> std::ops::Range<u64> {
        let (a, b) = (self.below(len + 1), self.below(len + 1));
        a.min(b)..a.max(b)
    }
}

/// What happened to one byte: the last writer, and the readers since.
#[derive(Clone, Default)]
struct Byte {
    writer: Option<usize>,
    readers: Vec<usize>,
}

/// A program as it runs, the ledger beside the oracle.
struct Program {
    ledger: Ledger,
    chains: Vec<u32>,
    bytes: Vec<[Byte; 64]>,
    /// For each task, the tasks it was told to follow.
    edges: Vec<Vec<usize>>,
    live: Vec<usize>,
    n_edges: usize,
    n_needless: usize,
}

/// What the views of a program look like.
#[derive(Clone, Copy)]
enum Views {
    /// Any run of bytes.
    Intervals,
    /// Any part of the matrix.
    Tiles,
    /// Runs and pairs of runs, few of them at a time: a buffer goes from a list of records to a tree and back.
    Mixed,
    /// One of the eight tiles of a grid, or, one time in so many, any part of the matrix.
    Grid { stray: Option<u64> },
}

/// Rows and columns of a tile of the grid.
const TILE: [u64; 2] = [4, 2];

impl Views {
    /// One view of the matrix.
    fn any(self, random: &mut Random, whole: &Tensor) -> Tensor {
        let [rows, columns] = match self {
            Views::Intervals => {
                let flat = whole.reshape(&[SIDE * SIDE]).unwrap();
                return flat.slice(0, random.range(SIDE * SIDE)).unwrap();
            }
            Views::Mixed if random.below(3) == 0 => {
                let len = 1 + random.below(3);
                let stride = len + 4 + random.below(16);
                let first = random.below(SIDE * SIDE - stride - len + 1);
                let (shape, strides) = ([2, len], [stride, 1]);
                let (buffer, bytes) = (whole.buffer(), SIDE * SIDE);
                return Tensor::strided(buffer, DType::U8, first, &shape, &strides, bytes).unwrap();
            }
            Views::Mixed => {
                let len = 1 + random.below(14);
                let first = random.below(SIDE * SIDE - len + 1);
                let flat = whole.reshape(&[SIDE * SIDE]).unwrap();
                return flat.slice(0, first..first + len).unwrap();
            }
            Views::Grid { stray } if stray.is_none_or(|stray| random.below(stray) > 0) => {
                TILE.map(|len| {
                    let first = len * random.below(SIDE / len);
                    first..first + len
                })
            }
            Views::Tiles | Views::Grid { .. } => [random.range(SIDE), random.range(SIDE)],
        };
        whole.slice(0, rows).unwrap().slice(1, columns).unwrap()
    }
}

fn access(random: &mut Random, views: Views) -> (usize, Tensor, Tag) {
    let index = match views {
        Views::Mixed => 0,
        _ => random.below(N_BUFFERS as u64) as usize,
    };
    let buffer = BufferId::new(1, index as u64, 0, BufferKind::Shared);
    let whole = Tensor::contiguous(buffer, DType::U8, &[SIDE, SIDE], 64).unwrap();
    let tensor = views.any(random, &whole);
    let tag = match views {
        Views::Mixed => [Tag::Input, Tag::Output][usize::from(random.below(4) > 0)],
        _ => {
            [Tag::Input, Tag::Input, Tag::Input, Tag::Output, Tag::InOut][random.below(5) as usize]
        }
    };
    (index, tensor, tag)
}

/// The bytes of a tensor, by hand.
fn bytes_of(tensor: &Tensor) -> Vec<usize> {
    let mut all = vec![tensor.byte_offset()];
    for (&len, &stride) in tensor.shape().iter().zip(tensor.strides()) {
        all = all
            .iter()
            .flat_map(|at| (0..len).map(move |i| at + i * stride))
            .collect();
    }
    all.into_iter().map(|at| at as usize).collect()
}

impl Program {
    fn new() -> Program {
        Program {
            ledger: Ledger::default(),
            chains: Vec::new(),
            bytes: (0..N_BUFFERS)
                .map(|_| std::array::from_fn(|_| Byte::default()))
                .collect(),
            edges: Vec::new(),
            live: Vec::new(),
            n_edges: 0,
            n_needless: 0,
        }
    }

    /// Submits a task; reads come before writes, as the scheduler gives them.
    fn submit(&mut self, accesses: &[(usize, Tensor, Tag)]) {
        let task = self.edges.len();
        let (mut chain, mut found) = (NONE, Vec::new());
        let all: Vec<_> = accesses
            .iter()
            .map(|(_, tensor, tag)| Access::new(tensor, *tag))
            .collect();
        let meets = |a: &Access, b: &Access| a.buffer == b.buffer && a.view.overlaps(&b.view);
        let is_met = |a: &Access| {
            all.iter()
                .any(|b| a.tag.writes() != b.tag.writes() && meets(a, b))
        };
        if all.iter().any(is_met) {
            self.ledger
                .access_all(task as u32, &mut chain, all.iter(), |_, other, _| {
                    found.push(other as usize);
                });
        } else {
            self.ledger
                .access_apart(task as u32, &mut chain, &all, |other, _| {
                    found.push(other as usize);
                });
        }
        self.chains.push(chain);
        found.sort_unstable();
        found.dedup();
        let expected = self.expected(task, accesses);
        self.compare(&found, &expected);
        self.edges.push(found);
        self.live.push(task);
    }

    /// What the bytes say, and what the task does to them.
    fn expected(&mut self, task: usize, accesses: &[(usize, Tensor, Tag)]) -> Vec<usize> {
        let mut expected = Vec::new();
        for (buffer, tensor, tag) in accesses {
            for at in bytes_of(tensor) {
                let byte = &self.bytes[*buffer][at];
                expected.extend(byte.writer);
                expected.extend(byte.readers.iter().filter(|_| tag.writes()));
            }
        }
        for (buffer, tensor, tag) in accesses {
            for at in bytes_of(tensor) {
                let byte = &mut self.bytes[*buffer][at];
                if tag.writes() {
                    *byte = Byte {
                        writer: Some(task),
                        readers: Vec::new(),
                    };
                } else if byte.writer != Some(task) {
                    byte.readers.push(task);
                }
            }
        }
        expected.retain(|other| *other != task && self.live.contains(other));
        expected.sort_unstable();
        expected.dedup();
        expected
    }

    fn compare(&mut self, found: &[usize], expected: &[usize]) {
        for wanted in expected {
            let is_told = found
                .iter()
                .any(|&other| other == *wanted || self.follows(other, *wanted));
            assert!(
                is_told,
                "an edge is missing: {found:?} should lead to {wanted}"
            );
        }
        assert!(
            found.iter().all(|other| self.live.contains(other)),
            "an edge to an ended task"
        );
        self.n_edges += found.len();
        self.n_needless += found
            .iter()
            .filter(|other| !expected.contains(other))
            .count();
    }

    /// Whether `later` follows `earlier` over any number of edges.
    fn follows(&self, later: usize, earlier: usize) -> bool {
        let nearer = self.edges[later].iter().filter(|other| **other >= earlier);
        nearer
            .into_iter()
            .any(|&other| other == earlier || self.follows(other, earlier))
    }

    /// Ends one task that has nothing to wait for.
    fn retire_one(&mut self, random: &mut Random) {
        let is_ready = |task: &&usize| !self.edges[**task].iter().any(|e| self.live.contains(e));
        let ready: Vec<_> = self.live.iter().filter(is_ready).copied().collect();
        let task = ready[random.below(ready.len() as u64) as usize];
        self.live.retain(|other| *other != task);
        self.ledger
            .retire(std::mem::replace(&mut self.chains[task], NONE));
    }

    fn run(mut self, seed: u64, views: Views) -> (usize, usize) {
        let mut random = Random(seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1);
        let live_max = match views {
            Views::Mixed => 4 + random.below(5) as usize,
            _ => 1 + random.below(40) as usize,
        };
        let mut earlier: Vec<Vec<_>> = Vec::new();
        for _ in 0..N_TASKS {
            // Half of the tasks do what an earlier one did, as the layers of a model do.
            let again = random.below(2 * earlier.len() as u64 + 1) as usize;
            let accesses = earlier.get(again).cloned().unwrap_or_else(|| {
                let n = match views {
                    Views::Mixed => 1,
                    _ => 1 + random.below(4),
                };
                let new = (0..n).map(|_| access(&mut random, views)).collect();
                without_overlapping_writes(new)
            });
            self.submit(&accesses);
            earlier.insert(0, accesses);
            earlier.truncate(if matches!(views, Views::Mixed) { 8 } else { 3 });
            while self.live.len() > live_max {
                self.retire_one(&mut random);
            }
        }
        while !self.live.is_empty() {
            self.retire_one(&mut random);
        }
        assert_eq!(self.ledger.n_records(), 0);
        assert_eq!(self.ledger.records.len(), 0);
        assert_eq!(self.ledger.nodes.exact.len(), 0);
        assert_eq!(self.ledger.buffers.n_used(), 0);
        (self.n_edges, self.n_needless)
    }
}

/// Two writes of one task never meet: arguments like that are refused before they come here.
fn without_overlapping_writes(accesses: Vec<(usize, Tensor, Tag)>) -> Vec<(usize, Tensor, Tag)> {
    let mut kept: Vec<(usize, Tensor, Tag)> = Vec::new();
    for access in accesses {
        let meets = |other: &(usize, Tensor, Tag)| {
            let both_write = access.2.writes() && other.2.writes();
            both_write && access.0 == other.0 && access.1.view().overlaps(&other.1.view())
        };
        if !kept.iter().any(meets) {
            kept.push(access);
        }
    }
    kept
}

fn run_programs(views: Views) -> (usize, usize) {
    let n = std::env::var("TASKGRAPH_PROGRAMS")
        .ok()
        .and_then(|n| n.parse().ok())
        .unwrap_or(150);
    // Those of one kind are short of rare coincidences, and quick.
    let n = match views {
        Views::Mixed => 8 * n,
        _ => n,
    };
    let runs = (0..n).map(|seed| Program::new().run(seed, views));
    runs.fold((0, 0), |all, one| (all.0 + one.0, all.1 + one.1))
}

#[test]
fn programs_over_intervals_get_exactly_the_edges_that_the_bytes_ask_for() {
    let (n_edges, n_needless) = run_programs(Views::Intervals);
    println!("intervals: {n_edges} edges, {n_needless} needless");
    assert!(n_edges > 1000);
    assert_eq!(n_needless, 0);
}

#[test]
fn programs_over_tiles_miss_no_edge() {
    let (n_edges, n_needless) = run_programs(Views::Tiles);
    println!("tiles: {n_edges} edges, {n_needless} of them implied by others");
    assert!(n_edges > 1000);
}

#[test]
fn programs_over_runs_and_pairs_of_runs_miss_no_edge() {
    let (n_edges, n_needless) = run_programs(Views::Mixed);
    println!("mixed: {n_edges} edges, {n_needless} of them implied by others");
    assert!(n_edges > 1000);
}

#[test]
fn programs_over_a_grid_get_exactly_the_edges_that_the_bytes_ask_for() {
    let (n_edges, n_needless) = run_programs(Views::Grid { stray: None });
    println!("grid: {n_edges} edges, {n_needless} needless");
    assert!(n_edges > 1000);
    assert_eq!(n_needless, 0);
}

#[test]
fn programs_that_leave_their_grid_now_and_then_miss_no_edge() {
    for stray in [4, 40, 400] {
        let (n_edges, _) = run_programs(Views::Grid { stray: Some(stray) });
        assert!(n_edges > 1000);
    }
}
