//! Runs steps one after the other, and keeps the table of what became of each.
//!
//! Nothing stops at the first failure. While a step runs, a line on standard error says which and
//! for how long; the output of a failing step follows it there, whole. The table and the closing
//! count go to standard output.

use std::time::Duration;

use crate::{
    error::Verdict,
    interrupt, processes,
    progress::{self, say},
    step::{End, Ran, Step},
    table::{self, Align},
};

/// How long a process may outlive the step that started it, before it counts as left behind.
const LEFTOVER_GRACE: Duration = Duration::from_secs(1);

/// A row of the table.
#[derive(Debug)]
struct Row {
    step: String,
    outcome: Outcome,
    elapsed: Duration,
    /// Counts, the reason of a skip, or what failed.
    note: String,
}

/// What became of a step.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Outcome {
    /// It held.
    Passed,
    /// It did not hold, or hung.
    Failed,
    /// It could not be run here; the note says why.
    Skipped,
}

impl Outcome {
    fn word(self) -> &'static str {
        match self {
            Self::Passed => "ok",
            Self::Failed => "FAILED",
            Self::Skipped => "skipped",
        }
    }
}

/// What a step's output means, as judged by the one who knows its format.
#[derive(Debug)]
pub(crate) struct Judged {
    /// Whether the step holds.
    pub(crate) outcome: Outcome,
    /// A few words for the table.
    pub(crate) note: String,
}

/// The steps so far.
#[derive(Debug, Default)]
pub(crate) struct Report {
    rows: Vec<Row>,
    /// Whether children of this process after a step are that step's leftovers.
    sweeps: bool,
    /// What no step's limit exceeds.
    limit: Option<Duration>,
}

impl Report {
    /// A report that also fails the steps that leave processes behind.
    ///
    /// Only for a process that starts children through this report alone: any other child of it
    /// would be taken for a leftover.
    pub(crate) fn with_sweep() -> Self {
        Self {
            sweeps: processes::adopt_orphans(),
            ..Self::default()
        }
    }

    /// The same, with no step allowed to take longer than `limit`.
    pub(crate) fn limited_to(self, limit: Option<Duration>) -> Self {
        Self { limit, ..self }
    }

    /// Runs `step`; exit code 0 means that it holds. Returns its standard output if it held.
    pub(crate) fn run(&mut self, step: Step) -> Option<String> {
        self.run_judged(step, judge_by_exit)
    }

    /// Runs `step` and lets `judge` say what its end and output mean.
    ///
    /// Not asked about a step that hung, never started, or left processes behind: it failed.
    pub(crate) fn run_judged(
        &mut self,
        mut step: Step,
        judge: impl FnOnce(&Ran) -> Judged,
    ) -> Option<String> {
        let name = step.name.clone();
        if let Some(signal) = interrupt::came() {
            self.skip(name, interrupted(signal));
            return None;
        }
        step.limit = self.limit.map_or(step.limit, |limit| limit.min(step.limit));
        let ran = progress::run(step);
        let judged = self.judged(&ran, judge);
        let held = judged.outcome != Outcome::Failed;
        self.push(name, judged, ran.elapsed);
        if !held {
            print_output(&ran);
        }
        held.then_some(ran.stdout)
    }

    fn judged(&self, ran: &Ran, judge: impl FnOnce(&Ran) -> Judged) -> Judged {
        let left = self.leftovers();
        match &ran.end {
            End::Exited(_) => left.unwrap_or_else(|| judge(ran)),
            _ => judge_by_exit(ran),
        }
    }

    /// Runs a step that only prepares another one: it is in the table only if it fails.
    pub(crate) fn run_quietly(&mut self, step: Step) -> Option<String> {
        let stdout = self.run(step)?;
        self.rows.pop();
        Some(stdout)
    }

    /// Records that a step cannot be run here, and why.
    pub(crate) fn skip(&mut self, name: impl Into<String>, why: impl Into<String>) {
        let judged = Judged {
            outcome: Outcome::Skipped,
            note: why.into(),
        };
        self.push(name.into(), judged, Duration::ZERO);
    }

    /// Records a step that failed before it had a command to run.
    pub(crate) fn fail(&mut self, name: impl Into<String>, why: impl Into<String>) {
        self.push(name.into(), failed(why.into()), Duration::ZERO);
    }

    /// Ends what the last step left behind; `Some` if there was any.
    fn leftovers(&self) -> Option<Judged> {
        let ended = if self.sweeps {
            processes::end_leftovers(LEFTOVER_GRACE)
        } else {
            Vec::new()
        };
        if ended.is_empty() {
            return None;
        }
        Some(failed(format!(
            "left {} processes behind: {}",
            ended.len(),
            ended.join("; ")
        )))
    }

    fn push(&mut self, step: String, judged: Judged, elapsed: Duration) {
        let Judged { outcome, note } = judged;
        let seconds = elapsed.as_secs_f64();
        let gap = if note.is_empty() { "" } else { ": " };
        say(&format!(
            "{:<7} {seconds:6.1} s  {step}{gap}{note}\n",
            outcome.word()
        ));
        self.rows.push(Row {
            step,
            outcome,
            elapsed,
            note,
        });
    }

    /// Prints the table and the closing line to standard output.
    ///
    /// No step that held is a failure too: whoever asked for a report asked for something.
    pub(crate) fn finish(self) -> Verdict {
        print!("\n{}\n{}\n", self.table(), self.closing_line());
        Verdict::of(self.count(Outcome::Failed) == 0 && self.count(Outcome::Passed) > 0)
    }

    fn table(&self) -> String {
        let cells = |row: &Row| {
            let seconds = format!("{:.1}", row.elapsed.as_secs_f64());
            vec![
                row.step.clone(),
                row.outcome.word().to_owned(),
                seconds,
                row.note.clone(),
            ]
        };
        let rows: Vec<_> = self.rows.iter().map(cells).collect();
        let aligns = [Align::Left, Align::Left, Align::Right, Align::Left];
        table::render(&["step", "result", "seconds", "note"], &aligns, &rows)
    }

    fn closing_line(&self) -> String {
        let [passed, failed, skipped] =
            [Outcome::Passed, Outcome::Failed, Outcome::Skipped].map(|outcome| self.count(outcome));
        format!("{passed} passed, {failed} failed, {skipped} skipped")
    }

    fn count(&self, outcome: Outcome) -> usize {
        self.rows
            .iter()
            .filter(|row| row.outcome == outcome)
            .count()
    }
}

/// Exit code 0 is a pass, without a note.
pub(crate) fn judge_by_exit(ran: &Ran) -> Judged {
    match &ran.end {
        End::Exited(status) if status.success() => Judged {
            outcome: Outcome::Passed,
            note: String::new(),
        },
        End::Exited(status) => failed(status.to_string()),
        End::Hung { limit, running } => hung(*limit, running),
        End::Interrupted(signal) => failed(interrupted(*signal)),
        End::NotStarted(error) => failed(format!("could not be started: {error}")),
    }
}

/// A failure with this note.
pub(crate) fn failed(note: String) -> Judged {
    Judged {
        outcome: Outcome::Failed,
        note,
    }
}

fn interrupted(signal: i32) -> String {
    format!("interrupted by signal {signal}")
}

fn hung(limit: Duration, running: &[String]) -> Judged {
    for process in running {
        say(&format!("    hung: {process}\n"));
    }
    failed(format!("hung: ended at its limit of {} s", limit.as_secs()))
}

fn print_output(ran: &Ran) {
    for (name, text) in [
        ("standard error", &ran.stderr),
        ("standard output", &ran.stdout),
    ] {
        if !text.is_empty() {
            say(&format!("---- {name} ----\n{}\n", text.trim_end()));
        }
    }
    say("---- end ----\n");
}

#[cfg(test)]
mod tests;
