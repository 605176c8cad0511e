//! Every `unsafe` says why it holds.
//!
//! Clippy checks blocks in code that it compiles; this also sees code behind a `cfg`, and macros.

use super::{File, Finding, Line, Rule, Tree, lines};

/// Each unsafe block, impl and extern block has its comment, each unsafe function its section.
pub(super) const SAFETY_COMMENT: Rule = Rule {
    name: "safety-comment",
    reason: "an unsafe block is a proof by hand; without its `// SAFETY:` comment nobody can check it",
    check: uncommented,
};

/// How many places claim safety, and how many of them say why.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Count {
    /// Unsafe blocks, impls and extern blocks.
    pub(crate) blocks: usize,
    /// Unsafe functions and traits: their callers and implementers must prove something.
    pub(crate) contracts: usize,
    /// Of both, those that say why, or what.
    pub(crate) explained: usize,
}

/// Counts the places in `source`.
pub(crate) fn count(source: &str) -> Count {
    let lines = lines(source);
    let mut count = Count::default();
    for place in places(&lines) {
        match place.wants {
            Wants::Comment => count.blocks += 1,
            Wants::Section => count.contracts += 1,
        }
        count.explained += usize::from(is_explained(&lines, &place));
    }
    count
}

fn uncommented(tree: &Tree<'_>) -> Vec<Finding> {
    tree.ending("rs").flat_map(uncommented_in).collect()
}

fn uncommented_in(file: &File) -> Vec<Finding> {
    let lines = lines(&file.text);
    let unexplained = places(&lines)
        .into_iter()
        .filter(|place| !is_explained(&lines, place));
    let what = |wants| match wants {
        Wants::Comment => "unsafe without a `// SAFETY:` comment right above it",
        Wants::Section => "an unsafe function or trait without a `# Safety` section in its doc",
    };
    unexplained
        .map(|place| Finding::at(&file.path, place.line + 1, what(place.wants)))
        .collect()
}

/// A place where `unsafe` stands.
struct Place {
    /// Its line, counted from 0.
    line: usize,
    wants: Wants,
}

/// What explains an `unsafe`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Wants {
    /// `// SAFETY:`, from who claims that something holds.
    Comment,
    /// `# Safety`, from who demands that it holds.
    Section,
}

fn places(lines: &[Line]) -> Vec<Place> {
    let mut found = Vec::new();
    for (line, text) in lines.iter().enumerate() {
        for (at, _) in text.code.match_indices("unsafe") {
            let following = following_words(lines, line, at + "unsafe".len());
            let part_of_word = text.code[..at].ends_with(|c: char| c.is_alphanumeric() || c == '_');
            let wants = wants_of(&following).filter(|_| !part_of_word);
            let wants =
                wants.filter(|wants| *wants == Wants::Comment || !is_inherited(lines, line));
            found.extend(wants.map(|wants| Place { line, wants }));
        }
    }
    found
}

/// Whether the item on this line is part of `impl TRAIT for TYPE`: the trait states its contract.
fn is_inherited(lines: &[Line], line: usize) -> bool {
    let indent = |line: &Line| line.code.len() - line.code.trim_start().len();
    let mut above = lines[..line]
        .iter()
        .rev()
        .filter(|above| !above.code.trim().is_empty());
    let header = above.find(|above| indent(above) < indent(&lines[line]));
    header.is_some_and(|header| header.code.contains("impl") && header.code.contains(" for "))
}

/// The code after a place, to the end of the next line: enough to see what is unsafe.
fn following_words(lines: &[Line], line: usize, at: usize) -> String {
    let next = lines.get(line + 1).map_or("", |next| next.code.as_str());
    format!("{} {next}", &lines[line].code[at..])
}

fn wants_of(following: &str) -> Option<Wants> {
    let text = following.trim_start();
    // `unsafe fn(` and `unsafe extern "C" fn(` are types of function pointers.
    let is_pointer = |rest: &str| rest.trim_start().starts_with('(');
    if !following.starts_with(char::is_whitespace) && !following.starts_with('{') {
        return None;
    }
    let text = text
        .strip_prefix("extern \"\"")
        .map_or(text, str::trim_start);
    if text.starts_with('{') || text.starts_with("impl") {
        return Some(Wants::Comment);
    }
    match text.strip_prefix("fn") {
        Some(rest) => (!is_pointer(rest)).then_some(Wants::Section),
        None => text.starts_with("trait").then_some(Wants::Section),
    }
}

/// Looks at the comments on the place's line and directly above its statement.
fn is_explained(lines: &[Line], place: &Place) -> bool {
    let explains = |line: &Line| match place.wants {
        Wants::Comment => line.comment.contains("SAFETY:"),
        Wants::Section => line.comment.contains("# Safety"),
    };
    if explains(&lines[place.line]) {
        return true;
    }
    let mut above = lines[..place.line].iter().rev().peekable();
    // The rest of the statement that the place is in, and attributes.
    while above.next_if(|line| is_inside_statement(line)).is_some() {}
    above
        .take_while(|line| is_comment(line) || is_attribute(line))
        .any(explains)
}

fn is_comment(line: &Line) -> bool {
    line.code.trim().is_empty() && !line.comment.is_empty()
}

fn is_attribute(line: &Line) -> bool {
    line.code.trim_start().starts_with("#[")
}

/// Whether a statement goes on after this line.
fn is_inside_statement(line: &Line) -> bool {
    let code = line.code.trim();
    !code.is_empty() && (is_attribute(line) || !code.ends_with([';', '{', '}', ',']))
}

#[cfg(test)]
mod tests;
