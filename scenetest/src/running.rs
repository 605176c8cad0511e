//! A case that runs: its process, what it prints, what it reports, and how it is ended.
//!
//! ```text
//!            pidfd readable                      nothing of it runs any more, or FOLLOW is over
//!   Going --------------------> Following ------------------------------------> finish
//!     |                                                                           ^
//!     | deadline: HUNG block, SIGTERM            pidfd readable, or GRACE is over |
//!     `---------------------------> Asked ---------------------------------------'
//! ```
//!
//! `finish` kills what is left in its group, sweeps whatever else descends from it, joins the
//! output, and judges. No step waits for the case: the runner looks after others meanwhile.

use std::fs::File;
use std::io::{self, Read as _};
use std::os::fd::{AsFd as _, BorrowedFd, OwnedFd};
use std::time::{Duration, Instant};

use procfork::{
    Bounds, Child, Escalation, ExitCause, ForkOptions, Group, Pid, ProcessInfo, ProcessState, Pump,
    Reach, Signal, Stream, Termination, descendants,
};

use crate::case_process::{self, code};
use crate::channel::Receiver;
use crate::compare::Comparison;
use crate::context::Setup;
use crate::hung::{Stuck, describe};
use crate::limits::{GRACE, SWEEP};
use crate::outcome::{CaseReport, Outcome};
use crate::record::{self, Event, Reporter, Verdict};
use crate::select::Candidate;

/// How long what a case started may take to follow it.
const FOLLOW: Duration = Duration::from_millis(300);

/// A case that runs.
#[derive(Debug)]
pub(crate) struct Running {
    /// Which of the selected cases it is.
    pub(crate) index: usize,
    pub(crate) name: String,
    pub(crate) devices: Vec<u32>,
    pub(crate) started: Instant,
    child: Child,
    output: Pump,
    output_ended: bool,
    record: File,
    record_ended: bool,
    receiver: Receiver,
    heard: Heard,
    phase: Phase,
    hung: Option<(String, String)>,
}

/// What the case reported until now.
#[derive(Debug, Default)]
struct Heard {
    time_is_over: bool,
    verdict: Option<Verdict>,
    rounds_ns: Vec<u64>,
    comparisons: Vec<Comparison>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Phase {
    Going { deadline: Instant },
    Asked { until: Instant },
    Following { until: Instant },
}

/// A case that has ended, and what follows for others.
#[derive(Debug)]
pub(crate) struct Finished {
    pub(crate) index: usize,
    pub(crate) report: CaseReport,
    /// Devices that no other case may get.
    pub(crate) broken: Vec<u32>,
    /// Whether it is not its own fault, and it may be tried on others.
    pub(crate) may_retry: bool,
}

impl Running {
    /// Forks the process of a case.
    pub(crate) fn start(
        index: usize,
        candidate: &Candidate<'_>,
        setup: Setup,
        session_end: Instant,
    ) -> io::Result<Self> {
        let (record, record_writer) = io::pipe()?;
        let (output, output_writer) = io::pipe()?;
        let errors_writer = output_writer.try_clone()?;
        let options = ForkOptions::new(candidate.name.clone())
            .group(Group::New)
            .stream(Stream::Stdin, File::open("/dev/null")?.into())
            .stream(Stream::Stdout, output_writer.into())
            .stream(Stream::Stderr, errors_writer.into())
            .give(record_writer.into());
        let (scene, case) = (candidate.scene.clone(), candidate.case.clone());
        let (devices, limit) = (setup.devices.clone(), case.limits.case);
        let started = Instant::now();
        let child = procfork::fork(options, move |context| {
            let reporter = Reporter::new(context.fds.into_iter().next().expect("it was given one"));
            case_process::run(&scene, &case, setup, &reporter)
        });
        Ok(Self {
            index,
            name: candidate.name.clone(),
            devices,
            started,
            child: child.map_err(io::Error::other)?,
            output: Pump::new(output.into(), Bounds::default())?,
            output_ended: false,
            record: File::from(OwnedFd::from(record)),
            record_ended: false,
            receiver: Receiver::default(),
            heard: Heard::default(),
            phase: Phase::Going {
                deadline: (started + limit).min(session_end),
            },
            hung: None,
        })
    }

    pub(crate) fn pid(&self) -> Pid {
        self.child.pid()
    }

    /// The descriptors to wait for: the process's end, its output, its reports.
    pub(crate) fn fds(&self) -> impl Iterator<Item = BorrowedFd<'_>> {
        let ended = matches!(self.phase, Phase::Following { .. });
        let process = (!ended).then(|| self.child.pidfd());
        let output = (!self.output_ended).then(|| self.output.as_fd());
        let record = (!self.record_ended).then(|| self.record.as_fd());
        process.into_iter().chain(output).chain(record)
    }

    /// When there is something to do even if no descriptor is ready.
    pub(crate) fn wake_at(&self) -> Instant {
        match self.phase {
            Phase::Going { deadline } => deadline,
            Phase::Asked { until } => until,
            // Nobody tells when the last of the others is gone.
            Phase::Following { until } => until.min(Instant::now() + Duration::from_millis(5)),
        }
    }

    /// Does what there is to do now; true when it is time to [`finish`](Self::finish).
    pub(crate) fn advance(&mut self, others: &[Pid]) -> io::Result<bool> {
        self.read()?;
        let now = Instant::now();
        let ended = self.has_ended();
        match self.phase {
            Phase::Going { .. } if ended => {
                self.phase = Phase::Following {
                    until: now + FOLLOW,
                }
            }
            Phase::Going { .. } if self.heard.time_is_over => self.time_out("it said so itself"),
            Phase::Going { deadline } if now >= deadline => self.time_out("its time is over"),
            Phase::Asked { until } if ended || now >= until => return Ok(true),
            Phase::Going { .. } | Phase::Asked { .. } | Phase::Following { .. } => {}
        }
        Ok(match self.phase {
            Phase::Following { until } => now >= until || !self.something_runs(others),
            _ => false,
        })
    }

    /// Describes where everything stands, and asks the process to end.
    pub(crate) fn time_out(&mut self, why: &str) {
        let elapsed = self.started.elapsed();
        let limit = match self.phase {
            Phase::Going { deadline } => {
                format!("{:.1} s ({why})", (deadline - self.started).as_secs_f64())
            }
            _ => why.to_owned(),
        };
        let output = self.output.so_far().to_string();
        let (name, pid, devices) = (self.name.as_str(), self.pid(), self.devices.as_slice());
        let block = describe(&Stuck {
            name,
            pid,
            elapsed,
            limit: &limit,
            devices,
            output: &output,
        });
        self.hung = Some((limit, block));
        // A failure means that it has ended in between, which the next look finds. A stopped
        // process handles nothing before it goes on.
        let _ = self.child.signal(Signal::TERM);
        let _ = self.child.signal(Signal::CONT);
        self.phase = Phase::Asked {
            until: Instant::now() + GRACE,
        };
    }

    /// Where everything stands, without ending anything.
    pub(crate) fn describe_now(&self) -> String {
        let (name, pid, devices) = (self.name.as_str(), self.pid(), self.devices.as_slice());
        let (elapsed, output) = (self.started.elapsed(), self.output.so_far().to_string());
        describe(&Stuck {
            name,
            pid,
            elapsed,
            limit: "not reached",
            devices,
            output: &output,
        })
        .replacen("HUNG", "STATE", 1)
    }

    /// Ends whatever is left, and judges.
    pub(crate) fn finish(mut self) -> io::Result<Finished> {
        let in_group = self.group_members();
        let deadline = Instant::now() + SWEEP;
        let plan = Escalation::after(Duration::ZERO).reach(Reach::Descendants);
        let ended = self.child.terminate_with(plan, deadline);
        self.read()?;
        let timed_out = self.hung.is_some();
        let mut leaked: Vec<String> = Vec::new();
        if !timed_out {
            leaked.extend(
                in_group
                    .iter()
                    .map(|process| format!("{} ({})", process.name, process.pid)),
            );
            let strays = ended.as_ref().map_or(&[][..], |ended| &ended.strays);
            let further = strays
                .iter()
                .filter(|s| in_group.iter().all(|p| p.pid != s.process.pid));
            leaked.extend(further.map(ToString::to_string));
        }
        let (broken, before_first_round) = self.heard.broken();
        let outcome = self.judge(ended);
        let output = self.output.join(deadline)?;
        let report = CaseReport {
            name: self.name,
            outcome,
            leaked,
            devices: self.devices,
            attempts: 1,
            elapsed: self.started.elapsed(),
            rounds_ns: self.heard.rounds_ns,
            comparisons: self.heard.comparisons,
            output: output.to_string(),
            torn: self.receiver.torn(),
            hung: self.hung.map(|(_, block)| block),
        };
        Ok(Finished {
            index: self.index,
            report,
            may_retry: before_first_round,
            broken,
        })
    }

    fn judge(&self, ended: Result<Termination, procfork::ChildError>) -> Outcome {
        if let Some((limit, _)) = &self.hung {
            return Outcome::TimedOut {
                limit: limit.clone(),
            };
        }
        match ended {
            Ok(ended) => judge(self.heard.verdict.as_ref(), ended.cause),
            Err(error) => Outcome::Failed {
                reason: format!("its end cannot be found out: {error}"),
            },
        }
    }

    fn read(&mut self) -> io::Result<()> {
        if !self.output_ended {
            self.output_ended = self.output.advance()?;
        }
        let mut bytes = [0; 16 << 10];
        while !self.record_ended && is_readable(self.record.as_fd())? {
            match self.record.read(&mut bytes)? {
                0 => self.record_ended = true,
                count => {
                    for message in self.receiver.push(&bytes[..count]) {
                        self.heard.hear(record::decode(&message));
                    }
                }
            }
        }
        Ok(())
    }

    fn has_ended(&self) -> bool {
        !matches!(self.child.try_wait(), Ok(None))
    }

    /// Processes that its process left in its group. Its zombie proves whose group that is.
    fn group_members(&self) -> Vec<ProcessInfo> {
        let mut members = descendants(Pid::this()).unwrap_or_default();
        members.retain(|process| {
            process.pid != self.pid()
                && process.group == Some(self.pid())
                && process.state != ProcessState::Zombie
        });
        members
    }

    /// Whether something runs that may be of this case: below its process or in its group, or an
    /// orphan that the runner has adopted from whatever case.
    fn something_runs(&self, others: &[Pid]) -> bool {
        let all = descendants(Pid::this()).unwrap_or_default();
        let mut theirs: Vec<Pid> = others
            .iter()
            .copied()
            .filter(|&pid| pid != self.pid())
            .collect();
        // Breadth first: a parent comes before its children.
        for process in &all {
            if process
                .parent
                .is_some_and(|parent| theirs.contains(&parent))
            {
                theirs.push(process.pid);
            }
        }
        all.iter().any(|process| {
            process.pid != self.pid()
                && process.state != ProcessState::Zombie
                && !theirs.contains(&process.pid)
        })
    }
}

impl Heard {
    fn hear(&mut self, event: Option<Event>) {
        match event {
            Some(Event::Round { ns }) => self.rounds_ns.push(ns),
            Some(Event::Compared { comparisons }) => self.comparisons = comparisons,
            Some(Event::TimeIsOver) => self.time_is_over = true,
            Some(Event::Verdict { verdict }) => self.verdict = Some(verdict),
            None => {}
        }
    }

    fn broken(&self) -> (Vec<u32>, bool) {
        match &self.verdict {
            Some(Verdict::DeviceUnusable {
                devices,
                before_first_round,
                ..
            }) => (devices.clone(), *before_first_round),
            _ => (Vec::new(), false),
        }
    }
}

/// What a verdict and the end of the process come to. A verdict counts only if the process then
/// ended as one with such a verdict does.
fn judge(verdict: Option<&Verdict>, cause: ExitCause) -> Outcome {
    let failed = |reason: String| Outcome::Failed { reason };
    let Some(exit) = cause.code() else {
        return Outcome::Crashed {
            cause: cause.to_string(),
        };
    };
    match verdict {
        None => failed(format!("its process {cause} without a verdict")),
        Some(Verdict::Passed) if exit == code::PASSED => Outcome::Passed,
        Some(Verdict::Passed) => failed(format!("it passed, and then its process {cause}")),
        Some(Verdict::Failed { reason } | Verdict::DeviceUnusable { reason, .. }) => {
            failed(reason.clone())
        }
        Some(Verdict::Skipped { reason }) => Outcome::Skipped {
            reason: reason.clone(),
        },
        Some(Verdict::Panicked { message }) => failed(format!("panicked {message}")),
        Some(Verdict::ComparedNothing) => {
            failed("it compared nothing with its reference".to_owned())
        }
    }
}

fn is_readable(fd: BorrowedFd<'_>) -> io::Result<bool> {
    use nix::poll::{PollFd, PollFlags, PollTimeout, poll};
    let mut fds = [PollFd::new(fd, PollFlags::POLLIN)];
    Ok(poll(&mut fds, PollTimeout::ZERO)? > 0)
}

#[cfg(test)]
mod tests;
