//! A session: starts cases as devices become free, looks after those that run, and stops when all
//! have ended.
//!
//! The runner stays single-threaded, because it forks; it never waits for one case alone.

use std::collections::VecDeque;
use std::io;
use std::path::Path;
use std::time::{Duration, Instant};

use nix::errno::Errno;
use nix::poll::{PollFd, PollFlags, PollTimeout, poll};
use nix::sys::signal::{SigSet, Signal as Number};
use nix::sys::signalfd::{SfdFlags, SignalFd};
use nix::sys::wait::{WaitPidFlag, waitpid};
use procfork::{Pid, ProcessState, descendants};

use crate::args::Args;
use crate::context::Setup;
use crate::display::Display;
use crate::golden::Rewrite;
use crate::hung::Stacks;
use crate::outcome::{CaseReport, Outcome, SessionReport};
use crate::pool::Pool;
use crate::running::{Finished, Running};
use crate::select::Selected;
use crate::trace;

/// Between two looks at everything, for displays that show the time.
const TICK: Duration = Duration::from_secs(1);

pub(crate) struct Session<'s, 'a> {
    args: &'a Args,
    selected: &'a [Selected<'s>],
    display: &'a mut Display,
    pool: Pool,
    slots: usize,
    /// Indices of the selected cases that are to be started, in the order in which it is tried.
    waiting: VecDeque<usize>,
    running: Vec<Running>,
    reports: Vec<Option<CaseReport>>,
    attempts: Vec<u32>,
    signals: SignalFd,
    stacks: Stacks,
    /// Where cases write what their workers did, each into a directory of its own.
    traces: Option<&'a Path>,
    begin: Instant,
    /// The same on the clock of the traces.
    began_ns: u64,
    /// Set when no further case is to be started, with the reason.
    stopping: Option<String>,
    interrupted: Option<&'static str>,
}

impl<'s, 'a> Session<'s, 'a> {
    pub(crate) fn new(
        args: &'a Args,
        selected: &'a [Selected<'s>],
        display: &'a mut Display,
        traces: Option<&'a Path>,
    ) -> io::Result<Self> {
        let processors = std::thread::available_parallelism().map_or(1, usize::from);
        let mut signals = SigSet::empty();
        [Number::SIGUSR1, Number::SIGINT, Number::SIGTERM]
            .into_iter()
            .for_each(|s| signals.add(s));
        // Children of procfork begin with an empty mask.
        signals.thread_block()?;
        procfork::adopt_orphans(true)?;
        Ok(Self {
            args,
            selected,
            display,
            pool: Pool::new(&args.device.0),
            slots: args.max_parallel.map_or(processors, usize::from),
            waiting: VecDeque::new(),
            running: Vec::new(),
            reports: vec![None; selected.len()],
            attempts: vec![0; selected.len()],
            signals: SignalFd::with_flags(
                &signals,
                SfdFlags::SFD_NONBLOCK | SfdFlags::SFD_CLOEXEC,
            )?,
            stacks: Stacks::new(),
            traces,
            begin: Instant::now(),
            began_ns: trace::now_ns()?,
            stopping: None,
            interrupted: None,
        })
    }

    /// Runs everything.
    pub(crate) fn run(mut self) -> io::Result<SessionReport> {
        self.display.begin(self.selected.len(), self.args)?;
        self.queue()?;
        loop {
            self.start_what_fits()?;
            if self.running.is_empty() {
                break;
            }
            self.wait()?;
            self.look_at_signals()?;
            self.look_at_time()?;
            self.advance()?;
            self.display.progress(&self.running)?;
        }
        self.display.quiet()?;
        Ok(self.report())
    }

    fn session_end(&self) -> Instant {
        self.begin + self.args.session_timeout
    }

    /// Settles the cases that are not to be run, and puts the others in order: those with many
    /// devices first, because they fit only while little else runs.
    fn queue(&mut self) -> io::Result<()> {
        let mut order: Vec<usize> = Vec::new();
        for (index, selected) in self.selected.iter().enumerate() {
            let case = &selected.candidate.case;
            if let Some(reason) = &selected.skip {
                self.settle_unstarted(
                    index,
                    Outcome::Skipped {
                        reason: reason.clone(),
                    },
                )?;
            } else if !self.pool.could_fit(case.devices) {
                self.settle_unstarted(index, self.too_many_devices(index))?;
            } else {
                order.push(index);
            }
        }
        order.sort_by_key(|&index| std::cmp::Reverse(self.devices_of(index)));
        self.waiting = order.into();
        Ok(())
    }

    fn devices_of(&self, index: usize) -> u32 {
        self.selected[index].candidate.case.devices
    }

    fn too_many_devices(&self, index: usize) -> Outcome {
        let (wants, usable) = (self.devices_of(index), self.pool.usable());
        let broken = match self.pool.broken() {
            [] => String::new(),
            broken => format!(", and {broken:?} broke"),
        };
        let reason = format!("it needs {wants} devices, and the pool has {usable}{broken}");
        Outcome::NotRun { reason }
    }

    fn start_what_fits(&mut self) -> io::Result<()> {
        if let Some(reason) = self.stopping.clone() {
            while let Some(index) = self.waiting.pop_front() {
                self.settle_unstarted(
                    index,
                    Outcome::NotRun {
                        reason: reason.clone(),
                    },
                )?;
            }
            return Ok(());
        }
        let mut at = 0;
        while at < self.waiting.len() && self.running.len() < self.slots {
            let index = self.waiting[at];
            if !self.pool.could_fit(self.devices_of(index)) {
                self.waiting.remove(at);
                self.settle_unstarted(index, self.too_many_devices(index))?;
                continue;
            }
            match self.pool.take(self.devices_of(index)) {
                Some(devices) => {
                    self.waiting.remove(at);
                    self.start(index, devices)?;
                }
                None => at += 1,
            }
        }
        Ok(())
    }

    fn start(&mut self, index: usize, devices: Vec<u32>) -> io::Result<()> {
        let candidate = &self.selected[index].candidate;
        self.attempts[index] += 1;
        self.display.start(&candidate.name)?;
        let golden = self.selected[index]
            .update_golden
            .then(|| candidate.scene.golden_of(&candidate.case))
            .flatten()
            .map(Rewrite::of);
        let setup = Setup {
            platform: self.args.platform,
            devices: devices.clone(),
            rounds: self.args.rounds.get(),
            started: Instant::now(),
            staged_golden: golden.as_ref().map(|golden| golden.staged().to_owned()),
            heat_maps: self.args.heat_map.clone(),
            traces: self.traces.map(|dir| trace::dir_of(dir, index)),
        };
        match Running::start(index, candidate, setup, golden, self.session_end()) {
            Ok(running) => self.running.push(running),
            Err(error) => {
                self.pool.give_back(&devices);
                let reason = format!("its process cannot be started: {error}");
                self.settle_unstarted(index, Outcome::NotRun { reason })?;
            }
        }
        Ok(())
    }

    fn wait(&self) -> io::Result<()> {
        let wake = self.running.iter().map(Running::wake_at).min();
        let soon = Instant::now() + TICK;
        let until = wake.map_or(soon, |wake| wake.min(soon));
        let left = until.saturating_duration_since(Instant::now());
        // Rounded up, so that it does not wake just before the time.
        let timeout = u16::try_from(left.as_millis() + 1).unwrap_or(u16::MAX);
        let all = self.running.iter().flat_map(Running::fds);
        let mut fds: Vec<PollFd<'_>> = all.map(|fd| PollFd::new(fd, PollFlags::POLLIN)).collect();
        fds.push(PollFd::new(
            std::os::fd::AsFd::as_fd(&self.signals),
            PollFlags::POLLIN,
        ));
        match poll(&mut fds, PollTimeout::from(timeout)) {
            Ok(_) | Err(Errno::EINTR) => Ok(()),
            Err(error) => Err(error.into()),
        }
    }

    /// SIGUSR1 shows where everything stands; SIGINT and SIGTERM end the session, and each further one at once.
    fn look_at_signals(&mut self) -> io::Result<()> {
        while let Some(signal) = self.signals.read_signal()? {
            if signal.ssi_signo == Number::SIGUSR1 as u32 {
                for running in &self.running {
                    self.display
                        .block(&running.describe_now(&mut self.stacks))?;
                }
                continue;
            }
            let name = Number::try_from(signal.ssi_signo as i32).map_or("a signal", Number::as_str);
            self.interrupt(name);
        }
        Ok(())
    }

    /// Hosts of CI send a second signal when the first has not ended everything soon.
    fn interrupt(&mut self, signal: &'static str) {
        if let Some(first) = self.interrupted {
            let why = format!("{signal} after {first}");
            self.running.iter_mut().for_each(|one| one.end_now(&why));
            return;
        }
        self.interrupted = Some(signal);
        self.stop(format!("{signal} ended the session"));
        self.running.iter_mut().for_each(|one| one.cut(signal));
    }

    fn look_at_time(&mut self) -> io::Result<()> {
        if Instant::now() >= self.session_end() && self.stopping.is_none() {
            self.stop(format!(
                "the session's time is over ({:?})",
                self.args.session_timeout
            ));
        }
        Ok(())
    }

    fn stop(&mut self, reason: String) {
        self.stopping.get_or_insert(reason);
    }

    fn advance(&mut self) -> io::Result<()> {
        let all: Vec<Pid> = self.running.iter().map(Running::pid).collect();
        let mut at = 0;
        let before = self.running.len();
        while at < self.running.len() {
            // Showing where a case stands takes a while, and after each of them somebody may be in a hurry.
            self.look_at_signals()?;
            if self.running[at].advance(&all, &mut self.stacks)? {
                let running = self.running.swap_remove(at);
                let began = running.started.saturating_duration_since(self.begin);
                let mut finished = running.finish()?;
                finished.report.began = began;
                self.settle(finished)?;
            } else {
                at += 1;
            }
        }
        if self.running.len() < before {
            reap_adopted(&all);
        }
        Ok(())
    }

    fn settle(&mut self, finished: Finished) -> io::Result<()> {
        let Finished {
            index,
            mut report,
            broken,
            may_retry,
        } = finished;
        report.attempts = self.attempts[index];
        broken
            .iter()
            .for_each(|&device| self.pool.break_device(device));
        self.pool.give_back(&report.devices);
        if may_retry && report.attempts == 1 && self.stopping.is_none() {
            self.display.retry(&report)?;
            self.waiting.push_front(index);
            return Ok(());
        }
        if !report.outcome.is_good() && self.args.exitfirst {
            self.stop(format!(
                "{} did not pass, and --exitfirst was given",
                report.name
            ));
        }
        self.display.ended(&report)?;
        self.reports[index] = Some(report);
        Ok(())
    }

    fn settle_unstarted(&mut self, index: usize, outcome: Outcome) -> io::Result<()> {
        let mut report =
            CaseReport::unstarted(self.selected[index].candidate.name.clone(), outcome);
        report.attempts = self.attempts[index];
        self.display.ended(&report)?;
        self.reports[index] = Some(report);
        Ok(())
    }

    fn report(self) -> SessionReport {
        let settled = self
            .reports
            .into_iter()
            .zip(self.selected)
            .map(|(report, selected)| {
                report.unwrap_or_else(|| {
                    let reason = "the runner lost it; this is a fault of the runner".to_owned();
                    CaseReport::unstarted(
                        selected.candidate.name.clone(),
                        Outcome::NotRun { reason },
                    )
                })
            });
        SessionReport {
            cases: settled.collect(),
            began_ns: self.began_ns,
            elapsed: self.begin.elapsed(),
            broken_devices: self.pool.broken().to_vec(),
            interrupted: self.interrupted.map(str::to_owned),
        }
    }
}

/// Orphans that ended as children of the runner; `leaders` are its own, which others reap.
fn reap_adopted(leaders: &[Pid]) {
    let this = Pid::this();
    for process in descendants(this).unwrap_or_default() {
        let adopted = process.parent == Some(this) && !leaders.contains(&process.pid);
        if adopted && process.state == ProcessState::Zombie {
            let pid = nix::unistd::Pid::from_raw(process.pid.raw());
            let _ = waitpid(pid, Some(WaitPidFlag::WNOHANG));
        }
    }
}
