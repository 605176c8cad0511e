//! When a graph is prepared and started, and what memory it has meanwhile.

use device::{
    ChipCallable, ChipGraphArgs, ChipOrchestrator, SimOptions, TraceEvent, TraceLane, core_args,
};
use taskgraph::DType;

use super::{Bench, Built, KERNELS, LEN};

/// A long chain, and a graph of many tasks that needs its end.
static BEHIND_A_CHAIN: ChipCallable = ChipCallable::new(
    "behind_a_chain",
    |orch, args| {
        let (x, y) = (args.tensor(0)?, args.tensor(1)?);
        orch.submit("fill", core_args().output(x).scalar(1_i32))?;
        for _ in 0..100 {
            orch.submit("scale", core_args().inout(x).scalar(-1_i32))?;
        }
        orch.graph(many, &[], core_args().input(x).output(y))
    },
    KERNELS,
);

fn many(orch: &mut ChipOrchestrator<'_>, args: &ChipGraphArgs) -> Built {
    let (x, y) = (args.tensor(0)?, args.tensor(1)?);
    orch.submit("add", core_args().input(x).input(x).output(y))?;
    for _ in 0..99 {
        orch.submit(
            "add",
            core_args().input(x).input(x).output(&y.slice(0, 0..8)?),
        )?;
    }
    Ok(())
}

#[test]
fn a_graph_is_prepared_in_slices_while_its_inputs_are_pending_and_starts_once() {
    let options = SimOptions {
        trace: true,
        ..SimOptions::default()
    };
    let mut bench = Bench::with(options, 2);
    let report = bench.run(&BEHIND_A_CHAIN).unwrap();
    assert_eq!((report.tasks, bench.get(1)), (201, vec![2; LEN]));
    let events = bench.chip.take_trace();
    let on = |lane: TraceLane| {
        events
            .iter()
            .filter(move |it| it.lane == lane)
            .collect::<Vec<_>>()
    };
    let prepared = on(TraceLane::GraphPrepare);
    assert_eq!(
        prepared.len(),
        100_usize.div_ceil(32),
        "a bounded number of nodes each time"
    );
    let end_of_chain = core_event(&events, 100).start_ns;
    assert!(
        prepared
            .iter()
            .all(|it| it.start_ns + it.duration_ns <= end_of_chain)
    );
    assert!((101..201).all(|task| core_event(&events, task).start_ns >= end_of_chain));
    assert_eq!(
        (
            on(TraceLane::TaskSubmit).len(),
            on(TraceLane::GraphSubmit).len()
        ),
        (101, 1)
    );
    let schedulers = events
        .iter()
        .filter(|it| matches!(it.lane, TraceLane::Scheduler(_)));
    let mut lanes: Vec<_> = schedulers.map(|it| it.lane).collect();
    lanes.dedup();
    assert!(
        lanes.len() >= 3,
        "cores of all scheduler threads had work: {lanes:?}"
    );
}

/// The one event of a task on a core.
fn core_event(events: &[TraceEvent], task: u64) -> &TraceEvent {
    let mut found = events.iter().filter(|it| it.task == Some((task, 0)));
    let event = found.next().expect("it ran");
    assert!(found.next().is_none(), "task {task} ran once");
    event
}

/// Many graphs, each with intermediate memory that fits only a few times.
static HUNGRY: ChipCallable = ChipCallable::new(
    "hungry",
    |orch, args| {
        for _ in 0..50 {
            orch.graph(hungry, &[], core_args().inout(args.tensor(0)?))?;
        }
        Ok(())
    },
    KERNELS,
);

fn hungry(orch: &mut ChipOrchestrator<'_>, args: &ChipGraphArgs) -> Built {
    let x = args.tensor(0)?;
    let large = orch.alloc(DType::I32, &[1 << 16])?;
    orch.submit("fill", core_args().output(&large).scalar(2_i32))?;
    let part = large.slice(0, 8..16)?;
    orch.submit(
        "add",
        core_args()
            .input(x)
            .input(&part)
            .output(&large.slice(0, 0..8)?),
    )?;
    let zero = orch.alloc_like(x)?;
    orch.submit("fill", core_args().output(&zero).scalar(0_i32))?;
    orch.submit(
        "add",
        core_args()
            .input(&large.slice(0, 0..8)?)
            .input(&zero)
            .output(x),
    )?;
    for _ in 0..120 {
        orch.submit("scale", core_args().inout(x).scalar(1_i32))?;
    }
    Ok(())
}

#[test]
fn graphs_wait_for_the_memory_of_earlier_ones_and_give_it_back_with_the_run() {
    let options = SimOptions {
        memory_bytes: 1 << 20,
        ..SimOptions::default()
    };
    let mut bench = Bench::with(options, 1);
    let before = bench.chip.memory().unwrap();
    let report = bench.run(&HUNGRY).unwrap();
    assert_eq!((report.tasks, bench.get(0)), (50 * 124, vec![100; LEN]));
    assert_eq!(bench.chip.memory().unwrap().used_bytes, before.used_bytes);
}
