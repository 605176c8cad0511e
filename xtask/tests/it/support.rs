//! Running the program.

use std::process::{Command, Output};

use crate::fixture::Fixture;

/// What a run of xtask came to.
#[derive(Debug)]
pub(crate) struct Run {
    /// The exit code.
    pub(crate) code: i32,
    /// Standard output.
    pub(crate) stdout: String,
    /// Standard error.
    pub(crate) stderr: String,
}

/// A command that runs xtask in a fixture, with a target directory of the fixture's own.
pub(crate) fn command(fixture: &Fixture, args: &[&str]) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_xtask"));
    command.args(args).current_dir(fixture.path());
    command.env("CARGO_TARGET_DIR", fixture.path().join("target"));
    command
}

/// Runs xtask in a fixture.
#[track_caller]
pub(crate) fn xtask(fixture: &Fixture, args: &[&str]) -> Run {
    let output = command(fixture, args)
        .output()
        .expect("xtask can be started");
    Run::of(output)
}

impl Run {
    /// What came of a run.
    #[track_caller]
    pub(crate) fn of(
        Output {
            status,
            stdout,
            stderr,
        }: Output,
    ) -> Self {
        let text = |bytes| String::from_utf8(bytes).expect("xtask prints UTF-8");
        let code = status.code().expect("xtask exits");
        Self {
            code,
            stdout: text(stdout),
            stderr: text(stderr),
        }
    }

    /// Checks the exit code.
    #[track_caller]
    pub(crate) fn exits_with(&self, code: i32) -> &Self {
        assert_eq!(self.code, code, "{self:#?}");
        self
    }

    /// Checks the last line of standard output.
    #[track_caller]
    pub(crate) fn closes_with(&self, line: &str) -> &Self {
        assert_eq!(self.stdout.lines().last(), Some(line), "{self:#?}");
        self
    }

    /// Checks that a line of the table has all of these parts.
    #[track_caller]
    pub(crate) fn has_row(&self, parts: &[&str]) -> &Self {
        let is_row = |line: &str| parts.iter().all(|part| line.contains(part));
        assert!(
            self.stdout.lines().any(is_row),
            "no row with {parts:?}: {self:#?}"
        );
        self
    }

    /// Checks that standard error has this text.
    #[track_caller]
    pub(crate) fn says(&self, text: &str) -> &Self {
        assert!(self.stderr.contains(text), "not said: {text:?}: {self:#?}");
        self
    }
}
