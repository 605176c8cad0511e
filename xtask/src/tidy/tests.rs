//! All rules together: a good tree passes all of them, and each rule fails on a tree that breaks
//! it.

use super::{Finding, RULES, Rule, Tree, check};
use crate::fixture::Fixture;

/// The findings of one rule.
pub(super) fn findings(rule: &Rule, fixture: &Fixture) -> Vec<Finding> {
    let workspace = fixture.workspace();
    let tree = Tree::read(&workspace).expect("the fixture can be read");
    (rule.check)(&tree)
}

/// Checks that a rule finds exactly this: file, line, and a part of the text.
#[track_caller]
pub(super) fn check_finds(rule: &Rule, fixture: &Fixture, expected: &[(&str, usize, &str)]) {
    let found = findings(rule, fixture);
    let matches = |(finding, (file, line, what)): (&Finding, &(&str, usize, &str))| {
        finding.file == *file && finding.line == *line && finding.what.contains(what)
    };
    let all_match = found.iter().zip(expected).all(matches);
    assert!(
        found.len() == expected.len() && all_match,
        "found {found:#?}, expected {expected:#?}"
    );
}

/// A workspace whose crates have the names and arrows of the real one.
fn house() -> Fixture {
    Fixture::new(&["lifecycle", "procfork", "facade", "xtask"])
}

#[test]
fn a_tree_that_keeps_all_rules_has_no_findings() {
    let fixture = house();
    for rule in RULES {
        assert_eq!(findings(rule, &fixture), [], "{}", rule.name);
    }
}

#[test]
fn a_finding_is_printed_with_its_place_its_rule_and_the_reason() {
    let mut fixture = house();
    fixture.write("lifecycle/src/lib.rs", "fn f() {}\n");
    let workspace = fixture.workspace();
    let (text, n_findings) = check(&Tree::read(&workspace).expect("readable"));
    assert_eq!(n_findings, 1);
    insta::assert_snapshot!(text, @"
    lifecycle/src/lib.rs:1: module-doc: the file does not begin with a `//!` module doc
        why: a file has one subject, and a reader who opens it is told which before anything else
    ");
}

#[test]
fn every_rule_has_a_name_of_its_own_and_a_reason() {
    for (nth, rule) in RULES.iter().enumerate() {
        assert!(
            RULES[nth + 1..].iter().all(|other| other.name != rule.name),
            "{}",
            rule.name
        );
        assert!(!rule.reason.is_empty(), "{}", rule.name);
    }
}

#[test]
fn what_a_build_or_a_tool_writes_is_not_looked_at() {
    let mut fixture = house();
    for path in [
        "target/debug/a.rs",
        "target-two/a.rs",
        "procfork/fuzz/corpus/a.md",
        "a.snap",
    ] {
        fixture.write(path, "fn f() {} \n");
    }
    for rule in RULES {
        assert_eq!(findings(rule, &fixture), [], "{}", rule.name);
    }
}

#[test]
fn this_repository_is_tidy() {
    let workspace = crate::workspace::Workspace::current().expect("the workspace around xtask");
    let (text, n_findings) = check(&Tree::read(&workspace).expect("readable"));
    assert_eq!(n_findings, 0, "\n{text}");
}
