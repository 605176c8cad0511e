//! Variables in paths.

use super::*;

fn variables() -> Variables {
    Variables(vec![
        ("A".to_owned(), "/a".into()),
        ("LONG_1".to_owned(), "/long".into()),
    ])
}

#[track_caller]
fn check(path: &str, expected: &str) {
    assert_eq!(variables().resolve("k", path).unwrap(), Path::new(expected));
}

#[test]
fn variables_are_replaced_wherever_they_stand() {
    check("plain/x.c", "plain/x.c");
    check("$A/x.c", "/a/x.c");
    check("${A}x.c", "/ax.c");
    check("$LONG_1/$A/b", "/long//a/b");
}

#[test]
fn a_variable_that_is_not_set_or_has_no_name_is_an_error() {
    for path in ["$NO_SUCH_VARIABLE_IS_SET/x", "$/x", "${unclosed"] {
        assert!(variables().resolve("k", path).is_err(), "{path}");
    }
}
