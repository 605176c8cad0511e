//! Steps that end, fail, hang and never start.

use std::{process::Command, time::Duration};

use super::{End, Step};

fn shell(script: &str, limit_s: u64) -> Step {
    let mut command = Command::new("sh");
    command.args(["-c", script]);
    Step::of("test", limit_s, command)
}

#[test]
fn both_outputs_and_the_exit_code_come_back() {
    let ran = shell("echo out; echo err >&2; exit 3", 60).run(|_| {});
    assert_eq!(
        (ran.stdout.as_str(), ran.stderr.as_str()),
        ("out\n", "err\n")
    );
    assert!(
        matches!(ran.end, End::Exited(status) if status.code() == Some(3)),
        "{:?}",
        ran.end
    );
}

#[test]
fn a_hung_step_is_ended_with_its_whole_group() {
    // The grandchild tells its pid, and would outlive a kill of the shell alone.
    let mut step = shell("sleep 1000 & echo $!; wait", 60);
    step.limit = Duration::from_millis(300);
    let ran = step.run(|_| {});
    let End::Hung { running, .. } = &ran.end else {
        panic!("{:?}", ran.end)
    };
    assert!(
        running.iter().any(|line| line.contains("sleep 1000")),
        "{running:?}"
    );
    assert_gone(ran.stdout.trim());
}

/// The process has ended; a zombie that nobody has reaped yet counts as ended.
#[track_caller]
fn assert_gone(pid: &str) {
    let is_gone = || {
        let stat = std::fs::read_to_string(format!("/proc/{pid}/stat")).unwrap_or_default();
        stat.is_empty() || stat.contains(") Z ")
    };
    let deadline = std::time::Instant::now() + Duration::from_secs(10);
    while !is_gone() {
        assert!(std::time::Instant::now() < deadline, "{pid} is still there");
        std::thread::sleep(Duration::from_millis(5));
    }
}

#[test]
fn a_process_left_behind_with_the_output_open_does_not_hold_the_step() {
    let ran = shell("sleep 1000 & echo $!", 60).run(|_| {});
    assert!(
        matches!(ran.end, End::Exited(status) if status.success()),
        "{:?}",
        ran.end
    );
    let left: i32 = ran.stdout.trim().parse().expect("a pid");
    nix::sys::signal::kill(
        nix::unistd::Pid::from_raw(left),
        nix::sys::signal::Signal::SIGKILL,
    )
    .expect("the sleep that this test started still runs");
}

#[test]
fn a_program_that_does_not_exist_is_not_a_crash() {
    let ran = Step::of("test", 60, Command::new("there-is-no-such-program")).run(|_| {});
    assert!(matches!(ran.end, End::NotStarted(_)), "{:?}", ran.end);
}
