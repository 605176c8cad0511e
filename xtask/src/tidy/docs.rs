//! Rules about documents: each crate says what it promises, and the map knows every crate.

use super::{Finding, Rule, Tree};

/// Each crate has a README that says what it promises and what it refuses.
pub(super) const CRATE_README: Rule = Rule {
    name: "crate-readme",
    reason: "a user decides by a crate's README: what it promises, and what it refuses to do",
    check: readmes,
};

/// The map has a heading for every member.
pub(super) const ARCHITECTURE: Rule = Rule {
    name: "architecture",
    reason: "docs/ARCHITECTURE.md is the map: a crate that is not on it will not be found",
    check: headings,
};

/// Design pages say when somebody last held them against the code.
pub(super) const LAST_REVISED: Rule = Rule {
    name: "last-revised",
    reason: "a design page ages; its `Last revised: DATE` line tells a reader how far to trust it",
    check: revisions,
};

/// What a document points to is there.
pub(super) const PATHS: Rule = Rule {
    name: "doc-paths",
    reason: "a path that is no more sends a reader to look for what was moved, and makes the rest of the page doubtful",
    check: paths,
};

/// A document says a thing once.
pub(super) const NO_REPEATED_LINE: Rule = Rule {
    name: "no-repeated-line",
    reason: "a line that stands twice is left over from a merge, or will be true in one of its places only",
    check: repeated_lines,
};

fn readmes(tree: &Tree<'_>) -> Vec<Finding> {
    let mut found = Vec::new();
    for member in tree.workspace.members() {
        let path = tree.path_in(member, "README.md");
        let Some(file) = tree.file(&path) else {
            found.push(Finding::at(path, 1, "the crate has no README"));
            continue;
        };
        let text = file.text.to_lowercase();
        for word in ["promises", "refuses"]
            .iter()
            .filter(|word| !text.contains(**word))
        {
            found.push(Finding::at(
                &path,
                1,
                format!("nothing says what the crate {word}"),
            ));
        }
    }
    found
}

const MAP: &str = "docs/ARCHITECTURE.md";

fn headings(tree: &Tree<'_>) -> Vec<Finding> {
    let Some(map) = tree.file(MAP) else {
        return vec![Finding::at(MAP, 1, "the map is missing")];
    };
    let has_heading = |name: &String| {
        let headings = map.text.lines().filter(|line| line.starts_with('#'));
        headings
            .flat_map(|line| line.split(|c: char| !c.is_alphanumeric()))
            .any(|word| word == name)
    };
    let missing = tree
        .workspace
        .names()
        .into_iter()
        .filter(|name| !has_heading(name));
    missing
        .map(|name| Finding::at(MAP, 1, format!("no heading names the crate `{name}`")))
        .collect()
}

fn revisions(tree: &Tree<'_>) -> Vec<Finding> {
    tree.ending("md")
        .filter(|file| file.path.starts_with("docs/design/"))
        .filter(|file| !file.text.to_lowercase().contains("last revised"))
        .map(|file| Finding::at(&file.path, 1, "no line says when it was last revised"))
        .collect()
}

/// Endings of the files that documents name.
const NAMED_ENDINGS: [&str; 7] = [".rs", ".md", ".toml", ".json", ".c", ".h", ".yml"];

/// Paths in backticks, from the root of the repository. What is not below one of its directories
/// is no path from the root: a file of the reader's, or one that a sentence before it has placed.
fn paths(tree: &Tree<'_>) -> Vec<Finding> {
    let root = tree.workspace.root();
    let is_missing = |code: &&str| {
        let from_root = code
            .split_once('/')
            .is_some_and(|(first, _)| !first.is_empty() && root.join(first).is_dir());
        let is_file = NAMED_ENDINGS.iter().any(|ending| code.ends_with(ending));
        let is_plain = !code.contains(|c: char| c.is_whitespace() || "*<{$".contains(c));
        from_root && is_file && is_plain && !code.contains("NAME") && !root.join(code).exists()
    };
    in_documents(tree, |line, _| {
        let missing = line.split('`').skip(1).step_by(2).find(is_missing)?;
        Some(format!("there is no `{missing}`"))
    })
}

/// A line this long is a sentence that somebody wrote; shorter ones, such as table heads, recur.
const SENTENCE: usize = 40;

fn repeated_lines(tree: &Tree<'_>) -> Vec<Finding> {
    in_documents(tree, |line, before| {
        let is_sentence = line.len() >= SENTENCE && !line.starts_with(['|', '#']);
        let at = before.iter().position(|earlier| *earlier == line)?;
        is_sentence.then(|| format!("the line stands at line {} already", at + 1))
    })
}

/// Applies `check` to each line of each page of `docs/` outside of blocks of code, with the lines
/// before it.
fn in_documents(tree: &Tree<'_>, check: impl Fn(&str, &[&str]) -> Option<String>) -> Vec<Finding> {
    let mut found = Vec::new();
    for file in tree
        .ending("md")
        .filter(|file| file.path.starts_with("docs/"))
    {
        let lines: Vec<&str> = file.text.lines().collect();
        let mut in_code = false;
        for (nth, line) in lines.iter().enumerate() {
            in_code ^= line.starts_with("```");
            let what = (!in_code).then(|| check(line, &lines[..nth])).flatten();
            found.extend(what.map(|what| Finding::at(&file.path, nth + 1, what)));
        }
    }
    found
}

#[cfg(test)]
mod tests;
