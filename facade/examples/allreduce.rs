//! The bandwidth of an all-reduce over two to eight simulated chips, by size and algorithm, beside a plain copy.
//!
//! ```text
//! cargo run --release -p facade --example allreduce -- --help
//! ```
#![expect(
    clippy::print_stdout,
    clippy::print_stderr,
    reason = "an example talks to its user"
)]

use std::hint::black_box;
use std::process::ExitCode;
use std::time::{Duration, Instant};

use clap::Parser;
use facade::{AllReduce, Collectives, Error, Reduce, Symmetric, Worker, named};

/// Sums buffers over simulated chips, checks the sum, and prints how fast it was.
#[derive(Debug, Parser)]
#[command(version)]
struct Options {
    /// The most chips; every power of two from 2 on is measured.
    #[arg(long, default_value_t = 8, value_parser = clap::value_parser!(u32).range(2..=16))]
    chips: u32,
    /// The largest buffer of each chip, in KiB; the smallest is 4 KiB, each is 16 times the one before.
    #[arg(long, default_value_t = 1024, value_parser = clap::value_parser!(u32).range(4..=1 << 20))]
    max_kib: u32,
    /// How often to repeat; the fastest counts.
    #[arg(long, default_value_t = 2, value_parser = clap::value_parser!(u32).range(1..))]
    rounds: u32,
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

fn run(options: &Options) -> Result<(), Error> {
    println!("MB/s: bytes of one chip's buffer, over the time of the all-reduce");
    println!(
        "{:>5} {:>10} {:>10} {:>10} {:>10}",
        "chips", "KiB", "ring", "one-shot", "copy"
    );
    let mut chips = 2;
    while chips <= options.chips {
        of_chips(options, chips)?;
        chips *= 2;
    }
    Ok(())
}

/// One tree, and a line per size.
fn of_chips(options: &Options, chips: u32) -> Result<(), Error> {
    let node = Worker::node().chips(chips).build()?;
    let collectives = node.register_collectives()?;
    node.init()?;
    let members: Vec<u32> = (0..chips).collect();
    let mut kib = 4;
    while kib <= options.max_kib {
        let elements = kib as usize * 256;
        let buffers = [named::<f32>("x", elements), named::<f32>("y", elements)];
        let bytes = 2 * elements as u64 * 4;
        let domain = node.allocate_domain("bench", &members, bytes, &buffers)?;
        let (x, y) = (domain.buffer::<f32>("x")?, domain.buffer::<f32>("y")?);
        for (rank, of) in x.iter().enumerate() {
            node.copy_to(of, &vec![(rank + 1) as f32; elements])?;
        }
        let ring = measure(options, &node, &collectives, [&x, &y], AllReduce::Ring)?;
        let once = measure(options, &node, &collectives, [&x, &y], AllReduce::OneShot)?;
        let copy = copy(options, elements);
        let rate = |time: Duration| elements as f64 * 4.0 / 1e6 / time.as_secs_f64();
        println!(
            "{chips:>5} {kib:>10} {:>10.0} {:>10.0} {:>10.0}",
            rate(ring),
            rate(once),
            rate(copy)
        );
        domain.release();
        kib *= 16;
    }
    node.close()
}

/// The fastest round, after every rank's sum was checked once.
fn measure(
    options: &Options,
    node: &Worker,
    collectives: &Collectives,
    [x, y]: [&Symmetric<f32>; 2],
    how: AllReduce,
) -> Result<Duration, Error> {
    let round = || -> Result<Duration, Error> {
        let began = Instant::now();
        node.run(|orch| collectives.all_reduce(orch, x, y, Reduce::Sum, how))?;
        Ok(began.elapsed())
    };
    let mut fastest = round()?;
    let expected = (y.ranks() * (y.ranks() + 1) / 2) as f32;
    for of in y.iter() {
        let mut sum = vec![0.0_f32; y.len()];
        node.copy_from(&mut sum, of)?;
        if sum.iter().any(|sum| *sum != expected) {
            return Err(Error::orchestration(format!(
                "{how:?}: not every sum is {expected}"
            )));
        }
    }
    for _ in 0..options.rounds {
        fastest = fastest.min(round()?);
    }
    Ok(fastest)
}

/// A plain copy of as many bytes as one chip's buffer has.
fn copy(options: &Options, elements: usize) -> Duration {
    let (from, mut to) = (vec![1.0_f32; elements], vec![0.0_f32; elements]);
    let round = |to: &mut [f32]| {
        let began = Instant::now();
        black_box(&mut *to).copy_from_slice(black_box(&from));
        began.elapsed()
    };
    (0..=options.rounds)
        .map(|_| round(&mut to))
        .min()
        .unwrap_or_default()
}
