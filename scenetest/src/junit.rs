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
    let why = escaped(case.outcome.why());
    let _ = match &case.outcome {
        Outcome::Passed => Ok(()),
        Outcome::Failed { .. } => write!(xml, "<failure message=\"{why}\"/>"),
        Outcome::TimedOut { .. } => {
            let block = escaped(case.hung.as_deref().unwrap_or(""));
            write!(
                xml,
                "<failure type=\"timeout\" message=\"{why}\">{block}</failure>"
            )
        }
        Outcome::Crashed { .. } | Outcome::NotRun { .. } | Outcome::Rewritten { .. } => {
            let block = escaped(case.crash.as_deref().unwrap_or(""));
            write!(
                xml,
                "<error type=\"{}\" message=\"{why}\">{block}</error>",
                case.outcome.kind()
            )
        }
        Outcome::Skipped { .. } => write!(xml, "<skipped message=\"{why}\"/>"),
    };
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
