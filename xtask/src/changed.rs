//! Which crates a change can affect. Fails closed: whatever is not understood runs everything.

use std::{collections::BTreeSet, process::Command};

use cargo_metadata::Package;

use crate::{suite::Crates, workspace::Workspace};

/// What to run for a change, and why.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Scope {
    /// The crates that the change can affect.
    pub(crate) crates: Crates,
    /// The reason, for the reader of the report.
    pub(crate) why: String,
}

impl Scope {
    /// Everything, because of `why`.
    pub(crate) fn everything(why: impl Into<String>) -> Self {
        Self {
            crates: Crates::All,
            why: why.into(),
        }
    }
}

/// Files at the root and below that no crate's build, tests or docs depend on; tidy always runs.
const TEXT_ONLY: [&str; 5] = [
    "docs/",
    "CHANGELOG.md",
    "CONTRIBUTING.md",
    "LICENSE-MIT",
    "LICENSE-APACHE",
];

/// What changed between `rev` and the files on disk, commits and uncommitted edits alike.
pub(crate) fn scope_since(workspace: &Workspace, rev: &str) -> Scope {
    match changed_files(workspace, rev) {
        Ok(files) => scope_of(workspace, &files),
        Err(why) => Scope::everything(format!("the difference to `{rev}` is unknown: {why}")),
    }
}

fn changed_files(workspace: &Workspace, rev: &str) -> Result<Vec<String>, String> {
    // A revision that begins with a dash would be taken for an option.
    let base = git(workspace, &["merge-base", "--end-of-options", rev, "HEAD"])?;
    let mut files = git(
        workspace,
        &["diff", "--name-only", "--no-renames", "-z", base.trim()],
    )?;
    files += &git(
        workspace,
        &["ls-files", "--others", "--exclude-standard", "-z"],
    )?;
    Ok(files.split_terminator('\0').map(str::to_owned).collect())
}

fn git(workspace: &Workspace, args: &[&str]) -> Result<String, String> {
    let run = Command::new("git")
        .args(args)
        .current_dir(workspace.root())
        .output();
    let output = run.map_err(|error| format!("git cannot be started: {error}"))?;
    if output.status.success() {
        return Ok(String::from_utf8_lossy(&output.stdout).into_owned());
    }
    Err(format!(
        "git {}: {}",
        args[0],
        String::from_utf8_lossy(&output.stderr).trim()
    ))
}

/// The scope of a list of changed files, relative to the root.
pub(crate) fn scope_of(workspace: &Workspace, files: &[String]) -> Scope {
    let members = workspace.members();
    let mut touched = BTreeSet::new();
    if files.is_empty() {
        return Scope::everything("nothing differs, so nothing is known to be unaffected");
    }
    for file in files {
        match owner(&members, file) {
            Some(owner) => touched.insert(owner),
            None if is_text_only(file) => continue,
            None => return Scope::everything(format!("{file} can affect every crate")),
        };
    }
    if touched.contains("xtask") {
        return Scope::everything("xtask itself changed");
    }
    let crates = with_dependents(&members, touched);
    let why = format!("{} changed files", files.len());
    Scope {
        crates: Crates::Only(crates),
        why,
    }
}

fn is_text_only(file: &str) -> bool {
    TEXT_ONLY
        .iter()
        .any(|known| file == *known || (known.ends_with('/') && file.starts_with(known)))
}

/// The member in whose directory `file` lies. Directories are named as their crates.
fn owner(members: &[&Package], file: &str) -> Option<String> {
    let (dir, _) = file.split_once('/')?;
    members
        .iter()
        .find(|member| member.name == dir)
        .map(|member| member.name.to_string())
}

/// `touched`, and all members that depend on one of them, in any way.
fn with_dependents(members: &[&Package], mut touched: BTreeSet<String>) -> BTreeSet<String> {
    loop {
        let depends = |member: &&&Package| {
            member
                .dependencies
                .iter()
                .any(|dependency| touched.contains(&dependency.name))
        };
        let reached = members
            .iter()
            .filter(depends)
            .map(|member| member.name.to_string());
        let all: BTreeSet<String> = touched.iter().cloned().chain(reached).collect();
        if all == touched {
            return all;
        }
        touched = all;
    }
}

#[cfg(test)]
mod tests;
