//! Gates, a record of what ran, and a hard outer deadline for every test.

use std::{
    panic,
    sync::{
        Arc, Mutex,
        mpsc::{self, Receiver, RecvTimeoutError, Sender},
    },
    thread,
    time::{Duration, Instant},
};

use lifecycle::{CloseError, Journal, Lifecycle, Operation, Start, Step};

pub(crate) static RUN: Operation = Operation::new("run");
pub(crate) static SUBMIT: Operation = Operation::new("submit");

/// A cause that compares and prints.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Fault(pub(crate) &'static str);

impl std::fmt::Display for Fault {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(self.0)
    }
}

impl std::error::Error for Fault {}

pub(crate) type Verdict = Result<(), CloseError<Fault>>;

/// The outer deadline: far more than any test needs, even on a loaded machine.
const HARD: Duration = Duration::from_secs(60);

/// Runs a test on a thread of its own and fails it when it hangs.
#[track_caller]
pub(crate) fn within_deadline(test: impl FnOnce() + Send + 'static) {
    let (done, wait) = mpsc::channel();
    let thread = thread::Builder::new().name("test".into()).spawn(move || {
        test();
        done.send(()).expect("the test is awaited");
    });
    let thread = thread.expect("a thread starts");
    match wait.recv_timeout(HARD) {
        Err(RecvTimeoutError::Timeout) => panic!("the test hangs: not done after {HARD:?}"),
        Ok(()) | Err(RecvTimeoutError::Disconnected) => {
            thread
                .join()
                .unwrap_or_else(|payload| panic::resume_unwind(payload));
        }
    }
}

/// A door that is shut until its key is dropped or turned.
pub(crate) struct Gate(Mutex<Receiver<()>>);

/// Opens its gate.
pub(crate) struct Key(Sender<()>);

pub(crate) fn gate() -> (Key, Gate) {
    let (key, gate) = mpsc::channel();
    (Key(key), Gate(Mutex::new(gate)))
}

impl Gate {
    /// Blocks until the gate opens.
    pub(crate) fn pass(&self) {
        let opened = self.0.lock().expect("one at a time").recv_timeout(HARD);
        assert_ne!(
            opened,
            Err(RecvTimeoutError::Timeout),
            "the gate was never opened"
        );
    }
}

impl Key {
    pub(crate) fn open(self) {
        drop(self.0);
    }
}

/// A deadline that has passed: "look, but do not wait".
pub(crate) fn now() -> Option<Instant> {
    Some(Instant::now())
}

pub(crate) fn new() -> Arc<Lifecycle<Fault>> {
    Arc::new(Lifecycle::new())
}

pub(crate) fn ready() -> Arc<Lifecycle<Fault>> {
    let lifecycle = new();
    match lifecycle.start(None) {
        Start::Won(epoch) => epoch.commit().expect("nobody closes"),
        Start::Done(outcome) => panic!("nobody else starts: {outcome:?}"),
    }
    lifecycle
}

/// What has run, in order.
#[derive(Clone, Default)]
pub(crate) struct Record(Arc<Mutex<Vec<String>>>);

impl Record {
    pub(crate) fn note(&self, what: impl Into<String>) {
        self.0
            .lock()
            .expect("no test panics in here")
            .push(what.into());
    }

    pub(crate) fn seen(&self) -> Vec<String> {
        self.0.lock().expect("no test panics in here").clone()
    }

    /// A step that notes its name and succeeds.
    pub(crate) fn step(&self, name: &'static str) -> Step<Fault> {
        self.step_that(name, || Ok(()))
    }

    /// A step that notes its name and then does as told.
    pub(crate) fn step_that(
        &self,
        name: &'static str,
        mut release: impl FnMut() -> Result<(), Fault> + Send + 'static,
    ) -> Step<Fault> {
        let record = self.clone();
        Step::new(name, move |_deadline| {
            record.note(name);
            release()
        })
    }
}

/// A journal of steps that all succeed.
pub(crate) fn journal(record: &Record, names: &[&'static str]) -> Journal<Fault> {
    let journal = Journal::new();
    for name in names {
        journal.push(record.step(name));
    }
    journal
}
