//! What a person or a tool reads of a run: the lines of the standard harness.

use std::io::{self, Write};
use std::time::Duration;

use super::Test;

/// How a test ended.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Verdict {
    Passed,
    Skipped(String),
    Failed(String),
}

/// Counts verdicts and writes lines.
pub(super) struct Report<W> {
    out: W,
    quiet: bool,
    passed: usize,
    skipped: usize,
    failures: Vec<(&'static str, String, Vec<u8>)>,
}

impl<W: Write> Report<W> {
    pub(super) fn new(out: W, quiet: bool) -> Self {
        Self {
            out,
            quiet,
            passed: 0,
            skipped: 0,
            failures: Vec::new(),
        }
    }

    pub(super) fn list<'a>(&mut self, tests: impl Iterator<Item = &'a Test>) -> io::Result<()> {
        for test in tests {
            writeln!(self.out, "{}: test", test.name)?;
        }
        self.out.flush()
    }

    pub(super) fn begin(&mut self, count: usize) -> io::Result<()> {
        let plural = if count == 1 { "" } else { "s" };
        writeln!(self.out, "\nrunning {count} test{plural}")?;
        self.out.flush()
    }

    /// One test has ended, with what it printed.
    pub(super) fn ended(
        &mut self,
        name: &'static str,
        verdict: Verdict,
        output: Vec<u8>,
    ) -> io::Result<()> {
        let word = match &verdict {
            Verdict::Passed => "ok".to_owned(),
            Verdict::Skipped(reason) => format!("ignored, {reason}"),
            Verdict::Failed(_) => "FAILED".to_owned(),
        };
        if !self.quiet || verdict != Verdict::Passed {
            writeln!(self.out, "test {name} ... {word}")?;
        }
        match verdict {
            Verdict::Passed => self.passed += 1,
            Verdict::Skipped(_) => self.skipped += 1,
            Verdict::Failed(why) => self.failures.push((name, why, output)),
        }
        self.out.flush()
    }

    /// The failures in full, and the closing line; true if there were none.
    pub(super) fn finish(mut self, filtered: usize, took: Duration) -> io::Result<bool> {
        let (passed, failed, skipped) = (self.passed, self.failures.len(), self.skipped);
        if failed > 0 {
            self.failures_in_full()?;
        }
        writeln!(
            self.out,
            "\ntest result: {}. {passed} passed; {failed} failed; {skipped} ignored; 0 measured; \
             {filtered} filtered out; finished in {:.2}s\n",
            if failed == 0 { "ok" } else { "FAILED" },
            took.as_secs_f64(),
        )?;
        self.out.flush()?;
        Ok(failed == 0)
    }

    fn failures_in_full(&mut self) -> io::Result<()> {
        writeln!(self.out, "\nfailures:")?;
        for (name, why, output) in &self.failures {
            writeln!(self.out, "\n---- {name} stdout ----")?;
            self.out.write_all(output)?;
            writeln!(self.out, "{why}")?;
        }
        writeln!(self.out, "\nfailures:")?;
        for (name, ..) in &self.failures {
            writeln!(self.out, "    {name}")?;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests;
