//! What a rise is, and what is read from the programs.

use std::{os::unix::process::ExitStatusExt, process::ExitStatus, time::Duration};

use super::{counted, judge};
use crate::{
    report::Outcome,
    step::{End, Ran},
};

#[track_caller]
fn check(now: f64, outcome: Outcome, note: &str) {
    let judged = judge(now, 1000.0);
    assert_eq!(judged.outcome, outcome, "{}", judged.note);
    assert!(judged.note.contains(note), "{}", judged.note);
}

#[test]
fn a_rise_of_more_than_five_percent_fails() {
    check(
        1051.0,
        Outcome::Failed,
        "1051 instructions, +5.1 % of 1000; mend it",
    );
    check(1050.0, Outcome::Passed, "+5.0 %");
    check(700.0, Outcome::Passed, "-30.0 %");
}

fn ran(stdout: &str, stderr: &str) -> Ran {
    Ran {
        end: End::Exited(ExitStatus::from_raw(0)),
        elapsed: Duration::ZERO,
        stdout: stdout.to_owned(),
        stderr: stderr.to_owned(),
    }
}

#[test]
fn instructions_are_counted_for_each_operation() {
    let stderr = "==7== Events    : Ir\n==7== Collected : 5100000\n";
    let stdout = r#"[{"name":"submit_0","operations":5100}]"#;
    assert_eq!(counted(&ran(stdout, stderr)), Ok(1000.0));
}

#[test]
fn a_program_in_which_nothing_was_counted_is_no_pass() {
    let stdout = r#"[{"name":"submit_0","operations":5100}]"#;
    let none = counted(&ran(stdout, "==7== Collected : 0\n"));
    assert!(none.unwrap_err().contains("nothing was counted"));
    assert!(counted(&ran(stdout, "")).is_err());
    assert!(counted(&ran("", "==7== Collected : 5\n")).is_err());
}
