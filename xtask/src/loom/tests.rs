//! Which faults there are, and what counts as finding one.

use std::{os::unix::process::ExitStatusExt, process::ExitStatus, time::Duration};

use super::{faults_in, judge_models, judge_weakened};
use crate::{
    report::{Judged, Outcome},
    step::{End, Ran},
};

/// A test program that exited with `code` after printing `stdout`.
fn ran(code: i32, stdout: &str) -> Ran {
    let end = End::Exited(ExitStatus::from_raw(code << 8));
    let (stdout, stderr) = (stdout.to_owned(), String::new());
    Ran {
        end,
        elapsed: Duration::ZERO,
        stdout,
        stderr,
    }
}

#[track_caller]
fn check(judged: Judged, outcome: Outcome, note: &str) {
    assert_eq!((judged.outcome, judged.note.as_str()), (outcome, note));
}

const HOLD: &str = "test a ... ok\ntest result: ok. 1 passed\n";
const BREAK: &str = "test a ... ok\ntest b ... FAILED\ntest result: FAILED. 1 passed; 1 failed\n";
const NONE: &str = "running 0 tests\n\ntest result: ok. 0 passed\n";

#[test]
fn models_that_hold_pass_and_no_model_at_all_fails() {
    check(judge_models(&ran(0, HOLD)), Outcome::Passed, "1 test");
    check(
        judge_models(&ran(101, BREAK)),
        Outcome::Failed,
        "1 of 2 tests failed: b",
    );
    check(
        judge_models(&ran(0, NONE)),
        Outcome::Failed,
        "the crate has no model",
    );
}

#[test]
fn a_fault_must_be_found() {
    check(
        judge_weakened(&ran(101, BREAK)),
        Outcome::Passed,
        "found by b",
    );
    let aborted = "found by a, which ended the program";
    check(
        judge_weakened(&ran(134, "test a ... ")),
        Outcome::Passed,
        aborted,
    );
    check(
        judge_weakened(&ran(0, HOLD)),
        Outcome::Failed,
        "no model finds this fault",
    );
    check(
        judge_weakened(&ran(0, NONE)),
        Outcome::Failed,
        "no model finds this fault",
    );
}

#[test]
fn faults_are_read_from_code_and_not_from_comments() {
    let source = r#"
//! `weaken = "told"`
const A: bool = cfg!(weaken = "publish"); // and cfg!(weaken = "observe")
#[cfg(not(weaken = "fence"))]
"#;
    assert_eq!(faults_in(source), ["publish", "observe", "fence"]);
}
