//! Which measures were asked for, and their figures.

/// What was measured, in however many runs, and what beside it.
pub(crate) struct Measure {
    name: String,
    unit: &'static str,
    /// Ascending.
    figures: Vec<f64>,
    /// What else was measured in the same run, and its median.
    pub(crate) reference: Option<(String, f64)>,
    /// Why there is no reference.
    pub(crate) note: Option<String>,
    /// How many operations were measured in all, the first round included, where that is counted.
    pub(crate) operations: u64,
}

impl Measure {
    pub(crate) fn new(name: &str, unit: &'static str, mut figures: Vec<f64>) -> Measure {
        figures.sort_by(f64::total_cmp);
        Measure {
            name: name.to_owned(),
            unit,
            figures,
            reference: None,
            note: None,
            operations: 0,
        }
    }

    pub(crate) fn median(&self) -> f64 {
        self.figures[self.figures.len() / 2]
    }

    fn to_json(&self) -> String {
        let (name, unit, runs) = (&self.name, self.unit, self.figures.len());
        let (value, min) = (self.median(), self.figures[0]);
        let mut json = format!(
            r#"{{"name":"{name}","value":{value:.2},"unit":"{unit}","min":{min:.2},"runs":{runs}"#
        );
        if let Some((name, value)) = &self.reference {
            json += &format!(r#","reference":{{"name":"{name}","value":{value:.2}}}"#);
        }
        if let Some(note) = &self.note {
            json += &format!(r#","note":"{note}""#);
        }
        if self.operations > 0 {
            json += &format!(r#","operations":{}"#, self.operations);
        }
        json + "}"
    }

    fn to_text(&self) -> String {
        let (name, unit, runs) = (&self.name, self.unit, self.figures.len());
        let (value, min) = (self.median(), self.figures[0]);
        let mut text = format!("{name:32} {value:10.1} {unit:5} (min {min:.1}, {runs} runs)");
        if let Some((name, theirs)) = &self.reference {
            text += &format!(", {:.2} x {name} {theirs:.1}", value / theirs);
        }
        if let Some(note) = &self.note {
            text += &format!(", {note}");
        }
        text
    }
}

/// The measures that were taken so far.
pub(crate) struct Report {
    wanted: Vec<String>,
    is_json: bool,
    rounds: Option<usize>,
    measures: Vec<Measure>,
}

impl Report {
    pub(crate) fn from_args() -> Report {
        // Cargo adds `--bench` to whatever the caller gives.
        let args = std::env::args().skip(1).filter(|arg| arg != "--bench");
        let (options, wanted): (Vec<_>, Vec<_>) = args.partition(|arg| arg.starts_with("--"));
        let rounds = options
            .iter()
            .find_map(|option| option.strip_prefix("--rounds="));
        Report {
            wanted,
            rounds: rounds.map(|rounds| rounds.parse().expect("a number of rounds")),
            is_json: options.iter().any(|option| option == "--json"),
            measures: Vec::new(),
        }
    }

    /// Whether `name`, or the family before its slash, was asked for, or nothing was.
    pub(crate) fn is_wanted(&self, name: &str) -> bool {
        let is_within = |wanted: &String| {
            let rest = name.strip_prefix(wanted.as_str());
            rest.is_some_and(|rest| rest.is_empty() || rest.starts_with('/'))
        };
        self.wanted.is_empty() || self.wanted.iter().any(is_within)
    }

    /// How often to measure: as often as the caller of the program says, else `usual` times.
    pub(crate) fn rounds(&self, usual: usize) -> usize {
        self.rounds.unwrap_or(usual).max(1)
    }

    pub(crate) fn add(&mut self, measure: Measure) {
        self.measures.push(measure);
    }

    pub(crate) fn print(&self) {
        if self.is_json {
            let objects: Vec<_> = self.measures.iter().map(Measure::to_json).collect();
            println!("[{}]", objects.join(",\n "));
        } else {
            self.measures
                .iter()
                .for_each(|measure| println!("{}", measure.to_text()));
        }
    }
}
