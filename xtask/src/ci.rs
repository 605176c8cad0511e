//! `cargo xtask ci`: everything that must hold before a change lands.

use std::{process::Command, time::Duration};

use cargo_metadata::Package;
use clap::ValueEnum;

use crate::{
    cargo::{self, Program},
    changed::{Scope, scope_since},
    delegate::VECTOR_ADD,
    error::{Error, Verdict},
    instructions::{self, Otherwise},
    loom,
    report::Report,
    step::Step,
    suite::{self, Crates},
    workspace::Workspace,
};

/// Run every check that CI runs, and report all failures.
///
/// Each check is a step with a time limit of its own; a hung step is ended, named, and the rest
/// still runs. The output of a failing step is printed whole. What this machine cannot run is
/// reported as skipped, with the reason. The last line counts the steps.
///
/// Everything is built once in the development profile and used by tests, doc tests and examples;
/// clippy and rustdoc share the metadata of the dependencies.
#[derive(Debug, clap::Args)]
#[command(verbatim_doc_comment)]
pub(crate) struct Args {
    /// Run only these stages (comma-separated), in the usual order.
    #[arg(long, value_delimiter = ',', value_name = "STAGE")]
    only: Vec<Stage>,
    /// Run only what a change since this revision can affect; anything unclear runs everything.
    #[arg(long, value_name = "REV")]
    changed_since: Option<String>,
    /// End every step after this many seconds, if its own limit is longer.
    #[arg(long, value_name = "SECONDS")]
    limit_s: Option<u64>,
}

/// A stage of `ci`, in the order in which they run: what fails fast comes first.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
enum Stage {
    /// The formatting is rustfmt's.
    Fmt,
    /// The rules of this repository that no compiler knows (`cargo xtask tidy`).
    Tidy,
    /// Clippy has nothing to say about any target.
    Clippy,
    /// Every crate that has features builds without them; all other stages have them all.
    Features,
    /// All unit and integration tests.
    Test,
    /// All code in documentation compiles and runs.
    Doctest,
    /// The documentation builds without a warning.
    Rustdoc,
    /// All examples run.
    Examples,
    /// The models of the small protocols hold in every interleaving.
    Loom,
    /// The example `vector_add` runs when built with optimizations.
    Release,
    /// The hot paths of the graph take no more instructions than was committed.
    Instructions,
}

impl Args {
    /// Runs the chosen stages.
    pub(crate) fn run(&self, workspace: &Workspace) -> Result<Verdict, Error> {
        let scope = match &self.changed_since {
            Some(rev) => scope_since(workspace, rev),
            None => Scope::everything("no change was named"),
        };
        let names = match &scope.crates {
            Crates::All => "all crates".to_owned(),
            Crates::Only(names) => format!("{names:?}"),
        };
        eprintln!("checking {names} ({})", scope.why);
        let mut run = Run {
            workspace,
            crates: scope.crates,
            report: Report::with_sweep().limited_to(self.limit_s.map(Duration::from_secs)),
            programs: None,
        };
        for &stage in Stage::value_variants() {
            if self.only.is_empty() || self.only.contains(&stage) {
                run.stage(stage);
            }
        }
        Ok(run.report.finish())
    }
}

/// A run in progress.
struct Run<'a> {
    workspace: &'a Workspace,
    crates: Crates,
    report: Report,
    /// Built by the first stage that needs them; empty when that failed.
    programs: Option<Vec<Program>>,
}

impl Run<'_> {
    fn stage(&mut self, stage: Stage) {
        let name = stage
            .to_possible_value()
            .map_or_else(String::new, |v| v.get_name().to_owned());
        let needs_crates = !matches!(stage, Stage::Fmt | Stage::Tidy);
        if needs_crates && self.crates.is_empty() {
            return self.report.skip(name, "no crate is affected by the change");
        }
        match stage {
            Stage::Fmt => self.tool(&name, "fmt", "rustfmt", 120, &["--all", "--check"]),
            Stage::Tidy => self.tidy(),
            Stage::Clippy => self.clippy(&name),
            Stage::Features => self.features(),
            Stage::Test => self.tests(),
            Stage::Doctest => {
                suite::doc_tests(&mut self.report, self.workspace, &self.crates, None);
            }
            Stage::Rustdoc => self.rustdoc(),
            Stage::Examples => self.examples(),
            Stage::Loom => self.loom(),
            Stage::Release => self.release(),
            Stage::Instructions => self.instructions(),
        }
    }

    /// Runs a cargo subcommand that comes with a component of the toolchain.
    fn tool(&mut self, name: &str, subcommand: &str, component: &str, limit_s: u64, args: &[&str]) {
        if !cargo::has_subcommand(subcommand) {
            let why = format!("{component} is not installed: `rustup component add {component}`");
            return self.report.skip(name, why);
        }
        let args = [subcommand].into_iter().chain(args.iter().copied());
        self.report
            .run(cargo::step(self.workspace, name, limit_s, args));
    }

    /// Tidy in a process of its own, so that it has a limit like everything else.
    fn tidy(&mut self) {
        // The link means this very program, also when a build has replaced the file meanwhile.
        let mut command = Command::new("/proc/self/exe");
        command.arg("tidy").current_dir(self.workspace.root());
        self.report.run(Step::of("tidy", 120, command));
    }

    fn clippy(&mut self, name: &str) {
        let chosen = self.crates.options_with_features();
        let mut args: Vec<&str> = chosen.iter().map(String::as_str).collect();
        args.extend(["--all-targets", "--", "-D", "warnings"]);
        self.tool(name, "clippy", "clippy", 900, &args);
    }

    fn features(&mut self) {
        let has_features = |package: &&Package| !package.features.is_empty();
        for package in self.workspace.members().into_iter().filter(has_features) {
            let name = package.name.as_str();
            if self.crates.contains(name) {
                let chosen = format!("--package={name}");
                let args = ["check", &chosen, "--lib", "--no-default-features"];
                let label = format!("features {name} without");
                self.report
                    .run(cargo::step(self.workspace, label, 600, args));
            }
        }
    }

    fn tests(&mut self) {
        let programs = self.programs();
        suite::tests(&mut self.report, &programs, None);
    }

    fn examples(&mut self) {
        let programs = self.programs();
        suite::examples(&mut self.report, &programs);
    }

    /// What to run, built once; empty when the build failed, which is in the report then.
    fn programs(&mut self) -> Vec<Program> {
        if self.programs.is_none() {
            let built = suite::build(&mut self.report, self.workspace, &self.crates);
            self.programs = Some(built.unwrap_or_default());
        }
        self.programs.clone().unwrap_or_default()
    }

    fn rustdoc(&mut self) {
        let mut args = vec!["doc".to_owned(), "--no-deps".to_owned()];
        args.extend(self.crates.options_with_features());
        let mut step = cargo::step(self.workspace, "rustdoc", 600, args);
        step.command.env("RUSTDOCFLAGS", "-D warnings");
        self.report.run(step);
    }

    fn loom(&mut self) {
        for name in loom::modelled(self.workspace) {
            if self.crates.contains(&name) {
                loom::models(&mut self.report, self.workspace, &name);
            }
        }
    }

    fn instructions(&mut self) {
        if self.crates.contains("taskgraph") {
            instructions::check(&mut self.report, self.workspace, Otherwise::Skip);
        }
    }

    /// The first command of the README.
    fn release(&mut self) {
        let name = "release facade/vector_add";
        if !VECTOR_ADD.exists(self.workspace) {
            return self
                .report
                .skip(name, "facade has no example `vector_add` yet");
        }
        if !self.crates.contains("facade") {
            return self
                .report
                .skip(name, "facade is not affected by the change");
        }
        self.report.run(cargo::step(
            self.workspace,
            name,
            900,
            VECTOR_ADD.cargo_run(),
        ));
    }
}
