//! The JUnit report: the XML that CI hosts read.

use std::fmt::Write as _;

use crate::outcome::{CaseReport, Outcome, SessionReport};

/// The report as XML.
pub(crate) fn xml(report: &SessionReport) -> String {
    let count = |wanted: &[&str]| {
        report
            .cases
            .iter()
            .filter(|case| wanted.contains(&case.outcome.kind()))
            .count()
    };
    let mut xml = String::from("<?xml version=\"1.0\" encoding=\"UTF-8\"?>\n<testsuites>\n");
    let _ = writeln!(
        xml,
        "  <testsuite name=\"scenes\" tests=\"{}\" failures=\"{}\" errors=\"{}\" skipped=\"{}\" time=\"{:.3}\">",
        report.cases.len(),
        count(&["failed", "timed out"]),
        count(&["crashed", "not run", "rewritten"]),
        count(&["skipped"]),
        report.elapsed.as_secs_f64()
    );
    report.cases.iter().for_each(|one| case(&mut xml, one));
    xml.push_str("  </testsuite>\n</testsuites>\n");
    xml
}

fn case(xml: &mut String, case: &CaseReport) {
    let (class, name) = case.name.split_once("::").unwrap_or(("", &case.name));
    let seconds = case.elapsed.as_secs_f64();
    let _ = write!(
        xml,
        "    <testcase classname=\"{}\" name=\"{}\" time=\"{seconds:.3}\">",
        escaped(class),
        escaped(name)
    );
    match &case.outcome {
        Outcome::Passed => {}
        Outcome::Failed { .. } => element(xml, "failure", None, case),
        Outcome::TimedOut { .. } => element(xml, "failure", Some("timeout"), case),
        Outcome::Crashed { .. } | Outcome::NotRun { .. } | Outcome::Rewritten { .. } => {
            element(xml, "error", Some(case.outcome.kind()), case)
        }
        Outcome::Skipped { .. } => element(xml, "skipped", None, case),
    }
    if !case.leaked.is_empty() {
        let leaked = escaped(&case.leaked.join(", "));
        let _ = write!(
            xml,
            "<properties><property name=\"leaked\" value=\"{leaked}\"/></properties>"
        );
    }
    if !case.output.is_empty() {
        let _ = write!(xml, "<system-out>{}</system-out>", escaped(&case.output));
    }
    xml.push_str("</testcase>\n");
}

/// Why a case did not pass: in short as an attribute, in which lines would run together, and what is longer, with
/// where its processes stood, as text.
fn element(xml: &mut String, tag: &str, kind: Option<&str>, case: &CaseReport) {
    let why = case.outcome.why();
    let first = why.lines().next().unwrap_or("");
    let _ = write!(xml, "<{tag}");
    if let Some(kind) = kind {
        let _ = write!(xml, " type=\"{kind}\"");
    }
    let _ = write!(xml, " message=\"{}\"", escaped(first));
    let whole = (why != first).then_some(why);
    let blocks = [whole, case.hung.as_deref(), case.crash.as_deref()];
    let text: Vec<&str> = blocks.into_iter().flatten().collect();
    let _ = match text.is_empty() {
        true => write!(xml, "/>"),
        false => write!(xml, ">{}</{tag}>", escaped(&text.join("\n"))),
    };
}

/// Text as XML may have it: markup escaped, and the control characters that XML 1.0 has no way to
/// write replaced.
fn escaped(text: &str) -> String {
    let mut out = String::with_capacity(text.len());
    for c in text.chars() {
        match c {
            '&' => out.push_str("&amp;"),
            '<' => out.push_str("&lt;"),
            '>' => out.push_str("&gt;"),
            '"' => out.push_str("&quot;"),
            '\n' | '\t' => out.push(c),
            '\u{0}'..='\u{1f}' | '\u{7f}'..='\u{9f}' | '\u{fffe}' | '\u{ffff}' => {
                out.push('\u{fffd}')
            }
            c => out.push(c),
        }
    }
    out
}

#[cfg(test)]
mod tests;
