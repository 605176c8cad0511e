//! ST-2, ST-4: what a case prints neither blocks anybody nor decides anything.

use crate::fixtures::{LINES, WRITERS};
use crate::support::{FIXTURES, Report, program, ran, report};

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

pub(crate) fn a_verdict_is_not_a_copys_to_give() {
    let args = ["--case", "returns_in_a_copy", "--json"];
    let report = Report::of(ran(program(&args).env(FIXTURES, "more")));
    report
        .case("returns_in_a_copy::case")
        .is("failed", "exited with code 0 without a verdict");
}

pub(crate) fn lines_of_several_processes_arrive_whole() {
    let report = report(&["--case", "many_writers"]);
    let case = report.case("many_writers::case");
    case.is("passed", "");
    assert_eq!(case.0["torn"], 0);
    let output = case.text("output");
    let (head, rest) = output.split_once("\n[... ").expect("it is bounded");
    let (dropped, tail) = rest.split_once(" bytes dropped ...]\n").expect("a count");
    let dropped: usize = dropped.parse().expect("a number");
    let all: usize = (0..WRITERS)
        .flat_map(|writer| (0..LINES).map(move |line| (writer, line)))
        .map(|(writer, line)| format!("writer {writer} line {line}\n").len())
        .sum();
    assert_eq!(
        head.len() + dropped + tail.len(),
        all,
        "every byte is counted"
    );
    // The cuts are anywhere; every other line is whole, and those of one writer are in order.
    let heads = head.lines().count() - 1;
    let whole = head.lines().take(heads).chain(tail.lines().skip(1));
    let mut next = [0; WRITERS];
    for line in whole {
        let words: Vec<&str> = line.split(' ').collect();
        let ["writer", writer, "line", number] = words[..] else {
            panic!("torn: {line}")
        };
        let (writer, number) = (number_of(writer), number_of(number));
        assert!(number >= next[writer] && number < LINES, "{line}");
        next[writer] = number + 1;
    }
    assert!(next.contains(&LINES), "the last line is kept");
}

fn number_of(word: &str) -> usize {
    word.parse().unwrap_or_else(|_| panic!("torn: {word}"))
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
        "--case",
        "crashes_in_spawned_worker",
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
            "crashes_in_spawned_worker",
            "failed",
            "SIGSEGV",
            "crash_in_this_function",
        ),
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
    for name in ["panics_in_worker", "panics_in_spawned_worker"] {
        let report = report(&["--case", name]);
        let case = report.case(&format!("{name}::case"));
        case.is("failed", "a worker's panic");
        let output = case.text("output");
        assert!(output.contains("panic_in_this_function"), "{output}");
    }
}
