//! Names that are known once, twice, or not at all.

use super::{Function, pick};
use crate::options::ForkOptions;

fn function(name: &'static str, line: u32) -> Function {
    Function {
        name,
        file: "a.rs",
        line,
        run: |_| (0, None),
    }
}

#[track_caller]
fn check(name: &str, expected: Result<u32, &str>) {
    let all = [
        function("b", 1),
        function("twice", 7),
        function("a", 2),
        function("twice", 3),
    ];
    let found = pick(&all, &ForkOptions::new("c"), name);
    let found = found
        .map(|function| function.line)
        .map_err(|error| error.to_string());
    assert_eq!(found.as_ref().copied().map_err(String::as_str), expected);
}

#[test]
fn a_name_finds_its_function() {
    check("b", Ok(1));
    check("a", Ok(2));
}

#[test]
fn an_unknown_name_is_refused_with_those_that_exist() {
    check(
        "d",
        Err("start child c: no function \"d\" is registered; there are: a, b, twice"),
    );
}

#[test]
fn a_duplicate_name_is_refused_with_its_places() {
    check(
        "twice",
        Err("start child c: function \"twice\" is registered 2 times: a.rs:3, a.rs:7"),
    );
}
