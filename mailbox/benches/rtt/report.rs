//! Medians, minima and ratios, for people or as JSON.

use std::fmt::Write as _;
use std::io::Write as _;

/// Results of the short rounds of one kind, in nanoseconds.
#[derive(Clone)]
pub(crate) struct Sample(Vec<f64>);

impl Sample {
    pub(crate) fn new() -> Sample {
        Sample(Vec::new())
    }

    pub(crate) fn push(&mut self, nanos: f64) {
        self.0.push(nanos);
    }

    fn sorted(&self) -> Vec<f64> {
        let mut sorted = self.0.clone();
        sorted.sort_by(f64::total_cmp);
        sorted
    }

    fn median(&self) -> f64 {
        self.sorted()[self.0.len() / 2]
    }

    fn min(&self) -> f64 {
        self.sorted()[0]
    }
}

/// One thing measured beside its reference.
pub(crate) struct Row {
    name: &'static str,
    sample: Sample,
    reference_name: &'static str,
    reference: Sample,
}

impl Row {
    pub(crate) fn new(
        name: &'static str,
        sample: Sample,
        reference_name: &'static str,
        reference: Sample,
    ) -> Row {
        Row {
            name,
            sample,
            reference_name,
            reference,
        }
    }

    fn ratio(&self) -> f64 {
        self.sample.median() / self.reference.median()
    }

    fn json(&self) -> String {
        format!(
            r#"{{"name":"{}","value":{:.1},"unit":"ns","min":{:.1},"runs":{},"reference":{{"name":"{}","value":{:.1},"min":{:.1}}},"ratio":{:.3}}}"#,
            self.name,
            self.sample.median(),
            self.sample.min(),
            self.sample.0.len(),
            self.reference_name,
            self.reference.median(),
            self.reference.min(),
            self.ratio(),
        )
    }

    fn text(&self) -> String {
        format!(
            "{:<18} median {:>9.1} ns  min {:>9.1} ns | {:<14} median {:>9.1} ns  min {:>9.1} ns | ratio {:.2}",
            self.name,
            self.sample.median(),
            self.sample.min(),
            self.reference_name,
            self.reference.median(),
            self.reference.min(),
            self.ratio(),
        )
    }
}

/// Prints the report to standard output.
pub(crate) fn print(rows: &[Row], json: bool) {
    let mut out = String::new();
    if json {
        let objects: Vec<String> = rows.iter().map(Row::json).collect();
        let _ = writeln!(out, "[{}]", objects.join(","));
    } else {
        for row in rows {
            let _ = writeln!(out, "{}", row.text());
        }
    }
    let _ = std::io::stdout().write_all(out.as_bytes());
}
