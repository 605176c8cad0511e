//! Reports go on after failures and count what happened.

use std::process::Command;

use super::{Outcome, Report};
use crate::{error::Verdict, step::Step};

fn shell(name: &str, script: &str, limit_s: u64) -> Step {
    let mut command = Command::new("sh");
    command.args(["-c", script]);
    Step::of(name, limit_s, command)
}

#[test]
fn a_hung_step_is_named_and_the_rest_is_still_reported() {
    let mut report = Report::default();
    report.run(shell("first", "exit 1", 60));
    report.run(shell("stuck", "sleep 1000", 1));
    report.skip("third", "needs a chip");
    assert_eq!(
        report.run(shell("last", "echo hello", 60)).as_deref(),
        Some("hello\n")
    );
    let rows: Vec<_> = report
        .rows
        .iter()
        .map(|row| (row.step.as_str(), row.outcome))
        .collect();
    let (passed, failed, skipped) = (Outcome::Passed, Outcome::Failed, Outcome::Skipped);
    assert_eq!(
        rows,
        [
            ("first", failed),
            ("stuck", failed),
            ("third", skipped),
            ("last", passed)
        ]
    );
    assert_eq!(report.rows[1].note, "hung: ended at its limit of 1 s");
    assert_eq!(report.closing_line(), "1 passed, 2 failed, 1 skipped");
    assert_eq!(report.finish(), Verdict::Failed);
}

#[test]
fn a_report_in_which_nothing_held_is_a_failure() {
    assert_eq!(Report::default().finish(), Verdict::Failed);
    let mut report = Report::default();
    report.skip("only", "needs a chip");
    assert_eq!(report.finish(), Verdict::Failed);
}

#[test]
fn a_report_of_passed_and_skipped_steps_passes() {
    let mut report = Report::default();
    report.run(shell("first", "true", 60));
    report.skip("second", "needs a chip");
    assert_eq!(report.finish(), Verdict::Passed);
}
