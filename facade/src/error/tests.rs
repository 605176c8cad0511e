//! What an error says of its causes.

use std::sync::Arc;
use std::time::{Duration, Instant};

use lifecycle::{Journal, Lifecycle, Step};

use super::{CloseError, Error};

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
