//! The lines that tools parse.

use std::time::Duration;

use super::{Report, Verdict};

#[test]
fn a_run_reads_like_one_of_the_standard_harness() {
    let mut text = Vec::new();
    let mut report = Report::new(&mut text, false);
    report.begin(3).unwrap();
    report.ended("a", Verdict::Passed, Vec::new()).unwrap();
    report
        .ended("b", Verdict::Skipped("no such kernel".into()), Vec::new())
        .unwrap();
    report
        .ended(
            "c",
            Verdict::Failed("exit code 101".into()),
            b"output\n".to_vec(),
        )
        .unwrap();
    assert!(!report.finish(2, Duration::from_millis(1234)).unwrap());
    let expected = "
running 3 tests
test a ... ok
test b ... ignored, no such kernel
test c ... FAILED

failures:

---- c stdout ----
output
exit code 101

failures:
    c

test result: FAILED. 1 passed; 1 failed; 1 ignored; 0 measured; 2 filtered out; finished in 1.23s

";
    assert_eq!(String::from_utf8(text).unwrap(), expected);
}
