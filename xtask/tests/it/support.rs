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

/// Runs xtask in a fixture, with a target directory of the fixture's own.
#[track_caller]
pub(crate) fn xtask(fixture: &Fixture, args: &[&str]) -> Run {
    let mut command = Command::new(env!("CARGO_BIN_EXE_xtask"));
    command.args(args).current_dir(fixture.path());
    command.env("CARGO_TARGET_DIR", fixture.path().join("target"));
    let Output {
        status,
        stdout,
        stderr,
    } = command.output().expect("xtask can be started");
    let text = |bytes| String::from_utf8(bytes).expect("xtask prints UTF-8");
    Run {
        code: status.code().expect("xtask exits"),
        stdout: text(stdout),
        stderr: text(stderr),
    }
}

impl Run {
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
