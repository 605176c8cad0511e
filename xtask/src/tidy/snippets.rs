//! Code in documents equals the source it was taken from.
//!
//! A comment `<!-- snippet: PATH -->`, or `<!-- snippet: PATH#REGION -->`, right before a fenced
//! block of a Markdown file ties the block to the file at PATH (relative to the root), or to the
//! lines between `// region: REGION` and `// endregion` in it. Blank lines at the ends, the common
//! indentation and markers of inner regions do not count.

use super::{File, Finding, Rule, Tree};

/// Code in documents equals its source.
pub(super) const SNIPPETS: Rule = Rule {
    name: "snippets",
    reason: "code that a reader copies from a document must be code that is compiled and tested",
    check: snippets,
};

fn snippets(tree: &Tree<'_>) -> Vec<Finding> {
    tree.ending("md")
        .flat_map(|file| snippets_in(tree, file))
        .collect()
}

fn snippets_in(tree: &Tree<'_>, file: &File) -> Vec<Finding> {
    let lines: Vec<&str> = file.text.lines().collect();
    let mut found = Vec::new();
    for (nth, line) in lines.iter().enumerate() {
        let comment = line
            .trim()
            .strip_prefix("<!-- snippet:")
            .and_then(|s| s.strip_suffix("-->"));
        if let Some(Err(what)) = comment.map(|from| compare(tree, from.trim(), &lines[nth + 1..])) {
            found.push(Finding::at(&file.path, nth + 1, what));
        }
    }
    found
}

/// Compares the fenced block at the start of `following` with its source.
fn compare(tree: &Tree<'_>, from: &str, following: &[&str]) -> Result<(), String> {
    let (path, region) = from
        .split_once('#')
        .map_or((from, None), |(path, region)| (path, Some(region)));
    let source = tree
        .file(path)
        .ok_or_else(|| format!("there is no file `{path}`"))?;
    let block = fenced(following).ok_or("no fenced block follows")?;
    let wanted = match region {
        Some(name) => region_of(&source.text, name)
            .ok_or_else(|| format!("`{path}` has no region `{name}`"))?,
        None => source.text.lines().collect(),
    };
    let (block, wanted) = (plain(&block), plain(&wanted));
    if block == wanted {
        return Ok(());
    }
    let at = block
        .iter()
        .zip(&wanted)
        .take_while(|(a, b)| a == b)
        .count();
    let line = |of: &[String]| {
        of.get(at)
            .map_or("nothing".to_owned(), |line| format!("`{line}`"))
    };
    Err(format!(
        "the block differs from `{from}` in its line {}: {} here, {} there",
        at + 1,
        line(&block),
        line(&wanted),
    ))
}

/// The lines of the fenced block that begins in the first non-empty line.
fn fenced<'a>(lines: &[&'a str]) -> Option<Vec<&'a str>> {
    let start = lines.iter().position(|line| !line.trim().is_empty())?;
    lines[start].starts_with("```").then_some(())?;
    let body = &lines[start + 1..];
    let end = body.iter().position(|line| line.starts_with("```"))?;
    Some(body[..end].to_vec())
}

/// The lines between `// region: NAME` and the `// endregion` that closes it.
fn region_of<'a>(text: &'a str, name: &str) -> Option<Vec<&'a str>> {
    let is_start = |line: &&str| line.trim() == format!("// region: {name}");
    let mut lines = text.lines().skip_while(|line| !is_start(line));
    lines.next()?;
    let (mut depth, mut found) = (1_usize, Vec::new());
    for line in lines {
        match line.trim() {
            marker if marker.starts_with("// region:") => depth += 1,
            marker if marker.starts_with("// endregion") => depth -= 1,
            _ => found.push(line),
        }
        if depth == 0 {
            return Some(found);
        }
    }
    None
}

/// Without blank lines at the ends, trailing spaces and the common indentation.
fn plain(lines: &[&str]) -> Vec<String> {
    let blank = |line: &&&str| line.trim().is_empty();
    let before = lines.iter().take_while(blank).count();
    let after = lines.iter().rev().take_while(blank).count();
    let lines = lines.get(before..lines.len() - after).unwrap_or_default();
    let indent = |line: &&str| line.len() - line.trim_start().len();
    let common = lines
        .iter()
        .filter(|line| !blank(line))
        .map(indent)
        .min()
        .unwrap_or(0);
    lines
        .iter()
        .map(|line| line.get(common..).unwrap_or("").trim_end().to_owned())
        .collect()
}

#[cfg(test)]
mod tests;
