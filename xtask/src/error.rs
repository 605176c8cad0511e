//! What stops a task before it can give a verdict.
//!
//! A check that *fails* is a verdict, not an error: see [`Verdict`]. Errors are for a task that
//! could not do what it was asked, and they say what to do about it.

use std::{io, path::PathBuf};

/// How a task ended that ran to its end.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[must_use]
pub(crate) enum Verdict {
    /// Everything that was asked for holds. Exit code 0.
    Passed,
    /// Something does not hold, and has been printed. Exit code 1.
    Failed,
}

impl Verdict {
    /// `Passed` exactly when `holds`.
    pub(crate) fn of(holds: bool) -> Self {
        if holds { Self::Passed } else { Self::Failed }
    }
}

/// Why a task could not be carried out. Exit code 2.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub(crate) enum Error {
    /// A name on the command line names nothing. Never treated as "nothing to do".
    #[error("find the {kind} `{wanted}`; there is: {}", known.join(", "))]
    NoMatch {
        /// What kind of thing was looked for.
        kind: &'static str,
        /// The name as given.
        wanted: String,
        /// What would have matched.
        known: Vec<String>,
    },
    /// A program that a task consists of does not exist yet.
    #[error("run `{name}`: the crate `{package}` has no such program yet")]
    NotBuiltYet {
        /// The crate that would have it.
        package: &'static str,
        /// The name of the program.
        name: &'static str,
    },
    /// The table of bench programs in a manifest is not as `docs/benches.md` describes it.
    #[error("read `[package.metadata.bench]` of `{package}`; see docs/benches.md")]
    BenchTable {
        /// The crate.
        package: String,
        /// What does not fit.
        source: serde_json::Error,
    },
    /// A program could not be started.
    #[error("start {program}")]
    Start {
        /// The command line.
        program: String,
        /// The reason of the system.
        source: io::Error,
    },
    /// A file or directory could not be read or written.
    #[error("{action} {}", path.display())]
    File {
        /// What was attempted, as a verb.
        action: &'static str,
        /// On what.
        path: PathBuf,
        /// The reason of the system.
        source: io::Error,
    },
    /// Cargo could not describe the workspace.
    #[error("ask cargo for the workspace around the current directory")]
    Metadata(#[from] cargo_metadata::Error),
    /// This binary was built from other sources than the workspace's own xtask.
    #[error(
        "use this binary here: it was built from other xtask sources ({built}) than the ones in {} ({found}); rebuild and run it with `cargo xtask ...`",
        package.display()
    )]
    OtherSources {
        /// Stamp inside the binary.
        built: &'static str,
        /// Stamp of the sources on disk.
        found: String,
        /// Where these sources are.
        package: PathBuf,
    },
}

impl Error {
    /// For `map_err` on file operations.
    pub(crate) fn file(
        action: &'static str,
        path: impl Into<PathBuf>,
    ) -> impl FnOnce(io::Error) -> Self {
        let path = path.into();
        move |source| Self::File {
            action,
            path,
            source,
        }
    }
}
