//! Outputs against references.

use crate::support::{FIXTURES, Report, program, ran, report};

pub(crate) fn outputs_that_differ_are_reported_with_place_and_distance() {
    let report = report(&["--case", "wrong"]);
    let case = report.case("wrong::case");
    case.is(
        "failed",
        "round 0: output `y` [2, 4]: 2 of 8 elements wrong (25.00 %)",
    );
    assert!(case.why().contains("[0, 3]: "), "{}", case.why());
    assert!(
        case.why().contains("[1, 1]: NaN, expected "),
        "{}",
        case.why()
    );
    assert!(
        case.why()
            .contains("within 1e-6 of the expected value, NaN is wrong")
    );
    let compared = &case.0["comparisons"][0];
    assert_eq!(
        (&compared["elements"], &compared["wrong"]),
        (&8.into(), &2.into())
    );
    assert_eq!(compared["first"][0]["index"], serde_json::json!([0, 3]));
    let worst = compared["first"][0]["absolute"]
        .as_f64()
        .expect("a finite difference");
    assert!((worst - 1.0).abs() < 1e-6);
}

pub(crate) fn an_output_that_nobody_wrote_is_told_from_a_wrong_one() {
    let report = report(&["--case", "writes_the_first_round_only", "--rounds", "2"]);
    let case = report.case("writes_the_first_round_only::case");
    case.is("failed", "4 of them were never written");
}

pub(crate) fn a_comparison_of_nothing_is_no_pass() {
    let names = ["compares_nothing", "empty_output", "one_empty_output"];
    let args: Vec<&str> = names.iter().flat_map(|name| ["--case", *name]).collect();
    let report = report(&args);
    report
        .case("compares_nothing::case")
        .is("failed", "it compared nothing with its reference");
    for (name, text) in [
        ("empty_output::case", "output `y` [0]: it is empty"),
        ("one_empty_output::case", "output `z` [0]: it is empty"),
    ] {
        report.case(name).is("failed", text);
    }
    assert_eq!(report.code, 1);
}

pub(crate) fn an_output_of_a_shape_that_overflows_is_a_failure_of_its_own() {
    let args = ["--case", "too_large", "--json"];
    let report = Report::of(ran(program(&args).env(FIXTURES, "more")));
    report
        .case("too_large::case")
        .is("failed", "it has more elements than memory has addresses");
}

pub(crate) fn other_names_types_or_shapes_are_failures() {
    let report = report(&["other_"]);
    report
        .case("other_shape::case")
        .is("failed", "its shape is [2, 3], expected [3, 2]");
    report
        .case("other_type::case")
        .is("failed", "it is F32, expected I32");
    report
        .case("other_name::case")
        .is("failed", "there are [\"y\"], expected [\"z\"]");
}

pub(crate) fn the_last_rounds_values_cannot_pass_for_this_ones() {
    let once = report(&["--case", "writes_the_first_round_only"]);
    once.case("writes_the_first_round_only::case")
        .is("passed", "");
    let twice = report(&["--case", "writes_the_first_round_only", "--rounds", "2"]);
    let case = twice.case("writes_the_first_round_only::case");
    case.is("failed", "round 1: output `z` [4]: 4 of 4 elements wrong");
}

pub(crate) fn rounds_are_timed_one_by_one() {
    let report = report(&["--case", "right", "--rounds", "5"]);
    let rounds = report.case("right::case").0["rounds_ns"]
        .as_array()
        .map(Vec::len);
    assert_eq!(rounds, Some(5));
}
