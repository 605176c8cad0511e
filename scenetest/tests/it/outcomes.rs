//! ST-4: every selected case has exactly one outcome, and it is the right one.

use std::collections::BTreeMap;

use crate::support::{Case, Load, Report, repeats, report};

/// What every fixture comes to: its kind, a part of its reason, and whether it leaves something.
const MODEL: &[(&str, &str, &str, bool)] = &[
    ("passes::case", "passed", "", false),
    ("fails::case", "failed", "seven is not eight", false),
    (
        "fails_with_causes::case",
        "failed",
        "invalid digit found in string",
        false,
    ),
    ("panics::case", "failed", "the panic's message", false),
    ("aborts::case", "crashed", "SIGABRT", false),
    (
        "crashes_in_grandchild::case",
        "failed",
        "the grandchild killed by signal 11 (SIGSEGV)",
        false,
    ),
    (
        "panics_in_worker::case",
        "failed",
        "a worker's panic",
        false,
    ),
    (
        "crashes_in_spawned_worker::case",
        "failed",
        "SIGSEGV",
        false,
    ),
    (
        "panics_in_spawned_worker::case",
        "failed",
        "a worker's panic",
        false,
    ),
    (
        "skips::case",
        "skipped",
        "there is no such thing here",
        false,
    ),
    (
        "exits_silently::case",
        "failed",
        "exited with code 0 without a verdict",
        false,
    ),
    ("crashes_after_pass::case", "crashed", "SIGSEGV", false),
    ("killed::case", "crashed", "SIGKILL", false),
    ("prints_much::case", "passed", "", false),
    ("closes_its_streams::case", "passed", "", false),
    ("manual_only::case", "passed", "", false),
    ("manual_only::manual", "skipped", "manual", false),
    (
        "real_chip_only::case",
        "skipped",
        "for a5 only, and this is sim",
        false,
    ),
    ("many_writers::case", "passed", "", false),
    (
        "hangs_in_grandchild::case",
        "timed_out",
        "it said so itself",
        false,
    ),
    (
        "hangs_in_worker::case",
        "timed_out",
        "it said so itself",
        false,
    ),
    (
        "hangs_in_spawned_worker::case",
        "timed_out",
        "it said so itself",
        false,
    ),
    (
        "hangs_with_full_output::case",
        "timed_out",
        "it said so itself",
        false,
    ),
    (
        "ignores_sigterm::case",
        "timed_out",
        "it said so itself",
        false,
    ),
    (
        "leaves_on_sigterm_alone::case",
        "timed_out",
        "it said so itself",
        false,
    ),
    (
        "hangs_with_escaped_child::case",
        "timed_out",
        "it said so itself",
        false,
    ),
    (
        "hangs_with_orphan::case",
        "timed_out",
        "it said so itself",
        false,
    ),
    (
        "stops_itself::case",
        "timed_out",
        "it said so itself",
        false,
    ),
    ("leaks::case", "passed", "", true),
    ("leaks_escaped::case", "passed", "", true),
    ("right::case", "passed", "", false),
    ("wrong::case", "failed", "2 of 8 elements wrong", false),
    (
        "wrong_and_dropped::case",
        "failed",
        "1 of 8 elements wrong",
        false,
    ),
    (
        "wrong_and_once_more::case",
        "failed",
        "1 of 8 elements wrong",
        false,
    ),
    (
        "compares_nothing::case",
        "failed",
        "compared nothing",
        false,
    ),
    (
        "empty_output::case",
        "failed",
        "output `y` [0]: it is empty, so nothing was compared",
        false,
    ),
    (
        "one_empty_output::case",
        "failed",
        "output `z` [0]: it is empty, so nothing was compared",
        false,
    ),
    (
        "other_shape::case",
        "failed",
        "its shape is [2, 3], expected [3, 2]",
        false,
    ),
    (
        "other_type::case",
        "failed",
        "it is F32, expected I32",
        false,
    ),
    (
        "other_name::case",
        "failed",
        "there are [\"y\"], expected [\"z\"]",
        false,
    ),
    (
        "one_name_twice::case",
        "failed",
        "there are two outputs named `y`",
        false,
    ),
    (
        "produces_one_name_twice::case",
        "failed",
        "there are two outputs named `y`",
        false,
    ),
    ("writes_the_first_round_only::case", "passed", "", false),
    ("two_devices::a", "passed", "", false),
    ("two_devices::b", "passed", "", false),
    ("two_devices::c", "passed", "", false),
    (
        "nine_devices::case",
        "not_run",
        "it needs 9 devices, and the pool has 8",
        false,
    ),
    ("after::a", "passed", "", false),
    ("after::b", "passed", "", false),
];

/// All but those that break devices, which depend on who gets which.
#[track_caller]
fn run_all(more: &[&str]) -> Report {
    report(
        &[
            &[
                "--skip",
                "breaks_a_device",
                "--skip",
                "meets_device_0_broken",
            ],
            more,
        ]
        .concat(),
    )
}

pub(crate) fn every_fixture_ends_as_the_model_says() {
    let report = run_all(&["--max-parallel", "6"]);
    for (name, kind, why, leaks) in MODEL {
        let case = report.case(name);
        case.is(kind, why);
        assert_eq!(
            !case.leaked().is_empty(),
            *leaks,
            "{name}: {:?}",
            case.leaked()
        );
    }
    assert_eq!(
        report.cases().len(),
        MODEL.len(),
        "nothing else ran, nothing twice"
    );
    assert_eq!(report.code, 4, "something timed out");

    let mut kinds: BTreeMap<&str, usize> = BTreeMap::new();
    MODEL
        .iter()
        .for_each(|(_, kind, ..)| *kinds.entry(kind).or_default() += 1);
    let sums = format!(
        "{} selected: {} passed, {} failed, {} timed out, {} crashed, {} skipped, {} not run; 2 left processes behind",
        MODEL.len(),
        kinds["passed"],
        kinds["failed"],
        kinds["timed_out"],
        kinds["crashed"],
        kinds["skipped"],
        kinds["not_run"]
    );
    assert!(report.display.contains(&sums), "{sums}\n{}", report.display);
}

/// The outcomes that the runner promises, all at once, as one text without times and numbers.
pub(crate) fn the_report_is_the_model_and_stays_so_under_load() {
    let names = [
        "passes",
        "fails",
        "panics",
        "aborts",
        "crashes_in_grandchild",
        "panics_in_worker",
        "hangs_in_grandchild",
        "hangs_in_worker",
        "hangs_with_full_output",
        "ignores_sigterm",
        "stops_itself",
        "leaks",
        "prints_much",
        "exits_silently",
        "skips",
        "nine_devices",
    ];
    let args: Vec<&str> = names.iter().flat_map(|name| ["--case", *name]).collect();
    let args = [&args[..], &["--max-parallel", "8"]].concat();
    insta::assert_snapshot!("report", settled(&report(&args)));
    let load = Load::start(8);
    for _ in 0..repeats() {
        insta::assert_snapshot!("report", settled(&report(&args)));
    }
    drop(load);
}

/// A report without what differs from run to run.
fn settled(report: &Report) -> String {
    let mut text = String::new();
    for case in report.cases() {
        let case = Case(case);
        let name = case.text("name");
        let why = numbers_hidden(case.why().lines().next().unwrap_or(""));
        let leaked = numbers_hidden(&case.leaked().join(", "));
        text += format!("{name}: {} {why}", case.kind()).trim_end();
        text += &if leaked.is_empty() {
            String::new()
        } else {
            format!(" LEAK {leaked}")
        };
        for (field, what) in [("hung", "HUNG block"), ("crash", "stacks of a crash")] {
            let block = case.text(field).lines().next().unwrap_or("");
            text += &if block.is_empty() {
                String::new()
            } else {
                format!(" + {what}")
            };
        }
        let bytes = case.text("output").len();
        text += if bytes > 50_000 {
            " + bounded output\n"
        } else {
            "\n"
        };
    }
    let sums = report
        .display
        .lines()
        .rfind(|line| line.contains(" selected: "));
    let sums = sums
        .and_then(|sums| sums.rsplit_once(", in "))
        .map_or("", |(sums, _)| sums);
    format!("{text}{sums}\nexit code {}", report.code)
}

/// Process numbers and lines of files are replaced.
fn numbers_hidden(text: &str) -> String {
    let mut hidden = String::new();
    let mut rest = text;
    while let Some(at) = rest.find(['(', ':']) {
        hidden += &rest[..=at];
        rest = &rest[at + 1..];
        let digits = rest
            .find(|c: char| !c.is_ascii_digit())
            .unwrap_or(rest.len());
        hidden += if digits > 0 { "N" } else { "" };
        rest = &rest[digits..];
    }
    hidden + rest
}

pub(crate) fn the_first_bad_outcome_stops_the_session_if_asked() {
    let names = ["--case", "passes", "--case", "fails", "--case", "panics"];
    let report = report(&[&names[..], &["--exitfirst", "--max-parallel", "1"]].concat());
    report.case("passes::case").is("passed", "");
    report.case("fails::case").is("failed", "seven");
    report
        .case("panics::case")
        .is("not_run", "fails::case did not pass");
}
