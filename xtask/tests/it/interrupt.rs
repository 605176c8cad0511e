//! Who ends xtask ends what it has started.

use std::{
    fs,
    path::Path,
    process::Stdio,
    thread,
    time::{Duration, Instant},
};

use nix::{
    sys::signal::{Signal, kill},
    unistd::Pid,
};

use crate::{
    fixture::Fixture,
    support::{Run, command},
};

/// A test that tells the pid of a child that it then waits for, by the file `pid` in its crate.
const HANGS: &str = r#"
#[test]
fn hangs() {
    let mut sleep = std::process::Command::new("sleep").arg("1000").spawn().unwrap();
    std::fs::write("new", sleep.id().to_string()).unwrap();
    std::fs::rename("new", "pid").unwrap();
    sleep.wait().unwrap();
}
"#;

#[test]
fn a_signal_to_end_ends_the_running_step_and_skips_the_rest() {
    let mut fixture = Fixture::new(&["lifecycle"]);
    fixture.append("lifecycle/src/lib.rs", HANGS);
    let mut command = command(&fixture, &["ci", "--only", "test,doctest"]);
    let xtask = command
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .expect("it starts");
    let sleep = eventually(|| fs::read_to_string(fixture.path().join("lifecycle/pid")).ok());
    kill(Pid::from_raw(xtask.id().cast_signed()), Signal::SIGTERM).expect("it runs");
    Run::of(xtask.wait_with_output().expect("it ends"))
        .exits_with(1)
        .has_row(&[
            "test lifecycle (unit)",
            "FAILED",
            "interrupted by signal 15",
        ])
        .has_row(&["doc tests", "skipped", "interrupted by signal 15"])
        .closes_with("1 passed, 1 failed, 1 skipped");
    eventually(|| (!Path::new(&format!("/proc/{sleep}")).exists()).then_some(()));
}

/// Asks until there is an answer; a minute at most.
#[track_caller]
fn eventually<T>(ask: impl Fn() -> Option<T>) -> T {
    let deadline = Instant::now() + Duration::from_secs(60);
    loop {
        if let Some(answer) = ask() {
            return answer;
        }
        assert!(Instant::now() < deadline, "no answer within a minute");
        thread::sleep(Duration::from_millis(5));
    }
}
