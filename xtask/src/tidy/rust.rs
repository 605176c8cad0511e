//! Rules about Rust files: every module introduces itself, libraries do not print.

use super::{File, Finding, Line, Rule, Tree, lines};
use crate::loom;

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

/// In a crate with models, atomics come through the module `sync`.
pub(super) const ATOMICS: Rule = Rule {
    name: "atomics-through-sync",
    reason: "the model checker replaces what `sync` names; an atomic from elsewhere is not modelled",
    check: atomics,
};

/// A lint is silenced by an expectation.
pub(super) const EXPECT_NOT_ALLOW: Rule = Rule {
    name: "expect-not-allow",
    reason: "an `expect` is reported when there is nothing left to silence; an `allow` stays for ever",
    check: allows,
};

/// Files stay small enough to be read in one go.
pub(super) const FILE_LENGTH: Rule = Rule {
    name: "file-length",
    reason: "a file that has one subject fits in one reading; a longer one has two",
    check: lengths,
};

/// Functions stay small enough to be seen at once.
pub(super) const FUNCTION_LENGTH: Rule = Rule {
    name: "function-length",
    reason: "a function that does not fit on a screen does several things, and each of them has a name",
    check: function_lengths,
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

/// Programs and tests may print: examples, benches, tests, build scripts, xtask.
fn may_print(path: &str) -> bool {
    const DIRS: [&str; 6] = ["examples", "benches", "tests", "fuzz", "bin", "fixtures"];
    let (crate_dir, rest) = path.split_once('/').unwrap_or(("", path));
    let in_dir = rest.split('/').any(|part| DIRS.contains(&part));
    in_dir
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

/// Files besides `sync.rs` that may name std's atomics: `sync` replaces them as a whole.
const UNMODELLED: [&str; 1] = ["mailbox/src/futex.rs"];

fn atomics(tree: &Tree<'_>) -> Vec<Finding> {
    loom::modelled(tree.workspace)
        .iter()
        .map(|name| format!("{name}/src/"))
        .flat_map(|dir| {
            tree.ending("rs")
                .filter(move |file| file.path.starts_with(&dir))
        })
        .filter(|file| !file.path.ends_with("/sync.rs") && !file.path.ends_with("/tests.rs"))
        .filter(|file| !UNMODELLED.contains(&file.path.as_str()))
        .flat_map(atomics_in)
        .collect()
}

/// `std::sync::atomic::...`, also as `atomic::...` within braces; `crate::sync::atomic` is fine.
fn atomics_in(file: &File) -> Vec<Finding> {
    let names = |line: &Line| {
        let code = line
            .code
            .replace("crate::sync::atomic", "")
            .replace("loom::sync::atomic", "");
        has_word(&code, "atomic::")
    };
    let lines = lines(&file.text);
    let found = lines.iter().enumerate().filter(|(_, line)| names(line));
    let what = "an atomic that does not come through `crate::sync`";
    found
        .map(|(nth, _)| Finding::at(&file.path, nth + 1, what))
        .collect()
}

fn allows(tree: &Tree<'_>) -> Vec<Finding> {
    let mut found = Vec::new();
    for file in tree.ending("rs") {
        for (nth, line) in lines(&file.text).iter().enumerate() {
            if line.code.contains("#[allow(") || line.code.contains("#![allow(") {
                found.push(Finding::at(
                    &file.path,
                    nth + 1,
                    "`allow`, where `expect` would do",
                ));
            }
        }
    }
    found
}

/// Lines of a file at most.
const LINES_MAX: usize = 600;

/// Lines of a crate's `lib.rs` at most: it is a table of contents, and aims at 120.
const CONTENTS_MAX: usize = 150;

fn lengths(tree: &Tree<'_>) -> Vec<Finding> {
    let is_contents = |file: &File| file.path.split('/').skip(1).eq(["src", "lib.rs"]);
    let max = |file: &File| {
        if is_contents(file) {
            CONTENTS_MAX
        } else {
            LINES_MAX
        }
    };
    tree.ending("rs")
        .map(|file| (file, file.text.lines().count()))
        .filter(|(file, n_lines)| *n_lines > max(file))
        .map(|(file, n_lines)| {
            let what = format!("{n_lines} lines, where {} are the most", max(file));
            Finding::at(&file.path, max(file) + 1, what)
        })
        .collect()
}

/// Lines of a function at most, from its `fn` to its closing brace.
const FUNCTION_MAX: usize = 70;

/// In sources and examples; a test may be a long table.
fn function_lengths(tree: &Tree<'_>) -> Vec<Finding> {
    let is_checked = |file: &&File| {
        let mut dirs = file.path.split('/');
        dirs.any(|part| ["src", "examples"].contains(&part)) && !file.path.ends_with("tests.rs")
    };
    tree.ending("rs")
        .filter(is_checked)
        .flat_map(long_functions)
        .collect()
}

/// Goes by the indentation, which rustfmt gives: a function ends at the first brace below its start.
fn long_functions(file: &File) -> Vec<Finding> {
    let lines = lines(&file.text);
    let mut found = Vec::new();
    for (nth, Line { code, .. }) in lines.iter().enumerate() {
        let is_whole = code.trim_end().ends_with([';', '}']);
        if is_whole || !has_word(code, "fn ") {
            continue;
        }
        let indent = &code[..code.len() - code.trim_start().len()];
        let ends = |line: &Line| {
            let rest = line.code.strip_prefix(indent).unwrap_or(" ");
            rest.starts_with('}') || rest.starts_with(')') && rest.ends_with(';')
        };
        let n_lines = 2 + lines[nth + 1..]
            .iter()
            .take_while(|line| !ends(line))
            .count();
        if n_lines > FUNCTION_MAX {
            let what = format!("a function of {n_lines} lines, where {FUNCTION_MAX} are the most");
            found.push(Finding::at(&file.path, nth + 1, what));
        }
    }
    found
}

/// Whether `word` stands in `code`, not as the end of a longer word.
fn has_word(code: &str, word: &str) -> bool {
    code.match_indices(word).any(|(at, _)| {
        let before = code[..at].chars().next_back();
        !before.is_some_and(|c| c.is_alphanumeric() || c == '_')
    })
}

#[cfg(test)]
mod tests;
