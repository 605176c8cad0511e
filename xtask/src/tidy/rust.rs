//! Rules about Rust files: every module introduces itself, libraries do not print.

use super::{File, Finding, Rule, Tree, lines};

/// Every file begins with a module doc.
pub(super) const MODULE_DOC: Rule = Rule {
    name: "module-doc",
    reason: "a file has one subject, and a reader who opens it is told which before anything else",
    check: module_docs,
};

/// Libraries do not write to the process's standard streams.
pub(super) const NO_PRINT: Rule = Rule {
    name: "no-print",
    reason: "the standard streams belong to the program, not to a library in it; return a value or use `tracing`",
    check: prints,
};

fn module_docs(tree: &Tree<'_>) -> Vec<Finding> {
    let begins = |text: &str| {
        text.lines()
            .find(|line| !line.trim().is_empty())
            .unwrap_or("")
            .starts_with("//!")
    };
    tree.ending("rs")
        .filter(|file| !begins(&file.text))
        .map(|file| {
            Finding::at(
                &file.path,
                1,
                "the file does not begin with a `//!` module doc",
            )
        })
        .collect()
}

/// The macros that print.
const PRINTS: [&str; 5] = ["print!", "println!", "eprint!", "eprintln!", "dbg!"];

fn prints(tree: &Tree<'_>) -> Vec<Finding> {
    tree.ending("rs")
        .filter(|file| !may_print(&file.path))
        .flat_map(prints_in)
        .collect()
}

/// Programs and tests may print: examples, benches, tests, build scripts, xtask, the scene runner.
fn may_print(path: &str) -> bool {
    const DIRS: [&str; 6] = ["examples", "benches", "tests", "fuzz", "bin", "fixtures"];
    let (crate_dir, rest) = path.split_once('/').unwrap_or(("", path));
    let in_dir = rest.split('/').any(|part| DIRS.contains(&part));
    let is_runner = crate_dir == "scenetest" && rest.starts_with("src/runner");
    in_dir
        || is_runner
        || crate_dir == "xtask"
        || ["tests.rs", "build.rs", "main.rs"]
            .iter()
            .any(|name| rest.ends_with(name))
}

fn prints_in(file: &File) -> Vec<Finding> {
    let mut found = Vec::new();
    for (nth, line) in lines(&file.text).iter().enumerate() {
        for name in PRINTS.iter().filter(|name| has_word(&line.code, name)) {
            found.push(Finding::at(
                &file.path,
                nth + 1,
                format!("`{name}` in a library"),
            ));
        }
    }
    found
}

/// Whether `word` stands in `code`, not as the end of a longer word.
pub(super) fn has_word(code: &str, word: &str) -> bool {
    code.match_indices(word).any(|(at, _)| {
        let before = code[..at].chars().next_back();
        !before.is_some_and(|c| c.is_alphanumeric() || c == '_')
    })
}

#[cfg(test)]
mod tests;
