//! What a forked child's function may return, and when a fork is refused.

use std::sync::mpsc;
use std::thread;

use procfork::{ExitCause, ForkError, ForkOptions, exit_code, fork};

use crate::support::{cause_of, child, soon};

pub(crate) fn a_result_becomes_the_exit_code() {
    assert_eq!(cause_of(|_| ()), ExitCause::Exited(0));
    assert_eq!(cause_of(|_| 3), ExitCause::Exited(3));
    assert_eq!(cause_of(|_| Ok::<u8, String>(255)), ExitCause::Exited(255));
}

pub(crate) fn an_error_reaches_the_parent_as_last_words() {
    let child = child("child", |_| Err::<(), _>("E7: no such device"));
    assert_eq!(child.wait(soon()).unwrap(), ExitCause::Exited(1));
    assert_eq!(child.last_words().unwrap(), "E7: no such device");
}

pub(crate) fn a_panic_ends_with_its_own_code_and_its_message_reaches_the_parent() {
    let child = child("child", |_| -> () { panic!("boom {}", 7) });
    assert_eq!(
        child.wait(soon()).unwrap(),
        ExitCause::Exited(exit_code::PANICKED)
    );
    let words = child.last_words().unwrap();
    assert!(
        words.starts_with("panicked at ") && words.ends_with("boom 7"),
        "{words}"
    );
}

pub(crate) fn a_process_with_threads_is_refused_and_the_threads_are_named() {
    let (gate, held) = mpsc::channel::<()>();
    let thread = thread::Builder::new()
        .name("busy-bee".into())
        .spawn(move || held.recv());
    let thread = thread.unwrap();
    let error = fork(ForkOptions::new("child"), |_| ()).unwrap_err();
    assert!(matches!(&error, ForkError::OtherThreads { threads, .. } if threads.len() == 1));
    let text = error.to_string();
    assert!(
        text.contains("busy-bee") && text.contains("spawn"),
        "{text}"
    );
    drop(gate);
    let _ = thread.join().unwrap();
    assert_eq!(cause_of(|_| ()), ExitCause::Exited(0), "alone again");
}
