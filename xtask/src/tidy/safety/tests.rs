//! Which `unsafe` is explained, and which is not.

use super::{Count, SAFETY_COMMENT, count};
use crate::{fixture::Fixture, tidy::tests::check_finds};

/// Checks how many places there are, and how many of them are explained.
#[track_caller]
fn check(source: &str, blocks: usize, contracts: usize, explained: usize) {
    assert_eq!(
        count(source),
        Count {
            blocks,
            contracts,
            explained
        },
        "{source}"
    );
}

#[test]
fn a_block_with_its_comment_above_is_explained() {
    check("// SAFETY: aligned.\nunsafe { f() };", 1, 0, 1);
    check(
        "// SAFETY: aligned,\n// and owned.\nlet a = unsafe { f() };",
        1,
        0,
        1,
    );
    check("// SAFETY: aligned.\nlet a =\n    unsafe { f() };", 1, 0, 1);
    check(
        "// SAFETY: aligned.\n#[expect(unsafe_code)]\nunsafe {\n    f()\n}",
        1,
        0,
        1,
    );
    check("let a = unsafe { f() }; // SAFETY: aligned.", 1, 0, 1);
    check(
        "let a = b.map(|c|\n    // SAFETY: aligned.\n    unsafe { f(c) });",
        1,
        0,
        1,
    );
}

#[test]
fn a_comment_of_another_statement_does_not_count() {
    check("// SAFETY: aligned.\nlet a = 1;\nunsafe { f() };", 1, 0, 0);
    check(
        "// SAFETY: aligned.\nunsafe { f() };\nunsafe { g() };",
        2,
        0,
        1,
    );
    check("// SAFETY: aligned.\n\nunsafe { f() };", 1, 0, 0);
    check("// It is aligned.\nunsafe { f() };", 1, 0, 0);
}

#[test]
fn impls_and_foreign_blocks_claim_too() {
    check(
        "// SAFETY: no interior.\nunsafe impl Send for A {}",
        1,
        0,
        1,
    );
    check("unsafe impl<T> Send for A<T> {}", 1, 0, 0);
    check("unsafe extern \"C\" {\n    fn f();\n}", 1, 0, 0);
    check("unsafe\n{\n    f()\n}", 1, 0, 0);
}

#[test]
fn functions_and_traits_want_a_section() {
    check(
        "/// Does.\n///\n/// # Safety\n/// Be aligned.\npub unsafe fn f() {}",
        0,
        1,
        1,
    );
    check(
        "/// # Safety\n/// Be aligned.\n#[inline]\nunsafe fn f() {}",
        0,
        1,
        1,
    );
    check("/// Does.\nunsafe fn f() {}", 0, 1, 0);
    check("unsafe extern \"C\" fn f() {}", 0, 1, 0);
    check("unsafe trait A {}", 0, 1, 0);
}

#[test]
fn a_method_of_a_trait_takes_its_contract_from_the_trait() {
    check(
        "// SAFETY: no state.\nunsafe impl A for B {\n    unsafe fn f() {}\n}",
        1,
        0,
        1,
    );
    check("impl B {\n    unsafe fn f() {}\n}", 0, 1, 0);
}

#[test]
fn words_types_and_attributes_are_no_places() {
    check(
        "#![deny(unsafe_code)]\n#![forbid(unsafe_op_in_unsafe_fn)]",
        0,
        0,
        0,
    );
    check("#[unsafe(no_mangle)]\npub extern \"C\" fn f() {}", 0, 0, 0);
    check(
        "type F = unsafe fn(u8);\ntype G = unsafe extern \"C\" fn(u8);",
        0,
        0,
        0,
    );
    check("// unsafe { f() }\nlet a = \"unsafe { f() }\";", 0, 0, 0);
}

#[test]
fn an_unexplained_block_is_found_with_its_line() {
    let mut fixture = Fixture::new(&["mailbox"]);
    fixture.write(
        "mailbox/src/a.rs",
        "//! A.\n\nfn f() {\n    unsafe { g() }\n}\n",
    );
    let expected = [("mailbox/src/a.rs", 4, "without a `// SAFETY:` comment")];
    check_finds(&SAFETY_COMMENT, &fixture, &expected);
}
