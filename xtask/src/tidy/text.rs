//! Rules about every text file: no leftovers.

use super::{Finding, Rule, Tree};

/// No marks for work that is left.
pub(super) const NO_MARKS: Rule = Rule {
    name: "no-marks",
    reason: "what is left to do is an issue, or an error that says so; a mark in the code is neither",
    check: marks,
};

/// No spaces at the ends of lines.
pub(super) const NO_TRAILING_SPACE: Rule = Rule {
    name: "no-trailing-space",
    reason: "invisible characters make differences that nobody meant",
    check: trailing_spaces,
};

/// No path that exists on one machine only.
pub(super) const NO_PERSONAL_PATH: Rule = Rule {
    name: "no-personal-path",
    reason: "a path on somebody's machine works nowhere else, and tells about its owner",
    check: personal_paths,
};

/// The marks, split so that this file does not contain them.
const MARKS: [&str; 3] = [
    concat!("TO", "DO"),
    concat!("FIX", "ME"),
    concat!("X", "XX"),
];

fn marks(tree: &Tree<'_>) -> Vec<Finding> {
    every_line(tree, |line| {
        let mut words = line.split(|c: char| !c.is_alphanumeric() && c != '_');
        words
            .find(|word| MARKS.contains(word))
            .map(|word| format!("the mark `{word}`"))
    })
}

fn trailing_spaces(tree: &Tree<'_>) -> Vec<Finding> {
    every_line(tree, |line| {
        line.ends_with([' ', '\t', '\r'])
            .then(|| "space at the end of the line".to_owned())
    })
}

/// The directories under which people and sessions live, split for the same reason.
const HOMES: [&str; 4] = [
    concat!("/ho", "me/"),
    concat!("/Us", "ers/"),
    concat!("/ro", "ot/"),
    concat!("/wo", "rk/"),
];

fn personal_paths(tree: &Tree<'_>) -> Vec<Finding> {
    every_line(tree, |line| {
        let begins_path = |at: usize| {
            let before = line[..at].chars().next_back();
            !before.is_some_and(|c| c.is_alphanumeric() || "_-./}".contains(c))
        };
        let is_path = |home: &&&str| line.match_indices(**home).any(|(at, _)| begins_path(at));
        HOMES
            .iter()
            .find(is_path)
            .map(|home| format!("a path below `{home}`"))
    })
}

/// Applies `check` to every line of every file.
fn every_line(tree: &Tree<'_>, check: impl Fn(&str) -> Option<String>) -> Vec<Finding> {
    let mut found = Vec::new();
    for file in &tree.files {
        for (nth, line) in file.text.split('\n').enumerate() {
            found.extend(check(line).map(|what| Finding::at(&file.path, nth + 1, what)));
        }
    }
    found
}

#[cfg(test)]
mod tests;
