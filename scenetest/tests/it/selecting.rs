//! XT-1, ST-6: what matches nothing is an error, nothing runs twice, limits are checked first.

use crate::support::{FIXTURES, Report, program, ran, report, run};

#[track_caller]
fn refused(args: &[&str], code: i32, expected: &str) {
    let ran = run(args);
    assert_eq!(ran.code, code, "{}", ran.stderr);
    assert!(
        ran.stderr.contains(expected),
        "`{expected}` is not in {}",
        ran.stderr
    );
    assert!(!ran.stdout.contains("START"), "nothing was run");
}

pub(crate) fn a_filter_that_matches_nothing_is_an_error() {
    refused(&["zebra"], 3, "the filter `zebra` matches nothing");
    refused(
        &["passes", "zebra"],
        3,
        "the filter `zebra` matches nothing",
    );
    refused(&["--level", "L6"], 3, "no case is left of");
    refused(
        &["--list", "zebra"],
        3,
        "the filter `zebra` matches nothing",
    );
}

pub(crate) fn a_misspelt_case_is_an_error_with_a_suggestion() {
    let expected = "the case `passess` matches nothing; did you mean `passes`?";
    refused(&["--case", "passess"], 3, expected);
    refused(
        &["--case", "passes", "--case", "fails::cose"],
        3,
        "did you mean `fails::case`?",
    );
}

pub(crate) fn a_list_with_one_unknown_line_is_an_error() {
    let file = std::env::temp_dir().join(format!("scenetest-list-{}", std::process::id()));
    let path = file.to_str().expect("a plain path").to_owned();
    std::fs::write(&file, "passes::case # this one\n\n# none\nskips\n").expect("it is writable");
    let good = report(&["--cases-from", &path]);
    assert_eq!((good.cases().len(), good.code), (2, 0));
    std::fs::write(&file, "passes::case\nzebra::case\n").expect("it is writable");
    refused(
        &["--cases-from", &path],
        3,
        "the line `zebra::case` matches nothing",
    );
    std::fs::remove_file(&file).expect("it is there");
    refused(&["--cases-from", &path], 2, "read the list of cases");
}

pub(crate) fn manual_cases_run_only_when_asked_for() {
    let kind = |args: &[&str]| {
        let report = report(args);
        report.case("manual_only::manual").kind().to_owned()
    };
    assert_eq!(kind(&["manual_only"]), "skipped");
    assert_eq!(kind(&["manual_only", "--manual"]), "passed");
    assert_eq!(kind(&["--case", "manual_only::manual"]), "passed");
    assert_eq!(kind(&["--ignored"]), "passed");
    let ignored = report(&["--ignored"]);
    ignored
        .case("real_chip_only::case")
        .is("skipped", "for a5 only, and this is sim");
    assert_eq!(ignored.cases().len(), 2, "these alone");
    assert_eq!(
        kind(&["--exact", "manual_only::manual"]),
        "passed",
        "by its name"
    );
}

pub(crate) fn a_step_of_its_own_is_run_alone_and_only_on_request() {
    let more = |args: &[&str]| {
        let args = [args, &["--json"]].concat();
        Report::of(ran(program(&args).env(FIXTURES, "more")))
    };
    let common = more(&["long_one"]);
    common.case("long_one::long").is(
        "skipped",
        "ask for it with --step nightly, --ignored or by name",
    );
    common.case("long_one::case").is("passed", "");
    let nightly = more(&["--step", "nightly"]);
    nightly.case("long_one::long").is("passed", "");
    assert_eq!(nightly.cases().len(), 1, "these alone");
    more(&["--case", "long_one::long"])
        .case("long_one::long")
        .is("passed", "");
    let unknown = ran(program(&["--step", "nightl"]).env(FIXTURES, "more"));
    assert_eq!(unknown.code, 3);
    let text = "the step `nightl` matches nothing; there are [\"nightly\"]";
    assert!(unknown.stderr.contains(text), "{}", unknown.stderr);
}

pub(crate) fn a_scene_that_is_there_twice_is_an_error() {
    let twice = ran(program(&["--case", "passes"]).env(FIXTURES, "twice"));
    assert_eq!(twice.code, 2);
    let expected = "`passes` is there twice, at scenetest/tests/it/fixtures.rs:";
    assert!(twice.stderr.contains(expected), "{}", twice.stderr);
}

pub(crate) fn limits_out_of_order_are_refused_with_the_ladder() {
    for (set, ladder) in [
        (
            "device-over-case",
            "0 < device 9s < case 8s, and case + 8s for its end < session 1800s",
        ),
        (
            "case-over-session",
            "0 < device 9s < case 7200s, and case + 8s for its end < session 1800s",
        ),
    ] {
        let refused = ran(program(&[]).env(FIXTURES, set));
        assert_eq!(refused.code, 2, "{}", refused.stderr);
        assert!(
            refused.stderr.contains("`limited::wrong`"),
            "{}",
            refused.stderr
        );
        assert!(refused.stderr.contains(ladder), "{}", refused.stderr);
    }
    refused(
        &["--case", "passes", "--session-timeout", "60"],
        2,
        "< session 60s",
    );
    for wrong in ["0", "-1", "nan", "inf", "soon"] {
        let flag = format!("--session-timeout={wrong}");
        refused(&["--case", "passes", &flag], 2, "--session-timeout");
    }
}

pub(crate) fn limits_of_cases_that_are_not_run_are_nobodys() {
    let long = |args: &[&str]| ran(program(args).env(FIXTURES, "long-step"));
    let common = long(&["long_step", "passes"]);
    assert_eq!(common.code, 0, "{}", common.stderr);
    assert!(common.stdout.contains("1 passed, 1 skipped"));
    let step = long(&["--step", "nightly"]);
    assert_eq!(step.code, 2, "{}", step.stderr);
    let text = "`long_step::case`: they must be 0 < device 60s < case 7200s";
    assert!(step.stderr.contains(text), "{}", step.stderr);
    let enough = long(&["--step", "nightly", "--session-timeout", "8000"]);
    assert_eq!(enough.code, 0, "{}", enough.stderr);
}

pub(crate) fn scenes_of_other_platforms_are_skipped_with_the_reason() {
    let report = report(&["--case", "real_chip_only", "--case", "passes"]);
    report
        .case("real_chip_only::case")
        .is("skipped", "for a5 only, and this is sim");
    report.case("passes::case").is("passed", "");
}
