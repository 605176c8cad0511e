//! `cargo xtask ...`: everything a developer or CI runs.
//!
//! This file parses and dispatches; each task is a file of its own. xtask drives cargo and uses
//! none of the workspace's crates, so that it works while they do not compile.

#![deny(unsafe_code)]
#![expect(
    clippy::print_stdout,
    clippy::print_stderr,
    reason = "xtask talks to a person"
)]

mod error;
mod stamp;

mod cargo;
mod interrupt;
mod libtest;
mod processes;
mod progress;
mod report;
mod step;
mod table;
mod workspace;

mod bench;
mod build;
mod changed;
mod ci;
mod delegate;
mod doctor;
mod fuzz;
mod instructions;
mod loom;
mod suite;
mod test;
mod tidy;
mod unsafe_report;

#[cfg(test)]
mod fixture;

use std::{error::Error as _, process::ExitCode};

use clap::{Parser, Subcommand};

use crate::{
    error::{Error, Verdict},
    workspace::Workspace,
};

/// Everything a developer or CI runs, one task per subcommand.
///
/// Exit code 0: all that was asked for holds. 1: something does not, and was printed. 2: the task
/// could not be carried out (an unknown name, a missing program); the message says what to do.
#[derive(Debug, Parser)]
#[command(name = "cargo xtask", bin_name = "cargo xtask", verbatim_doc_comment)]
struct Cli {
    #[command(subcommand)]
    task: Task,
}

#[derive(Debug, Subcommand)]
enum Task {
    Ci(ci::Args),
    Test(test::Args),
    Tidy(tidy::Args),
    Loom(loom::Args),
    Fuzz(fuzz::Args),
    Chaos(delegate::ChaosArgs),
    SimTest(delegate::SimTestArgs),
    Scene(delegate::SceneArgs),
    Bench(bench::Args),
    Instructions(instructions::Args),
    Build(build::Args),
    Doctor(doctor::Args),
    UnsafeReport(unsafe_report::Args),
}

fn main() -> ExitCode {
    match run(&Cli::parse()) {
        Ok(Verdict::Passed) => ExitCode::SUCCESS,
        Ok(Verdict::Failed) => ExitCode::from(1),
        Err(error) => {
            eprintln!("xtask failed to {}", chain(&error));
            ExitCode::from(2)
        }
    }
}

fn run(cli: &Cli) -> Result<Verdict, Error> {
    let workspace = Workspace::current()?;
    match &cli.task {
        Task::Ci(args) => args.run(&workspace),
        Task::Test(args) => args.run(&workspace),
        Task::Tidy(args) => args.run(&workspace),
        Task::Loom(args) => args.run(&workspace),
        Task::Fuzz(args) => args.run(&workspace),
        Task::Chaos(args) => args.run(&workspace),
        Task::SimTest(args) => args.run(&workspace),
        Task::Scene(args) => args.run(&workspace),
        Task::Bench(args) => args.run(&workspace),
        Task::Instructions(args) => args.run(&workspace),
        Task::Build(args) => args.run(&workspace),
        Task::Doctor(args) => args.run(&workspace),
        Task::UnsafeReport(args) => args.run(&workspace),
    }
}

/// An error and its causes, outermost first.
fn chain(error: &Error) -> String {
    let mut text = error.to_string();
    let mut cause = error.source();
    while let Some(next) = cause {
        text += &format!(": {next}");
        cause = next.source();
    }
    text
}
