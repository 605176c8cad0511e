//! `cargo xtask fuzz`: the decoders against random bytes.
//!
//! A fuzz target is a file `CRATE/fuzz/fuzz_targets/NAME.rs`, in a package of its own outside the
//! workspace, as cargo-fuzz lays it out. Found inputs become ordinary tests of the crate.

use std::{fs, path::PathBuf, process::Command};

use crate::{
    cargo,
    error::{Error, Verdict},
    report::Report,
    step::Step,
    workspace::{Workspace, dir_of},
};

/// Feed random bytes to every decoder, for a while each.
///
/// Needs cargo-fuzz and a nightly toolchain (`cargo install cargo-fuzz`, `rustup toolchain install
/// nightly`). Without them nothing runs and the exit code is 1.
#[derive(Debug, clap::Args)]
#[command(verbatim_doc_comment)]
pub(crate) struct Args {
    /// Targets to run (default: all).
    #[arg(value_name = "TARGET")]
    names: Vec<String>,
    /// How long to run each.
    #[arg(long, default_value_t = 60)]
    seconds: u64,
}

/// A fuzz target: the directory of its crate, and its name.
#[derive(Clone, Debug)]
struct Target {
    dir: PathBuf,
    name: String,
}

impl Args {
    /// Runs the chosen targets one after the other.
    pub(crate) fn run(&self, workspace: &Workspace) -> Result<Verdict, Error> {
        let mut report = Report::with_sweep();
        let can_run = cargo::has_subcommand("fuzz");
        for target in self.chosen(&targets(workspace))? {
            let name = format!("fuzz {}", target.name);
            if can_run {
                let limit = format!("-max_total_time={}", self.seconds);
                // By its name: only the launcher of rustup understands `+nightly`.
                let mut command = Command::new("cargo");
                command.args(["+nightly", "fuzz", "run", &target.name, "--", &limit]);
                command.current_dir(target.dir);
                report.run(Step::of(name, self.seconds + 900, command));
            } else {
                report.skip(
                    name,
                    "cargo-fuzz is not installed: `cargo install cargo-fuzz`",
                );
            }
        }
        Ok(report.finish())
    }

    fn chosen(&self, all: &[Target]) -> Result<Vec<Target>, Error> {
        let known: Vec<String> = all.iter().map(|target| target.name.clone()).collect();
        if let Some(wanted) = self.names.iter().find(|wanted| !known.contains(wanted)) {
            return Err(Error::NoMatch {
                kind: "fuzz target",
                wanted: wanted.clone(),
                known,
            });
        }
        let is_chosen =
            |target: &&Target| self.names.is_empty() || self.names.contains(&target.name);
        Ok(all.iter().filter(is_chosen).cloned().collect())
    }
}

/// All fuzz targets on disk.
fn targets(workspace: &Workspace) -> Vec<Target> {
    let mut found = Vec::new();
    for dir in workspace.members().into_iter().map(dir_of) {
        let Ok(files) = fs::read_dir(dir.join("fuzz/fuzz_targets")) else {
            continue;
        };
        for path in files.flatten().map(|file| file.path()) {
            if let (Some(stem), true) = (
                path.file_stem(),
                path.extension().is_some_and(|e| e == "rs"),
            ) {
                found.push(Target {
                    dir: dir.clone(),
                    name: stem.to_string_lossy().into_owned(),
                });
            }
        }
    }
    found.sort_by(|a, b| a.name.cmp(&b.name));
    found
}

#[cfg(test)]
mod tests;
