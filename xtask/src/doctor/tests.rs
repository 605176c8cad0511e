//! What a person reads who lacks something.

use super::{checks, needed, render, useful};

#[test]
fn a_missing_thing_is_shown_with_what_it_costs() {
    let checks = [
        needed("futex", Ok(String::new()), "sleeping"),
        useful(
            "git",
            Ok("git version 2.0".to_owned()),
            "`ci --changed-since`",
        ),
        useful("ccec", Err("not in PATH".to_owned()), "kernels for a5"),
    ];
    insta::assert_snapshot!(render(&checks), @"
    what   found  which, or what its absence costs
    futex  yes
    git    yes    git version 2.0
    ccec   NO     not in PATH; costs: kernels for a5
    ");
}

#[test]
fn every_check_says_what_its_absence_costs() {
    for check in checks() {
        assert!(!check.cost.is_empty(), "{}", check.what);
    }
}
