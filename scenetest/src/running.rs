//! A case that runs: its process, what it prints, what it reports, and how it is ended.
//!
//! ```text
//!            pidfd readable                      nothing of it runs any more, or FOLLOW is over
//!   Going --------------------> Following ------------------------------------> finish
//!     |                                                                           ^
//!     | over: HUNG block, SIGTERM                pidfd readable, or GRACE is over |
//!     `---------------------------> Asked ---------------------------------------'
//! ```
//!
//! It is over by its deadline, by its own word, or by a signal to the runner; a second signal ends the grace.
//!
//! `finish` kills what is left in its group, sweeps whatever else descends from it, joins the
//! output, and judges. No step waits for the case: the runner looks after others meanwhile.

use std::fs::File;
use std::io::{self, Read as _};
use std::os::fd::{AsFd as _, BorrowedFd, OwnedFd};
use std::time::{Duration, Instant};

use facade::activity::{self, Board};
use procfork::dump::{CrashDesk, report_crashes};
use procfork::{
    Bounds, Child, Escalation, ForkOptions, Group, Pid, ProcessInfo, ProcessState, Pump, Reach,
    Signal, Stream, Termination, descendants,
};

use crate::case_process;
use crate::channel::Receiver;
use crate::context::Setup;
use crate::failure::Failure;
use crate::golden::Rewrite;
use crate::heard::Heard;
use crate::hung::{Stacks, Stuck};
use crate::limits::{Deadline, GRACE, SWEEP};
use crate::outcome::{CaseReport, Outcome, RoundsTable};
use crate::record::{self, Reporter};
use crate::select::Candidate;

/// How many crashes of a case are read; more would say the same.
const CRASHES_MAX: u32 = 4;

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
    /// Where the workers of the case say what they are doing.
    board: Board,
    hung: Option<(String, String)>,
    /// The signal that ends it together with the session.
    cut: Option<&'static str>,
    /// The golden file that it rewrites if it passes.
    golden: Option<Rewrite>,
    /// Where its processes wait when they crash.
    desk: CrashDesk,
    crashes: u32,
    crash: Option<String>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Phase {
    Going { deadline: Deadline },
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
        golden: Option<Rewrite>,
        session_end: Instant,
    ) -> io::Result<Self> {
        let (record, record_writer) = io::pipe()?;
        let desk = CrashDesk::new()?;
        let [pipe, page] = desk.descriptors()?;
        let (output, output_writer) = io::pipe()?;
        let errors_writer = output_writer.try_clone()?;
        let board = Board::new().map_err(io::Error::other)?;
        let published = board.clone();
        let options = ForkOptions::new(candidate.name.clone())
            .keep(board.as_fd())
            .group(Group::New)
            .stream(Stream::Stdin, File::open("/dev/null")?.into())
            .stream(Stream::Stdout, output_writer.into())
            .stream(Stream::Stderr, errors_writer.into())
            .give(record_writer.into())
            .give(pipe)
            .give(page);
        let (scene, case) = (candidate.scene.clone(), candidate.case.clone());
        let (devices, limit) = (setup.devices.clone(), case.limits.case);
        let started = setup.started;
        let child = procfork::fork(options, move |context| {
            let mut fds = context.fds.into_iter();
            let mut next = || fds.next().expect("it was given three");
            let reporter = Reporter::new(next());
            activity::publish(published);
            // Without it a crash is reported without its stack.
            let _ = report_crashes([next(), next()]);
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
                deadline: Deadline::of(started + limit, session_end),
            },
            board,
            hung: None,
            cut: None,
            golden,
            desk,
            crashes: 0,
            crash: None,
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
        let crashes = std::iter::once(self.desk.as_fd());
        process
            .into_iter()
            .chain(output)
            .chain(record)
            .chain(crashes)
    }

    /// When there is something to do even if no descriptor is ready.
    pub(crate) fn wake_at(&self) -> Instant {
        match self.phase {
            Phase::Going { deadline } => deadline.at,
            Phase::Asked { until } => until,
            // Nobody tells when the last of the others is gone.
            Phase::Following { until } => until.min(Instant::now() + Duration::from_millis(5)),
        }
    }

    /// Does what there is to do now; true when it is time to [`finish`](Self::finish).
    pub(crate) fn advance(&mut self, others: &[Pid], stacks: &mut Stacks) -> io::Result<bool> {
        self.read()?;
        self.look_at_crashes(stacks)?;
        let now = Instant::now();
        let ended = self.has_ended();
        match self.phase {
            Phase::Going { .. } if ended => {
                self.phase = Phase::Following {
                    until: now + FOLLOW,
                }
            }
            Phase::Going { deadline } => {
                if let Some(why) = self.why_over(now, deadline) {
                    self.time_out(why, stacks);
                }
            }
            Phase::Asked { until } if ended || now >= until => return Ok(true),
            Phase::Asked { .. } | Phase::Following { .. } => {}
        }
        Ok(match self.phase {
            Phase::Following { until } => now >= until || !self.something_runs(others),
            _ => false,
        })
    }

    /// Why a case that goes on is to end now.
    fn why_over(&self, now: Instant, deadline: Deadline) -> Option<&'static str> {
        if self.heard.time_is_over {
            return Some("it said so itself");
        }
        self.cut
            .or_else(|| (now >= deadline.at).then_some(deadline.whose))
    }

    /// A signal ends the session: at its next turn the case is shown and asked to end, unless it has ended.
    pub(crate) fn cut(&mut self, signal: &'static str) {
        self.cut = Some(signal);
    }

    /// Ends it at its next turn, unshown and unasked, unless it has ended.
    pub(crate) fn end_now(&mut self, why: &str) {
        if matches!(self.phase, Phase::Following { .. }) || self.has_ended() {
            return;
        }
        let (name, elapsed, devices) = (&self.name, self.started.elapsed(), &self.devices);
        self.hung.get_or_insert_with(|| {
            let seconds = elapsed.as_secs_f64();
            let block = format!(
                "HUNG {name} after {seconds:.1} s, limit {why}, devices {devices:?}\n  ended at once: nobody looked where it stood\n"
            );
            (why.to_owned(), block)
        });
        let until = Instant::now();
        self.phase = Phase::Asked { until };
    }

    /// Reads the stacks of what crashed, and lets it go on to its end.
    fn look_at_crashes(&mut self, stacks: &mut Stacks) -> io::Result<()> {
        while let Some(crash) = self.desk.try_next()? {
            self.crashes += 1;
            if self.crashes <= CRASHES_MAX && self.is_of_it(crash.pid) {
                let text = self.crash.get_or_insert_default();
                stacks.describe_crash(text, &crash, &self.board);
            }
            self.desk.let_go(&crash);
        }
        Ok(())
    }

    /// Whether a process is below this one: what came through a pipe is not trusted.
    fn is_of_it(&self, pid: Pid) -> bool {
        let below = || self.child.descendants();
        pid == self.pid() || below().iter().any(|process| process.pid == pid)
    }

    /// Describes where everything stands, and asks the process to end.
    fn time_out(&mut self, why: &str, stacks: &mut Stacks) {
        let elapsed = self.started.elapsed();
        let limit = match self.phase {
            Phase::Going { deadline } => {
                format!(
                    "{:.1} s ({why})",
                    (deadline.at - self.started).as_secs_f64()
                )
            }
            _ => why.to_owned(),
        };
        let block = self.describe(elapsed, &limit, stacks);
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
    pub(crate) fn describe_now(&self, stacks: &mut Stacks) -> String {
        let block = self.describe(self.started.elapsed(), "not reached", stacks);
        block.replacen("HUNG", "STATE", 1)
    }

    fn describe(&self, elapsed: Duration, limit: &str, stacks: &mut Stacks) -> String {
        stacks.describe(&Stuck {
            name: &self.name,
            child: &self.child,
            elapsed,
            limit,
            devices: &self.devices,
            output: &self.output.so_far().to_string(),
            board: &self.board,
        })
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
        let outcome = self.with_golden(self.judge(ended));
        let output = self.output.join(deadline)?;
        let rounds_ns: Vec<u64> = self.heard.rounds.iter().map(|round| round.ns).collect();
        let report = CaseReport {
            name: self.name,
            outcome,
            leaked,
            devices: self.devices,
            attempts: 1,
            began: Duration::ZERO,
            elapsed: self.started.elapsed(),
            rounds_table: RoundsTable::of(&rounds_ns),
            rounds_begin_ns: self
                .heard
                .rounds
                .iter()
                .map(|round| round.begin_ns)
                .collect(),
            rounds_ns,
            comparisons: self.heard.comparisons,
            output: output.to_string(),
            torn: self.receiver.torn(),
            hung: self.hung.map(|(_, block)| block),
            crash: self.crash,
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
            Ok(ended) => self.heard.judge(ended.cause),
            Err(error) => Outcome::Failed {
                reason: format!("its end cannot be found out: {error}"),
            },
        }
    }

    /// A case that passed has its new golden file, and no other one has.
    fn with_golden(&self, outcome: Outcome) -> Outcome {
        match (&outcome, &self.golden) {
            (Outcome::Rewritten { .. }, Some(golden)) => match golden.publish() {
                Ok(()) => outcome,
                Err(error) => Outcome::Failed {
                    reason: Failure::from(error).to_string(),
                },
            },
            _ => outcome,
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

fn is_readable(fd: BorrowedFd<'_>) -> io::Result<bool> {
    use nix::poll::{PollFd, PollFlags, PollTimeout, poll};
    let mut fds = [PollFd::new(fd, PollFlags::POLLIN)];
    Ok(poll(&mut fds, PollTimeout::ZERO)? > 0)
}
