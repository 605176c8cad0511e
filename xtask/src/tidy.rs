//! `cargo xtask tidy`: the rules of this repository that no compiler knows.
//!
//! Each rule is a name, a reason and a function from the [`Tree`] to findings. The functions read;
//! they never change a file. [`RULES`] is the whole list; `cargo test -p xtask` runs it too.

mod arrows;
mod docs;
mod lexer;
mod manifests;
mod rust;
mod safety;
mod snippets;
mod text;
mod tree;
mod vendored;

use std::fmt::Write as _;

use crate::{
    error::{Error, Verdict},
    workspace::Workspace,
};

pub(crate) use self::{
    lexer::{Line, lines},
    safety::{Count, count},
    tree::{File, Tree},
};

/// Check the rules of this repository that no compiler knows.
///
/// Module docs, safety comments, which crate may depend on which, snippets in READMEs, manifests,
/// prints in libraries, leftover marks and spaces. Every finding says where, which rule, and why
/// the rule is there. `--list` prints the rules.
#[derive(Debug, clap::Args)]
#[command(verbatim_doc_comment)]
pub(crate) struct Args {
    /// Print the rules with their reasons, check nothing.
    #[arg(long)]
    list: bool,
}

impl Args {
    /// Checks all rules and prints what does not hold.
    pub(crate) fn run(&self, workspace: &Workspace) -> Result<Verdict, Error> {
        if self.list {
            for rule in RULES {
                println!("{}: {}", rule.name, rule.reason);
            }
            return Ok(Verdict::Passed);
        }
        let tree = Tree::read(workspace)?;
        let (text, findings) = check(&tree);
        print!("{text}");
        println!(
            "{} files, {} rules, {findings} findings",
            tree.files.len(),
            RULES.len()
        );
        Ok(Verdict::of(findings == 0))
    }
}

/// A rule of the repository.
#[derive(Debug)]
pub(crate) struct Rule {
    /// What findings call it.
    name: &'static str,
    /// Why it is there; printed with every finding.
    reason: &'static str,
    /// Finds what breaks it.
    check: fn(&Tree<'_>) -> Vec<Finding>,
}

/// A place where a rule does not hold.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Finding {
    /// The file, relative to the root.
    pub(crate) file: String,
    /// The line, counted from 1.
    pub(crate) line: usize,
    /// What is wrong there.
    pub(crate) what: String,
}

impl Finding {
    /// A finding at line `line`, counted from 1.
    pub(crate) fn at(file: impl Into<String>, line: usize, what: impl Into<String>) -> Self {
        Self {
            file: file.into(),
            line,
            what: what.into(),
        }
    }
}

/// All rules.
const RULES: &[Rule] = &[
    rust::MODULE_DOC,
    rust::NO_PRINT,
    rust::ATOMICS,
    rust::EXPECT_NOT_ALLOW,
    rust::FILE_LENGTH,
    rust::FUNCTION_LENGTH,
    safety::SAFETY_COMMENT,
    arrows::ARROWS,
    arrows::PORTABLE,
    snippets::SNIPPETS,
    manifests::DEPENDENCY_REASON,
    manifests::DEPENDENCY_USED,
    manifests::VERSION_IN_ROOT,
    manifests::LINTS_INHERITED,
    docs::CRATE_README,
    docs::ARCHITECTURE,
    docs::LAST_REVISED,
    docs::PATHS,
    docs::NO_REPEATED_LINE,
    text::NO_MARKS,
    text::NO_TRAILING_SPACE,
    text::NO_PERSONAL_PATH,
    vendored::VENDORED,
];

/// Checks all rules: the text to print, and the number of findings.
fn check(tree: &Tree<'_>) -> (String, usize) {
    let (mut text, mut n_findings) = (String::new(), 0);
    for rule in RULES {
        for Finding { file, line, what } in (rule.check)(tree) {
            n_findings += 1;
            let _infallible = writeln!(text, "{file}:{line}: {}: {what}", rule.name);
            let _infallible = writeln!(text, "    why: {}", rule.reason);
        }
    }
    (text, n_findings)
}

#[cfg(test)]
mod tests;
