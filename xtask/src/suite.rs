//! The tests and examples of the workspace: built once, then run one program at a time.
//!
//! `cargo test` would run them all in one go; then one hung test would take the whole run with it.
//! Here each program is a step with a limit and a name of its own. Programs run one after the
//! other: the tests in them already use every core.

use std::{collections::BTreeSet, fs, path::Path};

use crate::{
    cargo::{self, Program, Role},
    libtest::Summary,
    report::{Judged, Outcome, Report, failed, judge_by_exit},
    step::{Ran, Step},
    workspace::Workspace,
};

/// The crates that a run is about.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Crates {
    /// The whole workspace.
    All,
    /// These; possibly none.
    Only(BTreeSet<String>),
}

impl Crates {
    /// Whether `name` is among them.
    pub(crate) fn contains(&self, name: &str) -> bool {
        match self {
            Self::All => true,
            Self::Only(names) => names.contains(name),
        }
    }

    /// Whether there is none.
    pub(crate) fn is_empty(&self) -> bool {
        matches!(self, Self::Only(names) if names.is_empty())
    }

    /// Cargo's options that select them, with all of their features: a feature only adds, so that one build serves
    /// the tests with it and without.
    pub(crate) fn options_with_features(&self) -> Vec<String> {
        let mut options = self.options();
        options.push("--all-features".to_owned());
        options
    }

    /// Cargo's options that select them.
    pub(crate) fn options(&self) -> Vec<String> {
        match self {
            Self::All => vec!["--workspace".to_owned()],
            Self::Only(names) => names
                .iter()
                .map(|name| format!("--package={name}"))
                .collect(),
        }
    }
}

/// Builds all tests and examples; `None` when that failed (and is in the report).
///
/// Of an example with tests of its own a build of tests yields the tests only; then examples are built by themselves, too.
pub(crate) fn build(
    report: &mut Report,
    workspace: &Workspace,
    crates: &Crates,
) -> Option<Vec<Program>> {
    let mut args = vec!["test".to_owned(), "--no-run".to_owned()];
    args.push("--message-format=json-render-diagnostics".to_owned());
    args.extend(crates.options_with_features());
    let messages = report.run(cargo::step(
        workspace,
        "build tests and examples",
        1200,
        args,
    ))?;
    let mut programs = cargo::programs(workspace, &messages);
    if programs.iter().any(Program::tests_an_example) {
        let mut args = vec!["build".to_owned(), "--examples".to_owned()];
        args.push("--message-format=json-render-diagnostics".to_owned());
        args.extend(crates.options_with_features());
        let messages = report.run(cargo::step(workspace, "build examples", 600, args))?;
        programs.retain(|program| program.role != Role::Example);
        programs.extend(cargo::programs(workspace, &messages));
    }
    Some(programs)
}

/// Runs each test program; with a `filter`, only the tests whose name contains it.
///
/// Returns how many tests there were.
pub(crate) fn tests(report: &mut Report, programs: &[Program], filter: Option<&str>) -> usize {
    programs
        .iter()
        .filter(|program| program.role != Role::Example)
        .map(|program| test_program(report, program, filter))
        .sum()
}

fn test_program(report: &mut Report, program: &Program, filter: Option<&str>) -> usize {
    let mut command = program.command();
    command.arg("--show-output").args(filter);
    let step = Step::of(format!("test {}", program.label()), 180, command);
    let mut summary = Summary::default();
    report.run_judged(step, |ran| {
        summary = Summary::parse(&ran.stdout);
        judge_tests(ran, &summary)
    });
    skip_rows(report, &program.package, &summary);
    summary.total()
}

/// Runs the doc tests of all chosen crates.
pub(crate) fn doc_tests(
    report: &mut Report,
    workspace: &Workspace,
    crates: &Crates,
    filter: Option<&str>,
) -> usize {
    let mut args = vec![
        "test".to_owned(),
        "--doc".to_owned(),
        "--no-fail-fast".to_owned(),
    ];
    args.extend(crates.options_with_features());
    if let Some(filter) = filter {
        args.extend(["--".to_owned(), filter.to_owned()]);
    }
    let mut summary = Summary::default();
    report.run_judged(cargo::step(workspace, "doc tests", 600, args), |ran| {
        summary = Summary::parse(&ran.stdout);
        judge_tests(ran, &summary)
    });
    summary.total()
}

/// The exit code decides; the summary explains.
fn judge_tests(ran: &Ran, summary: &Summary) -> Judged {
    let by_exit = judge_by_exit(ran);
    match by_exit.outcome {
        Outcome::Passed => Judged {
            outcome: Outcome::Passed,
            note: summary.note(),
        },
        _ if summary.failed.is_empty() => by_exit,
        _ => failed(summary.note()),
    }
}

fn skip_rows(report: &mut Report, package: &str, summary: &Summary) {
    for (test, reason) in &summary.skipped {
        report.skip(format!("test {package}: {test}"), reason);
    }
}

/// Runs each example as its head says; see [`Instruction`].
pub(crate) fn examples(report: &mut Report, programs: &[Program]) {
    for program in programs
        .iter()
        .filter(|program| program.role == Role::Example)
    {
        let name = format!("example {}", program.label());
        match instruction(&program.source) {
            Instruction::Skip(reason) => report.skip(name, reason),
            Instruction::Run(args) => {
                let mut command = program.command();
                command.args(args);
                report.run(Step::of(name, 60, command));
            }
        }
    }
}

/// What an example's `//!` head says about running it unattended.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Instruction {
    /// Run it with these arguments: `//! xtask: run with ARGS`, or no line at all.
    Run(Vec<String>),
    /// Leave it out: `//! xtask: skip (REASON)`.
    Skip(String),
}

fn instruction(source: &Path) -> Instruction {
    match fs::read_to_string(source) {
        Ok(text) => Instruction::parse(&text),
        Err(_) => Instruction::Run(Vec::new()),
    }
}

impl Instruction {
    /// Reads the module doc at the head of `text`.
    fn parse(text: &str) -> Self {
        let head = text.lines().map_while(|line| line.strip_prefix("//!"));
        let told = head
            .filter_map(|line| line.trim().strip_prefix("xtask: "))
            .next();
        match told.map(|told| (told, told.split_once(' '))) {
            Some((_, Some(("skip", reason)))) => {
                Self::Skip(reason.trim_matches(['(', ')']).to_owned())
            }
            Some((told, _)) => {
                let args = told.strip_prefix("run with ").unwrap_or_default();
                Self::Run(args.split_whitespace().map(str::to_owned).collect())
            }
            None => Self::Run(Vec::new()),
        }
    }
}

#[cfg(test)]
mod tests;
