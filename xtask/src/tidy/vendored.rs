//! Vendored files: every directory named `vendor` says where its files are from, and they are what it
//! says.
//!
//! The directory has a file `provenance.json`:
//!
//! ```json
//! {
//!   "from": "https://example.org/kit/kernels",
//!   "commit": "0123456789abcdef0123456789abcdef01234567",
//!   "date": "2026-11-30",
//!   "edits": "none",
//!   "files": { "include/tile.h": "sha256 of its bytes" }
//! }
//! ```
//!
//! A changed file needs its new sum, and a word in `edits` on what was changed here.

use std::{
    collections::BTreeMap,
    fs,
    path::{Path, PathBuf},
};

use serde::Deserialize;
use sha2::{Digest as _, Sha256};

use super::{Finding, Rule, Tree};

/// Vendored files are the ones that their directory names.
pub(super) const VENDORED: Rule = Rule {
    name: "vendored",
    reason: "a file of somebody else is trusted, updated and licensed by where it came from; an edit that nobody noted is lost with the next update",
    check: vendored,
};

/// The name of the file that says so.
const PROVENANCE: &str = "provenance.json";

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct Provenance {
    from: String,
    commit: String,
    date: String,
    edits: String,
    files: BTreeMap<String, String>,
}

fn vendored(tree: &Tree<'_>) -> Vec<Finding> {
    let mut dirs = Vec::new();
    find(tree.workspace.root(), &mut dirs);
    dirs.iter()
        .flat_map(|dir| check(tree.workspace.root(), dir))
        .collect()
}

/// All directories of that name, wherever they are.
fn find(dir: &Path, found: &mut Vec<PathBuf>) {
    let Ok(entries) = fs::read_dir(dir) else {
        return;
    };
    for path in entries.flatten().map(|entry| entry.path()) {
        let name = path
            .file_name()
            .map(|name| name.to_string_lossy().into_owned());
        let name = name.unwrap_or_default();
        // A link is not followed: its target is looked at where it is.
        if !path.is_dir() || path.is_symlink() || super::tree::is_skipped(&name) {
            continue;
        }
        if super::tree::is_vendored(&path) {
            found.push(path);
        } else {
            find(&path, found);
        }
    }
}

fn check(root: &Path, dir: &Path) -> Vec<Finding> {
    let shown = |path: &Path| {
        let path = path.strip_prefix(root).unwrap_or(path);
        path.to_string_lossy().into_owned()
    };
    let file = dir.join(PROVENANCE);
    let place = shown(&file);
    let text = match fs::read_to_string(&file) {
        Ok(text) => text,
        Err(error) => {
            let what = format!("says not where the files beside it are from: {error}");
            return vec![Finding::at(place, 1, what)];
        }
    };
    let provenance: Provenance = match serde_json::from_str(&text) {
        Ok(provenance) => provenance,
        Err(error) => return vec![Finding::at(place, error.line(), error.to_string())],
    };
    let mut findings: Vec<Finding> = gaps(&provenance)
        .into_iter()
        .map(|what| Finding::at(&*place, 1, what))
        .collect();
    let mut there = BTreeMap::new();
    sums(dir, dir, &mut there);
    there.remove(PROVENANCE);
    findings.extend(
        differences(&provenance.files, &there)
            .into_iter()
            .map(|(name, what)| Finding::at(shown(&dir.join(name)), 1, what)),
    );
    findings
}

/// Fields that say nothing.
fn gaps(provenance: &Provenance) -> Vec<String> {
    let Provenance {
        from,
        commit,
        date,
        edits,
        ..
    } = provenance;
    let fields = [
        ("from", from),
        ("commit", commit),
        ("date", date),
        ("edits", edits),
    ];
    let empty = fields.iter().filter(|(_, text)| text.trim().is_empty());
    let mut gaps: Vec<String> = empty
        .map(|(name, _)| format!("`{name}` is empty"))
        .collect();
    let is_sum = |commit: &str| commit.len() >= 7 && commit.chars().all(|c| c.is_ascii_hexdigit());
    if !is_sum(commit) {
        gaps.push(format!("`commit` is no commit: `{commit}`"));
    }
    let shape: String = date
        .chars()
        .map(|c| if c.is_ascii_digit() { '0' } else { c })
        .collect();
    if shape != "0000-00-00" {
        gaps.push(format!("`date` is not of the form 2026-11-30: `{date}`"));
    }
    gaps
}

/// The sums of all files below a directory.
fn sums(root: &Path, dir: &Path, all: &mut BTreeMap<String, String>) {
    let Ok(entries) = fs::read_dir(dir) else {
        return;
    };
    for path in entries.flatten().map(|entry| entry.path()) {
        if path.is_dir() {
            sums(root, &path, all);
        } else if let Ok(bytes) = fs::read(&path) {
            let name = path.strip_prefix(root).unwrap_or(&path);
            let sum = Sha256::digest(&bytes);
            let sum = sum.iter().map(|byte| format!("{byte:02x}")).collect();
            all.insert(name.to_string_lossy().into_owned(), sum);
        }
    }
}

fn differences(
    said: &BTreeMap<String, String>,
    there: &BTreeMap<String, String>,
) -> Vec<(String, String)> {
    let mut all = Vec::new();
    for (name, sum) in there {
        match said.get(name) {
            None => all.push((name.clone(), format!("is not in {PROVENANCE}"))),
            Some(said) if said != sum => {
                let what = format!("has the sum {sum}, and {PROVENANCE} says {said}");
                all.push((name.clone(), what));
            }
            Some(_) => {}
        }
    }
    let gone = said.keys().filter(|name| !there.contains_key(*name));
    all.extend(gone.map(|name| (name.clone(), format!("is in {PROVENANCE} and not there"))));
    all
}

#[cfg(test)]
mod tests;
