//! Verdict and end of a process, as a table.

use procfork::Signal;

use super::*;

#[track_caller]
fn check(verdict: Option<Verdict>, cause: ExitCause, kind: &str, why: &str) {
    let mut heard = Heard::default();
    let event = verdict.map(|verdict| Event::Verdict { verdict });
    heard.hear(event);
    let outcome = heard.judge(cause);
    assert_eq!(outcome.kind(), kind, "{outcome:?}");
    assert!(outcome.why().contains(why), "{outcome:?}");
}

#[test]
fn a_verdict_counts_only_with_the_end_that_belongs_to_it() {
    let text = || "why".to_owned();
    let exited = ExitCause::Exited;
    let killed = ExitCause::Signaled {
        signal: Signal::KILL,
        core_dumped: false,
    };
    check(Some(Verdict::Passed), exited(0), "passed", "");
    check(
        Some(Verdict::Passed),
        exited(1),
        "failed",
        "it passed, and then its process exited",
    );
    check(Some(Verdict::Passed), killed, "crashed", "SIGKILL");
    check(
        Some(Verdict::Passed),
        ExitCause::Lost,
        "crashed",
        "taken by somebody else",
    );
    check(
        None,
        exited(0),
        "failed",
        "exited with code 0 without a verdict",
    );
    check(
        None,
        exited(101),
        "failed",
        "exited with code 101 without a verdict",
    );
    check(None, killed, "crashed", "SIGKILL");
    check(
        Some(Verdict::Failed { reason: text() }),
        exited(1),
        "failed",
        "why",
    );
    check(
        Some(Verdict::Failed { reason: text() }),
        killed,
        "crashed",
        "SIGKILL",
    );
    check(
        Some(Verdict::Skipped { reason: text() }),
        exited(1),
        "skipped",
        "why",
    );
    check(
        Some(Verdict::Skipped { reason: text() }),
        exited(3),
        "failed",
        "it was skipped (why), and then its process exited with code 3",
    );
    check(
        Some(Verdict::Failed { reason: text() }),
        exited(0),
        "failed",
        "it failed (why), and then its process exited with code 0",
    );
    check(
        Some(Verdict::Panicked { message: text() }),
        exited(1),
        "failed",
        "panicked why",
    );
    check(
        Some(Verdict::ComparedNothing),
        exited(1),
        "failed",
        "compared nothing",
    );
}

#[test]
fn a_rewritten_golden_file_is_no_pass() {
    let mut heard = Heard::default();
    let changes = "what changed".to_owned();
    heard.hear(Some(Event::GoldenStaged { changes }));
    let verdict = Verdict::Passed;
    heard.hear(Some(Event::Verdict { verdict }));
    let outcome = heard.judge(ExitCause::Exited(0));
    assert_eq!(
        (outcome.kind(), outcome.why()),
        ("rewritten", "what changed")
    );
    assert!(!outcome.is_good());
}
