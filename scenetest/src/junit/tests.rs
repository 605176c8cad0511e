//! Text in XML.

use super::*;

#[test]
fn markup_and_control_characters_are_escaped() {
    assert_eq!(
        escaped("a<b> & \"c\"\n\td"),
        "a&lt;b&gt; &amp; &quot;c&quot;\n\td"
    );
    assert_eq!(
        escaped("\u{1b}[31mred\0\u{7f}"),
        "\u{fffd}[31mred\u{fffd}\u{fffd}"
    );
    assert_eq!(escaped("µs ∞"), "µs ∞");
}

#[track_caller]
fn check(outcome: Outcome, hung: Option<&str>, crash: Option<&str>, expected: &str) {
    let mut report = CaseReport::unstarted("s::c".to_owned(), outcome);
    report.hung = hung.map(str::to_owned);
    report.crash = crash.map(str::to_owned);
    let mut xml = String::new();
    case(&mut xml, &report);
    let element = xml
        .trim()
        .strip_prefix("<testcase classname=\"s\" name=\"c\" time=\"0.000\">")
        .and_then(|rest| rest.strip_suffix("</testcase>"));
    assert_eq!(element, Some(expected), "{xml}");
}

#[test]
fn lines_of_a_reason_and_stacks_are_text_and_no_attribute() {
    let failed = |reason: &str| Outcome::Failed {
        reason: reason.to_owned(),
    };
    check(
        failed("short & good"),
        None,
        None,
        "<failure message=\"short &amp; good\"/>",
    );
    check(
        failed("2 of 8 wrong\n  [0, 3]: 1"),
        None,
        Some("CRASH 11\n  in f"),
        "<failure message=\"2 of 8 wrong\">2 of 8 wrong\n  [0, 3]: 1\nCRASH 11\n  in f</failure>",
    );
    let limit = "1.0 s (its time is over)".to_owned();
    check(
        Outcome::TimedOut { limit },
        Some("HUNG s::c"),
        Some("CRASH 6"),
        "<failure type=\"timeout\" message=\"1.0 s (its time is over)\">HUNG s::c\nCRASH 6</failure>",
    );
    let changes = "z: what changed\n  + `z`".to_owned();
    check(
        Outcome::Rewritten { changes },
        None,
        None,
        "<error type=\"rewritten\" message=\"z: what changed\">z: what changed\n  + `z`</error>",
    );
    let reason = "no such thing".to_owned();
    check(
        Outcome::Skipped { reason },
        None,
        None,
        "<skipped message=\"no such thing\"/>",
    );
}
