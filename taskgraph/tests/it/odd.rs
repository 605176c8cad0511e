//! Programs over odd tensors: up to five dimensions, packed elements, windows whose elements overlap, nothing at all, and
//! offsets at the far end of what a backing can be; held against plain sets of bits.

use std::collections::HashSet;

use taskgraph::*;

use crate::support::Bench;

/// Bytes of a buffer that programs use, at its very end.
const USED: u64 = 96;

/// A fixed sequence of numbers.
struct Random(u64);

impl Random {
    fn below(&mut self, n: u64) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        self.0 % n
    }

    fn pick<T: Copy>(&mut self, list: &[T]) -> T {
        list[self.below(list.len() as u64) as usize]
    }
}

/// A tensor in the last bytes of one of two buffers of the largest size; `None` when the numbers make none.
fn tensor(random: &mut Random) -> Option<Tensor> {
    let buffer = BufferId::new(
        u64::MAX,
        u64::MAX - random.below(2),
        u32::MAX,
        BufferKind::Shared,
    );
    let dtype = random.pick(&[
        DType::U8,
        DType::F16,
        DType::F32,
        DType::F64,
        DType::I4,
        DType::Bool,
    ]);
    let offset = BACKING_BYTES_MAX - USED + random.below(USED / 8) * 8;
    let rank = random.below(6) as usize;
    let shape: Vec<u64> = (0..rank)
        .map(|_| random.pick(&[0, 1, 1, 2, 2, 3, 4]))
        .collect();
    let strides: Vec<u64> = (0..rank).map(|_| 1 + random.below(12)).collect();
    Tensor::strided(buffer, dtype, offset, &shape, &strides, BACKING_BYTES_MAX).ok()
}

/// The bits that a tensor touches, with its buffer, one index after the other.
fn bits(tensor: &Tensor) -> HashSet<(u64, u64)> {
    let width = tensor.dtype().bits();
    let mut elements = vec![0u64];
    for (&len, &stride) in tensor.shape().iter().zip(tensor.strides()) {
        let step = |at: u64| elements.iter().map(move |element| element + at * stride);
        elements = (0..len).flat_map(step).collect();
    }
    let first = (tensor.byte_offset() - (BACKING_BYTES_MAX - USED)) * 8;
    let of = |element: u64| (0..width).map(move |bit| first + element * width + bit);
    let id = tensor.buffer().id;
    elements
        .into_iter()
        .flat_map(of)
        .map(|bit| (id, bit))
        .collect()
}

/// What a task of a program touches.
struct Touched {
    task: TaskId,
    reads: HashSet<(u64, u64)>,
    writes: HashSet<(u64, u64)>,
    has_ended: bool,
}

impl Touched {
    fn conflicts(&self, later: &Touched) -> bool {
        let meets = |a: &HashSet<_>, b: &HashSet<_>| !a.is_disjoint(b);
        meets(&self.writes, &later.writes)
            || meets(&self.writes, &later.reads)
            || meets(&self.reads, &later.writes)
    }
}

fn submit(bench: &mut Bench, random: &mut Random) -> Touched {
    let (mut args, mut reads, mut writes) = (TaskArgs::new(), HashSet::new(), HashSet::new());
    for _ in 0..1 + random.below(3) {
        let tag = random.pick(&[
            Tag::Input,
            Tag::Input,
            Tag::Output,
            Tag::InOut,
            Tag::OutputExisting,
        ]);
        let Some(tensor) = tensor(random) else {
            continue;
        };
        // Overlapping outputs of one task are refused.
        if args.tensor(tensor, tag).is_ok() {
            let touched = bits(&tensor);
            reads.extend(touched.iter().filter(|_| tag.reads()));
            writes.extend(touched.iter().filter(|_| tag.writes()));
        }
    }
    let on = Placement::On(random.pick(&bench.next_level));
    let spec = TaskSpec::new(on).args(&args);
    let task = bench.graph.submit(bench.run, &spec).unwrap();
    let has_ended = false;
    Touched {
        task,
        reads,
        writes,
        has_ended,
    }
}

/// Whatever is dispatched follows all that it conflicts with, and everything ends.
fn play(seed: u64) {
    let mut random = Random(seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1);
    let mut bench = Bench::new(4, 0, Depth::One);
    let mut program: Vec<Touched> = Vec::new();
    while program.len() < 40 || program.iter().any(|it| !it.has_ended) {
        if program.len() < 40 && random.below(3) > 0 {
            program.push(submit(&mut bench, &mut random));
        }
        for task in bench.dispatch() {
            let at = program
                .iter()
                .position(|it| it.task == task && !it.has_ended)
                .unwrap();
            let before = &program[..at];
            let missing = before
                .iter()
                .find(|it| !it.has_ended && it.conflicts(&program[at]));
            assert!(
                missing.is_none(),
                "seed {seed}: task {at} overtook an earlier one"
            );
        }
        if !bench.open.is_empty() && (program.len() == 40 || random.below(3) == 0) {
            let at = random.below(bench.open.len() as u64) as usize;
            let ended = bench.open.swap_remove(at);
            bench.graph.completed(ended.dispatch, Outcome::Ok).unwrap();
            let found = program
                .iter_mut()
                .find(|it| it.task == ended.task && !it.has_ended);
            found.unwrap().has_ended = true;
        } else if bench.open.is_empty() && program.len() == 40 {
            assert!(
                program.iter().all(|it| it.has_ended),
                "seed {seed}: a task waits for ever"
            );
        }
    }
    assert_eq!(
        (bench.graph.n_live_tasks(), bench.graph.n_records()),
        (0, 0),
        "seed {seed}"
    );
}

#[test]
fn no_edge_is_missing_between_odd_tensors() {
    (0..400).for_each(play);
}
