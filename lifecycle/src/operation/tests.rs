//! Names and their numbers.

use super::{OVERFLOW, Operation, intern_in, name_of};

static RUN: Operation = Operation::new("run");
static ALSO_RUN: Operation = Operation::new("run");

#[test]
fn operations_of_one_name_share_its_number_and_are_found_by_it() {
    assert_eq!(RUN.id(), ALSO_RUN.id());
    assert_eq!(name_of(RUN.id()), "run");
}

#[test]
fn operations_beyond_the_last_number_share_it() {
    let mut names = vec!["known"; usize::from(u16::MAX) - 1];
    assert_eq!(intern_in(&mut names, "last of its own"), u16::MAX - 1);
    assert_eq!(intern_in(&mut names, "one too many"), u16::MAX);
    assert_eq!(intern_in(&mut names, "two too many"), u16::MAX);
    assert_eq!(names.last(), Some(&OVERFLOW));
    assert_eq!(names.len(), usize::from(u16::MAX) + 1);
}
