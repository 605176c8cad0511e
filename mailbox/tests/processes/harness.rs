//! A test harness without threads: one forked process per scenario, one deadline for each.

use std::io::Write as _;
use std::time::{Duration, Instant};

use crate::kid::Kid;

/// A scenario: fails by panicking.
pub(crate) type Scenario = (&'static str, fn());

/// Far beyond what any scenario needs, so that a regression fails instead of hanging.
const DEADLINE: Duration = Duration::from_secs(60);

/// Runs the scenarios that the command line chooses and reports in the words of the standard harness.
pub(crate) fn run(scenarios: &[Scenario]) {
    let options = Options::from_args();
    let chosen = scenarios.iter().filter(|(name, _)| options.chooses(name));
    let mut out = std::io::stdout();
    if options.list {
        for (name, _) in chosen {
            let _ = writeln!(out, "{name}: test");
        }
        return;
    }
    let (mut passed, mut failed) = (0, 0);
    for (name, scenario) in chosen {
        let verdict = if survives(*scenario) {
            passed += 1;
            "ok"
        } else {
            failed += 1;
            "FAILED"
        };
        let _ = writeln!(out, "test {name} ... {verdict}");
    }
    let filtered = scenarios.len() - passed - failed;
    let verdict = if failed == 0 { "ok" } else { "FAILED" };
    let _ = writeln!(
        out,
        "\ntest result: {verdict}. {passed} passed; {failed} failed; 0 ignored; 0 measured; {filtered} filtered out"
    );
    std::process::exit(if failed == 0 { 0 } else { 101 });
}

struct Options {
    list: bool,
    exact: bool,
    ignored: bool,
    filters: Vec<String>,
}

impl Options {
    fn from_args() -> Options {
        let args: Vec<String> = std::env::args().skip(1).collect();
        let has = |flag: &str| args.iter().any(|arg| arg == flag);
        Options {
            list: has("--list"),
            exact: has("--exact"),
            ignored: has("--ignored"),
            filters: args
                .iter()
                .filter(|arg| !arg.starts_with('-'))
                .cloned()
                .collect(),
        }
    }

    fn chooses(&self, name: &str) -> bool {
        let fits = |filter: &String| {
            if self.exact {
                name == filter
            } else {
                name.contains(filter)
            }
        };
        !self.ignored && (self.filters.is_empty() || self.filters.iter().any(fits))
    }
}

/// Runs one scenario in a process of its own.
fn survives(scenario: fn()) -> bool {
    let mut process = Kid::fork(|| {
        scenario();
        0
    });
    let deadline = Instant::now() + DEADLINE;
    loop {
        match process.try_reap() {
            Some(status) => return status == 0,
            None if Instant::now() > deadline => return false,
            None => std::thread::sleep(Duration::from_millis(2)),
        }
    }
}
