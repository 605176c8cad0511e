//! `cargo xtask loom`: every interleaving of the small protocols.
//!
//! A crate has models when it depends on `loom` under `cfg(loom)`; they are the unit tests that it
//! has under that cfg. They are built in a directory of their own (`target/loom`), because the cfg
//! changes every crate. What is checked and the checker are optimized, because there are many
//! interleavings; the rest is not, because nobody waits for it.
//!
//! A model that cannot fail proves nothing. So a crate also names deliberate faults, each behind
//! `cfg!(weaken = "NAME")` in its sources: an ordering that is too weak, a lock not taken. With
//! `--weaken` each of them is built in turn, and at least one model must find it.

use std::collections::BTreeSet;

use cargo_metadata::Package;

use crate::{
    cargo::{self, Role},
    error::{Error, Verdict},
    libtest::Summary,
    report::{Judged, Outcome, Report, failed, judge_by_exit},
    step::{Ran, Step},
    tidy::Tree,
    workspace::Workspace,
};

/// Run the loom models: every interleaving of the small protocols.
///
/// With `--weaken` the deliberate faults too: each is switched on in turn, and a model must fail. A
/// fault that no model finds is a failure, because then no model looks there.
#[derive(Debug, clap::Args)]
#[command(verbatim_doc_comment)]
pub(crate) struct Args {
    /// Crates whose models to run (default: all that have some).
    #[arg(value_name = "CRATE")]
    names: Vec<String>,
    /// Check that each deliberate fault is found.
    #[arg(long)]
    weaken: bool,
}

impl Args {
    /// Runs the models, and the faults if asked.
    pub(crate) fn run(&self, workspace: &Workspace) -> Result<Verdict, Error> {
        let modelled = modelled(workspace);
        let tree = Tree::read(workspace)?;
        let mut report = Report::with_sweep();
        for name in chosen(&modelled, &self.names)? {
            models(&mut report, workspace, &name);
            let faults = if self.weaken {
                faults(&tree, &name)
            } else {
                BTreeSet::new()
            };
            for fault in faults {
                weakened(&mut report, workspace, &name, &fault);
            }
        }
        Ok(report.finish())
    }
}

/// The names of the crates that have models.
pub(crate) fn modelled(workspace: &Workspace) -> Vec<String> {
    let has_loom = |package: &&Package| {
        package
            .dependencies
            .iter()
            .any(|dependency| dependency.name == "loom")
    };
    workspace
        .members()
        .into_iter()
        .filter(has_loom)
        .map(|package| package.name.to_string())
        .collect()
}

fn chosen(modelled: &[String], wanted: &[String]) -> Result<Vec<String>, Error> {
    if let Some(wanted) = wanted.iter().find(|wanted| !modelled.contains(wanted)) {
        let known = modelled.to_vec();
        return Err(Error::NoMatch {
            kind: "crate with models",
            wanted: wanted.clone(),
            known,
        });
    }
    Ok(if wanted.is_empty() {
        modelled.to_vec()
    } else {
        wanted.to_vec()
    })
}

/// Builds and runs the models of a crate; all of them must hold.
pub(crate) fn models(report: &mut Report, workspace: &Workspace, name: &str) {
    if let Some(step) = built(report, workspace, name, None) {
        report.run_judged(step, judge_models);
    }
}

fn judge_models(ran: &Ran) -> Judged {
    let summary = Summary::parse(&ran.stdout);
    let by_exit = judge_by_exit(ran);
    match by_exit.outcome {
        Outcome::Passed if summary.total() == 0 => failed("the crate has no model".to_owned()),
        Outcome::Passed => Judged {
            outcome: Outcome::Passed,
            note: summary.note(),
        },
        _ if summary.failed.is_empty() => by_exit,
        _ => failed(summary.note()),
    }
}

/// Builds a crate with a deliberate fault and runs its models; one of them must fail.
fn weakened(report: &mut Report, workspace: &Workspace, name: &str, fault: &str) {
    if let Some(mut step) = built(report, workspace, name, Some(fault)) {
        // One by one, so that a model that takes the program down has a name.
        step.command.arg("--test-threads=1");
        report.run_judged(step, judge_weakened);
    }
}

fn judge_weakened(ran: &Ran) -> Judged {
    let summary = Summary::parse(&ran.stdout);
    match summary.failed.as_slice() {
        [] if judge_by_exit(ran).outcome == Outcome::Passed => {
            failed("no model finds this fault".to_owned())
        }
        // A model that takes the whole program down has found it as well.
        [] => {
            let by = summary.running.as_deref().unwrap_or("a model");
            let note = format!("found by {by}, which ended the program");
            Judged {
                outcome: Outcome::Passed,
                note,
            }
        }
        found => Judged {
            outcome: Outcome::Passed,
            note: format!("found by {}", found.join(", ")),
        },
    }
}

/// Builds the models and gives the step that runs them; `None` when they do not build.
///
/// The fault's cfg goes to the crate alone, so that loom and the rest are built only once.
fn built(
    report: &mut Report,
    workspace: &Workspace,
    name: &str,
    fault: Option<&str>,
) -> Option<Step> {
    let label = fault.map_or(format!("loom {name}"), |fault| {
        format!("loom {name} weaken={fault}")
    });
    let package = format!("--package={name}");
    let args = ["rustc", &package, "--lib", "--profile=test"];
    let mut step = cargo::step(workspace, format!("build {label}"), 600, args);
    for optimized in [name, "loom", "generator"] {
        step.command.arg(format!(
            "--config=profile.dev.package.{optimized}.opt-level=3"
        ));
    }
    step.command
        .arg("--target-dir")
        .arg(workspace.target_dir().join("loom"));
    step.command
        .args(["--message-format=json-render-diagnostics", "--"]);
    if let Some(fault) = fault {
        step.command.args(["--cfg", &format!("weaken={fault:?}")]);
    }
    step.command.env("RUSTFLAGS", "--cfg loom");
    let messages = report.run_quietly(step)?;
    let programs = cargo::programs(workspace, &messages);
    match programs
        .into_iter()
        .find(|program| program.package == name && program.role == Role::UnitTests)
    {
        Some(program) => Some(Step::of(label, 300, program.command())),
        None => {
            report.fail(label, "cargo built no test program");
            None
        }
    }
}

/// The deliberate faults that the sources of a crate name.
fn faults(tree: &Tree<'_>, name: &str) -> BTreeSet<String> {
    let dir = format!("{name}/src/");
    tree.ending("rs")
        .filter(|file| file.path.starts_with(&dir))
        .flat_map(|file| faults_in(&file.text))
        .collect()
}

/// The names in `weaken = "NAME"`, in code only.
fn faults_in(source: &str) -> Vec<String> {
    let code = source
        .lines()
        .filter(|line| !line.trim_start().starts_with("//"));
    let named = code.flat_map(|line| line.split("weaken = \"").skip(1));
    named
        .filter_map(|rest| rest.split_once('"'))
        .map(|(name, _)| name.to_owned())
        .collect()
}

#[cfg(test)]
mod tests;
