//! Lines of the display.

use super::*;

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
    assert_eq!(
        line(Outcome::NotRun { reason: why() }),
        "NOT RUN scene::case: why"
    );
}

#[test]
fn rounds_show_minimum_median_and_a_high_one() {
    let ns: Vec<u64> = (1..=100).rev().map(|us| us * 1_000).collect();
    assert_eq!(
        rounds(&ns),
        "100 rounds: min 1.0 us, median 50.0 us, p95 95.0 us"
    );
}
