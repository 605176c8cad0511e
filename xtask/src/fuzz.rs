//! `cargo xtask fuzz`: the decoders against random bytes.
//!
//! A fuzz target is a file `CRATE/fuzz/fuzz_targets/NAME.rs`, in a package of its own outside the
//! workspace, as cargo-fuzz lays it out. Found inputs become ordinary tests of the crate.
//!
//! cargo-fuzz itself is not needed: a target is an ordinary program that is built by a nightly
//! compiler with the instrumentation that its runner looks for ([`INSTRUMENTATION`]).
//!
//! Building and running are steps of their own. The runner is some twenty files of C++, a minute and a half of a free
//! core; it is built once for all targets, and a build that is ended at its limit would begin anew the next time. So
//! the limit of a build is one that only a hung one reaches.

use std::{
    collections::BTreeMap,
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

/// Why nothing can be fuzzed.
const NO_NIGHTLY: &str = "no nightly compiler: `rustup toolchain install nightly`";

/// What tells the fuzzer where an input led, and finds accesses to memory that is not the
/// decoder's.
const INSTRUMENTATION: &str = "--cfg fuzzing -Cpasses=sancov-module \
    -Cllvm-args=-sanitizer-coverage-level=4 \
    -Cllvm-args=-sanitizer-coverage-inline-8bit-counters \
    -Cllvm-args=-sanitizer-coverage-pc-table \
    -Cllvm-args=-sanitizer-coverage-trace-compares \
    -Zsanitizer=address -Cdebug-assertions -Ccodegen-units=1";

/// How long the targets of a crate may take to build.
const BUILD_S: u64 = 3600;
/// How long a target may take to start and to end, beside its time.
const MARGIN_S: u64 = 120;

impl Args {
    /// Builds the chosen targets crate by crate, and runs them one after the other.
    pub(crate) fn run(&self, workspace: &Workspace) -> Result<Verdict, Error> {
        let mut report = Report::with_sweep();
        let host = nightly_host();
        let mut by_dir: BTreeMap<PathBuf, Vec<Target>> = BTreeMap::new();
        for target in self.chosen(&targets(workspace))? {
            by_dir.entry(target.dir.clone()).or_default().push(target);
        }
        for (dir, targets) in by_dir {
            let Some(host) = &host else {
                for target in targets {
                    report.skip(target.step(), NO_NIGHTLY);
                }
                continue;
            };
            if report.run(build(workspace, &dir, &targets, host)).is_some() {
                for target in targets {
                    let command = self.command(workspace, &target, host)?;
                    let limit_s = self.seconds + MARGIN_S;
                    report.run(Step::of(target.step(), limit_s, command));
                }
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

    /// Runs a target that was built.
    fn command(
        &self,
        workspace: &Workspace,
        target: &Target,
        host: &str,
    ) -> Result<Command, Error> {
        let corpus = made(target.dir.join("corpus").join(&target.name))?;
        let artifacts = made(target.dir.join("artifacts").join(&target.name))?;
        let built = target_dir(workspace).join(host).join("release");
        let mut command = Command::new(built.join(&target.name));
        command.arg(corpus).args(target.regressions());
        command.arg(format!("-artifact_prefix={}/", artifacts.display()));
        command.arg(format!("-max_total_time={}", self.seconds));
        command.current_dir(&target.dir);
        Ok(command)
    }
}

impl Target {
    /// Inputs that once found something, kept with the sources under the target's name without the crate's: read, and
    /// never written.
    fn regressions(&self) -> Option<PathBuf> {
        let of_target = |dir: &PathBuf| {
            let name = dir.file_name().unwrap_or_default().to_string_lossy();
            self.name.ends_with(&format!("_{name}"))
        };
        let dirs = fs::read_dir(self.dir.join("regressions")).ok()?;
        dirs.flatten().map(|entry| entry.path()).find(of_target)
    }

    /// What the table calls its run.
    fn step(&self) -> String {
        format!("fuzz {}", self.name)
    }
}

/// Builds the targets of one package.
///
/// The platform is named although it is the own one: then build scripts and macros, which run in the compiler, are not
/// instrumented.
fn build(workspace: &Workspace, dir: &Path, targets: &[Target], host: &str) -> Step {
    let mut command = nightly("cargo");
    command.args(["build", "--release", "--target", host]);
    for target in targets {
        command.args(["--bin", &target.name]);
    }
    command.arg("--target-dir").arg(target_dir(workspace));
    command.env("RUSTFLAGS", INSTRUMENTATION).current_dir(dir);
    let of = dir.strip_prefix(workspace.root()).unwrap_or(dir);
    Step::of(format!("build {}", of.display()), BUILD_S, command)
}

/// Where targets are built: one place for all crates, which share the runner.
fn target_dir(workspace: &Workspace) -> PathBuf {
    workspace.target_dir().join("fuzz")
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
