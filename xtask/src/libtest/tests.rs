//! Outputs of the standard harness, as it prints them.

use super::Summary;

const MIXED: &str = "
running 5 tests
test a::holds ... ok
test b::needs_root ... ok
test c::breaks ... FAILED
test d::slow ... ignored, takes an hour
test e::panics - should panic ... ok

successes:

---- b::needs_root stdout ----
skipped: needs CAP_SYS_PTRACE
test x ... ok

failures:

---- c::breaks stdout ----
thread 'c::breaks' panicked at src/lib.rs:1:1:
skipped: never

failures:
    c::breaks

test result: FAILED. 3 passed; 1 failed; 1 ignored; 0 measured; 0 filtered out; finished in 0.00s
";

#[test]
fn passed_failed_and_skipped_tests_are_told_apart() {
    let summary = Summary::parse(MIXED);
    assert_eq!(summary.passed, 2);
    assert_eq!(summary.failed, ["c::breaks"]);
    let skipped = [
        ("d::slow", "takes an hour"),
        ("b::needs_root", "needs CAP_SYS_PTRACE"),
    ];
    assert_eq!(
        summary.skipped,
        skipped.map(|(name, why)| (name.to_owned(), why.to_owned()))
    );
    assert_eq!(summary.total(), 5);
}

#[test]
fn a_failure_is_named_in_the_note() {
    assert_eq!(
        Summary::parse(MIXED).note(),
        "1 of 5 tests failed: c::breaks"
    );
}

#[test]
fn several_programs_add_up() {
    let twice = "test a ... ok\ntest result: ok. 1 passed\n".repeat(2);
    assert_eq!(Summary::parse(&twice).passed, 2);
}

#[test]
fn output_of_another_harness_is_not_taken_for_zero_tests() {
    assert_eq!(Summary::parse("hello\n").note(), "own harness");
}

#[test]
fn the_test_that_took_the_program_down_is_named() {
    let summary = Summary::parse("running 2 tests\ntest a ... ok\ntest b::c ... ");
    assert_eq!(summary.running.as_deref(), Some("b::c"));
    assert_eq!(Summary::parse(MIXED).running, None);
}
