//! Blocks that equal their sources, and blocks that have drifted.

use super::SNIPPETS;
use crate::{fixture::Fixture, tidy::tests::check_finds};

const SOURCE: &str = "//! A.\n\nfn main() {\n    // region: body\n    a();\n    // region: inner\n    if b {\n        c();\n    }\n    // endregion\n    // endregion\n}\n";

/// A README whose block, marked with `from`, holds `block`.
fn fixture(from: &str, block: &str) -> Fixture {
    let mut fixture = Fixture::new(&["facade"]);
    fixture.write("facade/examples/a.rs", SOURCE);
    fixture.write(
        "README.md",
        &format!("# A\n\n<!-- snippet: {from} -->\n```rust\n{block}```\n"),
    );
    fixture
}

#[test]
fn a_block_that_equals_its_file_or_region_is_good() {
    check_finds(&SNIPPETS, &fixture("facade/examples/a.rs", SOURCE), &[]);
    let body = "a();\nif b {\n    c();\n}\n";
    check_finds(&SNIPPETS, &fixture("facade/examples/a.rs#body", body), &[]);
    check_finds(
        &SNIPPETS,
        &fixture("facade/examples/a.rs#inner", "if b {\n    c();\n}\n"),
        &[],
    );
}

#[test]
fn a_block_that_differs_is_found_with_the_first_difference() {
    let drifted = fixture("facade/examples/a.rs#body", "a();\nif d {\n    c();\n}\n");
    let what = "in its line 2: `if d {` here, `if b {` there";
    check_finds(&SNIPPETS, &drifted, &[("README.md", 3, what)]);
    let shorter = fixture("facade/examples/a.rs#body", "a();\n");
    let what = "in its line 2: nothing here, `if b {` there";
    check_finds(&SNIPPETS, &shorter, &[("README.md", 3, what)]);
}

#[test]
fn a_source_that_is_not_there_is_found() {
    let check = |from, what| {
        check_finds(
            &SNIPPETS,
            &fixture(from, "a();\n"),
            &[("README.md", 3, what)],
        )
    };
    check("facade/examples/b.rs", "no file `facade/examples/b.rs`");
    check("facade/examples/a.rs#other", "no region `other`");
}

#[test]
fn a_mark_without_block_is_found() {
    let mut fixture = Fixture::new(&["facade"]);
    fixture.write("README.md", "<!-- snippet: facade/src/lib.rs -->\n\ntext\n");
    check_finds(
        &SNIPPETS,
        &fixture,
        &[("README.md", 1, "no fenced block follows")],
    );
}
