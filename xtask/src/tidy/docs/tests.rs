//! Documents that are missing, or say too little.

use super::{ARCHITECTURE, CRATE_README, LAST_REVISED, NO_REPEATED_LINE, PATHS};
use crate::{fixture::Fixture, tidy::tests::check_finds};

fn remove(fixture: &Fixture, path: &str) {
    std::fs::remove_file(fixture.path().join(path)).expect("the file is there");
}

#[test]
fn a_crate_that_does_not_say_what_it_promises_and_refuses_is_found() {
    let mut fixture = Fixture::new(&["lifecycle", "mailbox"]);
    remove(&fixture, "lifecycle/README.md");
    fixture.write("mailbox/README.md", "It promises much.\n");
    let expected = [
        ("lifecycle/README.md", 1, "no README"),
        (
            "mailbox/README.md",
            1,
            "nothing says what the crate refuses",
        ),
    ];
    check_finds(&CRATE_README, &fixture, &expected);
}

#[test]
fn a_crate_without_a_heading_on_the_map_is_found() {
    let mut fixture = Fixture::new(&["lifecycle", "mailbox"]);
    fixture.write(
        "docs/ARCHITECTURE.md",
        "## `lifecycle/`\n\nmailbox is not in a heading.\n",
    );
    let expected = [("docs/ARCHITECTURE.md", 1, "the crate `mailbox`")];
    check_finds(&ARCHITECTURE, &fixture, &expected);
    remove(&fixture, "docs/ARCHITECTURE.md");
    check_finds(
        &ARCHITECTURE,
        &fixture,
        &[("docs/ARCHITECTURE.md", 1, "the map is missing")],
    );
}

#[test]
fn a_design_page_without_date_is_found() {
    let mut fixture = Fixture::new(&["lifecycle"]);
    fixture.write(
        "docs/design/close.md",
        "# Close\n\nLast revised: 2026-11-30\n",
    );
    fixture.write("docs/design/mailbox.md", "# Mailbox\n");
    let expected = [("docs/design/mailbox.md", 1, "last revised")];
    check_finds(&LAST_REVISED, &fixture, &expected);
}

#[test]
fn a_path_to_nothing_is_found_with_its_line() {
    let mut fixture = Fixture::new(&["lifecycle"]);
    let text = "# A\n\nSee `lifecycle/src/lib.rs`, `scenes/yours.rs` and `src/NAME/tests.rs`.\n\n\
                ```text\n`lifecycle/src/shown.rs`\n```\n\
                Gone: `lifecycle/src/gone.rs`.\n";
    fixture.write("docs/a.md", text);
    let expected = [("docs/a.md", 8, "there is no `lifecycle/src/gone.rs`")];
    check_finds(&PATHS, &fixture, &expected);
}

#[test]
fn a_sentence_that_stands_twice_is_found_and_the_head_of_a_table_is_good() {
    let mut fixture = Fixture::new(&["lifecycle"]);
    let sentence = "Deadlines are absolute within a process and cross it.\n";
    let head = "| a head of a table | that recurs above another |\n";
    fixture.write("docs/a.md", &format!("{sentence}{head}\n{head}{sentence}"));
    fixture.write("docs/b.md", sentence);
    let expected = [("docs/a.md", 5, "stands at line 1 already")];
    check_finds(&NO_REPEATED_LINE, &fixture, &expected);
}
