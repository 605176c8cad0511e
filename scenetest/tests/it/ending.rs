//! ST-1, ST-3: a case that hangs is shown and ended whole, and nothing of it stays.

use std::io::{BufRead as _, BufReader, Read as _};
use std::process::Stdio;

use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;

use crate::support::{FIXTURES, Load, Report, make_gate, program, ran, report, still_running};

pub(crate) fn a_stuck_grandchild_is_found_and_shown() {
    let report = report(&["--case", "hangs_in_grandchild"]);
    assert_eq!(report.code, 4);
    let case = report.case("hangs_in_grandchild::case");
    let block = case.text("hung");
    assert!(
        block.starts_with("HUNG hangs_in_grandchild::case after "),
        "{block}"
    );
    assert!(block.contains("descendants=[stuck-child ("), "{block}");
    assert!(
        block.contains(" stuck-child: sleeping, read from outside\n    thread "),
        "{block}"
    );
    is_named(block);
    assert!(
        block.contains("| the child is there"),
        "the tail of the output: {block}"
    );
    assert!(
        report.display.contains(block.trim_end()),
        "{}",
        report.display
    );
    let starts: Vec<&str> = report
        .display
        .lines()
        .filter_map(|line| line.strip_prefix("START "))
        .collect();
    assert_eq!(starts.last(), Some(&"hangs_in_grandchild::case"));
}

/// The function in which the grandchild is stuck, as one string, with its file and line.
#[track_caller]
fn is_named(block: &str) {
    let frame = block
        .lines()
        .find(|line| line.contains("it::fixtures::stuck_in_this_function"));
    let frame = frame.unwrap_or_else(|| panic!("no name in {block}"));
    let (_, place) = frame
        .split_once(" at ")
        .unwrap_or_else(|| panic!("no place in {frame}"));
    let line = place
        .split_once("tests/it/fixtures.rs:")
        .map(|(_, line)| line);
    let line = line.unwrap_or_else(|| panic!("another file in {frame}"));
    assert!(line.starts_with(|c: char| c.is_ascii_digit()), "{frame}");
}

/// ST-1. In a release build as well, where it is tried more often: `cargo test --release`.
pub(crate) fn a_stuck_grandchild_is_named_every_time_under_load() {
    let load = Load::start(8);
    let repeats = if cfg!(debug_assertions) { 3 } else { 20 };
    for nth in 0..repeats {
        let report = report(&["--case", "hangs_in_grandchild"]);
        let case = report.case("hangs_in_grandchild::case");
        case.is("timed_out", "it said so itself");
        assert!(
            case.text("hung").contains("descendants=[stuck-child ("),
            "repeat {nth}"
        );
        is_named(case.text("hung"));
    }
    drop(load);
}

/// It left the group, and the parent through which it was below the case has ended.
pub(crate) fn a_stuck_orphan_is_shown_as_what_is_below_its_case() {
    let report = report(&[
        "--case",
        "hangs_with_orphan",
        "--case",
        "passes",
        "--max-parallel",
        "2",
    ]);
    let case = report.case("hangs_with_orphan::case");
    let block = case.text("hung");
    assert!(block.contains("descendants=[stuck-child ("), "{block}");
    // The case itself and the orphan.
    assert_eq!(
        block.matches("fixtures::stuck_in_this_function").count(),
        2,
        "{block}"
    );
}

pub(crate) fn a_stuck_worker_says_what_it_is_doing() {
    let report = report(&["--case", "hangs_in_worker"]);
    let case = report.case("hangs_in_worker::case");
    let block = case.text("hung");
    assert!(
        block.contains("    doing node/sub0: run function `hang`, run 0, for "),
        "{block}"
    );
    assert!(
        block.contains("    doing node: wait for a submitted run, for "),
        "{block}"
    );
    is_named(block);
}

/// A worker that was started anew shares no memory with the runner but what it was given.
pub(crate) fn a_stuck_spawned_worker_says_what_it_is_doing() {
    let report = report(&["--case", "hangs_in_spawned_worker"]);
    let case = report.case("hangs_in_spawned_worker::case");
    case.is("timed_out", "it said so itself");
    let block = case.text("hung");
    assert!(block.contains("    doing node/sub0: "), "{block}");
}

pub(crate) fn sigusr1_shows_where_everything_stands_and_ends_nothing() {
    let dir = tempfile::tempdir().expect("a directory");
    make_gate(&dir.path().join("go")).expect("a named pipe");
    let mut runner = program(&["--case", "waits_for_a_file", "--json"])
        .env(FIXTURES, "more")
        .env("SCENETEST_TEST_DIR", dir.path())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .expect("it starts");
    let mut display = BufReader::new(runner.stderr.take().expect("it is piped"));
    let pid = Pid::from_raw(i32::try_from(runner.id()).expect("a pid"));
    let mut until = |start: &str| {
        let mut line = String::new();
        while !line.starts_with(start) {
            line.clear();
            assert_ne!(
                display.read_line(&mut line).expect("text"),
                0,
                "it ended early"
            );
        }
    };
    until("START waits_for_a_file");
    for _ in 0..2 {
        kill(pid, Signal::SIGUSR1).expect("it runs");
        until("STATE waits_for_a_file::case after ");
        until("  process ");
        until("  output, the last ");
    }
    std::fs::write(dir.path().join("go"), "").expect("writable");
    let mut rest = String::new();
    display.read_to_string(&mut rest).expect("text");
    let mut json = String::new();
    let stdout = runner.stdout.as_mut().expect("it is piped");
    stdout.read_to_string(&mut json).expect("text");
    assert_eq!(runner.wait().expect("it ends").code(), Some(0), "{rest}");
    assert!(json.contains("\"kind\": \"passed\""), "{json}");
}

pub(crate) fn everything_of_a_hung_case_is_gone_afterwards() {
    procfork::adopt_orphans(true).expect("it is allowed");
    let names = [
        "leaves_on_sigterm_alone",
        "hangs_with_escaped_child",
        "hangs_with_orphan",
        "hangs_with_full_output",
    ];
    let args: Vec<&str> = names.iter().flat_map(|name| ["--case", *name]).collect();
    let report = report(&args);
    for name in names {
        let case = report.case(&format!("{name}::case"));
        case.is("timed_out", "it said so itself");
        assert!(
            case.leaked().is_empty(),
            "a leak is what a case leaves that has ended by itself"
        );
    }
    assert_eq!(still_running(), Vec::<String>::new());
}

pub(crate) fn a_stopped_case_does_not_stop_the_runner() {
    let report = report(&[
        "--case",
        "stops_itself",
        "--case",
        "passes",
        "--max-parallel",
        "2",
    ]);
    report.case("passes::case").is("passed", "");
    let case = report.case("stops_itself::case");
    case.is("timed_out", "it said so itself");
}

pub(crate) fn a_case_that_ignores_sigterm_is_killed() {
    let report = report(&["--case", "ignores_sigterm"]);
    report
        .case("ignores_sigterm::case")
        .is("timed_out", "it said so itself");
    assert_eq!(still_running(), Vec::<String>::new());
}

pub(crate) fn what_a_case_leaves_behind_is_named_and_ended() {
    procfork::adopt_orphans(true).expect("it is allowed");
    let report = report(&[
        "--case",
        "leaks",
        "--case",
        "leaks_escaped",
        "--case",
        "passes",
    ]);
    assert_eq!(report.code, 0, "it passed; the leak is a mark");
    for name in ["leaks::case", "leaks_escaped::case"] {
        let case = report.case(name);
        case.is("passed", "");
        let leaked = case.leaked();
        assert_eq!(leaked.len(), 1, "{leaked:?}");
        assert!(leaked[0].starts_with("stuck-child ("), "{leaked:?}");
        assert!(
            report.display.contains(&format!("LEAK {name} (")),
            "{}",
            report.display
        );
    }
    assert!(report.case("passes::case").leaked().is_empty());
    assert_eq!(still_running(), Vec::<String>::new());
}

pub(crate) fn the_sessions_time_ends_everything() {
    // Twelve cases of a second each in just over nine: as short as the ladder permits.
    let args = [
        "hangs::",
        "--session-timeout",
        "9.1",
        "--max-parallel",
        "1",
        "--json",
    ];
    let ran = ran(program(&args).env(FIXTURES, "hanging"));
    assert_eq!(ran.code, 4, "{}", ran.stderr);
    let report: serde_json::Value = serde_json::from_str(&ran.stdout).expect("a report");
    let outcomes: Vec<&serde_json::Value> = report["cases"]
        .as_array()
        .expect("a list")
        .iter()
        .map(|case| &case["outcome"])
        .collect();
    assert_eq!(outcomes.len(), 12);
    assert_eq!(outcomes[0]["limit"], "1.0 s (its time is over)");
    assert_eq!(outcomes[11]["kind"], "not_run");
    assert_eq!(outcomes[11]["reason"], "the session's time is over (9.1s)");
    assert_eq!(still_running(), Vec::<String>::new());
}

/// Signals a session when it has started a case that is stuck, the last one; gives its report.
fn interrupted(signals: &[Signal]) -> serde_json::Value {
    let names = ["--case", "ignores_sigterm", "--case", "passes"];
    let mut runner = program(&[&names[..], &["--max-parallel", "1", "--json"]].concat())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .expect("it starts");
    let mut display = BufReader::new(runner.stderr.take().expect("it is piped"));
    let mut line = String::new();
    while !line.starts_with("START ignores_sigterm") {
        line.clear();
        assert_ne!(
            display.read_line(&mut line).expect("text"),
            0,
            "it ended early"
        );
    }
    let pid = Pid::from_raw(i32::try_from(runner.id()).expect("a pid"));
    for signal in signals {
        kill(pid, *signal).expect("it runs");
    }
    let mut json = String::new();
    runner
        .stdout
        .take()
        .expect("it is piped")
        .read_to_string(&mut json)
        .expect("text");
    display.read_to_string(&mut line).expect("text");
    let code = runner.wait().expect("it ends").code();
    assert_eq!(code, Some(130), "{line}");
    assert_eq!(still_running(), Vec::<String>::new());
    serde_json::from_str(&json).expect("a report")
}

pub(crate) fn an_interrupt_ends_everything_and_reports() {
    let report = interrupted(&[Signal::SIGTERM]);
    assert_eq!(report["interrupted"], "SIGTERM");
    let names: Vec<_> = report["cases"].as_array().expect("a list").iter().collect();
    assert_eq!(names.len(), 2);
}

/// A host of CI sends one signal, and soon another.
pub(crate) fn a_second_interrupt_ends_at_once_what_is_left_and_reports() {
    procfork::adopt_orphans(true).expect("it is allowed");
    let report = interrupted(&[Signal::SIGINT, Signal::SIGTERM]);
    let cases = report["cases"].as_array().expect("a list");
    let kinds: Vec<_> = cases.iter().map(|case| &case["outcome"]["kind"]).collect();
    assert_eq!(kinds, ["passed", "timed_out"]);
}

/// The signal comes when the case has ended and before the runner has looked.
pub(crate) fn a_case_that_has_ended_is_not_timed_out_by_an_interrupt() {
    let args = ["--case", "interrupts_its_runner", "--json"];
    let report = Report::of(ran(program(&args).env(FIXTURES, "more")));
    assert_eq!(report.json["interrupted"], "SIGTERM");
    let case = report.case("interrupts_its_runner::case");
    case.is("passed", "");
    assert_eq!((report.code, case.text("hung")), (130, ""));
}
