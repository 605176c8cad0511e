//! `cargo xtask fuzz`: the decoders against random bytes.
//!
//! A fuzz target is a file `CRATE/fuzz/fuzz_targets/NAME.rs`, in a package of its own outside the
//! workspace, as cargo-fuzz lays it out. Found inputs become ordinary tests of the crate.
//!
//! cargo-fuzz itself is not needed: a target is an ordinary program that is built by a nightly
//! compiler with the instrumentation that its runner looks for ([`INSTRUMENTATION`]).

use std::{
    fs,
    path::{Path, PathBuf},
    process::Command,
};

use crate::{
    error::{Error, Verdict},
    report::Report,
    step::Step,
    workspace::{Workspace, dir_of},
};

/// Feed random bytes to every decoder, for a while each.
///
/// Needs a nightly toolchain and a C++ compiler; without them nothing runs and the exit code is 1.
/// The inputs that were worth keeping go to `CRATE/fuzz/corpus/TARGET`, and the one that broke a
/// decoder to `CRATE/fuzz/artifacts/TARGET`. A found fault becomes an ordinary test.
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

/// A fuzz target.
#[derive(Clone, Debug)]
struct Target {
    /// The directory of the package of fuzz targets: `CRATE/fuzz`.
    dir: PathBuf,
    /// The name of the program.
    name: String,
}

/// What tells the fuzzer where an input led, and finds accesses to memory that is not the
/// decoder's.
const INSTRUMENTATION: &str = "--cfg fuzzing -Cpasses=sancov-module \
    -Cllvm-args=-sanitizer-coverage-level=4 \
    -Cllvm-args=-sanitizer-coverage-inline-8bit-counters \
    -Cllvm-args=-sanitizer-coverage-pc-table \
    -Cllvm-args=-sanitizer-coverage-trace-compares \
    -Zsanitizer=address -Cdebug-assertions -Ccodegen-units=1";

/// How long a target may take to build.
const BUILD_S: u64 = 900;

impl Args {
    /// Runs the chosen targets one after the other.
    pub(crate) fn run(&self, workspace: &Workspace) -> Result<Verdict, Error> {
        let mut report = Report::with_sweep();
        let host = nightly_host();
        for target in self.chosen(&targets(workspace))? {
            let name = format!("fuzz {}", target.name);
            match &host {
                Some(host) => {
                    let command = self.command(workspace, &target, host)?;
                    report.run(Step::of(name, self.seconds + BUILD_S, command));
                }
                None => report.skip(
                    name,
                    "no nightly compiler: `rustup toolchain install nightly`",
                ),
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

    /// Builds and runs a target.
    ///
    /// The platform is named although it is the own one: then build scripts and macros, which run
    /// in the compiler, are not instrumented.
    fn command(
        &self,
        workspace: &Workspace,
        target: &Target,
        host: &str,
    ) -> Result<Command, Error> {
        let corpus = made(target.dir.join("corpus").join(&target.name))?;
        let artifacts = made(target.dir.join("artifacts").join(&target.name))?;
        let mut command = nightly("cargo");
        command.args(["run", "--release", "--target", host, "--bin", &target.name]);
        command
            .arg("--target-dir")
            .arg(workspace.target_dir().join("fuzz"));
        command.arg("--").arg(corpus);
        command.arg(format!("-artifact_prefix={}/", artifacts.display()));
        command.arg(format!("-max_total_time={}", self.seconds));
        command
            .env("RUSTFLAGS", INSTRUMENTATION)
            .current_dir(&target.dir);
        Ok(command)
    }
}

/// `dir`, which exists afterwards.
fn made(dir: PathBuf) -> Result<PathBuf, Error> {
    fs::create_dir_all(&dir).map_err(Error::file("create", &dir))?;
    Ok(dir)
}

/// A program of the nightly toolchain. By its name: only the launcher of rustup understands
/// `+nightly`.
fn nightly(program: &str) -> Command {
    let mut command = Command::new(program);
    command
        .arg("+nightly")
        .env_remove("CARGO")
        .env_remove("RUSTC")
        .env_remove("RUSTUP_TOOLCHAIN");
    command
}

/// The platform of the nightly compiler; `None` when there is none.
fn nightly_host() -> Option<String> {
    let output = nightly("rustc").arg("-vV").output().ok()?;
    let text = String::from_utf8(output.stdout).ok()?;
    text.lines()
        .find_map(|line| line.strip_prefix("host: "))
        .map(str::to_owned)
}

/// All fuzz targets on disk.
fn targets(workspace: &Workspace) -> Vec<Target> {
    let mut found = Vec::new();
    for dir in workspace
        .members()
        .into_iter()
        .map(|member| dir_of(member).join("fuzz"))
    {
        let Ok(files) = fs::read_dir(dir.join("fuzz_targets")) else {
            continue;
        };
        let paths = files.flatten().map(|file| file.path());
        found.extend(paths.filter_map(|path| name_of(&path)).map(|name| Target {
            dir: dir.clone(),
            name,
        }));
    }
    found.sort_by(|a, b| a.name.cmp(&b.name));
    found
}

/// The name of the target in this file, if it is one.
fn name_of(path: &Path) -> Option<String> {
    let is_rust = path.extension().is_some_and(|ending| ending == "rs");
    path.file_stem()
        .filter(|_| is_rust)
        .map(|stem| stem.to_string_lossy().into_owned())
}

#[cfg(test)]
mod tests;
