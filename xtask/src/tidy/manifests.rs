//! Rules about manifests: the root owns versions and lints, and says why each dependency is there.
//!
//! Read line by line, because the rules are about lines and comments. The manifests of this
//! repository keep to the plain forms: `[section]`, `key = value`, `key.workspace = true`.

use super::{File, Finding, Rule, Tree};

/// Every dependency in the root manifest has a reason beside it.
pub(super) const DEPENDENCY_REASON: Rule = Rule {
    name: "dependency-reason",
    reason: "each dependency is code that we answer for; why it earns its place stands beside it",
    check: dependency_reasons,
};

/// Members take every version from the root.
pub(super) const VERSION_IN_ROOT: Rule = Rule {
    name: "version-in-root",
    reason: "one version of each dependency, chosen in one place: the root manifest",
    check: versions,
};

/// Members take the lints from the root.
pub(super) const LINTS_INHERITED: Rule = Rule {
    name: "lints-inherited",
    reason: "a member that forgets `[lints] workspace = true` is checked by none of the repository's lints",
    check: lints,
};

/// No dependency stays behind when its last user goes.
pub(super) const DEPENDENCY_USED: Rule = Rule {
    name: "dependency-used",
    reason: "a dependency that no member takes is neither built nor checked, and its reason is no longer true",
    check: unused_dependencies,
};

/// A line of a manifest: its number, the section it is in, and itself.
struct Entry<'a> {
    number: usize,
    section: &'a str,
    line: &'a str,
}

/// The lines of a manifest that are neither empty, comments nor section headings.
fn entries(text: &str) -> Vec<Entry<'_>> {
    let mut section = "";
    let mut found = Vec::new();
    for (nth, line) in text.lines().enumerate() {
        let line = line.trim();
        if line.starts_with('[') {
            section = line.trim_matches(['[', ']']);
        } else if !line.is_empty() && !line.starts_with('#') {
            found.push(Entry {
                number: nth + 1,
                section,
                line,
            });
        }
    }
    found
}

/// The manifests of the members.
fn members<'t>(tree: &'t Tree<'_>) -> Vec<&'t File> {
    let manifests = tree
        .workspace
        .members()
        .into_iter()
        .map(|member| tree.path_in(member, "Cargo.toml"));
    manifests.filter_map(|path| tree.file(&path)).collect()
}

fn dependency_reasons(tree: &Tree<'_>) -> Vec<Finding> {
    let Some(root) = tree.file("Cargo.toml") else {
        return Vec::new();
    };
    let lines: Vec<&str> = root.text.lines().collect();
    let explained = |entry: &Entry<'_>| {
        let above = entry
            .number
            .checked_sub(2)
            .map_or("", |nth| lines[nth].trim());
        entry.line.contains('#') || above.starts_with('#')
    };
    entries(&root.text)
        .into_iter()
        .filter(|entry| entry.section == "workspace.dependencies" && !entry.line.contains("path ="))
        .filter(|entry| !explained(entry))
        .map(|entry| {
            let name = name_in(&entry);
            let what = format!("`{name}` has no comment that says why it is needed");
            Finding::at(&root.path, entry.number, what)
        })
        .collect()
}

fn unused_dependencies(tree: &Tree<'_>) -> Vec<Finding> {
    let Some(root) = tree.file("Cargo.toml") else {
        return Vec::new();
    };
    let members = tree.workspace.members();
    let is_used = |name: &str| {
        let mut taken = members.iter().flat_map(|member| &member.dependencies);
        taken.any(|taken| taken.rename.as_deref().unwrap_or(&taken.name) == name)
    };
    entries(&root.text)
        .into_iter()
        .filter(|entry| entry.section == "workspace.dependencies" && !entry.line.contains("path ="))
        .map(|entry| (entry.number, name_in(&entry)))
        .filter(|(_, name)| !is_used(name))
        .map(|(number, name)| Finding::at(&root.path, number, format!("no member uses `{name}`")))
        .collect()
}

/// What is set in this line.
fn name_in<'a>(entry: &Entry<'a>) -> &'a str {
    entry.line.split(['=', ' ']).next().unwrap_or_default()
}

fn versions(tree: &Tree<'_>) -> Vec<Finding> {
    members(tree).into_iter().flat_map(versions_in).collect()
}

fn versions_in(file: &File) -> Vec<Finding> {
    let owned = |entry: &Entry<'_>| {
        let in_list = entry.section.ends_with("dependencies");
        let in_table = entry.section.contains("dependencies.");
        let inherits = entry.line.contains(".workspace") || entry.line.contains("workspace = true");
        // A crate that names itself, for its own tests, has no version to choose.
        let is_itself = entry.line.contains("path = \".\"");
        in_list && !inherits && !is_itself || in_table && entry.line.starts_with("version")
    };
    entries(&file.text)
        .into_iter()
        .filter(owned)
        .map(|entry| {
            let what = format!("`{}` does not take its version from the root", entry.line);
            Finding::at(&file.path, entry.number, what)
        })
        .collect()
}

fn lints(tree: &Tree<'_>) -> Vec<Finding> {
    let inherits = |file: &&File| {
        let is_lint = |entry: &Entry<'_>| {
            entry.section == "lints" && entry.line.replace(' ', "") == "workspace=true"
        };
        entries(&file.text).iter().any(is_lint)
    };
    let without = members(tree).into_iter().filter(|file| !inherits(file));
    without
        .map(|file| Finding::at(&file.path, 1, "no `[lints] workspace = true`"))
        .collect()
}

#[cfg(test)]
mod tests;
