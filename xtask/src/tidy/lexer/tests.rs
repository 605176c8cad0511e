//! What is code, what is comment, what is neither.

use super::lines;

/// Checks the code and the comment of a single line.
#[track_caller]
fn check(source: &str, code: &str, comment: &str) {
    let lines = lines(source);
    assert_eq!(lines.len(), 1, "{lines:?}");
    assert_eq!(
        (lines[0].code.as_str(), lines[0].comment.as_str()),
        (code, comment)
    );
}

#[test]
fn a_line_comment_is_not_code() {
    check("let a = 1; // unsafe {", "let a = 1; ", "// unsafe {");
}

#[test]
fn a_string_is_neither() {
    check(r#"f("// unsafe \" {", 2)"#, r#"f("", 2)"#, "");
    check(r##"f(r#"a " b"#, br"x\")"##, r#"f("", "")"#, "");
}

#[test]
fn a_word_that_ends_in_r_does_not_begin_a_raw_string() {
    check(r#"for "a" in b"#, r#"for "" in b"#, "");
    check("r#type", "r#type", "");
}

#[test]
fn a_quote_character_does_not_begin_a_string() {
    check(r#"a('"', '\'', b'\\') // c"#, r#"a("", "", b"") "#, "// c");
}

#[test]
fn a_lifetime_is_code() {
    check(
        "fn f<'a>(x: &'a str, y: &'static u8)",
        "fn f<'a>(x: &'a str, y: &'static u8)",
        "",
    );
}

#[test]
fn block_comments_nest_and_keep_their_lines() {
    let lines = lines("a /* b /* c */\nd */ e\nf");
    let code: Vec<_> = lines.iter().map(|line| line.code.as_str()).collect();
    let comments: Vec<_> = lines.iter().map(|line| line.comment.as_str()).collect();
    assert_eq!(code, ["a ", " e", "f"]);
    assert_eq!(comments, ["/* b /* c */", "d */", ""]);
}

#[test]
fn a_string_keeps_its_lines() {
    assert_eq!(lines("let a = \"b\nc\";\nd").len(), 3);
}

#[test]
fn unfinished_source_ends() {
    for source in ["/* a", "\"a", "r#\"a", "'\\", "'"] {
        assert!(!lines(source).is_empty());
    }
}
