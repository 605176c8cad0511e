//! A measure: what a bench program reports, and how it is shown.

use serde::{Deserialize, Serialize};

use crate::table::{self, Align};

/// One figure.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub(crate) struct Measure {
    /// What was measured; a time in another unit than nanoseconds ends in that unit.
    pub(crate) name: String,
    /// The median over the runs.
    pub(crate) value: f64,
    /// What `value` and `min` count.
    pub(crate) unit: String,
    /// The smallest of the runs.
    pub(crate) min: f64,
    /// How many runs there were.
    pub(crate) runs: u64,
    /// What else was measured in the same run, to compare with.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) reference: Option<Reference>,
    /// Why there is no reference, where a reader would expect one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) note: Option<String>,
    /// `value / reference.value`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) ratio: Option<f64>,
}

/// What a measure is compared with.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub(crate) struct Reference {
    /// What it is.
    pub(crate) name: String,
    /// Its median, in the unit of the measure.
    pub(crate) value: f64,
}

/// The units of time that a name must end in when they are used.
const NAMED_UNITS: [&str; 3] = ["us", "ms", "s"];

impl Measure {
    /// What is wrong with it, if anything.
    fn fault(&self) -> Option<String> {
        let name = &self.name;
        let family = name.split('/').next().unwrap_or_default();
        if self.runs == 0 || !self.value.is_finite() || !self.min.is_finite() {
            return Some(format!("`{name}` is no measurement: no runs, or no number"));
        }
        if self.min > self.value {
            return Some(format!("`{name}`: its smallest run is above its median"));
        }
        let unnamed =
            NAMED_UNITS.contains(&&*self.unit) && !family.ends_with(&format!("_{}", self.unit));
        unnamed.then(|| {
            format!(
                "`{name}` is in {}, but its name does not end in it",
                self.unit
            )
        })
    }

    /// Computes the ratio where there is a reference, so that it cannot disagree with its parts.
    fn with_ratio(mut self) -> Self {
        self.ratio = self
            .reference
            .as_ref()
            .map(|reference| self.value / reference.value);
        self
    }
}

/// Reads what a bench program printed with `--json`.
pub(crate) fn from_json(output: &str) -> Result<Vec<Measure>, String> {
    let measures: Vec<Measure> = serde_json::from_str(output)
        .map_err(|error| format!("its output is no array of measures ({error}):\n{output}"))?;
    match measures.iter().find_map(Measure::fault) {
        Some(fault) => Err(fault),
        None => Ok(measures.into_iter().map(Measure::with_ratio).collect()),
    }
}

/// One array, an object per line.
pub(crate) fn to_json(measures: &[Measure]) -> String {
    let lines: Vec<String> = measures
        .iter()
        .map(|measure| serde_json::to_string(measure).expect("strings and finite numbers"))
        .collect();
    format!("[{}]\n", lines.join(",\n "))
}

/// The measures for a person.
pub(crate) fn table(measures: &[Measure]) -> String {
    let rows: Vec<Vec<String>> = measures.iter().map(row).collect();
    let aligns = [
        Align::Left,
        Align::Right,
        Align::Right,
        Align::Left,
        Align::Right,
        Align::Left,
        Align::Right,
    ];
    let heading = [
        "measure",
        "median",
        "min",
        "unit",
        "runs",
        "reference",
        "ratio",
    ];
    table::render(&heading, &aligns, &rows)
}

fn row(measure: &Measure) -> Vec<String> {
    let reference = measure.reference.as_ref();
    vec![
        measure.name.clone(),
        number(measure.value),
        number(measure.min),
        measure.unit.clone(),
        measure.runs.to_string(),
        reference
            .map(|it| format!("{} {}", it.name, number(it.value)))
            .or_else(|| measure.note.clone())
            .unwrap_or_default(),
        measure
            .ratio
            .map(|ratio| format!("{ratio:.2}"))
            .unwrap_or_default(),
    ]
}

/// As many digits as a reader needs.
fn number(value: f64) -> String {
    if value.abs() < 100.0 {
        format!("{value:.2}")
    } else {
        format!("{value:.0}")
    }
}

#[cfg(test)]
mod tests;
