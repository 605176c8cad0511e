//! The lines to the children: what the driver holds while it drives.

use std::os::fd::AsFd;
use std::sync::Arc;
use std::time::{Duration, Instant};

use hashbrown::HashSet;
use mailbox::{FdChannel, Identity, ParentEnd, Waiter};
use procfork::{Children, ProcessInfo, ProcessState};
use taskgraph::{BufferId, Dispatch, TaskId, WorkerId};

use crate::buffer::{BufferCore, Use};
use crate::control::{self, ControlRequest};
use crate::error::{Name, TaskCause, WorkerDied};
use crate::tree::TreeNode;
use crate::wire::WireBuffer;

use super::ahead::Ahead;
use super::answers::{decode_reply, take_event};
use super::core::Core;
use super::job::{Job, JobOutcome};

/// How long a dead child's exact cause may take to be known: its memory is freed first.
const CAUSE_PATIENCE: Duration = Duration::from_secs(10);
/// How long the driver waits for it at a stretch. Between two of them it serves the others.
const CAUSE_SLICE: Duration = Duration::from_millis(1);
/// How long a full descriptor channel may block the driver before the child counts as stuck.
const ANNOUNCE_PATIENCE: Duration = Duration::from_secs(5);

/// What the child at the other end of a line is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum LineKind {
    /// A chip worker.
    Chip,
    /// A worker with children of its own.
    Node,
    /// A sub worker.
    Sub,
}

/// The parent's end of everything between it and one child.
pub(crate) struct Line {
    pub(crate) path: Name,
    /// Zero until the child is made.
    pub(crate) pid: u32,
    pub(super) end: ParentEnd,
    channel: FdChannel,
    /// Buffers whose descriptors the child has been sent.
    known: HashSet<(BufferId, Use)>,
    /// Buffers that the child must unmap; sent when the control frame is free.
    unmaps: Vec<BufferId>,
    /// The graph that the last task was a node of: its buffers are known.
    graph: Option<TaskId>,
    job: Option<Arc<Job>>,
    /// Since when the child is known to be dying; how is not known yet, or something below it still runs.
    dying: Option<Instant>,
    /// A task of the next run that lies in a free frame, unseen by the child.
    pub(super) ahead: Option<Ahead>,
    /// Buffers that were announced for such tasks and that nothing sent since has made the child read.
    pub(super) announced_ahead: usize,
    pub(crate) died: Option<WorkerDied>,
    /// The processes below the child, which die after it.
    below: Vec<ProcessInfo>,
}

impl Line {
    /// The line to a child that is not made yet.
    pub(crate) fn new(path: Name, end: ParentEnd, channel: FdChannel) -> Self {
        Self {
            path,
            pid: 0,
            end,
            channel,
            known: HashSet::new(),
            unmaps: Vec::new(),
            graph: None,
            job: None,
            dying: None,
            ahead: None,
            announced_ahead: 0,
            died: None,
            below: Vec::new(),
        }
    }

    /// Notes which processes the subtree of the child has.
    pub(crate) fn note_below(&mut self, node: &TreeNode) {
        let pids = node
            .flatten()
            .into_iter()
            .filter(|below| below.pid != self.pid);
        let pids = pids.filter_map(|below| procfork::Pid::new(below.pid.cast_signed()));
        self.below
            .extend(pids.filter_map(|pid| ProcessInfo::of(pid).ok()));
    }

    /// Whether something below a dead child still runs. The kernel ends those processes after it; until then they may write
    /// what its tasks were given.
    fn is_survived(&self) -> bool {
        let runs = |seen: &ProcessInfo| {
            let now = ProcessInfo::of(seen.pid);
            now.is_ok_and(|now| now.is_same(seen) && now.state != ProcessState::Zombie)
        };
        self.below.iter().any(runs)
    }

    /// Tells the child that no more will come.
    pub(crate) fn shutdown(&mut self) {
        self.end.shutdown();
    }

    /// Whether the child has been sent the descriptor of a buffer for this use.
    pub(super) fn knows(&self, buffer: &BufferCore, how: Use) -> bool {
        self.known.contains(&(buffer.id(), how))
    }

    /// Sends the descriptor of a buffer that the child has not seen, with no more rights than the use asks for.
    pub(super) fn announce(&mut self, buffer: &BufferCore, how: Use) -> Result<(), String> {
        if !self.known.insert((buffer.id(), how)) {
            return Ok(());
        }
        let sent = self.send_descriptor(buffer, how);
        if sent.is_err() {
            self.known.remove(&(buffer.id(), how));
        }
        sent
    }

    /// The child could not map one of these buffers: they are announced again when something names them.
    fn strike(&mut self, buffers: &[BufferId]) {
        self.known.retain(|(id, _)| !buffers.contains(id));
        self.graph = None;
    }

    fn send_descriptor(&self, buffer: &BufferCore, how: Use) -> Result<(), String> {
        let header = WireBuffer::new(buffer.id(), buffer.bytes()).to_header(how);
        let fd = buffer.descriptor(how);
        let fd = fd.map_err(|error| control::chain(&error))?;
        let deadline = Some(Instant::now() + ANNOUNCE_PATIENCE);
        let sent = self.channel.send(header, &[fd.as_fd()], deadline);
        sent.map_err(|error| control::chain(&error))
    }

    fn send(&mut self, core: &Core, dispatch: &Dispatch) -> Result<(), String> {
        let identity = Identity {
            run: dispatch.run.0,
            slot: dispatch.task.slot,
            generation: dispatch.task.generation,
            dispatch: dispatch.dispatch.0,
        };
        if self.ahead.is_some()
            && let Some(sent) = self.send_staged(dispatch.task, identity)
        {
            self.graph = None;
            return sent;
        }
        let (record, task, node) = core
            .record_of(dispatch.task)
            .ok_or("the task has no record")?;
        // The nodes of a graph share what it holds, which keeps it from being unmapped.
        if node.is_none() || self.graph != Some(task) {
            for (buffer, how) in record.buffers() {
                if !self.knows(buffer, how) {
                    // It reads all that was announced before, too.
                    self.announced_ahead = 0;
                    self.announce(buffer, how)?;
                }
                // A node may read what the graph as a whole writes.
                if node.is_some() && how == Use::Write {
                    self.announce(buffer, Use::Read)?;
                }
            }
        }
        self.graph = node.map(|_| task);
        let node = node.zip(record.graph());
        let made = node.map(|(node, graph)| graph.payload(node, dispatch.member));
        let made = made.transpose()?;
        let payload = made.as_ref().or_else(|| {
            let member = (dispatch.member as usize).min(record.payloads.len().saturating_sub(1));
            record.payloads.get(member)
        });
        self.end
            .submit(identity, 0, payload.ok_or("the task has no payload")?)
            .map_err(|e| control::chain(&e))
    }

    fn death(&self, cause: procfork::ExitCause, last_words: Option<String>) -> WorkerDied {
        WorkerDied {
            worker: self.path.to_string(),
            pid: self.pid,
            cause,
            last_words,
        }
    }

    /// Sends the next control request, if there is one and the frame is free. One that could not be sent comes back.
    fn send_control(&mut self, core: &mut Core, index: usize) -> Option<FailedJob> {
        if self.job.is_some() || self.died.is_some() {
            return None;
        }
        let queued = core.jobs.iter().position(|job| job.line == index);
        let job = match queued {
            Some(position) => core.jobs.remove(position),
            None if self.unmaps.is_empty() => return None,
            None => {
                let unmaps = self.unmaps.drain(..);
                let buffers = unmaps.map(|id| WireBuffer::new(id, 0)).collect();
                Job::new(index, ControlRequest::Unmap { buffers })
            }
        };
        let failed = self.begin_job(&job).err();
        failed.map(|reason| (job, reason))
    }

    fn begin_job(&mut self, job: &Arc<Job>) -> Result<(), String> {
        if let Some(buffer) = &job.buffer {
            self.announce(buffer, job.request.use_of_buffer())?;
        }
        let bytes = control::encode(&job.request);
        self.end
            .control(0, &bytes)
            .map_err(|error| control::chain(&error))?;
        self.job = Some(Arc::clone(job));
        Ok(())
    }
}

/// A control request that could not be sent, and why.
type FailedJob = (Arc<Job>, String);

/// A child that has ended, by its line.
pub(super) struct Dead {
    index: usize,
    cause: procfork::ExitCause,
    last_words: Option<String>,
}

/// The lines of one worker, next-level workers first, in the order of their ids in the graph.
#[derive(Default)]
pub(crate) struct Lines {
    pub(crate) all: Vec<Line>,
    /// Bit `i`: line `i` owes an answer, so that the driver must look at it.
    owing: u64,
    /// Bit `i`: line `i` died.
    dead: u64,
    /// Children that broke the protocol and are to be ended, by line, with what they did.
    condemned: Vec<(usize, String)>,
    /// Some line has buffers to unmap.
    has_unmaps: bool,
    failed_sends: Vec<(Dispatch, String)>,
    failed_jobs: Vec<FailedJob>,
    pub(super) waiter: Waiter,
}

impl Lines {
    /// The line to a child. Children and lines are few, and looked up when somebody is about to sleep.
    pub(super) fn index_of(&self, child: &procfork::Child) -> Option<usize> {
        let pid = child.pid().raw().unsigned_abs();
        self.all.iter().position(|line| line.pid == pid)
    }

    /// Puts a new line in the place of a dead one.
    pub(crate) fn replace(&mut self, index: usize, line: Line) {
        self.all[index] = line;
        self.dead &= !(1 << index);
        self.owing &= !(1 << index);
        self.condemned.retain(|(line, _)| *line != index);
    }

    pub(super) fn is_alive(&self, index: usize) -> bool {
        self.dead & (1 << index) == 0
    }

    /// The lines that owe an answer.
    fn owing(&self) -> impl Iterator<Item = &Line> {
        let mut owing = self.owing;
        std::iter::from_fn(move || {
            let index = (owing != 0).then(|| owing.trailing_zeros() as usize)?;
            owing &= owing - 1;
            Some(&self.all[index])
        })
    }

    /// Whether a line that owes an answer has news. A load or two per such line.
    #[inline]
    pub(super) fn has_news(&self) -> bool {
        self.owing().any(|line| line.end.is_ready())
    }

    /// Asks for what [`Lines::has_news`] will look at, while there is something else to do.
    #[inline]
    pub(super) fn prefetch_news(&self) {
        self.owing().for_each(|line| line.end.prefetch());
    }

    /// Takes everything that the children said.
    pub(super) fn take_news(&mut self, core: &mut Core) {
        let mut owing = self.owing;
        while owing != 0 {
            let index = owing.trailing_zeros() as usize;
            owing &= owing - 1;
            self.take_news_of(index, core);
        }
        core.settle();
    }

    fn take_news_of(&mut self, index: usize, core: &mut Core) {
        let line = &mut self.all[index];
        loop {
            match line.end.poll() {
                Ok(Some(event)) => {
                    let unmapped = take_event(event, index, &line.path, core);
                    unmapped.into_iter().for_each(|ids| line.strike(&ids));
                }
                Ok(None) => break,
                Err(poisoned) => return self.give_up(index, &poisoned.to_string(), core),
            }
        }
        if line.job.is_some() {
            match line.end.poll_control() {
                Ok(Some(reply)) => {
                    let outcome = decode_reply(reply.outcome);
                    if let Some(job) = line.job.take() {
                        let unmapped = job.buffer.as_ref().filter(|_| outcome.is_unmapped());
                        unmapped
                            .into_iter()
                            .for_each(|buffer| line.strike(&[buffer.id()]));
                        job.finish(outcome, &mut core.later);
                        core.note_progress();
                    }
                    self.failed_jobs.extend(line.send_control(core, index));
                }
                Ok(None) => {}
                Err(poisoned) => return self.give_up(index, &poisoned.to_string(), core),
            }
        }
        self.note_owing(index, core);
    }

    /// Sends control requests and whatever the graph wants sent.
    pub(super) fn send_ready(&mut self, core: &mut Core) {
        if !core.jobs.is_empty() || self.has_unmaps {
            self.send_controls(core);
        }
        while let Some(dispatch) = core.graph.next_dispatch() {
            self.send(&dispatch, core);
        }
        if core.graph.has_next_run() {
            self.stage_ahead(core);
        }
        core.settle();
    }

    /// Has every child unmap these buffers that was told of them.
    pub(super) fn forget_buffers(&mut self, released: &[BufferId]) {
        for id in released {
            for line in self.all.iter_mut().filter(|line| line.died.is_none()) {
                let known = [Use::Read, Use::Write].map(|how| line.known.remove(&(*id, how)));
                if known.contains(&true) {
                    line.unmaps.push(*id);
                    self.has_unmaps = true;
                }
            }
        }
    }

    /// Whether a child without a task has been told to unmap something, or is to be.
    pub(super) fn has_idle_unmaps(&self) -> bool {
        let is_unmap = |job: &Arc<Job>| matches!(job.request, ControlRequest::Unmap { .. });
        self.all.iter().any(|line| {
            let told = line.job.as_ref().is_some_and(is_unmap) || !line.unmaps.is_empty();
            told && line.died.is_none() && line.end.in_flight() == 0
        })
    }

    fn send_controls(&mut self, core: &mut Core) {
        self.has_unmaps = false;
        for index in 0..self.all.len() {
            let failed = self.all[index].send_control(core, index);
            self.failed_jobs.extend(failed);
            self.note_owing(index, core);
        }
        let dead: Vec<Arc<Job>> = core
            .jobs
            .extract_if(.., |job| self.dead & (1 << job.line) != 0)
            .collect();
        for job in dead {
            let died = self.all[job.line].died.clone().expect("its line is dead");
            job.finish(JobOutcome::Died(died), &mut core.later);
            core.note_progress();
        }
    }

    fn send(&mut self, dispatch: &Dispatch, core: &mut Core) {
        let index = dispatch.worker.0 as usize;
        let line = &mut self.all[index];
        match line.send(core, dispatch) {
            Ok(()) => {
                self.owing |= 1 << index;
                core.note_sent(dispatch, &line.path);
                core.note_busy(index, true);
                if line.job.is_some() {
                    // Whoever waits for the answer need not wait for the task.
                    core.note_progress();
                }
            }
            Err(reason) => self.failed_sends.push((*dispatch, reason)),
        }
    }

    /// Whether a task or a request could not be sent (most likely its child has just died, which is to be found out first), or a child
    /// broke the protocol.
    pub(super) fn has_losses(&self) -> bool {
        !self.failed_sends.is_empty() || !self.failed_jobs.is_empty() || !self.condemned.is_empty()
    }

    /// Fails the tasks and requests that could not be sent: with the death of the child, unless it is alive all the same.
    /// Those for one that is dying wait until it is known how.
    pub(super) fn fail_failed_sends(&mut self, core: &mut Core) {
        let (jobs, sends) = self.take_failed();
        for (job, reason) in jobs {
            let died = self.all[job.line].died.clone();
            let outcome = died.map_or(JobOutcome::Protocol(reason), JobOutcome::Died);
            job.finish(outcome, &mut core.later);
            core.note_progress();
        }
        for (dispatch, reason) in sends {
            let line = &self.all[dispatch.worker.0 as usize];
            if self.is_alive(dispatch.worker.0 as usize) {
                let cause = match line.end.poisoned() {
                    Some(_) => TaskCause::Poisoned(reason),
                    None => TaskCause::NotSent(reason),
                };
                core.note_failure(dispatch.task, &line.path, cause);
            }
            // An error says that its worker was declared lost, and the task failed with that.
            let _ = core
                .graph
                .completed(dispatch.dispatch, taskgraph::Outcome::Failed);
        }
        core.settle();
    }

    /// What could not be sent to children of which is known whether they live.
    fn take_failed(&mut self) -> (Vec<FailedJob>, Vec<(Dispatch, String)>) {
        let lines = &self.all;
        let known = |line: usize| lines[line].dying.is_none() || lines[line].died.is_some();
        let jobs = self.failed_jobs.extract_if(.., |(job, _)| known(job.line));
        let sends = self
            .failed_sends
            .extract_if(.., |(dispatch, _)| known(dispatch.worker.0 as usize));
        (jobs.collect(), sends.collect())
    }

    fn note_owing(&mut self, index: usize, core: &Core) {
        let line = &self.all[index];
        core.note_busy(index, line.end.in_flight() > 0);
        if line.end.in_flight() > 0 || line.job.is_some() {
            self.owing |= 1 << index;
        } else {
            self.owing &= !(1 << index);
        }
    }

    /// Which of the children whose lines live are dead, and how. One that is dying is waited for a moment, and asked for
    /// again by the next call: [`Lines::has_dying`].
    pub(super) fn dead_of(&mut self, children: &Children) -> Vec<Dead> {
        let dead = |child| self.dead_child(child);
        children.iter().filter_map(dead).collect()
    }

    fn dead_child(&mut self, child: &procfork::Child) -> Option<Dead> {
        let index = self.index_of(child).filter(|&index| self.is_alive(index))?;
        let cause = match child.death_word().owner_died() {
            true => child.wait(Instant::now() + CAUSE_SLICE).ok(),
            false => Some(child.try_wait().ok().flatten()?),
        };
        let line = &mut self.all[index];
        let since = *line.dying.get_or_insert_with(Instant::now);
        let is_late = since.elapsed() >= CAUSE_PATIENCE;
        let cause = cause.or(is_late.then_some(procfork::ExitCause::Lost))?;
        if line.is_survived() && !is_late {
            return None;
        }
        Some(Dead {
            index,
            cause,
            last_words: child.last_words(),
        })
    }

    /// Whether a child is known to be dying, and not yet how.
    pub(crate) fn has_dying(&self) -> bool {
        let dying = |line: &Line| line.dying.is_some() && line.died.is_none();
        self.all.iter().any(dying)
    }

    /// Declares the worker of a dead child lost.
    pub(super) fn bury(&mut self, dead: Dead, core: &mut Core) {
        // What it published before it died counts.
        self.take_news_of(dead.index, core);
        self.lose(dead.index, dead.cause, dead.last_words, core);
    }

    /// Declares the worker of a child lost that was ended from here, if something of it is still waited for.
    pub(super) fn lose_ended(&mut self, ended: &procfork::Ended, core: &mut Core) {
        let pid = ended.pid.raw().unsigned_abs();
        let index = self.all.iter().position(|line| line.pid == pid);
        let Some(index) = index.filter(|&index| self.is_alive(index)) else {
            return;
        };
        self.take_news_of(index, core);
        if self.owing & (1 << index) != 0 {
            self.lose(index, ended.cause, None, core);
        } else {
            // As it was told to. Nothing is sent to it any more: what was to be unmapped went with it.
            self.dead |= 1 << index;
            let line = &mut self.all[index];
            line.died = Some(line.death(ended.cause, None));
        }
    }

    /// Ends the children that broke the protocol: they are of no use, and what they do next is anybody's guess. What was on
    /// them is given up after that, so that nobody else gets memory that they still write.
    pub(super) fn end_condemned(&mut self, children: &Children) -> Vec<(usize, String)> {
        let condemned = std::mem::take(&mut self.condemned);
        for child in children.iter() {
            let index = self.index_of(child);
            if condemned.iter().any(|(line, _)| Some(*line) == index) {
                // One that has ended by itself is as good.
                let _ = child.signal(procfork::Signal::KILL);
                let _ = child.wait(Instant::now() + CAUSE_PATIENCE);
            }
        }
        condemned
    }

    /// The child is ended: what it owed fails.
    pub(super) fn lose_condemned(&mut self, index: usize, reason: &str, core: &mut Core) {
        let path = Arc::clone(&self.all[index].path);
        core.worker_unusable(WorkerId(index as u32), &path, reason);
        core.note_progress();
    }

    fn lose(
        &mut self,
        index: usize,
        cause: procfork::ExitCause,
        last_words: Option<String>,
        core: &mut Core,
    ) {
        self.dead |= 1 << index;
        self.owing &= !(1 << index);
        let line = &mut self.all[index];
        let died = line.death(cause, last_words);
        let told = died.clone();
        core.later.tell(move || {
            let WorkerDied {
                worker,
                pid,
                cause,
                last_words,
            } = &told;
            let last_words = last_words.as_deref();
            tracing::warn!(%worker, pid, %cause, last_words, "a worker died");
        });
        line.end.poison(mailbox::Cause::PeerDied {
            side: mailbox::Side::Child,
        });
        line.died = Some(died.clone());
        core.note_busy(index, false);
        let job = line.job.take();
        // First: whoever learns of the death from the job finds its device memory lost, not leaked.
        core.worker_died(WorkerId(index as u32), died.clone());
        if let Some(job) = job {
            job.finish(JobOutcome::Died(died), &mut core.later);
        }
        core.note_progress();
    }

    /// The child broke the protocol, or is dead: it is not used any more, and is ended before what it owes is given up.
    fn give_up(&mut self, index: usize, reason: &str, core: &mut Core) {
        self.owing &= !(1 << index);
        if !self.is_alive(index) || self.condemned.iter().any(|(line, _)| *line == index) {
            return;
        }
        let line = &mut self.all[index];
        let (worker, why) = (Name::clone(&line.path), reason.to_owned());
        core.later.tell(move || {
            tracing::error!(%worker, reason = why, "a mailbox is unusable; its worker is ended");
        });
        if let Some(job) = line.job.take() {
            job.finish(JobOutcome::Protocol(reason.to_owned()), &mut core.later);
        }
        self.condemned.push((index, reason.to_owned()));
        core.note_progress();
    }
}
