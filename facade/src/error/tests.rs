//! What an error says of its causes.

use std::sync::Arc;
use std::time::{Duration, Instant};

use lifecycle::{Journal, Lifecycle, Step};

use super::{CloseError, Error, Name, SubmitError};

/// A close whose step could not give everything back.
fn failed_close() -> Error {
    let life = Lifecycle::<Error>::new();
    let journal = Journal::new();
    journal.push(Step::new("end the children", |_| {
        Err(Error::Teardown {
            what: "the children",
            reason: "still there: `chip0` (pid 7, Running)".to_owned(),
        })
    }));
    let deadline = Instant::now() + Duration::from_secs(10);
    let reason = life.close(Some(deadline), &journal).unwrap_err();
    let (worker, reason) = ("node".to_owned(), Arc::new(reason));
    CloseError { worker, reason }.into()
}

#[test]
fn a_close_that_fails_names_who_is_left() {
    insta::assert_snapshot!(failed_close().to_string(), @"close worker `node`: release `end the children`: its step has failed: give back the children: still there: `chip0` (pid 7, Running); close again to try again");
}

#[test]
fn an_error_returned_from_main_reads_as_its_text() {
    insta::assert_snapshot!(format!("{:?}", failed_close()), @"failed to close worker `node`: release `end the children`: its step has failed: give back the children: still there: `chip0` (pid 7, Running); close again to try again");
}

/// Printers of chains, such as `{:#}` of anyhow, add each source to the text.
#[test]
fn an_error_that_tells_its_cause_does_not_give_it_as_a_source_too() {
    let cause = std::io::Error::other("the disk is full");
    let lost = taskgraph::SubmitError::NoTargets;
    let errors: [(Error, String); 3] = [
        (Error::orchestration(cause), "the disk is full".to_owned()),
        (
            SubmitError::Graph {
                callable: Name::from("add"),
                reason: lost,
            }
            .into(),
            lost.to_string(),
        ),
        (failed_close(), "still there".to_owned()),
    ];
    for (error, cause) in errors {
        let mut texts = vec![error.to_string()];
        let mut next = std::error::Error::source(&error);
        while let Some(source) = next {
            texts.push(source.to_string());
            next = source.source();
        }
        let told = texts.concat().matches(&cause).count();
        assert_eq!(told, 1, "{texts:?}");
    }
}
