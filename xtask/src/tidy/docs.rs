//! Rules about documents: each crate says what it promises, and the map knows every crate.

use super::{Finding, Rule, Tree};

/// Each crate has a README that says what it promises and what it refuses.
pub(super) const CRATE_README: Rule = Rule {
    name: "crate-readme",
    reason: "a user decides by a crate's README: what it promises, and what it refuses to do",
    check: readmes,
};

/// The map has a heading for every member.
pub(super) const ARCHITECTURE: Rule = Rule {
    name: "architecture",
    reason: "docs/ARCHITECTURE.md is the map: a crate that is not on it will not be found",
    check: headings,
};

/// Design pages say when somebody last held them against the code.
pub(super) const LAST_REVISED: Rule = Rule {
    name: "last-revised",
    reason: "a design page ages; its `Last revised: DATE` line tells a reader how far to trust it",
    check: revisions,
};

fn readmes(tree: &Tree<'_>) -> Vec<Finding> {
    let mut found = Vec::new();
    for member in tree.workspace.members() {
        let path = tree.path_in(member, "README.md");
        let Some(file) = tree.file(&path) else {
            found.push(Finding::at(path, 1, "the crate has no README"));
            continue;
        };
        let text = file.text.to_lowercase();
        for word in ["promises", "refuses"]
            .iter()
            .filter(|word| !text.contains(**word))
        {
            found.push(Finding::at(
                &path,
                1,
                format!("nothing says what the crate {word}"),
            ));
        }
    }
    found
}

const MAP: &str = "docs/ARCHITECTURE.md";

fn headings(tree: &Tree<'_>) -> Vec<Finding> {
    let Some(map) = tree.file(MAP) else {
        return vec![Finding::at(MAP, 1, "the map is missing")];
    };
    let has_heading = |name: &String| {
        let headings = map.text.lines().filter(|line| line.starts_with('#'));
        headings
            .flat_map(|line| line.split(|c: char| !c.is_alphanumeric()))
            .any(|word| word == name)
    };
    let missing = tree
        .workspace
        .names()
        .into_iter()
        .filter(|name| !has_heading(name));
    missing
        .map(|name| Finding::at(MAP, 1, format!("no heading names the crate `{name}`")))
        .collect()
}

fn revisions(tree: &Tree<'_>) -> Vec<Finding> {
    tree.ending("md")
        .filter(|file| file.path.starts_with("docs/design/"))
        .filter(|file| !file.text.to_lowercase().contains("last revised"))
        .map(|file| Finding::at(&file.path, 1, "no line says when it was last revised"))
        .collect()
}

#[cfg(test)]
mod tests;
