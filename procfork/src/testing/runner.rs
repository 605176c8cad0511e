//! The process that is the test binary: starts supervisors and collects what they say.

use std::collections::VecDeque;
use std::env;
use std::io::{self, PipeReader, Read as _, Write as _};
use std::os::fd::{AsFd as _, OwnedFd};
use std::process::ExitCode;
use std::time::{Duration, Instant};

use super::Test;
use super::args::Args;
use super::report::{Report, Verdict};
use super::supervisor::{self, code};
use crate::cause::ExitCause;
use crate::options::Stream;
use crate::pid::Pid;
use crate::sys::epoll::Epoll;
use crate::sys::fds;
use crate::sys::page::LifePage;
use crate::sys::process::{self, Side};
use crate::sys::wait::{self, Take};
use crate::threads;

/// Runs the tests that the command line chooses; the exit code of the test binary.
///
/// The calling process has one thread; see the module for what happens then.
///
/// Exit codes are those of the standard harness: 0, and 101 when a test failed or the command line
/// is wrong.
pub fn main(tests: &[Test]) -> ExitCode {
    let outcome = Args::parse(env::args().skip(1)).map_err(io::Error::other);
    match outcome.and_then(|args| run(tests, &args)) {
        Ok(true) => ExitCode::SUCCESS,
        Ok(false) => ExitCode::from(code::FAILED),
        Err(error) => {
            let _ = writeln!(io::stderr(), "error: {error}");
            ExitCode::from(code::FAILED)
        }
    }
}

fn run(tests: &[Test], args: &Args) -> io::Result<bool> {
    let mut report = Report::new(io::stdout(), args.quiet);
    let chosen: Vec<&Test> = tests.iter().filter(|test| args.wants(test)).collect();
    if args.list {
        return report.list(chosen.into_iter()).map(|()| true);
    }
    let (begin, filtered) = (Instant::now(), tests.len() - chosen.len());
    report.begin(chosen.len())?;
    let mut waiting: VecDeque<&Test> = chosen.into();
    let mut running: Vec<Running> = Vec::new();
    let epoll = Epoll::new()?;
    while !waiting.is_empty() || !running.is_empty() {
        while running.len() < args.at_once
            && let Some(test) = waiting.pop_front()
        {
            running.push(Running::start(test, args.nocapture, &epoll)?);
        }
        let ready = epoll.ready(Some(Instant::now() + Duration::from_secs(1)))?;
        for ended in advance(&mut running, &ready, &epoll)? {
            let verdict = ended.verdict()?;
            report.ended(ended.test.name, verdict, ended.output)?;
        }
    }
    report.finish(filtered, begin.elapsed())
}

/// Reads what is ready; takes out the supervisors whose output has ended.
fn advance(running: &mut Vec<Running>, ready: &[u64], epoll: &Epoll) -> io::Result<Vec<Running>> {
    let mut ended = Vec::new();
    for index in (0..running.len()).rev() {
        if ready.contains(&running[index].key()) && running[index].read(epoll)? {
            ended.push(running.swap_remove(index));
        }
    }
    Ok(ended)
}

/// A supervisor at work.
struct Running {
    test: Test,
    pid: Pid,
    pidfd: OwnedFd,
    /// Ends when the supervisor and everything below it has ended.
    pipe: PipeReader,
    page: LifePage,
    output: Vec<u8>,
}

/// What is kept of a test's output.
const OUTPUT_MAX: usize = 1 << 20;

impl Running {
    fn start(test: &Test, nocapture: bool, epoll: &Epoll) -> io::Result<Self> {
        let (pipe, writer) = io::pipe()?;
        let page = LifePage::anonymous()?;
        let alone = threads::alone().map_err(|_| io::Error::other("the runner has threads"))?;
        let pid = match process::fork(&alone)? {
            Side::Child => {
                drop(pipe);
                redirect(writer.into(), nocapture);
                let _ = process::set_group(Pid::this(), Pid::this());
                supervisor::supervise(test, &page, limit())
            }
            Side::ParentOf(pid) => pid,
        };
        let pidfd = process::open_pidfd(pid)?;
        epoll.add(pipe.as_fd(), u64::from(pid.raw().cast_unsigned()))?;
        Ok(Self {
            test: *test,
            pid,
            pidfd,
            pipe,
            page,
            output: Vec::new(),
        })
    }

    fn key(&self) -> u64 {
        u64::from(self.pid.raw().cast_unsigned())
    }

    /// Reads once; true at the end of the output.
    fn read(&mut self, epoll: &Epoll) -> io::Result<bool> {
        let mut chunk = [0; 8192];
        let count = self.pipe.read(&mut chunk)?;
        let room = OUTPUT_MAX.saturating_sub(self.output.len());
        self.output.extend_from_slice(&chunk[..count.min(room)]);
        if count == 0 {
            epoll.remove(self.pipe.as_fd())?;
        }
        Ok(count == 0)
    }

    /// The supervisor closed its output as it ended; its exit status follows at once.
    fn verdict(&self) -> io::Result<Verdict> {
        wait::wait_readable(self.pidfd.as_fd(), Instant::now() + Duration::from_secs(10))?;
        let cause = wait::ended(self.pidfd.as_fd(), Take::Reap)?;
        let words = self.page.words().unwrap_or_default();
        Ok(match cause {
            Some(ExitCause::Exited(code::PASSED)) => Verdict::Passed,
            Some(ExitCause::Exited(code::SKIPPED)) => Verdict::Skipped(words),
            Some(ExitCause::Exited(code::FAILED)) => Verdict::Failed(words),
            Some(cause) => Verdict::Failed(format!("the supervisor {cause}; {words}")),
            None => Verdict::Failed("the supervisor closed its output and runs on".to_owned()),
        })
    }
}

/// Output goes into the pipe, which stays open either way: its end is the end of the test.
fn redirect(writer: OwnedFd, nocapture: bool) {
    let mut streams = [None, None, None];
    if !nocapture {
        streams[Stream::Stdout.index()] = writer.try_clone().ok();
        streams[Stream::Stderr.index()] = writer.try_clone().ok();
    }
    let _ = fds::replace_streams(&streams);
    if nocapture {
        // The copy that all processes below inherit, instead of 1 and 2.
        std::mem::forget(writer);
    }
}

fn limit() -> Duration {
    let seconds = env::var("PROCFORK_TEST_SECONDS")
        .ok()
        .and_then(|text| text.parse().ok());
    Duration::from_secs(seconds.unwrap_or(30))
}
