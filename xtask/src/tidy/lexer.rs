//! Splits Rust source into code and comments, line by line.
//!
//! Just enough of a lexer that a word in a string or a comment is never taken for code, nor the
//! other way round: strings (plain, raw, byte), characters against lifetimes, nested comments.

/// A line of Rust source.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Line {
    /// The code, with the contents of strings and characters left out.
    pub(crate) code: String,
    /// The text of the comments.
    pub(crate) comment: String,
}

/// Splits `source` into its lines.
pub(crate) fn lines(source: &str) -> Vec<Line> {
    let mut lexer = Lexer {
        rest: source,
        lines: vec![Line::default()],
    };
    while !lexer.rest.is_empty() {
        lexer.token();
    }
    lexer.lines
}

struct Lexer<'a> {
    rest: &'a str,
    lines: Vec<Line>,
}

/// Where characters go.
#[derive(Clone, Copy)]
enum To {
    Code,
    Comment,
    Nowhere,
}

impl Lexer<'_> {
    /// Takes one comment, string, word, or other character.
    fn token(&mut self) {
        if self.rest.starts_with("//") {
            self.take(self.rest.find('\n').unwrap_or(self.rest.len()), To::Comment);
        } else if self.rest.starts_with("/*") {
            self.take(block_comment(self.rest), To::Comment);
        } else if let Some(length) = raw_string(self.rest) {
            self.literal(length);
        } else if self.rest.starts_with('"') {
            self.literal(quoted(self.rest, '"'));
        } else if let Some(length) = character(self.rest) {
            self.literal(length);
        } else {
            self.take(word(self.rest), To::Code);
        }
    }

    /// Leaves a literal's contents out, but keeps its lines.
    fn literal(&mut self, length: usize) {
        self.line().code.push_str("\"\"");
        self.take(length, To::Nowhere);
    }

    fn take(&mut self, length: usize, to: To) {
        let (taken, rest) = self.rest.split_at(length);
        self.rest = rest;
        for (nth, part) in taken.split('\n').enumerate() {
            if nth > 0 {
                self.lines.push(Line::default());
            }
            match to {
                To::Code => self.line().code.push_str(part),
                To::Comment => self.line().comment.push_str(part),
                To::Nowhere => {}
            }
        }
    }

    fn line(&mut self) -> &mut Line {
        self.lines.last_mut().expect("there is always a line")
    }
}

/// The length of a block comment; such comments nest.
fn block_comment(text: &str) -> usize {
    let (mut depth, mut at) = (0_usize, 0);
    while at < text.len() {
        let rest = &text.as_bytes()[at..];
        if rest.starts_with(b"/*") {
            depth += 1;
            at += 2;
        } else if rest.starts_with(b"*/") {
            depth -= 1;
            at += 2;
            if depth == 0 {
                return at;
            }
        } else {
            at += 1;
        }
    }
    text.len()
}

/// The length of a raw string at the start of `text`.
fn raw_string(text: &str) -> Option<usize> {
    let prefix = ["br", "cr", "r"]
        .into_iter()
        .find(|prefix| text.starts_with(prefix))?;
    let hashes = text[prefix.len()..]
        .bytes()
        .take_while(|&byte| byte == b'#')
        .count();
    let start = prefix.len() + hashes + 1;
    text[prefix.len() + hashes..].starts_with('"').then(|| {
        let end = format!("\"{}", "#".repeat(hashes));
        text[start..]
            .find(&end)
            .map_or(text.len(), |at| start + at + end.len())
    })
}

/// The length of a quoted literal with escapes, quotes included.
fn quoted(text: &str, quote: char) -> usize {
    let mut escaped = false;
    for (at, c) in text.char_indices().skip(1) {
        match c {
            _ if escaped => escaped = false,
            '\\' => escaped = true,
            _ if c == quote => return at + 1,
            _ => {}
        }
    }
    text.len()
}

/// The length of a character literal; a lifetime is none.
fn character(text: &str) -> Option<usize> {
    let inner = text.strip_prefix('\'')?;
    let mut chars = inner.chars();
    let is_literal = match chars.next()? {
        '\\' => true,
        _ => chars.next() == Some('\''),
    };
    is_literal.then(|| quoted(text, '\''))
}

/// The length of an identifier, or of one other character.
fn word(text: &str) -> usize {
    let is_part = |c: char| c.is_alphanumeric() || c == '_';
    let length = text.find(|c| !is_part(c)).unwrap_or(text.len());
    if length > 0 {
        length
    } else {
        text.chars().next().map_or(0, char::len_utf8)
    }
}

#[cfg(test)]
mod tests;
