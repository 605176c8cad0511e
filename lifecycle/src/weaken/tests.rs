//! The list of weakenings in the models' README is complete and true.

use std::collections::BTreeSet;

const SOURCE: &str = include_str!("../weaken.rs");
const README: &str = include_str!("../loom_models/README.md");
const MODELS: [&str; 6] = [
    include_str!("../loom_models/abandonment.rs"),
    include_str!("../loom_models/cancellation.rs"),
    include_str!("../loom_models/closers.rs"),
    include_str!("../loom_models/leases.rs"),
    include_str!("../loom_models/starts.rs"),
    include_str!("../loom_models/steps.rs"),
];

/// The first two columns of the table.
fn rows() -> Vec<(&'static str, &'static str)> {
    let cell = |cell: &'static str| cell.trim().trim_matches('`');
    let rows = README.lines().filter(|line| line.starts_with("| `"));
    rows.map(|row| {
        let cells: Vec<_> = row.split('|').map(cell).collect();
        (cells[1], cells[2])
    })
    .collect()
}

#[test]
fn every_weakening_of_the_code_has_a_row_and_every_row_a_weakening() {
    let in_code = SOURCE
        .split("weaken = \"")
        .skip(1)
        .filter_map(|rest| rest.split('"').next());
    let in_code: BTreeSet<_> = in_code.collect();
    let in_table: BTreeSet<_> = rows().iter().map(|(weakening, _)| *weakening).collect();
    assert_eq!(in_table, in_code);
    assert!(!in_code.is_empty());
}

#[test]
fn every_row_names_a_model_that_exists() {
    for (weakening, model) in rows() {
        let definition = format!("fn {model}()");
        let found = MODELS.iter().any(|source| source.contains(&definition));
        assert!(
            found,
            "`{weakening}` names `{model}`, which no model file defines"
        );
    }
}
