//! What a session comes to.

use super::*;

fn session(outcomes: Vec<Outcome>) -> SessionReport {
    let cases = outcomes
        .into_iter()
        .enumerate()
        .map(|(n, outcome)| CaseReport::unstarted(format!("scene::{n}"), outcome));
    SessionReport {
        cases: cases.collect(),
        began_ns: 0,
        elapsed: Duration::ZERO,
        broken_devices: Vec::new(),
        interrupted: None,
    }
}

fn text() -> String {
    "why".to_owned()
}

#[test]
fn the_worst_outcome_decides_the_exit_code() {
    let skipped = || Outcome::Skipped { reason: text() };
    let not_run = || Outcome::NotRun { reason: text() };
    let failed = || Outcome::Failed { reason: text() };
    let crashed = || Outcome::Crashed { cause: text() };
    let timed_out = || Outcome::TimedOut { limit: text() };
    let code = |outcomes| session(outcomes).exit_code();
    assert_eq!(code(vec![Outcome::Passed, skipped()]), exit::OK);
    assert_eq!(code(vec![Outcome::Passed, not_run()]), exit::NOT_RUN);
    assert_eq!(code(vec![not_run(), failed()]), exit::FAILED);
    assert_eq!(code(vec![not_run(), crashed()]), exit::FAILED);
    assert_eq!(
        code(vec![timed_out(), crashed(), not_run()]),
        exit::TIMED_OUT
    );
    let mut interrupted = session(vec![timed_out()]);
    interrupted.interrupted = Some("SIGINT".to_owned());
    assert_eq!(interrupted.exit_code(), exit::INTERRUPTED);
}

#[test]
fn the_sums_add_up_by_kind() {
    let mut report = session(vec![
        Outcome::Passed,
        Outcome::Passed,
        Outcome::Skipped { reason: text() },
        Outcome::Failed { reason: text() },
    ]);
    report.cases[0].leaked.push("child (1)".to_owned());
    assert_eq!(report.counts().values().sum::<usize>(), report.cases.len());
    let expected = "4 selected: 2 passed, 1 failed, 1 skipped; 1 left processes behind";
    assert_eq!(report.to_string(), expected);
}
