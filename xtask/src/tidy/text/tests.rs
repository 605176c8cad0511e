//! Leftovers in text.

use super::{HOMES, MARKS, NO_MARKS, NO_PERSONAL_PATH, NO_TRAILING_SPACE};
use crate::{fixture::Fixture, tidy::tests::check_finds};

const FILE: &str = "docs/a.md";

fn fixture(text: &str) -> Fixture {
    let mut fixture = Fixture::new(&["lifecycle"]);
    fixture.write(FILE, text);
    fixture
}

#[test]
fn a_mark_is_found_with_its_line() {
    for mark in MARKS {
        check_finds(
            &NO_MARKS,
            &fixture(&format!("a\n{mark}: b\n")),
            &[(FILE, 2, mark)],
        );
        check_finds(
            &NO_MARKS,
            &fixture(&format!("MY_{mark} {mark}_LIST {mark}S\n")),
            &[],
        );
    }
}

#[test]
fn a_space_or_carriage_return_at_the_end_is_found() {
    check_finds(
        &NO_TRAILING_SPACE,
        &fixture("a\nb \n"),
        &[(FILE, 2, "space at the end")],
    );
    check_finds(
        &NO_TRAILING_SPACE,
        &fixture("a\r\n"),
        &[(FILE, 1, "space at the end")],
    );
}

#[test]
fn a_path_of_one_machine_is_found() {
    for home in HOMES {
        check_finds(
            &NO_PERSONAL_PATH,
            &fixture(&format!("see {home}a/b\n")),
            &[(FILE, 1, home)],
        );
        check_finds(
            &NO_PERSONAL_PATH,
            &fixture(&format!("see docs{home}a\n")),
            &[],
        );
    }
}
