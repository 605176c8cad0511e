//! The harness itself: this binary runs itself with other tests, and reads what it prints.

use std::process::{Command, Output};

use procfork::testing::{Test, skip};
use procfork::{ForkOptions, Signal, fork};

use crate::support::{Line, sleep_for_ever};

/// Set in the environment of the inner run.
pub(crate) const FIXTURE: &str = "PROCFORK_HARNESS_FIXTURE";

/// The tests of the inner run.
pub(crate) const TESTS: &[Test] = &[
    Test::new("ends::well", || ()),
    Test::new("ends::by_panic", || panic!("on purpose")),
    Test::new("ends::by_skip", || skip("no such device")),
    Test::new("ends::by_exit", || std::process::exit(0)),
    Test::new("ends::by_signal", || raise(Signal::KILL)),
    Test::new("ends::never", || sleep_for_ever()),
    Test::new("leaves::an_orphan", leave_an_orphan),
];

fn raise(signal: Signal) {
    // SAFETY: plain numbers.
    unsafe { libc::raise(signal.number()) };
}

/// A process that nobody will end: it left the group and has no death signal.
fn leave_an_orphan() {
    let line = Line::new();
    let options = ForkOptions::new("orphan")
        .death_signal(None)
        .group(procfork::Group::New);
    let child = fork(options.keep(line.fd()), |_| {
        line.say("up");
        sleep_for_ever()
    });
    std::mem::forget(child);
    line.hear();
}

fn run(args: &[&str]) -> Output {
    let mut command = Command::new(std::env::current_exe().unwrap());
    command
        .args(args)
        .env(FIXTURE, "1")
        .env("PROCFORK_TEST_SECONDS", "1");
    command.env_remove("RUST_BACKTRACE").output().unwrap()
}

/// Runs one inner test alone and looks for its line, a text, and the exit code.
#[track_caller]
fn check(test: &str, line: &str, text: &str, code: i32) {
    let output = run(&["--exact", test]);
    let printed = String::from_utf8(output.stdout).unwrap();
    assert!(
        printed.contains(&format!("test {test} ... {line}\n")),
        "{printed}"
    );
    assert!(printed.contains(text), "{printed}");
    assert_eq!(output.status.code(), Some(code), "{printed}");
}

pub(crate) fn verdicts_are_as_documented() {
    check(
        "ends::well",
        "ok",
        "test result: ok. 1 passed; 0 failed; 0 ignored",
        0,
    );
    check("ends::by_panic", "FAILED", "on purpose", 101);
    check(
        "ends::by_skip",
        "ignored, no such device",
        "0 passed; 0 failed; 1 ignored",
        0,
    );
    check(
        "ends::by_exit",
        "FAILED",
        "exited with code 0 before the test returned",
        101,
    );
    check(
        "ends::by_signal",
        "FAILED",
        "killed by signal 9 (SIGKILL)",
        101,
    );
}

pub(crate) fn a_test_that_hangs_is_killed_at_its_deadline() {
    check(
        "ends::never",
        "FAILED",
        "passed its deadline of 1s; then killed",
        101,
    );
}

pub(crate) fn a_process_left_behind_fails_the_test_and_is_killed() {
    check(
        "leaves::an_orphan",
        "FAILED",
        "left running, now killed: orphan (",
        101,
    );
}

pub(crate) fn a_listing_has_the_lines_that_other_runners_parse() {
    let output = run(&["--list", "--format", "terse", "leaves"]);
    assert_eq!(
        String::from_utf8(output.stdout).unwrap(),
        "leaves::an_orphan: test\n"
    );
    let output = run(&["--list", "--format", "terse", "--ignored"]);
    assert_eq!(String::from_utf8(output.stdout).unwrap(), "");
}

pub(crate) fn output_is_captured_unless_asked_otherwise() {
    let captured = run(&["--exact", "ends::by_panic"]);
    assert!(captured.stderr.is_empty(), "{captured:?}");
    let shown = run(&["--exact", "ends::by_panic", "--nocapture"]);
    assert!(
        String::from_utf8(shown.stderr)
            .unwrap()
            .contains("on purpose")
    );
}

/// More tests than may run at once: each gets its turn.
pub(crate) fn a_run_of_all_counts_all() {
    let output = run(&["--test-threads", "3"]);
    let printed = String::from_utf8(output.stdout).unwrap();
    assert!(
        printed.contains("1 passed; 5 failed; 1 ignored"),
        "{printed}"
    );
}
