//! Weights stay on the chips over many runs: they are copied once, and each run moves its small input and output only.
//!
//! ```text
//! cargo run --release -p facade --example resident_weights -- --help
//! ```
#![expect(
    clippy::print_stdout,
    clippy::print_stderr,
    reason = "an example talks to its user"
)]

use std::process::ExitCode;
use std::time::Instant;

use clap::Parser;
use facade::{
    ChipArgs, ChipCallable, ChipOrchestrator, Error, Kernel, KernelContext, KernelError,
    OrchestrationError, Worker, any, args, core_args,
};

/// Multiplies a vector by weights that live on a chip, once per run.
#[derive(Debug, Parser)]
#[command(version)]
struct Options {
    /// Rows and columns of the weights.
    #[arg(long, default_value_t = 512, value_parser = clap::value_parser!(u32).range(1..=8192))]
    size: u32,
    /// Number of runs.
    #[arg(long, default_value_t = 100, value_parser = clap::value_parser!(u32).range(1..))]
    runs: u32,
    /// Number of chips; each has weights of its own.
    #[arg(long, default_value_t = 2, value_parser = clap::value_parser!(u32).range(1..=16))]
    chips: u32,
}

/// `y = W x`: the weights first, then the input, then the output.
static MATVEC: ChipCallable =
    ChipCallable::new("matvec", orchestrate, &[Kernel::matrix("matvec", matvec)]);

fn orchestrate(orch: &mut ChipOrchestrator<'_>, args: &ChipArgs) -> Result<(), OrchestrationError> {
    let (w, x, y) = (args.tensor(0)?, args.tensor(1)?, args.tensor(2)?);
    orch.submit("matvec", core_args().input(w).input(x).output(y).blocks(4))
        .map(drop)
}

fn matvec(cx: &mut KernelContext<'_>) -> Result<(), KernelError> {
    let (w, x) = (cx.input::<f32>(0)?, cx.input::<f32>(1)?);
    let rows = cx.block_range(w.len() / x.len());
    let y = cx.output_block::<f32>(2)?;
    for (row, y) in rows.zip(y) {
        let weights = &w[row * x.len()..(row + 1) * x.len()];
        *y = weights.iter().zip(x).map(|(w, x)| w * x).sum();
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

/// Weights whose products are exact: a permutation, scaled by the number of the chip.
fn weights(size: usize, chip: u32) -> Vec<f32> {
    let mut w = vec![0.0; size * size];
    (0..size).for_each(|row| w[row * size + (row * 7 + 3) % size] += (chip + 1) as f32);
    w
}

fn run(options: &Options) -> Result<(), Error> {
    let size = options.size as usize;
    let node = Worker::node().chips(options.chips).build()?;
    let matvec = node.register_chip(&MATVEC)?;
    node.init()?;

    let mut resident = Vec::new();
    for chip in 0..options.chips {
        let w = node.malloc::<f32>(chip, size * size)?;
        node.copy_to(w, &weights(size, chip))?;
        resident.push(w);
    }
    let weight_bytes = node.memory_report()?.copied_to_bytes();
    println!(
        "weights: {weight_bytes} bytes copied to {} chips, once",
        options.chips
    );

    let x = node.buffer::<f32>(size)?;
    let y = node.buffer::<f32>(size * options.chips as usize)?;
    let began = Instant::now();
    for run in 0..options.runs {
        x.view_mut()?
            .iter_mut()
            .enumerate()
            .for_each(|(i, x)| *x = (i as u32 % 100 + run) as f32);
        node.run(|orch| {
            for (chip, w) in resident.iter().enumerate() {
                let part = y.slice(chip * size..(chip + 1) * size)?;
                // The weights decide where the task runs.
                orch.submit_next_level(&matvec, args().input(w).input(&x).output(&part), any())?;
            }
            Ok(())
        })?;
        check(&y.to_vec()?, size, run)?;
    }
    let elapsed = began.elapsed().as_secs_f64();

    let report = node.memory_report()?;
    let per_run = (report.copied_to_bytes() - weight_bytes) / u64::from(options.runs);
    println!(
        "runs:    {per_run} bytes copied to the chips in each of {}",
        options.runs
    );
    println!(
        "         {} bytes in each, were the weights copied every time",
        per_run + weight_bytes
    );
    println!(
        "         {:.1} us each, all results right",
        elapsed * 1e6 / f64::from(options.runs)
    );
    print!("{report}");
    if per_run != u64::from(options.chips) * size as u64 * 4 {
        return Err(Error::orchestration(
            "more than the input was copied in a run",
        ));
    }
    resident.into_iter().try_for_each(|w| node.free(w))?;
    node.close()
}

/// Compares the output of every chip with what the permutation gives.
fn check(y: &[f32], size: usize, run: u32) -> Result<(), Error> {
    for (at, found) in y.iter().enumerate() {
        let (chip, row) = (at / size, at % size);
        let x = ((row * 7 + 3) % size) as u32 % 100 + run;
        let expected = x as f32 * (chip + 1) as f32;
        if *found != expected {
            let message = format!("run {run}: element {at} is {found}, expected {expected}");
            return Err(Error::orchestration(message));
        }
    }
    Ok(())
}
