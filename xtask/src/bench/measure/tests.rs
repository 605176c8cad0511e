//! What bench programs may report, and how it is shown.

use super::{from_json, table, to_json};

const TWO: &str = r#"[
  {"name": "mailbox_rtt", "value": 300.5, "unit": "ns", "min": 290, "runs": 20,
   "reference": {"name": "raw_ping_pong", "value": 150.25}},
  {"name": "start_ms/workers=4", "value": 5, "unit": "ms", "min": 4.5, "runs": 7, "extra": true}
]"#;

#[test]
fn the_ratio_is_computed_from_its_parts() {
    let measures = from_json(TWO).expect("good");
    assert_eq!(measures[0].ratio, Some(2.0));
    assert_eq!(measures[1].ratio, None);
}

#[test]
fn what_is_printed_can_be_read_again() {
    let measures = from_json(TWO).expect("good");
    assert_eq!(from_json(&to_json(&measures)), Ok(measures));
}

#[test]
fn no_measures_are_an_empty_array() {
    assert_eq!(to_json(&[]), "[]\n");
}

#[test]
fn the_table_shows_each_figure_beside_its_reference() {
    insta::assert_snapshot!(table(&from_json(TWO).expect("good")), @"
    measure             median   min  unit  runs  reference          ratio
    mailbox_rtt            300   290  ns      20  raw_ping_pong 150   2.00
    start_ms/workers=4    5.00  4.50  ms       7
    ");
}

#[test]
fn a_reference_that_could_not_be_measured_says_why_in_its_place() {
    let json = r#"[{"name": "task", "value": 5, "unit": "ns", "min": 4, "runs": 7,
        "note": "libother is not installed"}]"#;
    let measures = from_json(json).expect("good");
    insta::assert_snapshot!(table(&measures), @"
    measure  median   min  unit  runs  reference                  ratio
    task       5.00  4.00  ns       7  libother is not installed
    ");
    assert_eq!(from_json(&to_json(&measures)), Ok(measures));
}

/// Checks that a report is refused, and why.
#[track_caller]
fn check_refused(json: &str, why: &str) {
    let refused = from_json(json).expect_err("refused");
    assert!(refused.contains(why), "{refused}");
}

#[test]
fn output_that_is_no_array_of_measures_is_refused_and_shown() {
    check_refused("mailbox_rtt: 300 ns\n", "mailbox_rtt: 300 ns");
    check_refused(r#"[{"name": "a", "value": 1}]"#, "missing field");
}

#[test]
fn a_unit_that_the_name_hides_is_refused() {
    let json = r#"[{"name": "start", "value": 5, "unit": "ms", "min": 4, "runs": 7}]"#;
    check_refused(json, "`start` is in ms, but its name does not end in it");
}

#[test]
fn figures_that_cannot_be_are_refused() {
    let no_runs = r#"[{"name": "a", "value": 5, "unit": "ns", "min": 4, "runs": 0}]"#;
    check_refused(no_runs, "no measurement");
    let high_min = r#"[{"name": "a", "value": 5, "unit": "ns", "min": 6, "runs": 1}]"#;
    check_refused(high_min, "above its median");
}
