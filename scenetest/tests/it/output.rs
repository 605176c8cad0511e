//! ST-2, ST-4: what a case prints neither blocks anybody nor decides anything.

use crate::support::report;

pub(crate) fn a_megabyte_of_output_does_not_block_and_is_bounded() {
    let report = report(&["--case", "prints_much", "--case", "hangs_with_full_output"]);
    report.case("prints_much::case").is("passed", "");
    report
        .case("hangs_with_full_output::case")
        .is("timed_out", "it said so itself");
    for name in ["prints_much::case", "hangs_with_full_output::case"] {
        let case = report.case(name);
        let output = case.text("output");
        assert!(output.starts_with("the first line\n"), "the head is kept");
        assert!(output.ends_with("the last line\n"), "the tail is kept");
        assert!(
            output.contains(" bytes dropped ...]"),
            "what lies between is counted"
        );
        assert!(output.len() < 100_000, "{} bytes", output.len());
    }
}

pub(crate) fn a_verdict_is_not_text() {
    let report = report(&["--case", "crashes_after_pass", "--case", "exits_silently"]);
    let crashed = report.case("crashes_after_pass::case");
    crashed.is("crashed", "SIGSEGV");
    assert!(
        crashed
            .text("output")
            .contains("PASS crashes_after_pass::case")
    );
    report
        .case("exits_silently::case")
        .is("failed", "exited with code 0 without a verdict");
    assert_eq!(report.code, 1);
}

pub(crate) fn lines_of_several_processes_arrive_whole() {
    let report = report(&["--case", "many_writers"]);
    let case = report.case("many_writers::case");
    case.is("passed", "");
    assert_eq!(case.0["torn"], 0);
    let mut lines: Vec<&str> = case.text("output").lines().collect();
    lines.sort_unstable();
    let mut expected: Vec<String> = (0..8)
        .flat_map(|writer| (0..400).map(move |line| format!("writer {writer} line {line}")))
        .collect();
    expected.sort_unstable();
    assert_eq!(lines, expected, "every line whole, once");
}

pub(crate) fn output_is_shown_when_a_case_does_not_pass() {
    let names = ["--case", "fails", "--case", "prints_much"];
    let shown = report(&names);
    assert!(
        shown.display.contains("before the failure"),
        "{}",
        shown.display
    );
    assert!(!shown.display.contains("the last line"), "a pass is quiet");
    let all = report(&[&names[..], &["--nocapture"]].concat());
    assert!(all.display.contains("the last line"), "unless asked for");
}

pub(crate) fn a_crash_shows_the_stack_of_the_process_that_crashed() {
    let names = [
        "--case",
        "crashes_in_grandchild",
        "--case",
        "aborts",
        "--case",
        "crashes_after_pass",
    ];
    let report = report(&names);
    for (name, kind, signal, function) in [
        (
            "crashes_in_grandchild",
            "failed",
            "SIGSEGV",
            "crash_in_this_function",
        ),
        ("aborts", "crashed", "SIGABRT", "abort_in_this_function"),
        (
            "crashes_after_pass",
            "crashed",
            "SIGSEGV",
            "it::fixtures::usual::{{closure}}",
        ),
    ] {
        let case = report.case(&format!("{name}::case"));
        case.is(kind, signal);
        let crash = case.text("crash");
        assert!(
            crash.starts_with("CRASH ") && crash.contains(&format!("({signal}) in thread ")),
            "{crash}"
        );
        let frame = crash.lines().find(|line| line.contains(function));
        let frame = frame.unwrap_or_else(|| panic!("no {function} in {crash}"));
        assert!(frame.contains("tests/it/fixtures.rs:"), "{frame}");
        assert!(
            report.display.contains(crash.trim_end()),
            "{}",
            report.display
        );
    }
}

pub(crate) fn a_panic_in_a_worker_shows_its_stack() {
    let report = report(&["--case", "panics_in_worker"]);
    let case = report.case("panics_in_worker::case");
    case.is("failed", "a worker's panic");
    let output = case.text("output");
    assert!(output.contains("panic_in_this_function"), "{output}");
}
