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
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::time::Instant;

use clap::Parser;
use facade::{
    Args, ChipArgs, ChipCallable, ChipOrchestrator, Kernel, KernelContext, KernelError, Observe,
    OrchestrationError, Platform, TaskResult, Worker, args, core_args, on,
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
    println!(
        "{}started in {:.1} ms\n",
        node.tree()?,
        began.elapsed().as_secs_f64() * 1e3
    );

    let n = usize::try_from(options.elements).unwrap_or(usize::MAX);
    let (a, b, c) = (
        node.buffer::<f32>(n)?,
        node.buffer::<f32>(n)?,
        node.buffer::<f32>(n)?,
    );
    let worst = node.buffer::<f64>(1)?;
    a.view_mut()?
        .iter_mut()
        .enumerate()
        .for_each(|(i, x)| *x = (i % 1000) as f32 * 1e-3);
    b.view_mut()?
        .iter_mut()
        .enumerate()
        .for_each(|(i, x)| *x = (i % 777) as f32 * 2e-3);

    // Each chip adds one piece; the check depends on all of them, because it reads what they write.
    let n_tiles = n.min(options.chips as usize);
    let tiles = (0..n_tiles).map(|i| (i, i * n / n_tiles..(i + 1) * n / n_tiles));
    let mut fastest = f64::INFINITY;
    for _ in 0..options.rounds {
        let round = Instant::now();
        node.run(|orch| {
            for (chip, tile) in tiles.clone() {
                let list = args()
                    .input(&a.slice(tile.clone())?)
                    .input(&b.slice(tile.clone())?)
                    .output(&c.slice(tile)?);
                orch.submit_next_level(&vector_add, list, on(chip as u32))?;
            }
            orch.submit_sub(&check, args().input(&a).input(&b).input(&c).output(&worst))
        })?;
        fastest = fastest.min(round.elapsed().as_secs_f64());
    }

    for (chip, tile) in tiles {
        println!(
            "vector_add of elements {:>9}..{:<9} on {}/chip{chip}",
            tile.start,
            tile.end,
            node.name()
        );
    }
    println!(
        "check      of elements {:>9}..{n:<9} on {}/sub0",
        0,
        node.name()
    );
    println!(
        "largest difference to the reference: {:e}",
        worst.view()?[0]
    );
    let n_tasks = n_tiles + 1;
    println!(
        "{n_tasks} tasks in {:.1} us: {:.1} us per task",
        fastest * 1e6,
        fastest * 1e6 / n_tasks as f64
    );
    if let Some(path) = &options.trace {
        write_trace(&node, path)?;
        println!("{}the trace is in {}", node.stats()?, path.display());
    }
    Ok(node.close()?)
}

fn write_trace(node: &Worker, path: &Path) -> Result<(), Box<dyn Error>> {
    let trace = node.take_trace()?;
    let failed = |error| format!("failed to write the trace {}: {error}", path.display());
    let file = File::create(path).map_err(failed)?;
    trace.write_json(BufWriter::new(file)).map_err(failed)?;
    Ok(())
}
