//! Reads what a test program printed: how many tests, which failed, which could not run here.
//!
//! A test that lacks a privilege or a kernel feature prints `skipped: REASON` and returns. With
//! `--show-output` that line reaches us although the test "passed", and becomes a row of the table.

/// What the tests of one program, or of several one after the other, came to.
#[derive(Debug, Default, PartialEq, Eq)]
pub(crate) struct Summary {
    /// Tests that ran and held; those that skipped themselves are not among them.
    pub(crate) passed: usize,
    /// The names of the tests that failed.
    pub(crate) failed: Vec<String>,
    /// Tests that did not run, and why.
    pub(crate) skipped: Vec<(String, String)>,
    /// Whether a closing line was seen at all; a program with a harness of its own has none.
    pub(crate) complete: bool,
    /// The test that was running when the program ended before its time, if tests ran one by one.
    pub(crate) running: Option<String>,
}

impl Summary {
    /// Reads the standard output of the standard test harness.
    pub(crate) fn parse(output: &str) -> Self {
        let mut summary = Self::default();
        let mut section = None;
        for line in output.lines() {
            if let Some(test) = line
                .strip_prefix("---- ")
                .and_then(|s| s.strip_suffix(" stdout ----"))
            {
                section = Some(test);
            } else if let (Some(test), Some(reason)) = (section, line.strip_prefix("skipped: ")) {
                summary.skip_itself(test, reason);
            } else if line.starts_with("test result: ") {
                summary.complete = true;
                section = None;
            } else if section.is_none() {
                summary.count(line);
            }
        }
        summary.running = running(output).filter(|_| !summary.complete);
        summary
    }

    /// A line `test NAME ... OUTCOME`; any other line is not about a test.
    fn count(&mut self, line: &str) {
        let Some((name, outcome)) = line
            .strip_prefix("test ")
            .and_then(|s| s.rsplit_once(" ... "))
        else {
            return;
        };
        match outcome
            .split_once(", ")
            .unwrap_or((outcome, "no reason given"))
        {
            ("ok", _) => self.passed += 1,
            ("FAILED", _) => self.failed.push(name.to_owned()),
            ("ignored", reason) => self.skipped.push((name.to_owned(), reason.to_owned())),
            _ => {}
        }
    }

    fn skip_itself(&mut self, test: &str, reason: &str) {
        let new = !self.skipped.iter().any(|(name, _)| name == test);
        if new && !self.failed.iter().any(|name| name == test) {
            self.passed = self.passed.saturating_sub(1);
            self.skipped.push((test.to_owned(), reason.to_owned()));
        }
    }

    /// How many tests there are, run or not.
    pub(crate) fn total(&self) -> usize {
        self.passed + self.failed.len() + self.skipped.len()
    }

    /// A few words for the table.
    pub(crate) fn note(&self) -> String {
        match self.failed.as_slice() {
            [] if !self.complete => "own harness".to_owned(),
            [] if self.passed == 1 => "1 test".to_owned(),
            [] => format!("{} tests", self.passed),
            failed => {
                format!(
                    "{} of {} tests failed: {}",
                    failed.len(),
                    self.total(),
                    failed.join(", ")
                )
            }
        }
    }
}

/// The name in a last line that has no outcome yet.
fn running(output: &str) -> Option<String> {
    let begun = output.lines().last()?.strip_prefix("test ")?;
    begun.trim_end().strip_suffix(" ...").map(str::to_owned)
}

#[cfg(test)]
mod tests;
