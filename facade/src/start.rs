//! The start of one level of a tree: fork every child, bring all of them up at once, all or nothing.
//!
//! 1. For each child: a mailbox, a descriptor channel, a line; and `Init` with the deadline in the mailbox, so that the child
//!    finds the request when it comes to look for one, and nobody sleeps or is woken for it.
//! 2. The forks, one after the other with as little as possible in between. Each child is journalled as soon as it exists, so
//!    that a failure at any point is rolled back by the same steps that a close runs. It brings up what is below and around
//!    it, while its siblings are still being made, and answers with its subtree, or with the first cause and its place.
//! 3. The worker is ready when all have answered. The first failure ends the wait; the others are ended with the tree.
//!
//! The same code starts the root and every worker below it.

use std::cell::RefCell;
use std::ops::Range;
use std::sync::Arc;
use std::time::{Duration, Instant};

use lifecycle::{Journal, Step};
use mailbox::{FdChannel, Layout, Mailbox};
use procfork::{Child, Children, Group, Pid, Settings};
use taskgraph::{Depth, WorkerId, WorkerKind};

use crate::child::{ChildRole, Seat};
use crate::clock::WireInstant;
use crate::config::{Level, NodeSpec, StartMode};
use crate::control::{ControlReply, ControlRequest, FaultKind};
use crate::ending::{Ending, KILL_PATIENCE, end_children};
use crate::engine::{Engine, Job, JobOutcome, Line, LineKind};
use crate::error::{Error, Name, StartCause, StartError};
use crate::observe::{self, Observe};
use crate::outfit::Cradle;
use crate::progress::{Board, StartPhase, Watcher};
use crate::started::Started;
use crate::tree::{Role, TreeNode};
use crate::tree_plan::{PAYLOAD_MAX, Plan, child_paths, slot_offset};

/// Room of a task frame; longer payloads spill.
const TASK_BYTES: usize = 1024 - 32;
/// Room of a control frame; a subtree's description may be longer and spills.
const CONTROL_BYTES: usize = 4096 - 32;
/// How often a start looks whether it was cancelled, and what its caller should be told.
const CANCEL_PERIOD: Duration = Duration::from_millis(20);

/// One attempt to start a level.
pub(crate) struct Start<'a> {
    pub(crate) engine: &'a Arc<Engine>,
    pub(crate) plan: Plan,
    pub(crate) spec: &'a NodeSpec,
    pub(crate) deadline: Instant,
    /// The limit that the deadline came from, for messages.
    pub(crate) limit: Duration,
    pub(crate) cancelled: &'a dyn Fn() -> bool,
    /// Where the progress of all workers is noted, seen from this one.
    pub(crate) board: Board,
    /// Tells the caller what is new on the board; at the root only.
    pub(crate) watcher: Option<RefCell<Watcher<'a>>>,
}

impl Start<'_> {
    pub(crate) fn run(self, journal: &Journal<Error>) -> Result<Started, Error> {
        let began = Instant::now();
        let path = Arc::clone(self.engine.path());
        self.end_children_in(journal);
        self.trace_in(journal);
        // Asked once: the answer costs more than what it is about.
        let mode = self.mode();
        let (cradles, channels) = self.prepare(mode)?;
        let jobs = self.ask(0..cradles.len());
        if self.make_children(&cradles, channels)? == Made::All {
            self.board.note(StartPhase::ChildrenMade);
            tracing::debug!(worker = %path, elapsed = ?began.elapsed(), "forked all children");
        }
        drop(cradles);
        let children = self.bring_up(&jobs);
        if children.is_ok() {
            self.board.note(StartPhase::Ready);
        }
        self.look();
        let children = children?;
        tracing::info!(worker = %path, elapsed = ?began.elapsed(), "ready");
        let level = self.spec.level().unwrap_or(Level::Network3);
        let tree = TreeNode {
            children,
            ..TreeNode::here(&path, level, Role::Node)
        };
        Ok(Started::new(Arc::clone(self.engine), self.plan, tree))
    }

    /// Refuses to go on where the start was cancelled or its deadline has passed.
    fn go_on(&self) -> Result<(), Error> {
        let path = self.engine.path();
        if (self.cancelled)() {
            return Err(self.error(path, StartCause::Cancelled));
        }
        if Instant::now() >= self.deadline {
            return Err(self.error(path, self.deadline_passed()));
        }
        Ok(())
    }

    /// Journals the end of the children, whatever of them will exist.
    fn end_children_in(&self, journal: &Journal<Error>) {
        let (engine, ending) = (Arc::clone(self.engine), Ending::of(self.spec));
        journal.push(Step::new("end the children", move |deadline| {
            end_children(&engine, ending, deadline)
        }));
    }

    /// Has the tasks traced and, before the children end, their trace written, if that was asked for.
    fn trace_in(&self, journal: &Journal<Error>) {
        let Some(to) = self.spec.trace.clone() else {
            return;
        };
        let engine = Arc::clone(self.engine);
        engine.core().observer.watch(Observe::Trace);
        let lines = self.plan.lines(engine.path()).into_iter();
        let workers: Vec<String> = lines.map(|(_, path)| path).collect();
        journal.push(Step::new("write the trace", move |_| {
            observe::file::write(&engine, &workers, &to);
            Ok(())
        }));
    }

    /// Everything that the children need, and the lines to them. Done for all before the first is made: between two forks
    /// each page that this process writes is copied.
    fn prepare(&self, made: StartMode) -> Result<(Vec<Cradle>, Vec<FdChannel>), Error> {
        let plan = self.plan.lines(self.engine.path());
        self.engine.doorbell().expect_peers(plan.len() + 1);
        let mut lines = self.engine.claim_lines();
        let (mut cradles, mut channels) = (Vec::new(), Vec::new());
        for (index, (kind, path)) in plan.into_iter().enumerate() {
            let made = self.cradle(index, kind, &path, made);
            let (line, cradle, channel) = made.map_err(|cause| self.error(&path, cause))?;
            lines.all.push(line);
            cradles.push(cradle);
            channels.push(channel);
            self.enrol(kind)
                .map_err(|error| self.error(&path, StartCause::system(error)))?;
        }
        Ok((cradles, channels))
    }

    /// Makes the processes, until one of them says that it cannot start.
    fn make_children(&self, cradles: &[Cradle], channels: Vec<FdChannel>) -> Result<Made, Error> {
        let mut pids = Vec::with_capacity(cradles.len());
        self.engine.children.write().reserve(cradles.len());
        let made = self.make_each(cradles, channels, &mut pids);
        let mut lines = self.engine.claim_lines();
        for (line, pid) in lines.all.iter_mut().zip(pids) {
            line.pid = pid;
        }
        made
    }

    fn make_each(
        &self,
        cradles: &[Cradle],
        channels: Vec<FdChannel>,
        pids: &mut Vec<u32>,
    ) -> Result<Made, Error> {
        let (n_workers, registry) = (self.spec.n_workers(), self.plan.registry());
        for (cradle, channel) in cradles.iter().zip(channels) {
            self.go_on()?;
            if self.board.has_failure(n_workers) {
                return Ok(Made::UntilAFailure);
            }
            let child = cradle.make(self.group(), channel, &registry);
            let child = child.map_err(|cause| self.error(&cradle.seat.path, cause))?;
            pids.push(number_of(&child));
            let pushed = self.engine.children.write().push(child);
            pushed.map_err(|error| self.error(&cradle.seat.path, StartCause::system(error)))?;
            self.look_if_due();
        }
        Ok(Made::All)
    }

    /// What a child needs, and the line to it.
    fn cradle(
        &self,
        index: usize,
        kind: LineKind,
        path: &str,
        made: StartMode,
    ) -> Result<(Line, Cradle, FdChannel), StartCause> {
        let layout = Layout {
            task_frames: 2,
            task_bytes: TASK_BYTES,
            control_bytes: CONTROL_BYTES,
            spill_bytes: PAYLOAD_MAX,
        };
        let mailbox =
            Mailbox::create(layout, self.engine.doorbell()).map_err(StartCause::system)?;
        mailbox.keep_from_forks().map_err(StartCause::system)?;
        let twin = mailbox.twin().map_err(StartCause::system)?;
        let end = mailbox.into_parent().map_err(StartCause::system)?;
        let (here, there) = FdChannel::pair().map_err(StartCause::system)?;
        let board = self.board.below(slot_offset(self.spec, index));
        let cradle = Cradle {
            seat: Seat {
                path: path.to_owned(),
                role: self.role(index, kind),
                incarnation: self.engine.core().begin_life(index),
                limit: self.limit,
                made,
                settings: self.settings(index, kind),
                slot: board.slot(),
                n_slots: board.n_slots(),
            },
            mailbox: twin,
            board,
            feed: Arc::clone(self.engine.logs.writer()),
        };
        Ok((Line::new(Name::from(path), end, here), cradle, there))
    }

    /// Starts the dead worker on line `index` again, and brings it up; dead as before where it does not come up.
    pub(crate) fn respawn(&self, index: usize) -> Result<TreeNode, Error> {
        // The background driver is a thread, beside which nothing can be forked.
        let had_background = self.engine.stop_background();
        let init = self.init_of(index);
        let made = self.replace(index, &init);
        let driven = match had_background {
            true => self.engine.ensure_background(),
            false => Ok(()),
        };
        made?;
        self.engine.change(|_core| ());
        match driven.and_then(|()| self.bring_up(&[init])) {
            Ok(mut nodes) => self.welcome_back(index).map(|()| nodes.swap_remove(0)),
            Err(error) => {
                self.give_up(index);
                Err(error)
            }
        }
    }

    /// The graph may use the worker again, unless it has died once more meanwhile.
    fn welcome_back(&self, index: usize) -> Result<(), Error> {
        {
            // Whoever finds it dead holds the lines.
            let lines = self.engine.claim_lines();
            let line = &lines.all[index];
            if let Some(died) = &line.died {
                return Err(self.error(&line.path, StartCause::Died(died.clone())));
            }
            self.engine.core().worker_back(WorkerId(index as u32));
        }
        self.engine.change(|_core| ());
        Ok(())
    }

    /// A new child and line in the place of the dead ones. What it is asked first is to come up, whatever others have asked
    /// of the dead one, or ask as soon as they may.
    fn replace(&self, index: usize, init: &Arc<Job>) -> Result<(), Error> {
        let (kind, path) = self.plan.lines(self.engine.path()).swap_remove(index);
        let mut lines = self.engine.claim_lines();
        let made = self.cradle(index, kind, &path, self.mode());
        let made = made.and_then(|(line, cradle, channel)| {
            let child = cradle.make(self.group(), channel, &self.plan.registry())?;
            Ok((line, child))
        });
        let (mut line, child) = made.map_err(|cause| self.error(&path, cause))?;
        line.pid = number_of(&child);
        let mut children = self.engine.children.write();
        let old = pid_of(&children, lines.all[index].pid);
        let pushed = children.push(child);
        pushed.map_err(|error| self.error(&path, StartCause::system(error)))?;
        lines.replace(index, line);
        self.engine.core().jobs.insert(0, Arc::clone(init));
        // Dropping the old child reaps it.
        drop(old.and_then(|pid| children.remove(pid)));
        Ok(())
    }

    /// Ends a child that did not come up: it is dead to the graph already, and now it is.
    fn give_up(&self, index: usize) {
        let mut lines = self.engine.claim_lines();
        let children = self.engine.children.read();
        let child = pid_of(&children, lines.all[index].pid).and_then(|pid| children.get(pid));
        if let Some(child) = child {
            // One that has ended by itself is as good.
            let _ = child.signal(procfork::Signal::KILL);
            let _ = child.wait(Instant::now() + KILL_PATIENCE);
        }
        self.engine.bury_dead(&children, &mut lines);
    }

    /// The mode that `Auto` stands for in this process.
    fn mode(&self) -> StartMode {
        match self.spec.mode {
            StartMode::Auto if self.plan.registry().to_wire().is_err() => StartMode::Fork,
            StartMode::Auto
                if procfork::is_single_threaded() && resident_bytes() < FORK_BYTES_MAX =>
            {
                StartMode::Fork
            }
            StartMode::Auto => StartMode::Spawn,
            mode => mode,
        }
    }

    /// Tells the graph of the new worker.
    fn enrol(&self, kind: LineKind) -> Result<(), taskgraph::EventError> {
        let kind = match kind {
            LineKind::Chip | LineKind::Node => WorkerKind::NextLevel,
            LineKind::Sub => WorkerKind::Sub,
        };
        self.engine
            .core()
            .graph
            .add_worker(kind, Depth::Two)
            .map(drop)
    }

    fn role(&self, index: usize, kind: LineKind) -> ChildRole {
        match kind {
            LineKind::Sub => ChildRole::Sub,
            LineKind::Chip => {
                let device = self.spec.devices[index];
                ChildRole::Chip {
                    platform: self.spec.platform,
                    device,
                    index: index as u32,
                    options: self.spec.chip,
                    faults: self.spec.faults_of(device),
                }
            }
            LineKind::Node => {
                let child = &self.spec.children[index - self.spec.devices.len()];
                ChildRole::Node(Box::new(child.below(self.spec)))
            }
        }
    }

    /// What the process of a child may use.
    fn settings(&self, index: usize, kind: LineKind) -> Settings {
        let settings = &self.spec.settings;
        let (n_chips, n_nodes) = (self.spec.devices.len(), self.spec.children.len());
        match kind {
            LineKind::Chip => settings.of_chip(index as u32),
            LineKind::Node => self.spec.children[index - n_chips].settings.own.clone(),
            LineKind::Sub => settings.of_sub((index - n_chips - n_nodes) as u32),
        }
    }

    /// Tells the caller what is new, unless that was done a moment ago: a look costs a few loads for each worker.
    fn look_if_due(&self) {
        if let Some(watcher) = &self.watcher {
            watcher.borrow_mut().look_after(CANCEL_PERIOD);
        }
    }

    /// Tells the caller what is new.
    fn look(&self) {
        if let Some(watcher) = &self.watcher {
            watcher.borrow_mut().look();
        }
    }

    /// The deadline has passed: for whom the start was waiting.
    fn deadline_passed(&self) -> StartCause {
        let watcher = self.watcher.as_ref();
        StartCause::Deadline {
            limit: self.limit,
            waiting: watcher.map_or_else(Vec::new, |watcher| watcher.borrow().unready()),
        }
    }

    /// The root's children share a group of their own; what is below them inherits it.
    fn group(&self) -> Group {
        if self.engine.is_root() {
            self.engine.children.read().group()
        } else {
            Group::Inherit
        }
    }

    /// What asks the child on this line to come up.
    fn init_of(&self, line: usize) -> Arc<Job> {
        let until = WireInstant::of(self.deadline);
        Job::new(line, ControlRequest::Init { until })
    }

    /// Sends `Init` to the children on these lines, each of which finds it when it comes to wait for a request.
    fn ask(&self, lines: Range<usize>) -> Vec<Arc<Job>> {
        let jobs: Vec<Arc<Job>> = lines.map(|line| self.init_of(line)).collect();
        self.engine.post(&jobs);
        jobs
    }

    /// Waits for the first failure or the last success.
    fn bring_up(&self, jobs: &[Arc<Job>]) -> Result<Vec<TreeNode>, Error> {
        let over = || jobs.iter().all(|job| job.is_done()) || jobs.iter().any(|job| failed(job));
        while !over() {
            let until = self.deadline.min(Instant::now() + CANCEL_PERIOD);
            self.engine.wait_until(Some(until), &over);
            self.look_if_due();
            if (self.cancelled)() {
                return Err(self.error(self.engine.path(), StartCause::Cancelled));
            }
            if Instant::now() >= self.deadline && !over() {
                return Err(self.late(jobs));
            }
        }
        // One that failed says why; the others may not have answered yet.
        if let Some(job) = jobs.iter().find(|job| failed(job)) {
            return Err(self.subtree(job).err().unwrap_or_else(|| self.late(jobs)));
        }
        let nodes: Vec<TreeNode> = jobs
            .iter()
            .map(|job| self.subtree(job))
            .collect::<Result<_, _>>()?;
        let mut lines = self.engine.claim_lines();
        for (job, node) in jobs.iter().zip(&nodes) {
            lines.all[job.line].note_below(node);
        }
        Ok(nodes)
    }

    /// The path of a child. The line has it too, but somebody may be driving.
    fn path_of(&self, line: usize) -> String {
        child_paths(self.engine.path(), self.spec).swap_remove(line)
    }

    /// The subtree of a child that is up, or why it is not.
    fn subtree(&self, job: &Job) -> Result<TreeNode, Error> {
        if let Some(JobOutcome::Reply(ControlReply::Ready(node))) = job.outcome() {
            return Ok(node.clone());
        }
        let path = self.path_of(job.line);
        Err(match job.outcome() {
            Some(JobOutcome::Reply(ControlReply::Failed(remote))) => {
                // The deadline is one for all; who stands at the top of the board knows most of it.
                let cause = match remote.kind {
                    FaultKind::Deadline if self.watcher.is_some() => self.deadline_passed(),
                    _ => StartCause::Remote(remote.clone()),
                };
                self.error(&remote.path, cause)
            }
            Some(JobOutcome::Died(died)) => self.error(&path, StartCause::Died(died.clone())),
            Some(JobOutcome::Protocol(reason)) => {
                let error = std::io::Error::other(reason.clone());
                self.error(&path, StartCause::system(error))
            }
            Some(JobOutcome::Reply(other)) => {
                let error = std::io::Error::other(format!("the unexpected answer {other:?}"));
                self.error(&path, StartCause::system(error))
            }
            None => self.error(&path, self.deadline_passed()),
        })
    }

    /// The first child that has not answered by the deadline.
    fn late(&self, jobs: &[Arc<Job>]) -> Error {
        let job = jobs.iter().find(|job| !job.is_done());
        let path = job.map(|job| self.path_of(job.line));
        let path = path.unwrap_or_else(|| self.engine.path().to_string());
        self.error(&path, self.deadline_passed())
    }

    fn error(&self, path: &str, cause: StartCause) -> Error {
        StartError {
            worker: path.to_owned(),
            cause,
        }
        .into()
    }
}

/// How far the making of the children came.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Made {
    All,
    /// One of those that were made says that it cannot start.
    UntilAFailure,
}

/// Above this much resident memory a fork costs more than starting the program again: `tree_start_ms` of both modes in
/// `docs/performance.md`, from roots of several sizes.
const FORK_BYTES_MAX: u64 = 32 << 20;

/// Resident memory of this process, in bytes. Unknown counts as little.
fn resident_bytes() -> u64 {
    let statm = std::fs::read_to_string("/proc/self/statm").unwrap_or_default();
    let pages = statm
        .split(' ')
        .nth(1)
        .and_then(|pages| pages.parse::<u64>().ok());
    pages.unwrap_or(0) * page_bytes()
}

fn number_of(child: &Child) -> u32 {
    child.pid().raw().unsigned_abs()
}

/// Bytes of a page of this machine.
fn page_bytes() -> u64 {
    use nix::unistd::{SysconfVar, sysconf};
    let bytes = sysconf(SysconfVar::PAGE_SIZE).ok().flatten();
    bytes.map_or(4096, i64::unsigned_abs)
}

/// The child with this number.
fn pid_of(children: &Children, pid: u32) -> Option<Pid> {
    let mut pids = children.iter().map(Child::pid);
    pids.find(|found| found.raw().unsigned_abs() == pid)
}

fn failed(job: &Job) -> bool {
    job.outcome()
        .is_some_and(|outcome| !matches!(outcome, JobOutcome::Reply(ControlReply::Ready(_))))
}
