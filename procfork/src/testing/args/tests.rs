//! Command lines that cargo and other runners use.

use super::{Args, Test};

fn parse(line: &str) -> Result<Args, String> {
    Args::parse(line.split_ascii_whitespace().map(str::to_owned))
}

#[track_caller]
fn check(line: &str, name: &'static str, wanted: bool) {
    let args = parse(line).unwrap();
    assert_eq!(args.wants(&Test::new(name, || {})), wanted, "{line}");
}

#[test]
fn a_filter_matches_a_part_of_the_name_unless_exact() {
    check("close", "close::leaves_nothing", true);
    check("--exact close", "close::leaves_nothing", false);
    check(
        "close::leaves_nothing --exact",
        "close::leaves_nothing",
        true,
    );
    check("open close", "close::leaves_nothing", true);
    check("--skip=leaves", "close::leaves_nothing", false);
    check("close --skip leaves", "close::leaves_nothing", false);
}

#[test]
fn no_test_is_an_ignored_one() {
    check("--ignored", "close::leaves_nothing", false);
    check("--include-ignored", "close::leaves_nothing", true);
}

#[test]
fn options_with_values_do_not_become_filters() {
    let args = parse("--format terse --list --test-threads 3 --color=never -Z unstable-options");
    let args = args.unwrap();
    assert!(args.list && args.filters.is_empty());
    assert_eq!(args.at_once, 3);
}

#[test]
fn mistakes_are_refused() {
    assert_eq!(
        parse("--nonsense").unwrap_err(),
        "unknown option --nonsense"
    );
    assert_eq!(parse("--skip").unwrap_err(), "--skip needs a value");
    assert!(parse("--test-threads 0").is_err());
}
