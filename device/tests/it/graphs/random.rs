//! Random bodies: replayed, they leave the same memory behind as task by task.

use std::cell::RefCell;

use device::{ChipCallable, ChipGraphArgs, ChipOrchestrator, Condition, DeviceTensor, core_args};
use proptest::prelude::*;
use taskgraph::Scalar;

use super::{Bench, Built, KERNELS, LEN};

/// Tensors of the boundary, and intermediate ones.
const BOUNDARY: usize = 4;
const INTERNAL: usize = 2;

/// Scalars of the boundary.
const SCALARS: usize = 2;

/// A tensor, and which half of it, if not all.
type Part = (usize, Option<bool>);

#[derive(Clone, Debug)]
enum Op {
    Fill(Part, Value),
    Scale(Part, Value),
    /// Of equal length: all three halves, or none.
    Add(Part, Part, Part),
}

#[derive(Clone, Copy, Debug)]
enum Value {
    Constant(i32),
    Boundary(usize),
}

#[derive(Clone, Debug)]
struct Task {
    op: Op,
    /// Runs only if an element says so.
    only_if: Option<(usize, bool)>,
    /// Follows an earlier task, by its distance.
    after: Option<usize>,
}

std::thread_local! {
    static PROGRAM: RefCell<Vec<Task>> = const { RefCell::new(Vec::new()) };
}

static RANDOM: ChipCallable = ChipCallable::new(
    "random",
    |orch, args| {
        let all = args
            .tensors
            .iter()
            .fold(core_args(), |all, tensor| all.inout(tensor));
        let all = all.scalar(args.scalar(0)?).scalar(args.scalar(1)?);
        match args.scalar(2)? {
            Scalar::Bool(true) => orch.graph(body, &[], all),
            _ => orch.call(body, &[], all),
        }
    },
    KERNELS,
);

fn body(orch: &mut ChipOrchestrator<'_>, args: &ChipGraphArgs) -> Built {
    let mut tensors = Vec::new();
    for at in 0..BOUNDARY {
        tensors.push(*args.tensor(at)?);
    }
    for _ in 0..INTERNAL {
        let internal = orch.alloc_like(args.tensor(0)?)?;
        orch.submit("fill", core_args().output(&internal).scalar(1_i32))?;
        tensors.push(internal);
    }
    let mut submitted = Vec::new();
    for task in PROGRAM.with_borrow(Clone::clone) {
        let parts = parts(&task.op, &tensors)?;
        let (kernel, mut call) = match task.op {
            Op::Fill(..) => ("fill", core_args().output(&parts[0])),
            Op::Scale(..) => ("scale", core_args().inout(&parts[0])),
            Op::Add(..) => {
                let call = core_args().input(&parts[0]).input(&parts[1]);
                ("add", call.output(&parts[2]))
            }
        };
        if let Op::Fill(_, value) | Op::Scale(_, value) = task.op {
            call = match value {
                Value::Constant(value) => call.scalar(value),
                Value::Boundary(at) => call.scalar(args.scalar(at)?),
            };
        }
        if let Some((tensor, is_zero)) = task.only_if {
            let condition = if is_zero {
                Condition::Zero
            } else {
                Condition::NonZero
            };
            call = call.only_if(&tensors[tensor], &[0], condition)?;
        }
        if let Some(earlier) = task
            .after
            .and_then(|back| submitted.len().checked_sub(back + 1))
        {
            call = call.after(submitted[earlier]);
        }
        submitted.push(orch.submit(kernel, call)?);
    }
    Ok(())
}

fn parts(
    op: &Op,
    tensors: &[DeviceTensor],
) -> Result<Vec<DeviceTensor>, device::OrchestrationError> {
    let all = match op {
        Op::Fill(x, _) | Op::Scale(x, _) => vec![*x],
        Op::Add(x, y, z) => vec![*x, *y, *z],
    };
    let part = |(tensor, half): &Part| match half {
        None => Ok(tensors[*tensor]),
        Some(false) => tensors[*tensor].slice(0, 0..LEN as u64 / 2),
        Some(true) => tensors[*tensor].slice(0, LEN as u64 / 2..LEN as u64),
    };
    all.iter().map(part).collect()
}

fn value() -> impl Strategy<Value = Value> {
    prop_oneof![
        (-3..4).prop_map(Value::Constant),
        (0..SCALARS).prop_map(Value::Boundary)
    ]
}

fn tensor() -> std::ops::Range<usize> {
    0..BOUNDARY + INTERNAL
}

fn op() -> impl Strategy<Value = Op> {
    let part = || (tensor(), any::<Option<bool>>());
    // A kernel may not hold what it reads and what it writes at once where they overlap.
    let add = (tensor(), tensor(), tensor(), any::<Option<[bool; 3]>>());
    let add = add.prop_map(|(x, y, z, halves)| {
        let half = |at: usize| halves.map(|halves| halves[at]);
        let z = if z == x || z == y { free_of(x, y) } else { z };
        Op::Add((x, half(0)), (y, half(1)), (z, half(2)))
    });
    prop_oneof![
        (part(), value()).prop_map(|(x, value)| Op::Fill(x, value)),
        (part(), value()).prop_map(|(x, value)| Op::Scale(x, value)),
        add,
    ]
}

/// A tensor that is neither of the two.
fn free_of(x: usize, y: usize) -> usize {
    tensor()
        .find(|it| *it != x && *it != y)
        .expect("there are more than two")
}

fn task() -> impl Strategy<Value = Task> {
    let only_if = proptest::option::weighted(0.25, (tensor(), any::<bool>()));
    let after = proptest::option::weighted(0.1, 0..4_usize);
    (op(), only_if, after).prop_map(|(op, only_if, after)| Task { op, only_if, after })
}

/// What one run leaves in all tensors of the boundary.
fn run(bench: &mut Bench, as_graph: bool, round: i32, order: &[usize; BOUNDARY]) -> Vec<Vec<i32>> {
    let tensors = bench.args.tensors.clone();
    bench.args.tensors = order.iter().map(|at| tensors[*at]).collect();
    bench.args.scalars = [
        Scalar::I32(round),
        Scalar::I32(7 - round),
        Scalar::Bool(as_graph),
    ]
    .into_iter()
    .collect();
    for tensor in 0..BOUNDARY {
        let values: Vec<i32> = (0..LEN as i32)
            .map(|i| (i + round) % 3 * (tensor as i32 + 1))
            .collect();
        bench.set(tensor, &values);
    }
    let report = bench.run(&RANDOM).unwrap();
    let graphs = report.graphs.recorded + report.graphs.replayed;
    assert_eq!(graphs, u64::from(as_graph), "nothing fell back");
    let found = (0..BOUNDARY).map(|tensor| bench.get(tensor)).collect();
    bench.args.tensors = tensors;
    found
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 100, ..ProptestConfig::default() })]

    #[test]
    fn a_replay_leaves_the_same_memory_behind_as_the_tasks_one_by_one(
        program in proptest::collection::vec(task(), 0..40),
        host_threads in 1..3_usize,
    ) {
        PROGRAM.set(program);
        let options = device::SimOptions { host_threads, ..Default::default() };
        let mut bench = Bench::with(options, BOUNDARY);
        for (round, order) in [(1, [0, 1, 2, 3]), (2, [3, 1, 0, 2]), (0, [1, 0, 3, 2])] {
            let [expected, found] = [false, true].map(|as_graph| run(&mut bench, as_graph, round, &order));
            prop_assert_eq!(expected, found, "round {}", round);
        }
    }
}
