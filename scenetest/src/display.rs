//! What people see while a session runs, and at its end: progress on a terminal, plain lines
//! elsewhere, groups on a CI host that folds them.
//!
//! Everything that tests and tools need is in the report; nothing reads these lines.

use std::fmt::Write as _;
use std::io::{self, IsTerminal as _, Write};
use std::time::Duration;

use crate::args::Args;
use crate::outcome::{CaseReport, Outcome, SessionReport};
use crate::running::Running;

/// How many running cases the progress line names.
const NAMED: usize = 3;

pub(crate) struct Display {
    out: Box<dyn Write>,
    /// A line at the bottom that is written over and over.
    live: bool,
    live_shown: bool,
    groups: bool,
    show_all: bool,
    total: usize,
    ended: usize,
    failed: usize,
}

impl Display {
    /// On standard output, or on standard error if that is for the report.
    pub(crate) fn new(args: &Args) -> Self {
        let (out, terminal): (Box<dyn Write>, bool) = if args.json {
            (Box::new(io::stderr()), io::stderr().is_terminal())
        } else {
            (Box::new(io::stdout()), io::stdout().is_terminal())
        };
        let groups = std::env::var("GITHUB_ACTIONS").is_ok_and(|value| value == "true");
        Self::to(out, terminal, groups, args.nocapture)
    }

    pub(crate) fn to(out: Box<dyn Write>, live: bool, groups: bool, show_all: bool) -> Self {
        Self {
            out,
            live,
            live_shown: false,
            groups,
            show_all,
            total: 0,
            ended: 0,
            failed: 0,
        }
    }

    pub(crate) fn begin(&mut self, selected: usize, args: &Args) -> io::Result<()> {
        self.total = selected;
        let devices = args.device.0.len();
        writeln!(
            self.out,
            "running {selected} cases on {}, {devices} devices in the pool",
            args.platform
        )
    }

    pub(crate) fn start(&mut self, name: &str) -> io::Result<()> {
        if self.live {
            Ok(())
        } else {
            writeln!(self.out, "START {name}")
        }
    }

    pub(crate) fn retry(&mut self, report: &CaseReport) -> io::Result<()> {
        self.quiet()?;
        let (name, why) = (&report.name, report.outcome.why());
        writeln!(self.out, "AGAIN {name} on other devices: {why}")
    }

    pub(crate) fn ended(&mut self, report: &CaseReport) -> io::Result<()> {
        self.quiet()?;
        self.ended += 1;
        self.failed += usize::from(!report.outcome.is_good());
        writeln!(self.out, "{}", line(report))?;
        self.details(report)
    }

    /// Blocks that are as they are: HUNG, and the state on request.
    pub(crate) fn block(&mut self, text: &str) -> io::Result<()> {
        self.quiet()?;
        writeln!(self.out, "{}", text.trim_end())
    }

    fn details(&mut self, report: &CaseReport) -> io::Result<()> {
        for leaked in &report.leaked {
            writeln!(self.out, "  left behind: {leaked}")?;
        }
        if report.torn > 0 {
            writeln!(
                self.out,
                "  {} messages to the runner did not arrive whole",
                report.torn
            )?;
        }
        for block in report.hung.iter().chain(&report.crash) {
            writeln!(self.out, "{}", block.trim_end())?;
        }
        if report.outcome.is_good() && !self.show_all || report.output.is_empty() {
            return Ok(());
        }
        self.output(report)
    }

    fn output(&mut self, report: &CaseReport) -> io::Result<()> {
        let title = format!("output of {}", report.name);
        let (begin, end) = match self.groups {
            true => (format!("::group::{title}"), "::endgroup::".to_owned()),
            false => (format!("---- {title} ----"), "----".to_owned()),
        };
        writeln!(self.out, "{begin}\n{}\n{end}", report.output.trim_end())
    }

    /// The line at the bottom: how far it is, what runs, for how long.
    pub(crate) fn progress(&mut self, running: &[Running]) -> io::Result<()> {
        if !self.live {
            return Ok(());
        }
        let mut oldest: Vec<&Running> = running.iter().collect();
        oldest.sort_by_key(|running| running.started);
        let names: Vec<String> = oldest
            .iter()
            .take(NAMED)
            .map(|running| format!("{} {}", running.name, seconds(running.started.elapsed())))
            .collect();
        let further = match oldest.len().saturating_sub(NAMED) {
            0 => String::new(),
            further => format!(" and {further} more"),
        };
        let (ended, total, failed) = (self.ended, self.total, self.failed);
        let names = names.join(", ");
        write!(
            self.out,
            "\r\x1b[K[{ended}/{total}, {failed} bad] {names}{further}"
        )?;
        self.live_shown = true;
        self.out.flush()
    }

    /// Takes the line at the bottom away.
    pub(crate) fn quiet(&mut self) -> io::Result<()> {
        if std::mem::take(&mut self.live_shown) {
            write!(self.out, "\r\x1b[K")?;
        }
        Ok(())
    }

    /// The names of all that did not pass, and the sums.
    pub(crate) fn summary(&mut self, report: &SessionReport) -> io::Result<()> {
        writeln!(self.out)?;
        for case in report.cases.iter().filter(|case| !case.outcome.is_good()) {
            writeln!(self.out, "{}", line(case))?;
        }
        write!(self.out, "{}", rounds(&report.cases))?;
        if !report.broken_devices.is_empty() {
            writeln!(self.out, "devices that broke: {:?}", report.broken_devices)?;
        }
        writeln!(self.out, "{report}, in {}", seconds(report.elapsed))?;
        self.out.flush()
    }
}

/// `FAIL name (1.234 s): why`, on one line.
fn line(report: &CaseReport) -> String {
    let label = match &report.outcome {
        Outcome::Passed if report.leaked.is_empty() => "PASS",
        Outcome::Passed => "LEAK",
        Outcome::Failed { .. } => "FAIL",
        Outcome::TimedOut { .. } => "TIMEOUT",
        Outcome::Crashed { .. } => "CRASH",
        Outcome::Rewritten { .. } => "REWRITTEN",
        Outcome::Skipped { .. } => "SKIP",
        Outcome::NotRun { .. } => "NOT RUN",
    };
    let time = match report.attempts {
        0 => String::new(),
        _ => format!(" ({})", seconds(report.elapsed)),
    };
    match report.outcome.why() {
        "" => format!("{label} {}{time}", report.name),
        why => format!("{label} {}{time}: {why}", report.name),
    }
}

fn seconds(time: Duration) -> String {
    format!("{:.3} s", time.as_secs_f64())
}

/// How long the rounds took, a line for each case with several; nothing if there is none.
fn rounds(cases: &[CaseReport]) -> String {
    let timed = cases
        .iter()
        .filter_map(|case| Some((case.name.as_str(), case.rounds_table?)));
    let timed: Vec<_> = timed.collect();
    let Some(width) = timed.iter().map(|(name, _)| name.len()).max() else {
        return String::new();
    };
    let (width, head) = (width.max(4), ["rounds", "min us", "median us", "p95 us"]);
    let mut text = format!(
        "{:<width$} {:>8} {:>12} {:>12} {:>12}\n",
        "case", head[0], head[1], head[2], head[3]
    );
    for (name, table) in timed {
        let micros = |ns: u64| format!("{:.1}", ns as f64 / 1e3);
        let (min, median, p95) = (table.min_ns, table.median_ns, table.p95_ns);
        let _ = writeln!(
            text,
            "{name:<width$} {:>8} {:>12} {:>12} {:>12}",
            table.rounds,
            micros(min),
            micros(median),
            micros(p95)
        );
    }
    text
}

#[cfg(test)]
mod tests;
