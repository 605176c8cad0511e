//! What a rise is, and what is read from the programs.

use std::{os::unix::process::ExitStatusExt, process::ExitStatus, time::Duration};

use super::{Toolchain, counted, judge, obstacle};
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

#[test]
fn the_toolchain_is_compared_before_anybody_is_told_to_install_valgrind() {
    let of = |rustc: &str| Toolchain {
        rustc: rustc.to_owned(),
        host: "x86_64-unknown-linux-gnu".to_owned(),
        rustflags: String::new(),
    };
    let why = |here, valgrind| obstacle(&of("rustc 1.95.0"), &of(here), valgrind);
    let other = why("rustc 1.96.0", false).expect("another compiler");
    assert!(
        other.contains("is of rustc 1.95.0") && other.contains("this is rustc 1.96.0"),
        "{other}"
    );
    let none = why("rustc 1.95.0", false).expect("no valgrind");
    assert!(none.contains("apt-get install valgrind"), "{none}");
    assert_eq!(why("rustc 1.95.0", true), None);
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
