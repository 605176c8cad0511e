//! Graphs on a simulated chip: recorded at the first call, replayed as one task, the same results as task by task.

mod failed_runs;
mod random;
mod slices;

use std::time::Duration;

use device::{
    Chip, ChipArgs, ChipCallable, ChipGraphArgs, ChipOrchestrator, Condition, CoreArgs,
    DeviceError, DeviceTensor, GraphCounts, Kernel, KernelContext, KernelError, OrchestrationError,
    RunReport, SimFault, SimOptions, TaskFault, core_args,
};
use taskgraph::{DType, Scalar};

use crate::support::{chain, sim};

type Built = Result<(), OrchestrationError>;

/// A chip with vectors of 8 integers, and what a test's callable is called with.
struct Bench {
    chip: Box<dyn Chip>,
    args: ChipArgs,
}

const LEN: usize = 8;

impl Bench {
    fn new(n_tensors: usize) -> Self {
        Self::with(SimOptions::default(), n_tensors)
    }

    fn with(options: SimOptions, n_tensors: usize) -> Self {
        let mut bench = Self {
            chip: sim(options),
            args: ChipArgs::new(),
        };
        (0..n_tensors).for_each(|_| bench.add(LEN));
        bench
    }

    /// One more vector, all zero.
    fn add(&mut self, len: usize) {
        let address = self.chip.malloc(4 * len as u64).unwrap();
        self.chip.copy_to(address, &vec![0; 4 * len]).unwrap();
        let tensor = DeviceTensor::contiguous(address, DType::I32, &[len as u64]).unwrap();
        self.args.tensors.push(tensor);
    }

    fn set(&mut self, tensor: usize, values: &[i32]) {
        let address = self.args.tensors[tensor].buffer_address();
        self.chip
            .copy_to(address, bytemuck::cast_slice(values))
            .unwrap();
    }

    fn get(&mut self, tensor: usize) -> Vec<i32> {
        let tensor = self.args.tensors[tensor];
        let mut values = vec![0; tensor.num_elements() as usize];
        let to = bytemuck::cast_slice_mut(&mut values);
        self.chip.copy_from(to, tensor.buffer_address()).unwrap();
        values
    }

    fn run(&mut self, callable: &'static ChipCallable) -> Result<RunReport, DeviceError> {
        let slot = self.chip.register(callable)?;
        device::run(&mut *self.chip, slot, self.args.clone())
    }
}

const KERNELS: &[Kernel] = &[
    Kernel::vector("fill", fill),
    Kernel::vector("add", add),
    Kernel::matrix("scale", scale),
];

/// Every element becomes the scalar.
fn fill(cx: &mut KernelContext<'_>) -> Result<(), KernelError> {
    cx.output::<i32>(0)?.fill(cx.scalar(0)?);
    Ok(())
}

/// `to = x + y`.
fn add(cx: &mut KernelContext<'_>) -> Result<(), KernelError> {
    let (x, y) = (cx.input::<i32>(0)?, cx.input::<i32>(1)?);
    let sums = x.iter().zip(y).map(|(x, y)| x.wrapping_add(*y));
    cx.output::<i32>(2)?
        .iter_mut()
        .zip(sums)
        .for_each(|(to, sum)| *to = sum);
    Ok(())
}

/// `x *= scalar`.
fn scale(cx: &mut KernelContext<'_>) -> Result<(), KernelError> {
    let by: i32 = cx.scalar(0)?;
    cx.output::<i32>(0)?
        .iter_mut()
        .for_each(|x| *x = x.wrapping_mul(by));
    Ok(())
}

/// `y = (x + x) * s`, over intermediate memory.
fn twice_scaled(orch: &mut ChipOrchestrator<'_>, args: &ChipGraphArgs) -> Built {
    let (x, y) = (args.tensor(0)?, args.tensor(1)?);
    let sum = orch.alloc_like(x)?;
    let zero = orch.alloc_like(x)?;
    orch.submit("fill", core_args().output(&zero).scalar(0_i32))?;
    orch.submit("add", core_args().input(x).input(x).output(&sum))?;
    orch.submit("scale", core_args().inout(&sum).scalar(args.scalar(0)?))?;
    orch.submit("add", core_args().input(&sum).input(&zero).output(y))?;
    Ok(())
}

fn counts(replayed: u64, recorded: u64, mismatched: u64, refused: u64) -> GraphCounts {
    GraphCounts {
        replayed,
        recorded,
        mismatched,
        refused,
    }
}

/// `b = 2a * 3`, `c = 2b * s`, `a = 2c * -1`, then from and to the halves of a longer vector.
static REBOUND: ChipCallable = ChipCallable::new(
    "rebound",
    |orch, args| {
        let (a, b, c, long) = (
            args.tensor(0)?,
            args.tensor(1)?,
            args.tensor(2)?,
            args.tensor(3)?,
        );
        let halves = [0..8, 8..16].map(|half| long.slice(0, half));
        let [first, second] = halves;
        let (first, second) = (first?, second?);
        for (x, y, by) in [
            (a, b, Scalar::I32(3)),
            (b, c, args.scalar(0)?),
            (c, a, Scalar::I32(-1)),
            (a, &first, Scalar::I32(1)),
            (&first, &second, Scalar::I32(1)),
        ] {
            orch.graph(twice_scaled, &[], core_args().input(x).output(y).scalar(by))?;
        }
        Ok(())
    },
    KERNELS,
);

#[test]
fn every_replay_reads_and_writes_what_that_call_names() {
    let mut bench = Bench::new(3);
    bench.add(16);
    for (round, s) in [5_i32, -2].into_iter().enumerate() {
        bench.args.scalars = [Scalar::I32(s)].into_iter().collect();
        let a: Vec<i32> = (0..8).map(|i| i + 10 * round as i32).collect();
        bench.set(0, &a);
        let report = bench.run(&REBOUND).unwrap();
        let of = |factor: i32| a.iter().map(|a| a * factor).collect::<Vec<_>>();
        assert_eq!(bench.get(1), of(6));
        assert_eq!(bench.get(2), of(12 * s));
        assert_eq!(bench.get(0), of(-24 * s));
        assert_eq!(bench.get(3), [of(-48 * s), of(-96 * s)].concat());
        let is_first = u64::from(round == 0);
        assert_eq!(
            report.graphs,
            counts(5 - is_first, is_first, 0, 0),
            "kept from run to run"
        );
        assert_eq!(report.tasks, 20);
    }
}

/// The parameter decides how many tasks there are, the boundary scalar is passed on.
static SHAPED: ChipCallable = ChipCallable::new(
    "shaped",
    |orch, args| {
        let Scalar::U64(n) = args.scalar(0)? else {
            return Err(OrchestrationError::refuse("n"));
        };
        orch.graph(
            shaped,
            &[n],
            core_args().inout(args.tensor(0)?).scalar(args.scalar(1)?),
        )
    },
    KERNELS,
);

fn shaped(orch: &mut ChipOrchestrator<'_>, args: &ChipGraphArgs) -> Built {
    for _ in 0..args.param(0)? {
        orch.submit(
            "scale",
            core_args().inout(args.tensor(0)?).scalar(args.scalar(0)?),
        )?;
    }
    Ok(())
}

#[test]
fn parameters_are_part_of_the_key_and_the_least_recently_used_recordings_go() {
    let mut bench = Bench::new(1);
    let mut run = |n: u64, by: i32| {
        bench.args.scalars = [Scalar::U64(n), Scalar::I32(by)].into_iter().collect();
        bench.set(0, &[1; LEN]);
        let graphs = bench.run(&SHAPED).unwrap().graphs;
        assert_eq!(bench.get(0), [by.wrapping_pow(n as u32); LEN]);
        graphs
    };
    assert_eq!(run(0, 7), counts(0, 1, 0, 0), "a graph without tasks");
    for n in 1..300 {
        assert_eq!(run(n, 3), counts(0, 1, 0, 0), "{n}");
        assert_eq!(run(1, -1), counts(1, 0, 0, 0), "it stays in use");
    }
    assert_eq!(run(299, 5), counts(1, 0, 0, 0));
    assert_eq!(
        run(2, 5),
        counts(0, 1, 0, 0),
        "it was forgotten, and starts anew"
    );
}

/// The first tensor as it is, and a part of it; then with a scalar of another type, if that is asked for.
static OTHER_SHAPE: ChipCallable = ChipCallable::new(
    "other_shape",
    |orch, args| {
        let (x, y) = (args.tensor(0)?, args.tensor(1)?);
        let part = |t: &DeviceTensor| t.slice(0, 0..3);
        let (x3, y3) = (part(x)?, part(y)?);
        let call = |x, y| core_args().input(x).output(y).scalar(10_i32);
        orch.graph(twice_scaled, &[], call(x, y))?;
        orch.graph(twice_scaled, &[], call(&x3, &y3))?;
        match args.scalar(0)? {
            Scalar::Bool(true) => {
                let call = core_args().input(x).output(y).scalar(10_u32);
                orch.graph(twice_scaled, &[], call)
            }
            _ => Ok(()),
        }
    },
    KERNELS,
);

#[test]
fn a_call_that_does_not_fit_is_built_task_by_task_and_counted() {
    let mut bench = Bench::new(2);
    bench.set(0, &[1, 2, 3, 4, 5, 6, 7, 8]);
    bench.args.scalars.push(Scalar::Bool(false));
    assert_eq!(bench.run(&OTHER_SHAPE).unwrap().graphs, counts(0, 1, 1, 0));
    assert_eq!(bench.get(1), [20, 40, 60, 80, 100, 120, 140, 160]);
    bench.args.scalars[0] = Scalar::Bool(true);
    let error = bench.run(&OTHER_SHAPE).unwrap_err();
    assert!(
        chain(&error).ends_with("use scalar argument 0 as i32: it is U32(10)"),
        "what goes wrong in it goes wrong as always: {}",
        chain(&error)
    );
    assert!(bench.chip.unusable().is_none());
}

/// Uses the second tensor without naming it.
static HIDDEN: ChipCallable = ChipCallable::new(
    "hidden",
    |orch, args| {
        // A body is a function: the only way to a tensor of the run that it was not given is this.
        HIDDEN_TENSOR.set(Some(*args.tensor(1)?));
        orch.graph(hidden, &[], core_args().inout(args.tensor(0)?))?;
        orch.submit("scale", core_args().inout(args.tensor(0)?).scalar(2_i32))?;
        Ok(())
    },
    KERNELS,
);

std::thread_local! {
    static HIDDEN_TENSOR: std::cell::Cell<Option<DeviceTensor>> = const { std::cell::Cell::new(None) };
}

fn hidden(orch: &mut ChipOrchestrator<'_>, args: &ChipGraphArgs) -> Built {
    let other = HIDDEN_TENSOR.get().expect("it was set");
    let x = args.tensor(0)?;
    orch.submit("fill", core_args().output(x).scalar(1_i32))?;
    let copy = orch.alloc_like(x)?;
    orch.submit("add", core_args().input(x).input(&other).output(&copy))?;
    orch.submit("add", core_args().input(&copy).input(&copy).output(x))?;
    Ok(())
}

#[test]
fn a_body_that_cannot_be_recorded_runs_task_by_task_and_once() {
    let mut bench = Bench::new(2);
    bench.set(1, &[20; LEN]);
    for _ in 0..2 {
        let report = bench.run(&HIDDEN).unwrap();
        assert_eq!((report.graphs, report.tasks), (counts(0, 0, 0, 1), 4));
        assert_eq!(bench.get(0), [84; LEN]);
    }
}

/// Fails or panics at its third task, as the parameter says.
static FAILING: ChipCallable = ChipCallable::new(
    "failing",
    |orch, args| {
        let Scalar::U64(how) = args.scalar(0)? else {
            return Err(OrchestrationError::refuse("how"));
        };
        HOW.set(how);
        orch.graph(failing, &[], core_args().inout(args.tensor(0)?))
    },
    KERNELS,
);

std::thread_local! {
    static HOW: std::cell::Cell<u64> = const { std::cell::Cell::new(0) };
}

fn failing(orch: &mut ChipOrchestrator<'_>, args: &ChipGraphArgs) -> Built {
    let x = args.tensor(0)?;
    orch.submit("fill", core_args().output(x).scalar(3_i32))?;
    orch.submit("scale", core_args().inout(x).scalar(3_i32))?;
    match HOW.get() {
        0 => return Err(OrchestrationError::refuse("enough")),
        1 => panic!("too much"),
        2 => orch.submit("unheard of", core_args().inout(x))?,
        _ => orch.submit("scale", core_args().inout(x).scalar(-1_i32))?,
    };
    Ok(())
}

#[test]
fn a_body_that_fails_leaves_nothing_behind_and_the_next_call_records() {
    let mut bench = Bench::new(1);
    for (how, problem) in [
        (0, "enough"),
        (1, "it panicked: too much"),
        (2, "kernel `unheard of`"),
    ] {
        bench.args.scalars = [Scalar::U64(how)].into_iter().collect();
        let error = bench.run(&FAILING).unwrap_err();
        assert!(chain(&error).contains(problem), "{}", chain(&error));
        assert_eq!(bench.get(0), [0; LEN], "nothing of it was executed");
    }
    bench.args.scalars = [Scalar::U64(3)].into_iter().collect();
    assert_eq!(bench.run(&FAILING).unwrap().graphs, counts(0, 1, 0, 0));
    assert_eq!(bench.run(&FAILING).unwrap().graphs, counts(1, 0, 0, 0));
    assert_eq!(bench.get(0), [-9; LEN]);
}

/// Two graphs of which each looks at the flag that the run was called with.
static CONDITIONAL: ChipCallable = ChipCallable::new(
    "conditional",
    |orch, args| {
        let (flag, x) = (args.tensor(0)?, args.tensor(1)?);
        orch.graph(conditional, &[], core_args().inout(flag).output(x))?;
        orch.graph(
            conditional,
            &[],
            core_args().inout(flag).output(args.tensor(2)?),
        )
    },
    KERNELS,
);

fn conditional(orch: &mut ChipOrchestrator<'_>, args: &ChipGraphArgs) -> Built {
    let (flag, x) = (args.tensor(0)?, args.tensor(1)?);
    let yes = core_args().output(x).scalar(1_i32);
    orch.submit("fill", yes.only_if(flag, &[3], Condition::NonZero)?)?;
    let no = core_args().output(x).scalar(-1_i32);
    orch.submit("fill", no.only_if(flag, &[3], Condition::Zero)?)?;
    // The next graph finds the opposite.
    let zeroed = core_args().output(flag).scalar(0_i32);
    orch.submit("fill", zeroed.only_if(flag, &[3], Condition::NonZero)?)?;
    Ok(())
}

#[test]
fn a_predicate_in_a_replay_reads_the_operand_of_now() {
    let mut bench = Bench::new(3);
    for (flag, expected) in [(1, [1, -1]), (0, [-1, -1]), (9, [1, -1])] {
        bench.set(0, &[flag; LEN]);
        let report = bench.run(&CONDITIONAL).unwrap();
        assert_eq!([bench.get(1)[0], bench.get(2)[0]], expected, "flag {flag}");
        assert_eq!(report.tasks + report.skipped, 6);
    }
}

/// Two graphs, one by one or replayed.
static TWO_GRAPHS: ChipCallable = ChipCallable::new(
    "two_graphs",
    |orch, args| {
        let (x, y) = (args.tensor(0)?, args.tensor(1)?);
        for (x, y) in [(x, y), (y, x)] {
            let call: CoreArgs<'_> = core_args().input(x).output(y).scalar(1_i32);
            match args.scalar(0)? {
                Scalar::Bool(true) => orch.graph(twice_scaled, &[], call)?,
                _ => orch.call(twice_scaled, &[], call)?,
            }
        }
        Ok(())
    },
    KERNELS,
);

#[test]
fn a_fault_inside_a_replay_is_found_at_the_same_place_as_without_a_graph() {
    for kind in [TaskFault::Hardware, TaskFault::Hang, TaskFault::StrayWrite] {
        let texts = [false, true].map(|as_graph| {
            let fault = SimFault::Task {
                run: 1,
                task: 6,
                kind,
            };
            let options = SimOptions {
                faults: vec![fault],
                op_timeout: Duration::ZERO,
                ..SimOptions::default()
            };
            let mut bench = Bench::with(options, 2);
            bench.args.scalars.push(Scalar::Bool(as_graph));
            let report = bench.run(&TWO_GRAPHS).unwrap();
            assert_eq!(report.graphs.recorded, u64::from(as_graph));
            let error = bench.run(&TWO_GRAPHS).unwrap_err();
            assert_eq!(
                bench.chip.unusable().is_some(),
                kind != TaskFault::StrayWrite
            );
            bench.chip.probe().unwrap();
            chain(&error)
        });
        assert!(texts[0].contains("task 6 (kernel `scale`"), "{}", texts[0]);
        let without_core = |text: &str| text.split(", AIC core").next().map(str::to_owned);
        assert_eq!(without_core(&texts[0]), without_core(&texts[1]));
    }
}

/// A graph in a graph, which passes its scalar on.
static NESTED: ChipCallable = ChipCallable::new(
    "nested",
    |orch, args| {
        let call = core_args().input(args.tensor(0)?).output(args.tensor(1)?);
        orch.graph(outer, &[], call.scalar(args.scalar(0)?))
    },
    KERNELS,
);

fn outer(orch: &mut ChipOrchestrator<'_>, args: &ChipGraphArgs) -> Built {
    let between = orch.alloc_like(args.tensor(0)?)?;
    let s = args.scalar(0)?;
    let call = core_args()
        .input(args.tensor(0)?)
        .output(&between)
        .scalar(s);
    orch.graph(twice_scaled, &[], call)?;
    let call = core_args()
        .input(&between)
        .output(args.tensor(1)?)
        .scalar(s);
    orch.graph(twice_scaled, &[], call)
}

#[test]
fn a_graph_inside_of_a_graph_becomes_part_of_it_and_its_scalars_stay_scalars() {
    let mut bench = Bench::new(2);
    for s in [3, -5] {
        bench.set(0, &[1; LEN]);
        bench.args.scalars = [Scalar::I32(s)].into_iter().collect();
        let report = bench.run(&NESTED).unwrap();
        assert_eq!(
            (
                report.tasks,
                report.graphs.recorded + report.graphs.replayed
            ),
            (8, 1)
        );
        assert_eq!(bench.get(1), [4 * s * s; LEN]);
    }
}

/// Blocks and an order that no graph has.
static MISUSED: ChipCallable = ChipCallable::new(
    "misused",
    |orch, args| {
        let x = args.tensor(0)?;
        let call = core_args().inout(x).scalar(1_u64);
        let refused = orch.graph(shaped, &[1], call.blocks(2)).unwrap_err();
        assert!(refused.to_string().contains("blocks and predicates"));
        let short = orch
            .graph(twice_scaled, &[], core_args().inout(x))
            .unwrap_err();
        assert_eq!(short.to_string(), "use tensor argument 1 of 1");
        let twice = core_args().output(x).output(x).scalar(1_i32);
        let overlap = orch.graph(twice_scaled, &[], twice).unwrap_err();
        assert!(overlap.to_string().contains("tensor 1"), "{overlap}");
        let task = orch.submit("fill", core_args().output(x).scalar(4_i32))?;
        // After a task, and behind everything that touches its tensors.
        orch.graph(shaped, &[1], core_args().inout(x).scalar(5_i32).after(task))
    },
    KERNELS,
);

#[test]
fn wrong_calls_are_refused_with_a_reason_and_the_run_goes_on() {
    let mut bench = Bench::new(1);
    assert_eq!(bench.run(&MISUSED).unwrap().graphs, counts(0, 1, 0, 0));
    assert_eq!(bench.get(0), [20; LEN]);
}

/// Looks at its scalar in every way there is.
static CURIOUS: ChipCallable = ChipCallable::new(
    "curious",
    |orch, args| {
        let call = core_args().output(args.tensor(0)?).scalar(4321_i32);
        orch.graph(curious, &[], call)
    },
    KERNELS,
);

fn curious(orch: &mut ChipOrchestrator<'_>, args: &ChipGraphArgs) -> Built {
    let task = core_args()
        .output(args.tensor(0)?)
        .scalar(args.scalar(0)?)
        .scalar(1234_i32);
    let (shown, given) = (format!("{task:?}"), format!("{args:?}"));
    assert!(shown.contains("1234"), "a constant may be seen: {shown}");
    assert!(
        !shown.contains("4321") && !given.contains("4321"),
        "{shown}"
    );
    orch.submit("fill", task)?;
    Ok(())
}

#[test]
fn a_body_does_not_see_the_value_of_a_scalar_in_what_is_printed() {
    let mut bench = Bench::new(1);
    assert_eq!(bench.run(&CURIOUS).unwrap().graphs, counts(0, 1, 0, 0));
    assert_eq!(bench.get(0), [4321; LEN]);
}
