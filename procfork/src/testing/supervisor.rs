//! The process above a test: keeps its deadline and finds what it left behind.

use std::io::{self, Write as _};
use std::os::fd::AsFd as _;
use std::panic;
use std::time::{Duration, Instant};

use super::{Skipped, Test};
use crate::cause::ExitCause;
use crate::descendants::descendants;
use crate::pid::Pid;
use crate::proc::{ProcessInfo, ProcessState};
use crate::signal::Signal;
use crate::sys::page::LifePage;
use crate::sys::prctl;
use crate::sys::process::{self, Side};
use crate::sys::wait::{self, Take};
use crate::threads;

/// Exit codes by which a test tells its supervisor, and a supervisor its runner.
///
/// Passing has a number of its own: a test that leaves through `exit(0)` has not come to its end.
pub(super) mod code {
    pub(in crate::testing) const PASSED: u8 = 64;
    pub(in crate::testing) const FAILED: u8 = 101;
    pub(in crate::testing) const SKIPPED: u8 = 77;
}

/// How long what a test started may take to follow it.
const FOLLOW: Duration = Duration::from_secs(2);

/// Runs one test in a child of the calling process, which is a supervisor from here on, and ends
/// with the verdict; its reason is in the page.
pub(super) fn supervise(test: &Test, page: &LifePage, limit: Duration) -> ! {
    let verdict = match run(test, page, limit) {
        Ok(code) => code,
        Err(error) => {
            page.write_words(&format!("the supervisor failed: {error}"));
            code::FAILED
        }
    };
    process::exit_now(verdict)
}

fn run(test: &Test, page: &LifePage, limit: Duration) -> io::Result<u8> {
    prctl::set_death_signal(Some(Signal::KILL))?;
    prctl::set_subreaper(true)?;
    let deadline = Instant::now() + limit;
    let alone = threads::alone().map_err(|_| io::Error::other("the runner has threads"))?;
    let pid = match process::fork(&alone)? {
        Side::Child => be_test(test, page),
        Side::ParentOf(pid) => pid,
    };
    let _ = process::set_group(pid, pid);
    let pidfd = process::open_pidfd(pid)?;
    let in_time = wait::wait_readable(pidfd.as_fd(), deadline)?;
    let cause = if in_time {
        wait::ended(pidfd.as_fd(), Take::Reap)?
    } else {
        None
    };
    let left = left_over(if in_time { FOLLOW } else { Duration::ZERO })?;
    Ok(judge(cause, &left, page, limit))
}

/// The test's own process. It leads a group, so that one which signals its group hits no other.
fn be_test(test: &Test, page: &LifePage) -> ! {
    let _ = prctl::set_death_signal(Some(Signal::KILL));
    let _ = process::set_group(Pid::this(), Pid::this());
    let verdict = match panic::catch_unwind(test.run) {
        Ok(()) => code::PASSED,
        Err(payload) => match payload.downcast::<Skipped>() {
            Ok(skipped) => {
                page.write_words(&skipped.0);
                code::SKIPPED
            }
            Err(_) => code::FAILED,
        },
    };
    let _ = io::stdout().flush();
    process::flush_c_streams();
    process::exit_now(verdict)
}

fn judge(cause: Option<ExitCause>, left: &[String], page: &LifePage, limit: Duration) -> u8 {
    let why = match cause {
        None => format!("passed its deadline of {limit:?}; then killed"),
        Some(ExitCause::Exited(code::PASSED | code::SKIPPED)) if !left.is_empty() => String::new(),
        Some(ExitCause::Exited(code @ (code::PASSED | code::SKIPPED))) => return code,
        Some(ExitCause::Exited(code::FAILED)) => "the test panicked".to_owned(),
        Some(cause) => format!("the test's process {cause} before the test returned"),
    };
    let left = match left {
        [] => String::new(),
        left => format!("left running, now killed: {}", left.join(", ")),
    };
    let both = if why.is_empty() || left.is_empty() {
        ""
    } else {
        "; "
    };
    page.write_words(&format!("{why}{both}{left}"));
    code::FAILED
}

/// Waits until all descendants are gone, then kills those that are not and names them. The
/// supervisor adopts orphans, so that nothing escapes it.
fn left_over(patience: Duration) -> io::Result<Vec<String>> {
    let deadline = Instant::now() + patience;
    let mut named = Vec::new();
    loop {
        reap_all();
        let running = running()?;
        if running.is_empty() {
            return Ok(named);
        }
        if Instant::now() < deadline {
            std::thread::sleep(Duration::from_millis(2));
            continue;
        }
        for process in &running {
            if !named.contains(&name_of(process)) {
                named.push(name_of(process));
            }
            kill(process);
        }
    }
}

fn running() -> io::Result<Vec<ProcessInfo>> {
    let mut all = descendants(Pid::this())?;
    all.retain(|process| process.state != ProcessState::Zombie);
    Ok(all)
}

fn name_of(process: &ProcessInfo) -> String {
    format!("{} ({})", process.name, process.pid)
}

/// Kills a descendant, if the number still names it once it is held by a pidfd.
fn kill(target: &ProcessInfo) {
    if let Ok(pidfd) = process::open_pidfd(target.pid)
        && target.is_current()
    {
        let _ = process::signal_pidfd(pidfd.as_fd(), Signal::KILL);
    }
}

fn reap_all() {
    while wait::reap_any() {}
}
