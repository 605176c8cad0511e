//! Lines of the display.

use super::*;
use crate::outcome::RoundsTable;

#[test]
fn every_outcome_has_a_line_of_its_own() {
    let why = || "why".to_owned();
    let line = |outcome| line(&CaseReport::unstarted("scene::case".to_owned(), outcome));
    assert_eq!(line(Outcome::Passed), "PASS scene::case");
    assert_eq!(
        line(Outcome::Failed { reason: why() }),
        "FAIL scene::case: why"
    );
    assert_eq!(
        line(Outcome::TimedOut { limit: why() }),
        "TIMEOUT scene::case: why"
    );
    assert_eq!(
        line(Outcome::Crashed { cause: why() }),
        "CRASH scene::case: why"
    );
    assert_eq!(
        line(Outcome::Skipped { reason: why() }),
        "SKIP scene::case: why"
    );
    let changes = "file: what changed\n  ~ z".to_owned();
    assert_eq!(
        line(Outcome::Rewritten { changes }),
        "REWRITTEN scene::case: file: what changed\n  ~ z"
    );
    assert_eq!(
        line(Outcome::NotRun { reason: why() }),
        "NOT RUN scene::case: why"
    );
}

#[test]
fn rounds_show_minimum_median_and_a_high_one() {
    let ns: Vec<u64> = (1..=100).rev().map(|us| us * 1_000).collect();
    let mut timed = CaseReport::unstarted("a_scene::case".to_owned(), Outcome::Passed);
    timed.rounds_table = RoundsTable::of(&ns);
    let once = CaseReport::unstarted("b::case".to_owned(), Outcome::Passed);
    assert_eq!(RoundsTable::of(&ns[..1]), None);
    assert_eq!(rounds(std::slice::from_ref(&once)), "");
    let expected = "\
case            rounds       min us    median us       p95 us
a_scene::case      100          1.0         50.0         95.0
";
    assert_eq!(rounds(&[timed, once]), expected);
}
