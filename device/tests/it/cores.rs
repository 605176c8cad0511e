//! What runs on the cores of a simulated chip, when, and beside what: MIX blocks, predicates,
//! explicit order, bounded memory, several host threads, traces.

use std::sync::{Mutex, PoisonError};

use device::{
    Chip, ChipArgs, ChipCallable, Condition, CoreType, DeviceError, DeviceTensor, Kernel,
    KernelContext, KernelError, Lane, OrchestrationError, RunReport, SimOptions, TraceLane,
    core_args, trace_json,
};
use taskgraph::{DType, Scalar, Tag};

use crate::support::{FOUR_TASKS, FourTasks, chain, sim};

/// A chip with `n` integers, all zero, as its first argument.
struct Bench {
    chip: Box<dyn Chip>,
    args: ChipArgs,
    n: usize,
}

impl Bench {
    fn new(options: SimOptions, n: usize) -> Self {
        let mut chip = sim(options);
        let address = chip.malloc(4 * n as u64).unwrap();
        chip.copy_to(address, &vec![0; 4 * n]).unwrap();
        let tensor = DeviceTensor::contiguous(address, DType::I32, &[n as u64]).unwrap();
        Self {
            chip,
            args: ChipArgs::new().with_tensor(tensor),
            n,
        }
    }

    fn with_scalar(mut self, scalar: impl Into<Scalar>) -> Self {
        self.args = self.args.with_scalar(scalar);
        self
    }

    fn run(&mut self, callable: &'static ChipCallable) -> Result<RunReport, DeviceError> {
        let slot = self.chip.register(callable)?;
        device::run(&mut *self.chip, slot, self.args.clone())
    }

    fn values(&mut self) -> Vec<i32> {
        let mut values = vec![0; self.n];
        let address = self.args.tensor(0).unwrap().buffer_address();
        self.chip
            .copy_from(bytemuck::cast_slice_mut(&mut values), address)
            .unwrap();
        values
    }
}

/// A MIX kernel: the matrix core writes, the vector cores each turn a half around, the matrix core
/// adds up.
static MIX: ChipCallable = ChipCallable {
    name: "mix",
    orchestration: |orch, args| {
        let sum = orch.alloc(DType::I32, &[1])?;
        orch.submit("mix", core_args().inout(args.tensor(0)?).output(&sum))?;
        Ok(())
    },
    kernels: &[Kernel::mix("mix", mix)],
};

fn mix(cx: &mut KernelContext<'_>) -> Result<(), KernelError> {
    let half = cx.tensor(0)?.num_elements() as usize / 2;
    if cx.lane() == Lane::Aic {
        (0..).zip(cx.output::<i32>(0)?).for_each(|(i, x)| *x = i);
    }
    cx.sync()?;
    match cx.lane() {
        Lane::Aic => {}
        Lane::Aiv0 => cx
            .output_range::<i32>(0, 0..half)?
            .iter_mut()
            .for_each(|x| *x = -*x),
        Lane::Aiv1 => cx
            .output_range::<i32>(0, half..2 * half)?
            .iter_mut()
            .for_each(|x| *x *= 10),
    }
    cx.sync()?;
    if cx.lane() == Lane::Aic {
        let values = cx.output::<i32>(0)?;
        values[0] = values.iter().sum();
    }
    Ok(())
}

#[test]
fn the_cores_of_a_mix_block_run_together_and_meet_at_barriers() {
    let mut bench = Bench::new(SimOptions::default(), 8);
    let report = bench.run(&MIX).unwrap();
    assert_eq!(report.tasks, 1);
    let sum = -(1 + 2 + 3) + 10 * (4 + 5 + 6 + 7);
    assert_eq!(bench.values(), [sum, -1, -2, -3, 40, 50, 60, 70]);
}

/// The scalar chooses what goes wrong in a MIX block.
static BROKEN_MIX: ChipCallable = ChipCallable {
    name: "broken_mix",
    orchestration: |orch, args| {
        let scalar = args.scalar(0)?;
        orch.submit("mix", core_args().inout(args.tensor(0)?).scalar(scalar))?;
        Ok(())
    },
    kernels: &[Kernel::mix("mix", broken_mix)],
};

fn broken_mix(cx: &mut KernelContext<'_>) -> Result<(), KernelError> {
    match (cx.scalar::<u64>(0)?, cx.lane()) {
        (0, Lane::Aiv1) => return Ok(()), // Ends before the barrier.
        (1, Lane::Aiv0) => return Err(KernelError::fail("the vector core has had enough")),
        (2, Lane::Aiv0) => panic!("out of range"),
        (3, _) => cx.output::<i32>(0)?.fill(1), // All three at once.
        _ => {}
    }
    cx.sync()
}

#[test]
fn a_core_that_leaves_its_mix_block_is_an_error_and_never_a_wait() {
    let texts: Vec<String> = (0..4_u64)
        .map(|what| {
            let mut bench = Bench::new(SimOptions::default(), 8).with_scalar(what);
            let error = bench.run(&BROKEN_MIX).unwrap_err();
            assert!(bench.chip.unusable().is_none());
            chain(&error).split_once("chip 0: ").unwrap().1.to_owned()
        })
        .collect();
    assert!(
        texts[0].ends_with(": core AIV 1 of the block has ended"),
        "{}",
        texts[0]
    );
    assert_eq!(texts[1], "the vector core has had enough");
    assert_eq!(texts[2], "finish: it panicked: out of range");
    assert!(
        texts[3].ends_with("overlaps memory that this kernel already holds"),
        "{}",
        texts[3]
    );
}

/// Writes a flag on the chip, then three tasks of which each looks at it.
static CONDITIONAL: ChipCallable = ChipCallable {
    name: "conditional",
    orchestration: |orch, args| {
        let x = args.tensor(0)?;
        let flag = orch.alloc(DType::I32, &[2])?;
        orch.submit("set", core_args().output(&flag).scalar(args.scalar(0)?))?;
        let element = |i: u64| x.slice(0, i..i + 1);
        let (a, b) = (element(0)?, element(1)?);
        orch.submit(
            "one",
            core_args()
                .output(&a)
                .only_if(&flag, &[1], Condition::NonZero)?,
        )?;
        orch.submit(
            "one",
            core_args()
                .output(&b)
                .only_if(&flag, &[1], Condition::Zero)?,
        )?;
        orch.submit("copy", core_args().input(&a).output(&element(2)?))?;
        Ok(())
    },
    kernels: &[
        Kernel::vector("set", set),
        Kernel::vector("one", one),
        Kernel::vector("copy", copy),
    ],
};

fn set(cx: &mut KernelContext<'_>) -> Result<(), KernelError> {
    let value = cx.scalar::<i32>(0)?;
    cx.output::<i32>(0)?.copy_from_slice(&[0, value]);
    Ok(())
}

fn one(cx: &mut KernelContext<'_>) -> Result<(), KernelError> {
    cx.output::<i32>(0)?.fill(1);
    Ok(())
}

fn copy(cx: &mut KernelContext<'_>) -> Result<(), KernelError> {
    cx.output::<i32>(1)?.copy_from_slice(cx.input::<i32>(0)?);
    Ok(())
}

#[test]
fn a_predicate_reads_its_element_on_the_chip_when_the_inputs_are_ready() {
    for (flag, expected) in [(7, [1, 0, 1]), (0, [0, 1, 0])] {
        let mut bench = Bench::new(SimOptions::default(), 3).with_scalar(flag);
        let report = bench.run(&CONDITIONAL).unwrap();
        assert_eq!(bench.values(), expected);
        assert_eq!(
            (report.tasks, report.skipped),
            (3, 1),
            "what follows a skipped task runs"
        );
    }
}

/// Appends the number of each task that runs.
static ORDER: Mutex<Vec<u64>> = Mutex::new(Vec::new());

/// Task 1 follows task 0 although they share nothing; without that, its queue is served first.
static ORDERED: ChipCallable = ChipCallable {
    name: "ordered",
    orchestration: |orch, _| {
        let first = orch.submit("vector", core_args().scalar(0_u64))?;
        orch.submit("matrix", core_args().scalar(1_u64).after(first))?;
        Ok(())
    },
    kernels: &[
        Kernel::vector("vector", note),
        Kernel::matrix("matrix", note),
    ],
};

fn note(cx: &mut KernelContext<'_>) -> Result<(), KernelError> {
    ORDER
        .lock()
        .unwrap_or_else(PoisonError::into_inner)
        .push(cx.scalar(0)?);
    Ok(())
}

#[test]
fn a_task_waits_for_the_one_it_is_told_to_follow() {
    Bench::new(SimOptions::default(), 1).run(&ORDERED).unwrap();
    assert_eq!(*ORDER.lock().unwrap(), [0, 1]);
}

/// As many increments of one element as the scalar says: each waits for the one before.
static CHAIN: ChipCallable = ChipCallable {
    name: "chain",
    orchestration: |orch, args| {
        let Scalar::U64(n) = args.scalar(0)? else {
            return Err(OrchestrationError::refuse("n"));
        };
        for _ in 0..n {
            orch.submit("increment", core_args().inout(args.tensor(0)?))?;
        }
        Ok(())
    },
    kernels: &[Kernel::vector("increment", increment)],
};

fn increment(cx: &mut KernelContext<'_>) -> Result<(), KernelError> {
    let x = cx.output::<i32>(0)?;
    if x[0] == 3000 {
        return Err(KernelError::fail("three thousand are enough"));
    }
    x[0] += 1;
    Ok(())
}

#[test]
fn a_run_may_have_more_tasks_than_fit_at_once() {
    let mut bench = Bench::new(SimOptions::default(), 1).with_scalar(2500_u64);
    assert_eq!(bench.run(&CHAIN).unwrap().tasks, 2500);
    assert_eq!(bench.values(), [2500]);
}

#[test]
fn a_task_that_fails_while_more_are_submitted_is_the_cause_of_its_run() {
    let mut bench = Bench::new(SimOptions::default(), 1).with_scalar(10_000_u64);
    let error = bench.run(&CHAIN).unwrap_err();
    assert!(
        chain(&error).ends_with("three thousand are enough"),
        "{}",
        chain(&error)
    );
    assert!(
        matches!(error, DeviceError::Kernel { task, .. } if task.task == 3000),
        "{error}"
    );
    assert_eq!(bench.values(), [3000]);
}

/// Blocks that add up what the whole input holds, over several cores and, if allowed, threads.
static WIDE: ChipCallable = ChipCallable {
    name: "wide",
    orchestration: |orch, args| {
        let x = args.tensor(0)?;
        let ones = orch.alloc_like(x)?;
        orch.submit("one", core_args().output(&ones))?;
        for _ in 0..4 {
            orch.submit("sum", core_args().input(&ones).inout(x).blocks(32))?;
        }
        orch.submit(
            "unordered",
            core_args().tensor(x, Tag::NoDep).input(&ones).blocks(8),
        )?;
        Ok(())
    },
    kernels: &[
        Kernel::vector("one", one),
        Kernel::vector("sum", sum),
        Kernel::matrix("unordered", unordered),
    ],
};

fn sum(cx: &mut KernelContext<'_>) -> Result<(), KernelError> {
    let mut rounds = 0;
    // Long enough for threads to be worth it.
    for _ in 0..20 {
        rounds = cx.input::<i32>(0)?.iter().sum();
    }
    cx.output_block::<i32>(1)?
        .iter_mut()
        .for_each(|x| *x += rounds);
    Ok(())
}

fn unordered(cx: &mut KernelContext<'_>) -> Result<(), KernelError> {
    cx.output_block::<i32>(0)?.iter_mut().for_each(|x| *x += 0);
    Ok(())
}

#[test]
fn several_host_threads_give_the_same_result_as_one() {
    let n = 20_000;
    for host_threads in [1, 2, 4] {
        let mut bench = Bench::new(
            SimOptions {
                host_threads,
                ..SimOptions::default()
            },
            n,
        );
        for _ in 0..2 {
            let report = bench.run(&WIDE).unwrap();
            assert_eq!((report.tasks, report.blocks), (6, 1 + 4 * 32 + 8));
        }
        assert_eq!(
            bench.values(),
            vec![2 * 4 * n as i32; n],
            "{host_threads} threads"
        );
    }
}

#[test]
fn a_trace_has_a_lane_for_the_orchestration_the_scheduler_and_each_core_used() {
    let mut chip = sim(SimOptions {
        trace: true,
        ..SimOptions::default()
    });
    let work = FourTasks::on(&mut *chip, 8);
    let slot = chip.register(&FOUR_TASKS).unwrap();
    device::run(&mut *chip, slot, work.args.clone()).unwrap();
    let events = chip.take_trace();
    let on_cores: Vec<_> = events
        .iter()
        .filter_map(|event| match event.lane {
            TraceLane::Core(core, idx) => Some((event.name, core, idx, event.task)),
            _ => None,
        })
        .collect();
    assert_eq!(on_cores.len(), 4);
    assert!(
        on_cores.contains(&("add", CoreType::Aiv, 0, Some((0, 0)))),
        "{on_cores:?}"
    );
    assert!(
        on_cores.contains(&("mul", CoreType::Aic, 0, Some((2, 0)))),
        "{on_cores:?}"
    );
    assert!(
        events
            .iter()
            .any(|event| event.lane == TraceLane::Orchestration)
    );
    let slices: Vec<_> = events
        .iter()
        .filter(|it| matches!(it.lane, TraceLane::Scheduler(_)))
        .collect();
    let end = |it: &device::TraceEvent| it.start_ns + it.duration_ns;
    for event in events.iter().filter(|event| event.task.is_some()) {
        let inside = |slice: &&&device::TraceEvent| {
            slice.start_ns <= event.start_ns && end(event) <= end(slice)
        };
        assert!(slices.iter().any(|slice| inside(&slice)), "{event:?}");
    }
    let json: serde_json::Value = serde_json::from_str(&trace_json(0, &events)).unwrap();
    let named = |event: &serde_json::Value| event["name"] == "thread_name";
    let lanes = json
        .as_array()
        .unwrap()
        .iter()
        .filter(|event| named(event))
        .count();
    assert_eq!(json.as_array().unwrap().len(), events.len() + lanes);
    assert!(chip.take_trace().is_empty(), "taken once");
}
