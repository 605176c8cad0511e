//! Which crate may know which: the arrows of the house, as `docs/ARCHITECTURE.md` draws them.

use cargo_metadata::{Dependency, DependencyKind, Package};

use super::{Finding, Rule, Tree};

/// The crates depend on each other only along the arrows.
pub(super) const ARROWS: Rule = Rule {
    name: "arrows",
    reason: "a crate that knows nobody can be understood, tested and used alone; docs/ARCHITECTURE.md draws the arrows",
    check: arrows,
};

/// The portable crates use no crate of an operating system.
pub(super) const PORTABLE: Rule = Rule {
    name: "portable",
    reason: "lifecycle, provenance and taskgraph do no I/O: they run, and are model-checked, anywhere",
    check: portable,
};

/// For each member: whom it may use, and whom its tests and benches may use besides.
const ALLOWED: &[(&str, &[&str], &[&str])] = &[
    ("lifecycle", &[], &[]),
    ("procfork", &[], &[]),
    ("mailbox", &[], &["procfork"]),
    ("provenance", &[], &[]),
    ("taskgraph", &[], &[]),
    ("device", &["taskgraph", "provenance"], &["procfork"]),
    ("facade", &SIX, &[]),
    ("scenetest", &["facade", "procfork"], &[]),
    ("xtask", &[], &[]),
];

/// What facade composes.
const SIX: [&str; 6] = [
    "lifecycle",
    "procfork",
    "mailbox",
    "provenance",
    "taskgraph",
    "device",
];

fn arrows(tree: &Tree<'_>) -> Vec<Finding> {
    tree.workspace
        .members()
        .into_iter()
        .flat_map(|member| arrows_of(tree, member))
        .collect()
}

fn arrows_of(tree: &Tree<'_>, member: &Package) -> Vec<Finding> {
    let manifest = tree.path_in(member, "Cargo.toml");
    let Some((name, uses, tests_use)) = ALLOWED.iter().find(|(name, ..)| member.name == *name)
    else {
        let what = format!("`{}` is in no list of who may know whom", member.name);
        return vec![Finding::at(manifest, 1, what)];
    };
    let allowed = |dependency: &Dependency| {
        let to = dependency.name.as_str();
        uses.contains(&to)
            || dependency.kind == DependencyKind::Development
                && (tests_use.contains(&to) || to == *name)
    };
    let members = tree.workspace.names();
    member
        .dependencies
        .iter()
        .filter(|dependency| members.contains(&dependency.name) && !allowed(dependency))
        .map(|dependency| {
            let line = line_of(tree, &manifest, &dependency.name);
            let what = format!(
                "`{name}` must not know `{}` ({})",
                dependency.name,
                kind(dependency)
            );
            Finding::at(&manifest, line, what)
        })
        .collect()
}

/// The crates that speak to an operating system.
const SYSTEM: [&str; 6] = ["libc", "nix", "rustix", "memmap2", "libloading", "tempfile"];

fn portable(tree: &Tree<'_>) -> Vec<Finding> {
    let is_portable = |member: &&Package| {
        ["lifecycle", "provenance", "taskgraph"].contains(&member.name.as_str())
    };
    let mut found = Vec::new();
    for member in tree.workspace.members().into_iter().filter(is_portable) {
        let manifest = tree.path_in(member, "Cargo.toml");
        for dependency in &member.dependencies {
            let counts = dependency.kind != DependencyKind::Development;
            if counts && SYSTEM.contains(&dependency.name.as_str()) {
                let what = format!("`{}` must not use `{}`", member.name, dependency.name);
                let line = line_of(tree, &manifest, &dependency.name);
                found.push(Finding::at(&manifest, line, what));
            }
        }
    }
    found
}

fn kind(dependency: &Dependency) -> &'static str {
    match dependency.kind {
        DependencyKind::Development => "for its tests",
        DependencyKind::Build => "for its build script",
        _ => "as a dependency",
    }
}

/// The line of `manifest` that names the dependency.
fn line_of(tree: &Tree<'_>, manifest: &str, dependency: &str) -> usize {
    let text = tree.file(manifest).map_or("", |file| file.text.as_str());
    let mut section = "";
    for (nth, line) in text.lines().enumerate() {
        section = if line.starts_with('[') { line } else { section };
        let names = line
            .strip_prefix(dependency)
            .is_some_and(|rest| rest.starts_with([' ', '.', '=']));
        if section.contains("dependencies") && names
            || line.starts_with('[') && line.ends_with(&format!("dependencies.{dependency}]"))
        {
            return nth + 1;
        }
    }
    1
}

#[cfg(test)]
mod tests;
