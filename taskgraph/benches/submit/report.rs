//! Which measures were asked for, and their figures.

use std::time::Duration;

/// A part of a run that was timed: how long, and for how many operations.
pub(crate) struct Timed {
    pub(crate) elapsed: Duration,
    pub(crate) operations: u32,
}

struct Measure {
    name: String,
    unit: &'static str,
    value: f64,
    min: f64,
    runs: usize,
}

/// The measures that were taken so far.
pub(crate) struct Report {
    wanted: Vec<String>,
    is_json: bool,
    measures: Vec<Measure>,
}

impl Report {
    pub(crate) fn from_args() -> Report {
        // Cargo adds `--bench` to whatever the caller gives.
        let args: Vec<_> = std::env::args()
            .skip(1)
            .filter(|arg| arg != "--bench")
            .collect();
        let is_json = args.iter().any(|arg| arg == "--json");
        let wanted = args
            .into_iter()
            .filter(|arg| !arg.starts_with("--"))
            .collect();
        Report {
            wanted,
            is_json,
            measures: Vec::new(),
        }
    }

    /// Nanoseconds per operation, the median of `runs` after one to warm up.
    pub(crate) fn time(&mut self, name: &str, runs: usize, mut once: impl FnMut() -> Timed) {
        if !self.is_wanted(name) {
            return;
        }
        once();
        let per_operation =
            |timed: Timed| timed.elapsed.as_nanos() as f64 / f64::from(timed.operations);
        let mut figures: Vec<_> = (0..runs).map(|_| per_operation(once())).collect();
        figures.sort_by(f64::total_cmp);
        self.push(name, "ns", figures[runs / 2], figures[0], runs);
    }

    /// A figure that is the same in every run.
    pub(crate) fn value(&mut self, name: &str, unit: &'static str, once: impl FnOnce() -> f64) {
        if self.is_wanted(name) {
            let value = once();
            self.push(name, unit, value, value, 1);
        }
    }

    pub(crate) fn print(&self) {
        if self.is_json {
            let objects: Vec<_> = self.measures.iter().map(Measure::to_json).collect();
            println!("[{}]", objects.join(",\n "));
            return;
        }
        for Measure {
            name,
            unit,
            value,
            min,
            runs,
        } in &self.measures
        {
            println!("{name:32} {value:10.1} {unit:5} (min {min:.1}, {runs} runs)");
        }
    }

    /// Whether `name`, or the family before its slash, was asked for, or nothing was.
    fn is_wanted(&self, name: &str) -> bool {
        let family = name.split('/').next();
        let meets = |wanted: &String| wanted == name || Some(wanted.as_str()) == family;
        self.wanted.is_empty() || self.wanted.iter().any(meets)
    }

    fn push(&mut self, name: &str, unit: &'static str, value: f64, min: f64, runs: usize) {
        self.measures.push(Measure {
            name: name.to_owned(),
            unit,
            value,
            min,
            runs,
        });
    }
}

impl Measure {
    fn to_json(&self) -> String {
        let Measure {
            name,
            unit,
            value,
            min,
            runs,
        } = self;
        format!(
            "{{\"name\":\"{name}\",\"value\":{value:.2},\"unit\":\"{unit}\",\"min\":{min:.2},\"runs\":{runs}}}"
        )
    }
}
