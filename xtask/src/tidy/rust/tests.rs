//! Module docs and prints.

use super::{MODULE_DOC, NO_PRINT};
use crate::{fixture::Fixture, tidy::tests::check_finds};

#[test]
fn a_file_without_module_doc_is_found() {
    let mut fixture = Fixture::new(&["lifecycle"]);
    fixture.write("lifecycle/src/good.rs", "\n//! Good.\n");
    fixture.write("lifecycle/src/bad.rs", "// Not a doc.\nfn f() {}\n");
    fixture.write("lifecycle/src/empty.rs", "");
    let what = "does not begin";
    check_finds(
        &MODULE_DOC,
        &fixture,
        &[
            ("lifecycle/src/bad.rs", 1, what),
            ("lifecycle/src/empty.rs", 1, what),
        ],
    );
}

#[test]
fn a_print_in_a_library_is_found_with_its_line() {
    let mut fixture = Fixture::new(&["lifecycle"]);
    fixture.write(
        "lifecycle/src/a.rs",
        "//! A.\n\nfn f() {\n    println!(\"\");\n    dbg!(1);\n}\n",
    );
    let file = "lifecycle/src/a.rs";
    check_finds(
        &NO_PRINT,
        &fixture,
        &[(file, 4, "`println!`"), (file, 5, "`dbg!`")],
    );
}

#[test]
fn a_print_in_a_comment_a_string_or_a_longer_name_is_none() {
    let mut fixture = Fixture::new(&["lifecycle"]);
    let text = "//! println!()\n\nfn f() {\n    let a = \"println!()\";\n    my_println!();\n}\n";
    fixture.write("lifecycle/src/a.rs", text);
    check_finds(&NO_PRINT, &fixture, &[]);
}

#[test]
fn programs_and_tests_may_print() {
    let mut fixture = Fixture::new(&["lifecycle", "scenetest", "xtask"]);
    for path in [
        "lifecycle/examples/a.rs",
        "lifecycle/benches/a.rs",
        "lifecycle/tests/it/main.rs",
        "lifecycle/src/state/tests.rs",
        "scenetest/src/runner.rs",
        "scenetest/src/runner/progress.rs",
        "xtask/src/table.rs",
    ] {
        fixture.write(path, "//! A.\n\nfn f() {\n    println!();\n}\n");
    }
    check_finds(&NO_PRINT, &fixture, &[]);
}
