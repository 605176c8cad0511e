//! Arrows that are allowed, and those that are not.

use super::{ARROWS, PORTABLE};
use crate::{fixture::Fixture, tidy::tests::check_finds};

/// A workspace with these crates, where `from` has these lines after its lints.
fn house(names: &[&str], from: &str, lines: &str) -> Fixture {
    let mut fixture = Fixture::new(names);
    for name in names {
        fixture.append("Cargo.toml", &format!("{name} = {{ path = \"{name}\" }}\n"));
    }
    fixture.append(&format!("{from}/Cargo.toml"), lines);
    fixture
}

#[test]
fn the_arrows_of_the_house_are_allowed() {
    let lines = "[dependencies]\nlifecycle.workspace = true\nmailbox.workspace = true\n";
    check_finds(
        &ARROWS,
        &house(&["lifecycle", "mailbox", "facade"], "facade", lines),
        &[],
    );
}

#[test]
fn an_arrow_that_points_upward_is_found_with_its_line() {
    let lines = "[dependencies]\nfacade.workspace = true\n";
    let expected = [("device/Cargo.toml", 10, "`device` must not know `facade`")];
    check_finds(
        &ARROWS,
        &house(&["device", "facade"], "device", lines),
        &expected,
    );
}

#[test]
fn siblings_do_not_know_each_other_and_xtask_knows_nobody() {
    for from in ["lifecycle", "xtask"] {
        let lines = "[dependencies]\nmailbox = { workspace = true }\n";
        let what = format!("`{from}` must not know `mailbox` (as a dependency)");
        let expected = [(&*format!("{from}/Cargo.toml"), 10, what.as_str())];
        check_finds(&ARROWS, &house(&["mailbox", from], from, lines), &expected);
    }
}

#[test]
fn only_tests_of_some_crates_may_use_procfork() {
    let names = ["procfork", "mailbox", "lifecycle"];
    let tests = "[dev-dependencies]\nprocfork.workspace = true\n";
    check_finds(&ARROWS, &house(&names, "mailbox", tests), &[]);
    let expected = [("lifecycle/Cargo.toml", 10, "(for its tests)")];
    check_finds(&ARROWS, &house(&names, "lifecycle", tests), &expected);
    let normal = "[dependencies]\nprocfork.workspace = true\n";
    let expected = [("mailbox/Cargo.toml", 10, "(as a dependency)")];
    check_finds(&ARROWS, &house(&names, "mailbox", normal), &expected);
}

#[test]
fn a_crate_that_no_list_names_is_found() {
    let fixture = house(&["newcomer"], "newcomer", "");
    check_finds(
        &ARROWS,
        &fixture,
        &[("newcomer/Cargo.toml", 1, "in no list")],
    );
}

#[test]
fn a_portable_crate_must_not_speak_to_the_system() {
    let mut fixture = house(
        &["taskgraph", "mailbox"],
        "taskgraph",
        "[dependencies]\nlibc = \"0.2\"\n",
    );
    fixture.append("mailbox/Cargo.toml", "[dependencies]\nlibc = \"0.2\"\n");
    let expected = [(
        "taskgraph/Cargo.toml",
        10,
        "`taskgraph` must not use `libc`",
    )];
    check_finds(&PORTABLE, &fixture, &expected);
}
