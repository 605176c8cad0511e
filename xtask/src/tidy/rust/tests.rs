//! Module docs and prints.

use super::{ATOMICS, EXPECT_NOT_ALLOW, FILE_LENGTH, FUNCTION_LENGTH, MODULE_DOC, NO_PRINT};
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
    let mut fixture = Fixture::new(&["lifecycle", "xtask"]);
    for path in [
        "lifecycle/examples/a.rs",
        "lifecycle/benches/a.rs",
        "lifecycle/tests/it/main.rs",
        "lifecycle/src/state/tests.rs",
        "xtask/src/table.rs",
    ] {
        fixture.write(path, "//! A.\n\nfn f() {\n    println!();\n}\n");
    }
    check_finds(&NO_PRINT, &fixture, &[]);
}

/// A crate with models and one without, each with this file.
fn with_models(path: &str, text: &str) -> Fixture {
    let mut fixture = Fixture::new(&["mailbox", "device"]);
    let lines = "[target.'cfg(loom)'.dependencies]\nloom.workspace = true\n";
    fixture.append("mailbox/Cargo.toml", lines);
    fixture.append("Cargo.toml", "loom = \"0.7\"\n");
    for name in ["mailbox", "device"] {
        fixture.write(&format!("{name}/{path}"), text);
    }
    fixture
}

#[test]
fn an_atomic_past_sync_is_found_where_there_are_models() {
    let what = "does not come through `crate::sync`";
    let plain = with_models("src/a.rs", "//! A.\n\nuse std::sync::atomic::AtomicU32;\n");
    check_finds(&ATOMICS, &plain, &[("mailbox/src/a.rs", 3, what)]);
    let grouped = "//! A.\n\nuse std::sync::{\n    Arc,\n    atomic::AtomicU32,\n};\n";
    check_finds(
        &ATOMICS,
        &with_models("src/a.rs", grouped),
        &[("mailbox/src/a.rs", 5, what)],
    );
}

#[test]
fn sync_itself_and_what_comes_through_it_is_good() {
    let text = "//! A.\n\nuse std::sync::atomic::AtomicU32;\n";
    check_finds(&ATOMICS, &with_models("src/sync.rs", text), &[]);
    let text = "//! A.\n\nuse crate::sync::atomic::AtomicU32;\n";
    check_finds(&ATOMICS, &with_models("src/a.rs", text), &[]);
}

#[test]
fn an_allow_is_found_and_an_expect_is_good() {
    let mut fixture = Fixture::new(&["lifecycle"]);
    let text = "//! A. `#[allow(dead_code)]`\n\n#[expect(dead_code, reason = \"r\")]\nfn f() {}\n\n\
                #[allow(dead_code, reason = \"r\")]\nfn g() {}\n";
    fixture.write("lifecycle/src/a.rs", text);
    let expected = [("lifecycle/src/a.rs", 6, "`allow`")];
    check_finds(&EXPECT_NOT_ALLOW, &fixture, &expected);
}

#[test]
fn a_file_that_is_too_long_is_found_where_it_becomes_so() {
    let mut fixture = Fixture::new(&["lifecycle"]);
    let lines = |n_lines: usize| "//! A.\n".repeat(n_lines);
    fixture.write("lifecycle/src/good.rs", &lines(600));
    fixture.write("lifecycle/src/long.rs", &lines(601));
    fixture.write("lifecycle/src/lib.rs", &lines(151));
    fixture.write("lifecycle/fuzz/src/lib.rs", &lines(151));
    let expected = [
        (
            "lifecycle/src/lib.rs",
            151,
            "151 lines, where 150 are the most",
        ),
        (
            "lifecycle/src/long.rs",
            601,
            "601 lines, where 600 are the most",
        ),
    ];
    check_finds(&FILE_LENGTH, &fixture, &expected);
}

#[test]
fn a_function_that_is_too_long_is_found_and_the_next_one_is_not_its_end() {
    let mut fixture = Fixture::new(&["lifecycle"]);
    let function = |n_lines: usize| {
        let body = "        {\n        }\n".repeat((n_lines - 2) / 2);
        format!("    fn f() {{\n{body}    }}\n")
    };
    let declared = "    fn declared(\n        &self,\n    ) -> u32;\n    fn short() {}\n";
    let text = format!(
        "//! A.\ntrait A {{\n{declared}{}{}}}\n",
        function(70),
        function(72)
    );
    fixture.write("lifecycle/src/a.rs", &text);
    fixture.write("lifecycle/src/a/tests.rs", &text);
    let expected = [("lifecycle/src/a.rs", 77, "a function of 72 lines")];
    check_finds(&FUNCTION_LENGTH, &fixture, &expected);
}
