//! Errors as failures.

use super::*;

#[derive(Debug, thiserror::Error)]
enum Layered {
    #[error("open the table")]
    Outer(#[source] Box<Layered>),
    #[error("read the page: {0}")]
    PrintsItsCause(#[source] std::num::ParseIntError),
}

#[test]
fn an_error_becomes_its_whole_chain_and_says_nothing_twice() {
    let cause = "x".parse::<u8>().expect_err("no number");
    let failure = Failure::from(Layered::Outer(Box::new(Layered::PrintsItsCause(cause))));
    let text = "open the table: read the page: invalid digit found in string";
    assert_eq!(failure.to_string(), text);
    assert_eq!(failure.kind, FailureKind::Failed);
}
