//! `cargo xtask instructions`: how many instructions a submit and a completion take.
//!
//! Times differ from machine to machine and from minute to minute; the number of instructions of one program does not.
//! So this is what `ci` holds against a committed figure: `valgrind --tool=callgrind` counts what the bench program
//! `submit` of the crate taskgraph executes in the part that it would time.
//!
//! The figures belong to one toolchain and one kind of machine, which stand beside them. Another compiler makes other
//! code, so there the check is skipped and says so; `cargo xtask instructions --renew` takes new figures, to be
//! committed with the change of toolchain, or with a change that is worth its instructions.

use std::{collections::BTreeMap, env, fs, path::PathBuf, process::Command};

use cargo_metadata::Message;
use serde::{Deserialize, Serialize};

use crate::{
    cargo,
    error::{Error, Verdict},
    report::{Judged, Outcome, Report, failed},
    step::{Ran, Step},
    workspace::Workspace,
};

/// The measures that are guarded.
const GUARDED: [&str; 3] = ["submit_0", "submit_2", "complete"];
/// By how much a figure may rise.
const TOLERANCE: f64 = 0.05;
/// The committed figures.
const BASELINE: &str = "taskgraph/benches/instructions.json";
/// What the table calls the step.
const NAME: &str = "instructions";

/// Count the instructions of the hot paths, and hold them against the committed figures.
///
/// Skipped where the committed figures are of another toolchain, or where valgrind is not installed;
/// with --required both are failures.
#[derive(Debug, clap::Args)]
#[command(verbatim_doc_comment)]
pub(crate) struct Args {
    /// Write what is counted now to taskgraph/benches/instructions.json instead.
    #[arg(long)]
    renew: bool,
    /// Fail where the count cannot be held against the committed figures.
    #[arg(long, conflicts_with = "renew")]
    required: bool,
}

/// What becomes of the check where nothing can be compared.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Otherwise {
    /// It is skipped, with the reason.
    Skip,
    /// It fails.
    Fail,
}

/// The committed figures, and what they are figures of.
#[derive(Debug, PartialEq, Serialize, Deserialize)]
struct Baseline {
    toolchain: Toolchain,
    /// Instructions for one operation.
    instructions: BTreeMap<String, f64>,
}

/// What decides how many instructions a program has.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
struct Toolchain {
    /// First line of `rustc --version`.
    rustc: String,
    host: String,
    /// Options that change the code that is generated.
    rustflags: String,
}

impl Args {
    /// Checks, or takes new figures.
    pub(crate) fn run(&self, workspace: &Workspace) -> Result<Verdict, Error> {
        let mut report = Report::with_sweep();
        if self.renew {
            renew(&mut report, workspace)?;
        } else {
            let otherwise = if self.required {
                Otherwise::Fail
            } else {
                Otherwise::Skip
            };
            check(&mut report, workspace, otherwise);
        }
        Ok(report.finish())
    }
}

/// Counts, and fails what rose.
pub(crate) fn check(report: &mut Report, workspace: &Workspace, otherwise: Otherwise) {
    let baseline = match read(workspace) {
        Ok(baseline) => baseline,
        Err(why) => return report.fail(NAME, why),
    };
    if let Some(why) = obstacle(&baseline.toolchain, &Toolchain::here(), has_valgrind()) {
        return match otherwise {
            Otherwise::Skip => report.skip(NAME, why),
            Otherwise::Fail => report.fail(NAME, why),
        };
    }
    let Some(program) = build(report, workspace) else {
        return;
    };
    for name in GUARDED {
        let before = baseline.instructions.get(name).copied();
        let step = count_step(&program, name);
        report.run_judged(step, |ran| match (counted(ran), before) {
            (Ok(now), Some(before)) => judge(now, before),
            (Ok(_), None) => failed(format!("{BASELINE} has no figure for {name}")),
            (Err(why), _) => failed(why),
        });
    }
}

/// Why nothing that is counted here can be held against the committed figures.
fn obstacle(committed: &Toolchain, here: &Toolchain, valgrind: bool) -> Option<String> {
    if here != committed {
        return Some(format!("{BASELINE} is of {committed}, this is {here}"));
    }
    (!valgrind).then(|| "valgrind is not installed: `apt-get install valgrind`".to_owned())
}

/// Whether a figure may be as it is.
fn judge(now: f64, before: f64) -> Judged {
    let change = now / before - 1.0;
    let note = format!(
        "{now:.0} instructions, {:+.1} % of {before:.0}",
        100.0 * change
    );
    if now > before * (1.0 + TOLERANCE) {
        let advice =
            "mend it, or say why it is worth that and run `cargo xtask instructions --renew`";
        return failed(format!("{note}; {advice}"));
    }
    Judged {
        outcome: Outcome::Passed,
        note,
    }
}

/// Counts, and writes the figures down.
fn renew(report: &mut Report, workspace: &Workspace) -> Result<(), Error> {
    let Some(program) = build(report, workspace) else {
        return Ok(());
    };
    let mut instructions = BTreeMap::new();
    for name in GUARDED {
        report.run_judged(count_step(&program, name), |ran| match counted(ran) {
            Ok(now) => {
                instructions.insert(name.to_owned(), now.round());
                Judged {
                    outcome: Outcome::Passed,
                    note: format!("{now:.0} instructions"),
                }
            }
            Err(why) => failed(why),
        });
    }
    if instructions.len() < GUARDED.len() {
        return Ok(());
    }
    let baseline = Baseline {
        toolchain: Toolchain::here(),
        instructions,
    };
    let text = serde_json::to_string_pretty(&baseline).expect("strings and finite numbers") + "\n";
    let path = workspace.root().join(BASELINE);
    fs::write(&path, text).map_err(|source| Error::File {
        action: "write",
        path,
        source,
    })
}

fn read(workspace: &Workspace) -> Result<Baseline, String> {
    let told = |error: String| format!("cannot read {BASELINE}: {error}");
    let text =
        fs::read_to_string(workspace.root().join(BASELINE)).map_err(|e| told(e.to_string()))?;
    serde_json::from_str(&text).map_err(|error| told(error.to_string()))
}

fn has_valgrind() -> bool {
    let asked = Command::new("valgrind").arg("--version").output();
    asked.is_ok_and(|out| out.status.success())
}

/// Builds the bench program; `None` when that failed and is in the report.
fn build(report: &mut Report, workspace: &Workspace) -> Option<PathBuf> {
    let args = [
        "bench",
        "--no-run",
        "--package=taskgraph",
        "--bench=submit",
        "--message-format=json-render-diagnostics",
    ];
    let messages =
        report.run_quietly(cargo::step(workspace, "build taskgraph/submit", 900, args))?;
    let executables =
        Message::parse_stream(messages.as_bytes()).filter_map(|message| match message {
            Ok(Message::CompilerArtifact(artifact)) if artifact.target.name == "submit" => {
                artifact.executable
            }
            _ => None,
        });
    let found = executables.last();
    if found.is_none() {
        report.fail(NAME, "cargo did not say where it put taskgraph/submit");
    }
    found.map(Into::into)
}

/// Counts what the program executes in the part that it times. Few rounds will do: they are all alike.
fn count_step(program: &PathBuf, name: &str) -> Step {
    let mut command = Command::new("valgrind");
    command
        .args([
            "--tool=callgrind",
            "--callgrind-out-file=/dev/null",
            "--collect-atstart=no",
        ])
        .arg("--toggle-collect=*measured_part*")
        .arg(program)
        .args(["--json", "--rounds=50", name]);
    Step::of(format!("{NAME} {name}"), 120, command)
}

/// Instructions for one operation.
fn counted(ran: &Ran) -> Result<f64, String> {
    #[derive(Deserialize)]
    struct Counted {
        operations: f64,
    }
    let told = ran
        .stderr
        .lines()
        .find_map(|line| line.split_once("Collected :"));
    let total = told.and_then(|(_, figure)| figure.trim().parse::<f64>().ok());
    let total = total.ok_or("valgrind did not say what it collected")?;
    let measures: Vec<Counted> = serde_json::from_str(&ran.stdout)
        .map_err(|error| format!("its output is no array of measures: {error}"))?;
    let operations: f64 = measures.iter().map(|measure| measure.operations).sum();
    if total > 0.0 && operations > 0.0 {
        return Ok(total / operations);
    }
    Err("nothing was counted: no function is called `measured_part`".to_owned())
}

impl Toolchain {
    fn here() -> Self {
        let out = Command::new("rustc")
            .args(["--version", "--verbose"])
            .output();
        let text = out
            .map(|out| String::from_utf8_lossy(&out.stdout).into_owned())
            .unwrap_or_default();
        let host = text.lines().find_map(|line| line.strip_prefix("host: "));
        Self {
            rustc: text.lines().next().unwrap_or("no rustc").to_owned(),
            host: host.unwrap_or("unknown").to_owned(),
            rustflags: env::var("RUSTFLAGS").unwrap_or_default(),
        }
    }
}

impl std::fmt::Display for Toolchain {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{} for {}", self.rustc, self.host)?;
        if !self.rustflags.is_empty() {
            write!(f, " with RUSTFLAGS `{}`", self.rustflags)?;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests;
