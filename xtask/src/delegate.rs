//! Tasks that are programs of other crates: xtask builds them with cargo and becomes them.
//!
//! xtask depends on no crate of the workspace, so their programs are the border. Each has its own
//! command line, documented by its own `--help`; its exit code is the task's exit code.

use std::{ffi::OsString, os::unix::process::CommandExt};

use cargo_metadata::TargetKind;

use crate::{
    cargo,
    error::{Error, Verdict},
    workspace::{Workspace, target},
};

/// A program of a crate of the workspace.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Program {
    /// The crate.
    pub(crate) package: &'static str,
    /// Binary or example.
    pub(crate) kind: Kind,
    /// The name of the target.
    pub(crate) name: &'static str,
}

/// What kind of target a program is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Kind {
    /// Below `src/`.
    Binary,
    /// Below `examples/`.
    Example,
}

/// The main job, the program on the README's first screen.
pub(crate) const VECTOR_ADD: Program = Program {
    package: "facade",
    kind: Kind::Example,
    name: "vector_add",
};

/// Processes against processes: trees under load, killed at random instants.
const CHAOS: Program = Program {
    package: "facade",
    kind: Kind::Example,
    name: "chaos",
};

/// The scheduler against random programs, from seeds.
const SIM_TEST: Program = Program {
    package: "taskgraph",
    kind: Kind::Example,
    name: "sim_test",
};

/// The scenes of this repository.
const SCENES: Program = Program {
    package: "scenetest",
    kind: Kind::Binary,
    name: "scenes",
};

impl Program {
    /// Whether the workspace has it.
    pub(crate) fn exists(self, workspace: &Workspace) -> bool {
        let kind = match self.kind {
            Kind::Binary => TargetKind::Bin,
            Kind::Example => TargetKind::Example,
        };
        workspace
            .member(self.package)
            .is_ok_and(|package| target(package, &kind, self.name).is_some())
    }

    /// The arguments that make cargo build it with optimizations and run it.
    pub(crate) fn cargo_run(self) -> [String; 5] {
        let target = match self.kind {
            Kind::Binary => "--bin",
            Kind::Example => "--example",
        };
        let [run, quiet, release] = ["run", "--quiet", "--release"].map(str::to_owned);
        [
            run,
            quiet,
            release,
            format!("--package={}", self.package),
            format!("{target}={}", self.name),
        ]
    }

    /// Builds it and becomes it; returns only when that fails.
    fn become_it(self, workspace: &Workspace, args: Vec<OsString>) -> Result<Verdict, Error> {
        if !self.exists(workspace) {
            return Err(Error::NotBuiltYet {
                package: self.package,
                name: self.name,
            });
        }
        let mut command = cargo::command(workspace, self.cargo_run());
        let source = command.arg("--").args(args).exec();
        Err(Error::Start {
            program: format!("{command:?}"),
            source,
        })
    }
}

/// Start process trees, kill them at random instants at every depth, and count what is left.
///
/// Runs the example `chaos` of the crate facade, built with optimizations. The seed decides what is
/// killed and when; print it again to reproduce a run.
#[derive(Debug, clap::Args)]
#[command(verbatim_doc_comment)]
pub(crate) struct ChaosArgs {
    /// How long to go on.
    #[arg(long, default_value_t = 60)]
    seconds: u64,
    /// Where the random choices come from; a new one each time when absent.
    #[arg(long)]
    seed: Option<u64>,
}

impl ChaosArgs {
    /// Becomes the chaos program.
    pub(crate) fn run(&self, workspace: &Workspace) -> Result<Verdict, Error> {
        let mut args = vec!["--seconds".into(), self.seconds.to_string().into()];
        if let Some(seed) = self.seed {
            args.extend([OsString::from("--seed"), seed.to_string().into()]);
        }
        CHAOS.become_it(workspace, args)
    }
}

/// Run the scheduler through random graphs, speeds, failures and cancellations, from seeds.
///
/// Runs the example `sim_test` of the crate taskgraph, built with optimizations. A failing seed is
/// printed, and reproduces its failure exactly.
#[derive(Debug, clap::Args)]
#[command(verbatim_doc_comment)]
pub(crate) struct SimTestArgs {
    /// How many seeds to run.
    #[arg(long, default_value_t = 1000)]
    seeds: u64,
    /// Further arguments for the program.
    #[arg(last = true)]
    rest: Vec<OsString>,
}

impl SimTestArgs {
    /// Becomes the simulation program.
    pub(crate) fn run(&self, workspace: &Workspace) -> Result<Verdict, Error> {
        let mut args = vec!["--seeds".into(), self.seeds.to_string().into()];
        args.extend(self.rest.iter().cloned());
        SIM_TEST.become_it(workspace, args)
    }
}

/// Run scenes: end-to-end tests of kernels and graphs.
///
/// Everything after `scene` goes to the scene runner of the crate scenetest, `--help` and `--list`
/// too. A filter that matches no scene is an error there.
#[derive(Debug, clap::Args)]
#[command(verbatim_doc_comment, disable_help_flag = true)]
pub(crate) struct SceneArgs {
    /// The scene runner's arguments.
    #[arg(trailing_var_arg = true, allow_hyphen_values = true)]
    args: Vec<OsString>,
}

impl SceneArgs {
    /// Becomes the scene runner.
    pub(crate) fn run(&self, workspace: &Workspace) -> Result<Verdict, Error> {
        SCENES.become_it(workspace, self.args.clone())
    }
}
