//! Runs that end while graphs of them are not yet prepared, and graphs that memory is short for.

use super::*;

std::thread_local! {
    /// What the kernel `may_fail` and the orchestrations below do: fail if it is not 0.
    static TROUBLE: std::cell::Cell<u64> = const { std::cell::Cell::new(0) };
}

const KERNELS: &[Kernel] = &[
    Kernel::vector("fill", fill),
    Kernel::vector("may_fail", may_fail),
    Kernel::matrix("scale", scale),
];

/// Fails, or writes 1.
fn may_fail(cx: &mut KernelContext<'_>) -> Result<(), KernelError> {
    if TROUBLE.get() != 0 {
        return Err(KernelError::fail("as it was told to"));
    }
    cx.output::<i32>(0)?.fill(1);
    Ok(())
}

/// As many tasks as the parameter says, which double `x`.
fn doublings(orch: &mut ChipOrchestrator<'_>, args: &ChipGraphArgs) -> Built {
    for _ in 0..args.param(0)? {
        orch.submit("scale", core_args().inout(args.tensor(0)?).scalar(2_i32))?;
    }
    Ok(())
}

/// A graph, and then the orchestration returns, fails or panics.
static GIVES_UP: ChipCallable = ChipCallable::new(
    "gives_up",
    |orch, args| {
        let x = args.tensor(0)?;
        orch.submit("fill", core_args().output(x).scalar(1_i32))?;
        orch.graph(doublings, &[3], core_args().inout(x))?;
        match TROUBLE.get() {
            0 => Ok(()),
            1 => Err(OrchestrationError::refuse("enough")),
            _ => panic!("too much"),
        }
    },
    KERNELS,
);

/// Behind a task that may fail a graph of more nodes than one step prepares.
static FAILS_BEFORE: ChipCallable = ChipCallable::new(
    "fails_before",
    |orch, args| {
        let x = args.tensor(0)?;
        orch.submit("may_fail", core_args().output(x))?;
        orch.graph(doublings, &[100], core_args().inout(x))?;
        orch.submit("fill", core_args().output(x).scalar(8_i32))?;
        Ok(())
    },
    KERNELS,
);

/// So many single tasks that room has to be made for them.
static MANY: ChipCallable = ChipCallable::new(
    "many",
    |orch, args| {
        for i in 0..3000 {
            let x = args.tensor(0)?;
            orch.submit("fill", core_args().output(x).scalar(i))?;
        }
        Ok(())
    },
    KERNELS,
);

/// Fails, then runs well, on one chip; and then a run that needs every slot.
#[track_caller]
fn fails_then_runs(callable: &'static ChipCallable, trouble: u64, problem: &str) {
    let mut bench = Bench::new(1);
    for round in 0..3 {
        TROUBLE.set(trouble);
        let error = chain(&bench.run(callable).unwrap_err());
        assert!(error.ends_with(problem), "round {round}: {error}");
        TROUBLE.set(0);
        bench.set(0, &[-7; LEN]);
        let report = bench.run(callable).unwrap();
        assert_ne!(report.tasks, 0, "round {round}");
        assert_eq!(bench.get(0), [8; LEN], "round {round}");
    }
    assert_eq!(bench.run(&MANY).unwrap().tasks, 3000);
    assert_eq!(bench.get(0), [2999; LEN]);
}

#[test]
fn an_orchestration_that_fails_behind_a_graph_leaves_nothing_to_the_next_run() {
    fails_then_runs(&GIVES_UP, 1, "enough");
}

#[test]
fn an_orchestration_that_panics_behind_a_graph_leaves_nothing_to_the_next_run() {
    fails_then_runs(&GIVES_UP, 2, "too much");
}

#[test]
fn a_task_that_fails_while_a_graph_is_prepared_leaves_nothing_to_the_next_run() {
    fails_then_runs(&FAILS_BEFORE, 1, "as it was told to");
}

/// Most of the memory of the chip, for nothing.
fn hoards(orch: &mut ChipOrchestrator<'_>, args: &ChipGraphArgs) -> Built {
    orch.alloc(DType::U8, &[args.param(0)?])?;
    Ok(())
}

/// Twice a graph that takes as much memory as the first scalar says, and then one that takes twice that.
static HOARDS: ChipCallable = ChipCallable::new(
    "hoards",
    |orch, args| {
        let Scalar::U64(bytes) = args.scalar(0)? else {
            return Err(OrchestrationError::refuse("bytes"));
        };
        for _ in 0..2 {
            orch.graph(hoards, &[bytes], core_args())?;
        }
        orch.graph(hoards, &[2 * bytes], core_args())
    },
    KERNELS,
);

#[test]
fn graphs_without_tasks_share_memory_and_one_that_does_not_fit_is_refused() {
    let options = SimOptions {
        memory_bytes: 1 << 20,
        ..SimOptions::default()
    };
    let mut bench = Bench::with(options, 0);
    bench.args.scalars.push(Scalar::U64(600 << 10));
    let error = chain(&bench.run(&HOARDS).unwrap_err());
    assert!(error.contains("allocate 1228800 bytes"), "{error}");
    bench.args.scalars[0] = Scalar::U64(200 << 10);
    let report = bench.run(&HOARDS).unwrap();
    assert_eq!(report.graphs.recorded + report.graphs.replayed, 3);
}
