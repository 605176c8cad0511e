//! Measures beside other people's programs: packages outside the workspace, so that nobody compiles those who does not
//! ask for the comparison by name.
//!
//! A package `CRATE/benches/NAME/Cargo.toml` is one, when its manifest declares what it measures:
//!
//! ```toml
//! [package.metadata.bench]
//! measures = ["mailbox_rtt_vs_iceoryx2"]
//! ```

use std::{
    fs,
    path::{Path, PathBuf},
};

use super::measure::Measure;
use crate::{
    cargo,
    error::Error,
    progress::{self, say},
    report::{Outcome, judge_by_exit},
    workspace::{Workspace, dir_of},
};

/// How long it may take to build what is compared with, on a busy machine.
const BUILD_S: u64 = 3600;
/// How long it may run.
const RUN_S: u64 = 300;

/// A package that compares.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Comparison {
    /// Its manifest.
    manifest: PathBuf,
    /// What reports call it: its directory, from the root of the repository.
    pub(crate) name: String,
    /// What it measures.
    pub(crate) measures: Vec<String>,
}

/// All of them, in the order of their names.
pub(crate) fn all(workspace: &Workspace) -> Result<Vec<Comparison>, Error> {
    let mut found = Vec::new();
    for member in workspace.members() {
        let Ok(dirs) = fs::read_dir(dir_of(member).join("benches")) else {
            continue;
        };
        for dir in dirs.flatten().map(|entry| entry.path()) {
            found.extend(Comparison::at(workspace, &dir)?);
        }
    }
    found.sort_by(|a, b| a.name.cmp(&b.name));
    Ok(found)
}

impl Comparison {
    /// The comparison in `dir`, if there is one.
    fn at(workspace: &Workspace, dir: &Path) -> Result<Option<Self>, Error> {
        let manifest = dir.join("Cargo.toml");
        if !manifest.is_file() {
            return Ok(None);
        }
        let text = fs::read_to_string(&manifest).map_err(Error::file("read", &manifest))?;
        let name = dir.strip_prefix(workspace.root()).unwrap_or(dir);
        Ok(Some(Self {
            name: name.display().to_string(),
            measures: measures_in(&text),
            manifest,
        }))
    }

    /// Builds the program and runs it. A program that cannot be built here, for example without a network, is
    /// reported and measures nothing.
    pub(crate) fn measure(
        &self,
        workspace: &Workspace,
        check: impl FnOnce(&str) -> Result<Vec<Measure>, String>,
    ) -> Result<Vec<Measure>, String> {
        if let Err(why) = self.cargo(workspace, "build", BUILD_S, &[]) {
            say(&format!(
                "not available  {}: it cannot be built here\n{why}\n",
                self.measures.join(", ")
            ));
            return Ok(Vec::new());
        }
        check(&self.cargo(workspace, "run", RUN_S, &["--", "--json"])?)
    }

    /// Runs cargo on the package as it is locked; what it wrote to standard output.
    fn cargo(
        &self,
        workspace: &Workspace,
        subcommand: &str,
        limit_s: u64,
        rest: &[&str],
    ) -> Result<String, String> {
        let name = format!("{subcommand} {}", self.name);
        let args = [subcommand, "--quiet", "--release", "--locked"];
        let mut step = cargo::step(workspace, name, limit_s, args);
        step.command
            .arg("--manifest-path")
            .arg(&self.manifest)
            .arg("--target-dir")
            .arg(workspace.target_dir().join("comparisons"))
            .args(rest);
        let ran = progress::run(step);
        let judged = judge_by_exit(&ran);
        match judged.outcome {
            Outcome::Passed => Ok(ran.stdout),
            _ => Err(format!("{}\n{}{}", judged.note, ran.stderr, ran.stdout)),
        }
    }
}

/// The names in the line `measures = ["NAME", ..]`. No parser of TOML is needed for one line of our own.
fn measures_in(manifest: &str) -> Vec<String> {
    let line = manifest
        .lines()
        .find_map(|line| line.strip_prefix("measures = "));
    let quoted = line.unwrap_or_default().split('"').skip(1).step_by(2);
    quoted.map(str::to_owned).collect()
}

#[cfg(test)]
mod tests;
