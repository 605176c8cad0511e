//! `cargo xtask bench`: how fast it is, measured.
//!
//! The figures come from bench programs of the crates. A crate declares in its manifest which of
//! its bench programs measures what; `docs/benches.md` tells authors how. So `--list` builds
//! nothing, a name builds only the program that measures it, and a measure that was promised and
//! did not come back is an error.

mod catalog;
mod comparison;
mod example_process;
mod measure;

use crate::{
    cargo,
    error::{Error, Verdict},
    interrupt,
    progress::{self, say},
    report::Outcome,
    report::judge_by_exit,
    workspace::Workspace,
};

use self::{
    catalog::{Catalog, Program, Source},
    measure::Measure,
};

/// How long one bench program may build and run.
const LIMIT_S: u64 = 900;

/// Measure how fast it is.
///
/// Each measure is the median of several runs, beside the fastest one, and where there is one
/// beside a reference that was taken in the same run. Times are in nanoseconds unless the name ends
/// in its unit. A name is a measure, or the first parts of one (`check` for `check/live=10`); one
/// that matches nothing is an error.
#[derive(Debug, clap::Args)]
#[command(verbatim_doc_comment)]
pub(crate) struct Args {
    /// Measures to take (default: all but the comparisons with other people's programs, `*_vs_*`, whose
    /// programs nobody compiles who does not name them).
    #[arg(value_name = "NAME")]
    names: Vec<String>,
    /// Print one JSON array to standard output, and nothing else there.
    #[arg(long)]
    json: bool,
    /// Print the names of the measures, measure nothing.
    #[arg(long, conflicts_with = "json")]
    list: bool,
}

impl Args {
    /// Measures, or lists what can be measured.
    pub(crate) fn run(&self, workspace: &Workspace) -> Result<Verdict, Error> {
        let catalog = Catalog::of(workspace)?;
        let chosen = catalog.choose(&self.names)?;
        if self.list {
            for program in chosen {
                for name in &program.measures {
                    println!("{name}");
                }
            }
            return Ok(Verdict::Passed);
        }
        let (mut measures, mut failures) = (Vec::new(), 0);
        for program in chosen.iter().filter(|program| self.asks_for(program)) {
            if interrupt::came().is_some() {
                break;
            }
            match take(workspace, program) {
                Ok(taken) => measures.extend(taken),
                Err(what) => {
                    failures += 1;
                    say(&format!("FAILED  {}: {what}\n", program.source));
                }
            }
        }
        print!(
            "{}",
            if self.json {
                measure::to_json(&measures)
            } else {
                measure::table(&measures)
            }
        );
        Ok(Verdict::of(failures == 0))
    }

    /// Whether a program that was chosen is to run: comparisons only when they are named.
    fn asks_for(&self, program: &Program) -> bool {
        !self.names.is_empty() || !matches!(program.source, Source::Comparison(_))
    }
}

/// Runs a program; the measures that were asked of it, or what is wrong with what came back.
fn take(workspace: &Workspace, program: &Program) -> Result<Vec<Measure>, String> {
    match &program.source {
        Source::ExampleProcess => Ok(vec![example_process::measure(workspace)?]),
        Source::Comparison(comparison) => {
            let check = |output: &str| program.check(measure::from_json(output)?);
            comparison.measure(workspace, check)
        }
        Source::Bench { package, bench } => {
            let output = run_bench(workspace, package, bench, &program.measures)?;
            program.check(measure::from_json(&output)?)
        }
    }
}

/// Builds and runs a bench program; its standard output.
fn run_bench(
    workspace: &Workspace,
    package: &str,
    bench: &str,
    measures: &[String],
) -> Result<String, String> {
    let args = [
        "bench",
        "--quiet",
        "--package",
        package,
        "--bench",
        bench,
        "--",
        "--json",
    ];
    let mut step = cargo::step(workspace, format!("bench {package}/{bench}"), LIMIT_S, args);
    step.command.args(measures);
    let ran = progress::run(step);
    let judged = judge_by_exit(&ran);
    if judged.outcome == Outcome::Passed {
        return Ok(ran.stdout);
    }
    Err(format!("{}\n{}{}", judged.note, ran.stderr, ran.stdout))
}
