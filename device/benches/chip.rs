//! What a simulated chip costs: a small run whole, opening, and empty core tasks through its
//! scheduler.
//!
//! `cargo bench -p device --bench chip` prints a table; with `-- --json` an array of objects with
//! `name`, `value` (the median), `unit`, `min` and `runs`. Times are in nanoseconds unless the name
//! ends in its unit.

#![expect(clippy::print_stdout, reason = "a bench prints its figures")]

use std::time::Instant;

use device::{
    Arch, Chip, ChipArgs, ChipCallable, ChipGraphArgs, ChipOrchestrator, DeviceTensor, Kernel,
    KernelContext, KernelError, OpenOptions, OrchestrationError, Platform, core_args,
};
use taskgraph::{DType, Scalar};

/// Elements of each vector of the small run.
const ELEMENTS: u64 = 1024;

/// Core tasks of a throughput run, a multiple of the nodes of a graph.
const TASKS: u64 = 20_000;

/// Nodes of a graph.
const NODES: u64 = 250;

/// Buffers that the independent tasks of a throughput run write in turn.
const LANES: u64 = 64;

/// One figure.
struct Measure {
    name: &'static str,
    unit: &'static str,
    samples: Vec<f64>,
}

impl Measure {
    /// Calls `sample` `runs` times, which returns one value in the unit.
    fn take(
        name: &'static str,
        unit: &'static str,
        runs: usize,
        sample: impl FnMut() -> f64,
    ) -> Self {
        let mut samples: Vec<f64> = std::iter::repeat_with(sample).take(runs).collect();
        samples.sort_by(f64::total_cmp);
        Self {
            name,
            unit,
            samples,
        }
    }

    fn median(&self) -> f64 {
        self.samples[self.samples.len() / 2]
    }

    fn json(&self) -> serde_json::Value {
        serde_json::json!({
            "name": self.name,
            "value": self.median(),
            "unit": self.unit,
            "min": self.samples[0],
            "runs": self.samples.len(),
        })
    }
}

/// A declared name and what measures it.
type Declared = (&'static str, fn() -> Vec<Measure>);

const DECLARED: [Declared; 3] = [
    ("chip_run_us", chip_run),
    ("chip_open_us", chip_open),
    ("chip_tasks", chip_tasks),
];

fn main() {
    let wanted: Vec<String> = std::env::args()
        .skip(1)
        .filter(|arg| !arg.starts_with("--"))
        .collect();
    let is_wanted = |name: &str| wanted.is_empty() || wanted.iter().any(|it| it == name);
    let chosen = DECLARED.iter().filter(|(name, _)| is_wanted(name));
    let measures: Vec<Measure> = chosen.flat_map(|(_, measure)| measure()).collect();
    if std::env::args().any(|arg| arg == "--json") {
        println!(
            "{}",
            serde_json::Value::Array(measures.iter().map(Measure::json).collect())
        );
        return;
    }
    for it in &measures {
        println!(
            "{:<24} {:>12.2} {} (min {:.2})",
            it.name,
            it.median(),
            it.unit,
            it.samples[0]
        );
    }
}

fn open() -> Box<dyn Chip> {
    device::open(Platform::Sim(Arch::A2a3), 0, &OpenOptions::default())
        .expect("the simulator opens")
}

fn microseconds_since(start: Instant) -> f64 {
    start.elapsed().as_secs_f64() * 1e6
}

fn chip_open() -> Vec<Measure> {
    let measure = Measure::take("chip_open_us", "us", 200, || {
        let start = Instant::now();
        let chip = open();
        let elapsed = microseconds_since(start);
        drop(chip);
        elapsed
    });
    vec![measure]
}

static FOUR_TASKS: ChipCallable = ChipCallable {
    name: "four_tasks",
    orchestration: four_tasks,
    kernels: &[Kernel::vector("add", add)],
};

/// Two independent additions into intermediate memory, one that needs both, and one that needs
/// that.
fn four_tasks(orch: &mut ChipOrchestrator<'_>, args: &ChipArgs) -> Result<(), OrchestrationError> {
    let (a, b, c) = (args.tensor(0)?, args.tensor(1)?, args.tensor(2)?);
    let (d, e) = (orch.alloc_like(a)?, orch.alloc_like(a)?);
    orch.submit("add", core_args().input(a).input(b).output(&d))?;
    orch.submit("add", core_args().input(b).input(a).output(&e))?;
    orch.submit("add", core_args().input(&d).input(&e).output(c))?;
    orch.submit("add", core_args().input(a).input(c).output(&d))?;
    Ok(())
}

fn add(cx: &mut KernelContext<'_>) -> Result<(), KernelError> {
    let (a, b, c) = (
        cx.input::<f32>(0)?,
        cx.input::<f32>(1)?,
        cx.output::<f32>(2)?,
    );
    c.iter_mut()
        .zip(a.iter().zip(b))
        .for_each(|(c, (a, b))| *c = a + b);
    Ok(())
}

fn tensors(chip: &mut dyn Chip, n: u64, elements: u64) -> ChipArgs {
    (0..n).fold(ChipArgs::new(), |args, _| {
        let address = chip.malloc(4 * elements).expect("it fits");
        args.with_tensor(
            DeviceTensor::contiguous(address, DType::F32, &[elements]).expect("a shape"),
        )
    })
}

fn chip_run() -> Vec<Measure> {
    let mut chip = open();
    let slot = chip.register(&FOUR_TASKS).expect("a good callable");
    let args = tensors(&mut *chip, 3, ELEMENTS);
    let measure = Measure::take("chip_run_us", "us", 2000, || {
        let start = Instant::now();
        device::run(&mut *chip, slot, args.clone()).expect("the run succeeds");
        microseconds_since(start)
    });
    vec![measure]
}

/// The family of the chip's scheduler: what waits for nothing, and what waits for its neighbour; each
/// submitted one by one, and replayed.
fn chip_tasks() -> Vec<Measure> {
    use Pattern::{Chain, Independent};
    vec![
        tasks("chip_tasks/independent", Independent, Submit::Eager),
        tasks("chip_tasks/chain", Chain, Submit::Eager),
        tasks(
            "chip_tasks/replayed_independent",
            Independent,
            Submit::Graphs,
        ),
        tasks("chip_tasks/replayed_chain", Chain, Submit::Graphs),
    ]
}

/// How the tasks of a throughput run are submitted.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Submit {
    Eager,
    Graphs,
}

/// How the tasks of a throughput run depend on each other.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Pattern {
    Independent,
    Chain,
}

static MANY_TASKS: ChipCallable = ChipCallable {
    name: "many_tasks",
    orchestration: many_tasks,
    kernels: &[Kernel::vector("nothing", nothing)],
};

/// Empty tasks, all in one chain or each on the next of many buffers, one by one or as graphs.
fn many_tasks(orch: &mut ChipOrchestrator<'_>, args: &ChipArgs) -> Result<(), OrchestrationError> {
    let is_chain = u64::from(args.scalar(0)? == Scalar::Bool(true));
    let as_graphs = args.scalar(1)? == Scalar::Bool(true);
    for _ in 0..TASKS / NODES {
        let mut all = core_args();
        for buffer in &args.tensors {
            all = if is_chain == 1 {
                all.inout(buffer)
            } else {
                all.input(buffer)
            };
        }
        if as_graphs {
            orch.graph(some_tasks, &[is_chain], all)?;
        } else {
            orch.call(some_tasks, &[is_chain], all)?;
        }
    }
    Ok(())
}

fn some_tasks(
    orch: &mut ChipOrchestrator<'_>,
    args: &ChipGraphArgs,
) -> Result<(), OrchestrationError> {
    let is_chain = args.param(0)? == 1;
    for i in 0..NODES {
        let buffer = args.tensor(if is_chain { 0 } else { (i % LANES) as usize })?;
        let access = if is_chain {
            core_args().inout(buffer)
        } else {
            core_args().input(buffer)
        };
        orch.submit_idx(0, access)?;
    }
    Ok(())
}

fn nothing(_: &mut KernelContext<'_>) -> Result<(), KernelError> {
    Ok(())
}

/// Nanoseconds per empty core task, submit and execution together; graphs are recorded before.
fn tasks(name: &'static str, pattern: Pattern, submit: Submit) -> Measure {
    let mut chip = open();
    let slot = chip.register(&MANY_TASKS).expect("a good callable");
    let args = tensors(&mut *chip, LANES, 16).with_scalar(pattern == Pattern::Chain);
    let args = args.with_scalar(submit == Submit::Graphs);
    let report = device::run(&mut *chip, slot, args.clone()).expect("the run succeeds");
    assert_eq!(report.tasks, TASKS);
    let n_graphs = if submit == Submit::Graphs {
        TASKS / NODES
    } else {
        0
    };
    assert_eq!(report.graphs.recorded + report.graphs.replayed, n_graphs);
    Measure::take(name, "ns", 20, || {
        let start = Instant::now();
        device::run(&mut *chip, slot, args.clone()).expect("the run succeeds");
        1e3 * microseconds_since(start) / TASKS as f64
    })
}
