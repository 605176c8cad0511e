//! The main job from end to end: a node with simulated chips and one sub worker adds two vectors, checks the sum
//! against a reference, and closes.
//!
//! ```text
//! cargo run --release -p facade --example vector_add -- --help
//! ```
#![expect(
    clippy::print_stdout,
    clippy::print_stderr,
    reason = "an example talks to its user"
)]

use std::error::Error;
use std::fs::File;
use std::io::BufWriter;
use std::ops::Range;
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::time::Instant;

use clap::Parser;
use facade::{
    Args, Buffer, ChipArgs, ChipCallable, ChipHandle, ChipOrchestrator, FunctionHandle, Kernel,
    KernelContext, KernelError, Observe, OrchestrationError, Orchestrator, Platform, TaskResult,
    Worker, args, core_args, on,
};

/// Adds two vectors on chips, and checks the sum in a sub worker.
#[derive(Debug, Parser)]
#[command(version)]
struct Options {
    /// Length of the vectors; split evenly over the chips.
    #[arg(long, default_value_t = 1 << 18, value_parser = clap::value_parser!(u64).range(1..))]
    elements: u64,
    /// Number of chip workers.
    #[arg(long, default_value_t = 2, value_parser = clap::value_parser!(u32).range(1..))]
    chips: u32,
    /// Where to run: `sim` (an a2a3), `a5sim`, or a real `a2a3` or `a5`.
    #[arg(long, default_value = "sim")]
    platform: Platform,
    /// How often to repeat the run; the time per task is that of the fastest.
    #[arg(long, default_value_t = 5, value_parser = clap::value_parser!(u32).range(1..))]
    rounds: u32,
    /// Writes what each worker did when, as JSON for Perfetto and Chromium's trace viewer.
    #[arg(long, value_name = "FILE")]
    trace: Option<PathBuf>,
}

/// What a chip runs: an orchestration that submits one core task.
static VECTOR_ADD: ChipCallable =
    ChipCallable::new("vector_add", orchestrate, &[Kernel::vector("add", add)]);

fn orchestrate(orch: &mut ChipOrchestrator<'_>, args: &ChipArgs) -> Result<(), OrchestrationError> {
    let (a, b, c) = (args.tensor(0)?, args.tensor(1)?, args.tensor(2)?);
    orch.submit("add", core_args().input(a).input(b).output(c))?;
    Ok(())
}

fn add(cx: &mut KernelContext<'_>) -> Result<(), KernelError> {
    let (a, b, c) = (
        cx.input::<f32>(0)?,
        cx.input::<f32>(1)?,
        cx.output::<f32>(2)?,
    );
    for ((c, a), b) in c.iter_mut().zip(a).zip(b) {
        *c = a + b;
    }
    Ok(())
}

/// What the sub worker runs: the largest difference to the reference goes into the last argument.
fn check(args: &Args) -> TaskResult {
    let (a, b, c) = (
        args.input::<f32>(0)?,
        args.input::<f32>(1)?,
        args.input::<f32>(2)?,
    );
    let difference =
        |((a, b), c): ((&f32, &f32), &f32)| (f64::from(*a) + f64::from(*b) - f64::from(*c)).abs();
    let worst = a
        .iter()
        .zip(b)
        .zip(c)
        .map(difference)
        .fold(0.0_f64, f64::max);
    args.output::<f64>(3)?[0] = worst;
    // Sums below 4 are rounded to f32, by at most half of 2^-22.
    if worst.is_nan() || worst > 1e-6 {
        return Err(format!("the largest difference to the reference is {worst:e}").into());
    }
    Ok(())
}

fn main() -> ExitCode {
    match run(&Options::parse()) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("error: {error}");
            ExitCode::FAILURE
        }
    }
}

fn run(options: &Options) -> Result<(), Box<dyn Error>> {
    let began = Instant::now();
    let node = Worker::node()
        .platform(options.platform)
        .chips(options.chips)
        .sub_workers(1)
        .build()?;
    let vector_add = node.register_chip(&VECTOR_ADD)?;
    let check = node.register_fn("check", check)?;
    if options.trace.is_some() {
        node.observe(Observe::Trace)?;
    }
    node.init()?;
    let started_ms = began.elapsed().as_secs_f64() * 1e3;
    println!("{}started in {started_ms:.1} ms\n", node.tree()?);

    let vectors = Vectors::new(&node, options.elements)?;
    let tiles = tiles(vectors.len(), options.chips);
    let mut fastest = f64::INFINITY;
    for _ in 0..options.rounds {
        let round = Instant::now();
        node.run(|orch| vectors.submit(orch, &vector_add, &check, &tiles))?;
        fastest = fastest.min(round.elapsed().as_secs_f64());
    }
    report(&node, &vectors, &tiles, fastest)?;
    if let Some(path) = &options.trace {
        write_trace(&node, path)?;
        println!("{}the trace is in {}", node.stats()?, path.display());
    }
    Ok(node.close()?)
}

/// The memory that all workers of the node share.
struct Vectors {
    a: Buffer<f32>,
    b: Buffer<f32>,
    /// The sum.
    c: Buffer<f32>,
    /// The largest difference to the reference.
    worst: Buffer<f64>,
}

impl Vectors {
    fn new(node: &Worker, elements: u64) -> Result<Self, facade::Error> {
        let n = usize::try_from(elements).unwrap_or(usize::MAX);
        let filled = |period: usize, step: f32| {
            let buffer = node.buffer::<f32>(n)?;
            let mut view = buffer.view_mut()?;
            let values = (0..period).cycle().map(|i| i as f32 * step);
            view.iter_mut()
                .zip(values)
                .for_each(|(x, value)| *x = value);
            drop(view);
            Ok::<_, facade::Error>(buffer)
        };
        Ok(Self {
            a: filled(1000, 1e-3)?,
            b: filled(777, 2e-3)?,
            c: node.buffer::<f32>(n)?,
            worst: node.buffer::<f64>(1)?,
        })
    }

    fn len(&self) -> usize {
        self.c.len()
    }

    /// Each chip adds one piece; the check depends on all of them, because it reads what they write.
    fn submit(
        &self,
        orch: &mut Orchestrator<'_>,
        vector_add: &ChipHandle,
        check: &FunctionHandle,
        tiles: &[Range<usize>],
    ) -> Result<(), facade::Error> {
        let Self { a, b, c, worst } = self;
        for (chip, tile) in (0..).zip(tiles) {
            let list = args()
                .input(&a.slice(tile.clone())?)
                .input(&b.slice(tile.clone())?)
                .output(&c.slice(tile.clone())?);
            orch.submit_next_level(vector_add, list, on(chip))?;
        }
        orch.submit_sub(check, args().input(a).input(b).input(c).output(worst))
            .map(drop)
    }
}

/// One piece of `n` elements for each chip, or fewer where there are fewer elements.
fn tiles(n: usize, chips: u32) -> Vec<Range<usize>> {
    let n_tiles = n.min(chips as usize);
    let tile = |i: usize| i * n / n_tiles..(i + 1) * n / n_tiles;
    (0..n_tiles).map(tile).collect()
}

/// What ran where, how exact it was and how fast.
fn report(
    node: &Worker,
    vectors: &Vectors,
    tiles: &[Range<usize>],
    fastest: f64,
) -> Result<(), facade::Error> {
    let (name, n) = (node.name(), vectors.len());
    for (chip, Range { start, end }) in tiles.iter().enumerate() {
        println!("vector_add of elements {start:>9}..{end:<9} on {name}/chip{chip}");
    }
    println!("check      of elements {:>9}..{n:<9} on {name}/sub0", 0);
    let worst = vectors.worst.view()?[0];
    println!("largest difference to the reference: {worst:e}");
    let (n_tasks, total_us) = (tiles.len() + 1, fastest * 1e6);
    let task_us = total_us / n_tasks as f64;
    println!("{n_tasks} tasks in {total_us:.1} us: {task_us:.1} us per task");
    Ok(())
}

fn write_trace(node: &Worker, path: &Path) -> Result<(), Box<dyn Error>> {
    let trace = node.take_trace()?;
    let failed = |error| format!("failed to write the trace {}: {error}", path.display());
    let file = File::create(path).map_err(failed)?;
    trace.write_json(BufWriter::new(file)).map_err(failed)?;
    Ok(())
}
