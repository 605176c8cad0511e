//! `cargo xtask test`: the tests of one crate, or of all.

use crate::{
    error::{Error, Verdict},
    report::Report,
    suite::{self, Crates},
    workspace::Workspace,
};

/// Run the tests and doc tests of the named crates (default: all).
///
/// The same steps as in `ci`, with the same limits and the same table: a hung test program is named
/// and ended, a test that skipped itself is listed with its reason. A name that matches nothing is
/// an error, and so is a filter that no test matches.
#[derive(Debug, clap::Args)]
#[command(verbatim_doc_comment)]
pub(crate) struct Args {
    /// Crates to test.
    #[arg(value_name = "NAME")]
    names: Vec<String>,
    /// Run only the tests whose name contains this.
    #[arg(long, value_name = "TEXT")]
    filter: Option<String>,
}

impl Args {
    /// Runs the chosen tests.
    pub(crate) fn run(&self, workspace: &Workspace) -> Result<Verdict, Error> {
        let chosen = workspace.select(&self.names)?;
        let crates = if self.names.is_empty() {
            Crates::All
        } else {
            Crates::Only(
                chosen
                    .iter()
                    .map(|package| package.name.to_string())
                    .collect(),
            )
        };
        let filter = self.filter.as_deref();
        let mut report = Report::with_sweep();
        if let Some(programs) = suite::build(&mut report, workspace, &crates) {
            let ran = suite::tests(&mut report, &programs, filter)
                + suite::doc_tests(&mut report, workspace, &crates, filter);
            if let (0, Some(filter)) = (ran, filter) {
                report.fail("filter", format!("no test's name contains `{filter}`"));
            }
        }
        Ok(report.finish())
    }
}
