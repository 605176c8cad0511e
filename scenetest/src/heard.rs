//! What a case reported, and what its report and the end of its process come to.

use procfork::ExitCause;

use crate::compare::Comparison;
use crate::outcome::Outcome;
use crate::record::{Event, RoundTime, Verdict};

/// What a case reported until now.
#[derive(Debug, Default)]
pub(crate) struct Heard {
    pub(crate) time_is_over: bool,
    pub(crate) rounds: Vec<RoundTime>,
    pub(crate) comparisons: Vec<Comparison>,
    golden_staged: Option<String>,
    verdict: Option<Verdict>,
}

impl Heard {
    pub(crate) fn hear(&mut self, event: Option<Event>) {
        match event {
            Some(Event::Round(time)) => self.rounds.push(time),
            Some(Event::Compared { comparisons }) => self.comparisons = comparisons,
            Some(Event::GoldenStaged { changes }) => self.golden_staged = Some(changes),
            Some(Event::TimeIsOver) => self.time_is_over = true,
            Some(Event::Verdict { verdict }) => self.verdict = Some(verdict),
            None => {}
        }
    }

    /// The devices that it found broken, and whether it may be tried on others.
    pub(crate) fn broken(&self) -> (Vec<u32>, bool) {
        match &self.verdict {
            Some(Verdict::DeviceUnusable {
                devices,
                before_first_round,
                ..
            }) => (devices.clone(), *before_first_round),
            _ => (Vec::new(), false),
        }
    }

    /// The outcome. A verdict counts only if the process then ended as one with such a verdict does.
    pub(crate) fn judge(&self, cause: ExitCause) -> Outcome {
        let failed = |reason: String| Outcome::Failed { reason };
        let Some(exit) = cause.code() else {
            return Outcome::Crashed {
                cause: cause.to_string(),
            };
        };
        match &self.verdict {
            Some(verdict) if exit != verdict.exit_code() => failed(format!(
                "it {}, and then its process {cause}",
                verdict.in_words()
            )),
            None => failed(format!("its process {cause} without a verdict")),
            Some(Verdict::Passed) => self.passed(),
            Some(Verdict::Failed { reason } | Verdict::DeviceUnusable { reason, .. }) => {
                failed(reason.clone())
            }
            Some(Verdict::Skipped { reason }) => Outcome::Skipped {
                reason: reason.clone(),
            },
            Some(Verdict::Panicked { message }) => failed(format!("panicked {message}")),
            Some(Verdict::ComparedNothing) => {
                failed("it compared nothing with its reference".to_owned())
            }
        }
    }

    fn passed(&self) -> Outcome {
        match &self.golden_staged {
            Some(changes) => Outcome::Rewritten {
                changes: changes.clone(),
            },
            None => Outcome::Passed,
        }
    }
}

#[cfg(test)]
mod tests;
