//! Random programs against the scheduler, each from a seed, every rule checked after every event.
//!
//! `sim_test [--seeds N] [--first S]` runs the seeds `S..S+N`. A failing seed is printed with the
//! shortest list of events found that still fails, and the exit code is 1.
//!
//! xtask: run with --seeds 300

#![expect(
    clippy::print_stdout,
    reason = "a program reports on its standard output"
)]

mod model;
mod play;
mod scenario;

use std::process::ExitCode;

fn main() -> ExitCode {
    let args: Vec<String> = std::env::args().skip(1).collect();
    let number = |name: &str, default| match args.iter().position(|arg| arg == name) {
        Some(at) => args.get(at + 1).and_then(|value| value.parse().ok()),
        None => Some(default),
    };
    let (Some(seeds), Some(first)) = (number("--seeds", 1000), number("--first", 0)) else {
        println!("usage: sim_test [--seeds N] [--first S]");
        return ExitCode::from(2);
    };
    // A broken assertion is reported with its seed; the usual text would come once per shrink step.
    std::panic::set_hook(Box::new(|_| {}));
    let mut total = play::Tally::default();
    for seed in first..first + seeds {
        match play::check_seed(seed) {
            Ok(tally) => total.add(&tally),
            Err(failure) => {
                println!("{failure}");
                return ExitCode::FAILURE;
            }
        }
    }
    println!("{seeds} seeds from {first} on: all rules hold");
    println!(
        "{} tasks, {} dispatches, {} submits refused, {} skips that only the layout made necessary",
        total.tasks, total.dispatches, total.refused, total.needless_skips
    );
    ExitCode::SUCCESS
}
