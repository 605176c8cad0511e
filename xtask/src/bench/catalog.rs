//! Which program measures what, as the manifests declare it.
//!
//! ```toml
//! [package.metadata.bench]
//! rtt = ["mailbox_rtt", "wake_idle"]    # `benches/rtt.rs` measures these two
//! ```

use std::{collections::BTreeMap, fmt};

use cargo_metadata::{Package, TargetKind};

use super::{
    comparison::{self, Comparison},
    example_process,
    measure::Measure,
};
use crate::{
    delegate::VECTOR_ADD,
    error::Error,
    workspace::{Workspace, target},
};

/// All programs that measure something.
#[derive(Debug)]
pub(crate) struct Catalog {
    programs: Vec<Program>,
}

/// A program, and what it measures, or is asked to.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Program {
    pub(crate) source: Source,
    /// The names of its measures, as declared; `NAME` stands for `NAME/...` too.
    pub(crate) measures: Vec<String>,
    /// Which of their results are wanted: the same, or members of a family.
    pub(crate) wanted: Vec<String>,
}

/// Where measures come from.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Source {
    /// A bench target of a crate.
    Bench { package: String, bench: String },
    /// xtask itself, by running an example as a process.
    ExampleProcess,
    /// A package outside the workspace.
    Comparison(Comparison),
}

impl fmt::Display for Source {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Bench { package, bench } => write!(f, "{package}/{bench}"),
            Self::Comparison(comparison) => f.write_str(&comparison.name),
            Self::ExampleProcess => write!(f, "the example as a process"),
        }
    }
}

impl Catalog {
    /// What the manifests of the workspace declare, and what xtask measures itself.
    pub(crate) fn of(workspace: &Workspace) -> Result<Self, Error> {
        let mut programs = Vec::new();
        for package in workspace.members() {
            programs.extend(declared(package)?);
        }
        if VECTOR_ADD.exists(workspace) {
            let measures = vec![example_process::NAME.to_owned()];
            programs.push(Program::whole(Source::ExampleProcess, measures));
        }
        for comparison in comparison::all(workspace)? {
            let measures = comparison.measures.clone();
            programs.push(Program::whole(Source::Comparison(comparison), measures));
        }
        Ok(Self { programs })
    }

    /// The programs that take the measures named in `wanted`, each asked for those only.
    pub(crate) fn choose(&self, wanted: &[String]) -> Result<Vec<Program>, Error> {
        if wanted.is_empty() {
            return Ok(self.programs.clone());
        }
        if let Some(unknown) = wanted.iter().find(|wanted| !self.has(wanted)) {
            let known = self
                .programs
                .iter()
                .flat_map(|program| program.measures.clone())
                .collect();
            return Err(Error::NoMatch {
                kind: "measure",
                wanted: unknown.clone(),
                known,
            });
        }
        Ok(self
            .programs
            .iter()
            .filter_map(|program| program.asked_for(wanted))
            .collect())
    }

    fn has(&self, wanted: &str) -> bool {
        self.programs
            .iter()
            .any(|program| program.measures.iter().any(|name| meets(name, wanted)))
    }
}

/// Whether a declared name and a wanted one can mean the same measure.
fn meets(declared: &str, wanted: &str) -> bool {
    is_within(declared, wanted) || is_within(wanted, declared)
}

/// Whether `name` is `family`, or one of its `family/...`.
fn is_within(name: &str, family: &str) -> bool {
    name.strip_prefix(family)
        .is_some_and(|rest| rest.is_empty() || rest.starts_with('/'))
}

/// What a manifest declares; each name of a program must be a bench target of the crate.
fn declared(package: &Package) -> Result<Vec<Program>, Error> {
    let table = package.metadata.get("bench").cloned().unwrap_or_default();
    if table.is_null() {
        return Ok(Vec::new());
    }
    let benches: BTreeMap<String, Vec<String>> =
        serde_json::from_value(table).map_err(|source| Error::BenchTable {
            package: package.name.to_string(),
            source,
        })?;
    benches
        .into_iter()
        .map(
            |(bench, measures)| match target(package, &TargetKind::Bench, &bench) {
                Some(_) => {
                    let source = Source::Bench {
                        package: package.name.to_string(),
                        bench,
                    };
                    Ok(Program::whole(source, measures))
                }
                None => Err(Error::NoMatch {
                    kind: "bench target",
                    wanted: format!("{}/{bench}", package.name),
                    known: bench_targets(package),
                }),
            },
        )
        .collect()
}

fn bench_targets(package: &Package) -> Vec<String> {
    let benches = package
        .targets
        .iter()
        .filter(|target| target.kind.contains(&TargetKind::Bench));
    benches
        .map(|target| format!("{}/{}", package.name, target.name))
        .collect()
}

impl Program {
    /// A program of which everything is wanted.
    fn whole(source: Source, measures: Vec<String>) -> Self {
        Self {
            source,
            wanted: measures.clone(),
            measures,
        }
    }

    /// This program with what is wanted of it; `None` when that is nothing.
    fn asked_for(&self, names: &[String]) -> Option<Self> {
        let mut asked = Self {
            source: self.source.clone(),
            measures: Vec::new(),
            wanted: Vec::new(),
        };
        for declared in &self.measures {
            let met = names.iter().filter(|name| meets(declared, name));
            // The narrower of the two.
            let narrow = met.map(|name| {
                if is_within(name, declared) {
                    name
                } else {
                    declared
                }
            });
            let before = asked.wanted.len();
            asked.wanted.extend(narrow.cloned());
            if asked.wanted.len() > before {
                asked.measures.push(declared.clone());
            }
        }
        (!asked.measures.is_empty()).then_some(asked)
    }

    /// The measures among `taken` that are wanted.
    ///
    /// # Errors
    /// When one that is wanted did not come back.
    pub(crate) fn check(&self, taken: Vec<Measure>) -> Result<Vec<Measure>, String> {
        let came = |name: &&String| taken.iter().any(|measure| is_within(&measure.name, name));
        let missing: Vec<_> = self
            .wanted
            .iter()
            .filter(|name| !came(name))
            .cloned()
            .collect();
        if !missing.is_empty() {
            return Err(format!("did not measure {}", missing.join(", ")));
        }
        let wanted = |measure: &Measure| self.wanted.iter().any(|it| is_within(&measure.name, it));
        Ok(taken.into_iter().filter(wanted).collect())
    }
}

#[cfg(test)]
mod tests;
