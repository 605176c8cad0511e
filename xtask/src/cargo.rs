//! Running cargo, and reading which programs it has built.

use std::{
    env,
    ffi::{OsStr, OsString},
    io::Cursor,
    path::PathBuf,
    process::Command,
};

use cargo_metadata::{Artifact, Message, TargetKind};

use crate::{
    step::Step,
    workspace::{Workspace, dir_of},
};

/// The cargo that started this program, else the one in the search path.
pub(crate) fn program() -> OsString {
    env::var_os("CARGO").unwrap_or_else(|| "cargo".into())
}

/// A cargo command in the root of the workspace.
pub(crate) fn command<A: AsRef<OsStr>>(
    workspace: &Workspace,
    args: impl IntoIterator<Item = A>,
) -> Command {
    let mut command = Command::new(program());
    command.args(args).current_dir(workspace.root());
    command
}

/// A step that runs cargo in the root of the workspace.
pub(crate) fn step<A: AsRef<OsStr>>(
    workspace: &Workspace,
    name: impl Into<String>,
    limit_s: u64,
    args: impl IntoIterator<Item = A>,
) -> Step {
    Step::of(name, limit_s, command(workspace, args))
}

/// Whether `cargo NAME` can be run here.
pub(crate) fn has_subcommand(name: &str) -> bool {
    Command::new(program())
        .args([name, "--version"])
        .output()
        .is_ok_and(|out| out.status.success())
}

/// What a built program is for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Role {
    /// It runs the unit tests of a library, a binary, or an example that has some.
    UnitTests,
    /// It runs the tests of a file below `tests/`.
    IntegrationTests,
    /// It is an example, built as its user would.
    Example,
}

/// A program that cargo has built.
#[derive(Clone, Debug)]
pub(crate) struct Program {
    /// The crate it belongs to.
    pub(crate) package: String,
    /// That crate's directory: where cargo would run it.
    pub(crate) package_dir: PathBuf,
    /// The name of its target.
    pub(crate) target: String,
    /// What it is for.
    pub(crate) role: Role,
    /// The source file of its `main` or crate root.
    pub(crate) source: PathBuf,
    /// The file to run.
    pub(crate) executable: PathBuf,
}

impl Program {
    /// What the table calls it, e.g. `mailbox (unit)`, `mailbox (it)`, `facade/vector_add`.
    pub(crate) fn label(&self) -> String {
        match self.role {
            Role::UnitTests if self.source.ends_with("src/lib.rs") => {
                format!("{} (unit)", self.package)
            }
            Role::UnitTests if self.tests_an_example() => {
                format!("{} (example {})", self.package, self.target)
            }
            Role::UnitTests => format!("{} (bin {})", self.package, self.target),
            Role::IntegrationTests => format!("{} ({})", self.package, self.target),
            Role::Example => format!("{}/{}", self.package, self.target),
        }
    }

    /// Whether it runs the tests that an example has in itself.
    pub(crate) fn tests_an_example(&self) -> bool {
        let example = self.source.starts_with(self.package_dir.join("examples"));
        example && self.role == Role::UnitTests
    }

    /// A command that runs it as cargo does: in the crate's directory, with cargo's variables.
    pub(crate) fn command(&self) -> Command {
        let mut command = Command::new(&self.executable);
        command
            .current_dir(&self.package_dir)
            .env("CARGO", program())
            .env("CARGO_MANIFEST_DIR", &self.package_dir)
            .env("CARGO_PKG_NAME", &self.package);
        command
    }
}

/// The test programs and examples named in cargo's `--message-format=json` output, by label.
pub(crate) fn programs(workspace: &Workspace, messages: &str) -> Vec<Program> {
    let artifacts =
        Message::parse_stream(Cursor::new(messages)).filter_map(|message| match message {
            Ok(Message::CompilerArtifact(artifact)) => Some(artifact),
            _ => None,
        });
    let mut programs: Vec<Program> = artifacts
        .filter_map(|artifact| program_of(workspace, artifact))
        .collect();
    // Cargo reports them in the order in which they were ready.
    programs.sort_by_key(Program::label);
    programs
}

fn program_of(workspace: &Workspace, artifact: Artifact) -> Option<Program> {
    let executable = artifact.executable?.into_std_path_buf();
    let role = match artifact.target.kind.as_slice() {
        [TargetKind::Test] => Role::IntegrationTests,
        [TargetKind::Example] if !artifact.profile.test => Role::Example,
        _ if artifact.profile.test => Role::UnitTests,
        _ => return None,
    };
    let package = workspace
        .members()
        .into_iter()
        .find(|member| member.id == artifact.package_id)?;
    Some(Program {
        package: package.name.to_string(),
        package_dir: dir_of(package),
        target: artifact.target.name,
        role,
        source: artifact.target.src_path.into_std_path_buf(),
        executable,
    })
}
