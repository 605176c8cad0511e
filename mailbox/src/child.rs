//! The child's side: takes requests in order, answers each once.
//!
//! ```text
//!  next() ------> Task ----accept----> Task ----complete----> answered
//!                   \_________________complete________________/
//! ```
//!
//! While it has nothing to do it looks at one line per frame and at the life word, all of which stay in
//! its own cache until the parent writes one of them. A child may hold as many tasks as there are frames
//! (to prepare one while another executes) and complete them in any order.
//!
//! What the parent wrote is checked as strictly as the other way round: a parent with a broken memory
//! must not become a child that does the wrong thing.

use std::time::Instant;

use crate::frame::{Bytes, FrameError, Identity, Stamp, TooLong, following};
use crate::layout::Side;
use crate::mailbox::{Exchange, FRAMES, Life, Shared};
use crate::message::{Failure, Ticket, encode_failure, label};
use crate::parent::{impossible, unreadable};
use crate::poison::{Cause, FrameName, Poisoned};
use crate::segment::SegmentError;
use crate::wait::{Activity, Probe, WaitError, WaitStats, Waiter};

/// The child's side of a mailbox.
#[derive(Debug)]
pub struct ChildEnd {
    shared: Shared,
    waiter: Waiter,
    /// Sequence number of the next task.
    due: u32,
    tasks: [Desk; FRAMES],
    control: Desk,
    failure: Vec<u8>,
    poisoned: Option<Poisoned>,
}

/// What a child has been asked to do.
#[derive(Debug)]
pub enum Request {
    /// Execute a task, then [`ChildEnd::complete`] it.
    Task(Task),
    /// Serve a control request, then [`ChildEnd::reply`] to it.
    Control(Control),
    /// Nothing more will come. Given again by every later [`ChildEnd::next`].
    Shutdown,
}

/// A task to execute: a private copy of what the parent sent.
#[derive(Debug)]
#[must_use = "the parent waits until the task is completed"]
pub struct Task(Ticket);

/// A control request to serve: a private copy of what the parent sent.
#[derive(Debug)]
#[must_use = "the parent waits until the request is answered"]
pub struct Control(Ticket);

/// Why there is no request.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum NextError {
    /// The deadline passed; nothing has changed.
    #[error("wait for a request: the deadline passed")]
    Deadline,
    /// The endpoint was given up, for example because the parent is dead.
    #[error("wait for a request")]
    Poisoned(#[from] Poisoned),
}

/// An answer that was not sent, and the request that is still unanswered.
#[derive(Debug, thiserror::Error)]
#[error("answer a request")]
pub struct Refused<T> {
    /// The request: answer it otherwise.
    pub request: Box<T>,
    /// Why.
    #[source]
    pub error: ReplyError,
}

/// Why an answer was not sent. Nothing has changed.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ReplyError {
    /// The endpoint was given up.
    #[error("the mailbox is no longer in use")]
    Poisoned(#[from] Poisoned),
    /// The result fits no place.
    #[error(
        "the result has {needed} bytes: the frame holds {capacity}, and with its spill area {limit}"
    )]
    TooLarge {
        /// Bytes of the result.
        needed: usize,
        /// Bytes that the frame holds by itself.
        capacity: usize,
        /// Bytes that it holds with its spill area.
        limit: usize,
    },
    /// The machine has no memory for a result that must spill.
    #[error("the result must spill")]
    Spill(#[source] SegmentError),
}

/// What the child remembers of one frame.
#[derive(Debug)]
struct Desk {
    /// The request stamp that has been dealt with: another one is news.
    seen: Stamp,
    /// The sequence number of the request that is held, unanswered.
    held: Option<u32>,
    buffer: Bytes,
}

impl Task {
    /// Who the task is.
    #[must_use]
    pub fn identity(&self) -> Identity {
        self.0.identity
    }

    /// The kind that the parent gave it.
    #[must_use]
    pub fn kind(&self) -> u8 {
        self.0.kind
    }

    /// What the parent sent: a private copy, which nobody changes any more.
    #[must_use]
    pub fn payload(&self) -> &[u8] {
        self.0.payload.as_slice()
    }
}

impl Control {
    /// The kind that the parent gave it.
    #[must_use]
    pub fn kind(&self) -> u8 {
        self.0.kind
    }

    /// What the parent sent: a private copy, which nobody changes any more.
    #[must_use]
    pub fn payload(&self) -> &[u8] {
        self.0.payload.as_slice()
    }
}

impl ChildEnd {
    pub(crate) fn new(shared: Shared) -> ChildEnd {
        let desk = |exchange: &Exchange| Desk {
            seen: Stamp::UNUSED,
            held: None,
            buffer: Bytes::with_capacity(exchange.request.capacity()),
        };
        let tasks = std::array::from_fn(|i| desk(shared.tasks.get(i).unwrap_or(&shared.control)));
        ChildEnd {
            control: desk(&shared.control),
            tasks,
            shared,
            waiter: Waiter::new(),
            due: 1,
            failure: Vec::new(),
            poisoned: None,
        }
    }

    /// Waits for the next request: control requests first, then tasks in the order of their
    /// activation, then the shutdown.
    ///
    /// # Errors
    ///
    /// [`NextError::Deadline`], or [`NextError::Poisoned`] when the parent died, gave the mailbox up, or
    /// wrote something impossible.
    #[inline]
    pub fn next(
        &mut self,
        probe: &impl Probe,
        deadline: Option<Instant>,
    ) -> Result<Request, NextError> {
        self.check()?;
        loop {
            let (shared, tasks, control) = (&self.shared, &self.tasks, &self.control);
            let news = || has_news(shared, tasks, control);
            let bell = &shared.child_bell;
            match self
                .waiter
                .wait(bell, probe, Activity::Idle, deadline, news)
            {
                Ok(()) => {}
                Err(WaitError::PeerDied) => {
                    return Err(self.poison(Cause::PeerDied { side: Side::Parent }).into());
                }
                Err(WaitError::Deadline) => return Err(NextError::Deadline),
            }
            if let Some(request) = self.take()? {
                return Ok(request);
            }
        }
    }

    /// The next request if there is one already, without waiting: for a child that polls a device
    /// between its tasks.
    ///
    /// # Errors
    ///
    /// [`Poisoned`].
    pub fn try_next(&mut self) -> Result<Option<Request>, Poisoned> {
        self.check()?;
        self.take()
    }

    /// Tells the parent that the task is accepted: that it really began. Optional; completing a task
    /// successfully implies it.
    ///
    /// # Errors
    ///
    /// [`Poisoned`].
    pub fn accept(&mut self, task: &mut Task) -> Result<(), Poisoned> {
        self.check()?;
        if !task.0.accepted {
            task.0.accepted = true;
            let reply = &self.shared.tasks[task.0.frame].reply;
            reply.write_identity(&task.0.identity);
            reply.publish(Stamp::new(task.0.sequence, label::ACCEPTED, 0));
            self.shared.doorbell.ring();
        }
        Ok(())
    }

    /// Ends a task: with what it gives back, or with a failure, whose text is cut to the reply frame.
    ///
    /// Costs no system call while the parent is awake.
    ///
    /// # Errors
    ///
    /// [`Refused`] with the task, which is still open: nothing has changed.
    #[inline]
    pub fn complete(
        &mut self,
        task: Task,
        outcome: Result<&[u8], Failure<'_>>,
    ) -> Result<(), Refused<Task>> {
        let Task(ticket) = task;
        let failed = if ticket.accepted {
            label::FAILED
        } else {
            label::REFUSED
        };
        if let Err(error) = self.check() {
            return Err(Refused {
                request: Box::new(Task(ticket)),
                error: error.into(),
            });
        }
        let frame = ticket.frame;
        let reply = &mut self.shared.tasks[frame].reply;
        match answer(reply, &ticket, outcome, failed, &mut self.failure) {
            Ok(()) => answered(&mut self.tasks[frame], ticket, &self.shared),
            Err(error) => {
                return Err(Refused {
                    request: Box::new(Task(ticket)),
                    error,
                });
            }
        }
        Ok(())
    }

    /// Answers a control request.
    ///
    /// # Errors
    ///
    /// [`Refused`] with the request, which is still open: nothing has changed.
    pub fn reply(
        &mut self,
        control: Control,
        outcome: Result<&[u8], Failure<'_>>,
    ) -> Result<(), Refused<Control>> {
        let Control(ticket) = control;
        if let Err(error) = self.check() {
            return Err(Refused {
                request: Box::new(Control(ticket)),
                error: error.into(),
            });
        }
        let reply = &mut self.shared.control.reply;
        match answer(reply, &ticket, outcome, label::REFUSED, &mut self.failure) {
            Ok(()) => answered(&mut self.control, ticket, &self.shared),
            Err(error) => {
                return Err(Refused {
                    request: Box::new(Control(ticket)),
                    error,
                });
            }
        }
        Ok(())
    }

    /// Gives the endpoint up and tells the parent. The first cause stays; it is returned.
    pub fn poison(&mut self, cause: Cause) -> Poisoned {
        let poisoned = self.poisoned.get_or_insert(Poisoned { cause }).clone();
        self.shared.set_fault();
        self.shared.doorbell.ring();
        poisoned
    }

    /// Why the endpoint was given up, if it was.
    #[must_use]
    pub fn poisoned(&self) -> Option<&Poisoned> {
        self.poisoned.as_ref()
    }

    /// What its waits have done so far.
    #[must_use]
    pub fn wait_stats(&self) -> WaitStats {
        self.waiter.stats()
    }

    /// Turns news into a request, or into poison; `None` without news.
    #[inline]
    fn take(&mut self) -> Result<Option<Request>, Poisoned> {
        // Before the frames: what was published before the shutdown counts.
        let life = self.shared.life();
        if life == Life::Poisoned {
            return Err(self.poison(Cause::PeerGaveUp { side: Side::Parent }));
        }
        let stamp = self.shared.control.request.stamp();
        if stamp != self.control.seen {
            return self.take_control(stamp).map(Some);
        }
        // Two looks: a newer task seen in one frame proves that the one due is visible by the second.
        for _ in 0..2 {
            if let Some((frame, stamp)) = self.due_task() {
                return self.take_task(frame, stamp).map(Some);
            }
        }
        self.nothing_due(life)
    }

    /// The frame in which the next task in order lies.
    #[inline]
    fn due_task(&self) -> Option<(usize, Stamp)> {
        let stamps = self
            .shared
            .tasks
            .iter()
            .map(|exchange| exchange.request.stamp())
            .enumerate();
        stamps
            .into_iter()
            .find(|(_, stamp)| stamp.sequence() == self.due)
    }

    /// No task is due: the shutdown, or a stamp that nobody may write, or no news at all.
    fn nothing_due(&mut self, life: Life) -> Result<Option<Request>, Poisoned> {
        let odd = (0..self.shared.tasks.len()).find_map(|i| {
            let stamp = self.shared.tasks[i].request.stamp();
            let odd = stamp != self.tasks[i].seen && stamp.sequence() != self.due;
            odd.then_some((FrameName::Task(i), stamp))
        });
        match odd {
            Some((frame, stamp)) => Err(self.poison(impossible(frame, stamp, self.due))),
            None => Ok((life == Life::ShutDown).then_some(Request::Shutdown)),
        }
    }

    #[inline]
    fn take_task(&mut self, frame: usize, stamp: Stamp) -> Result<Request, Poisoned> {
        let desk = &mut self.tasks[frame];
        let name = FrameName::Task(frame);
        match desk.take(&mut self.shared.tasks[frame], frame, stamp) {
            Ok(ticket) => {
                self.due = following(self.due);
                Ok(Request::Task(Task(ticket)))
            }
            Err(None) => Err(self.poison(impossible(name, stamp, self.due))),
            Err(Some(e)) => Err(self.poison(unreadable(name, e))),
        }
    }

    fn take_control(&mut self, stamp: Stamp) -> Result<Request, Poisoned> {
        let name = FrameName::Control;
        let due = following(self.control.seen.sequence());
        if stamp.sequence() != due {
            return Err(self.poison(impossible(name, stamp, due)));
        }
        match self.control.take(&mut self.shared.control, 0, stamp) {
            Ok(ticket) => Ok(Request::Control(Control(ticket))),
            Err(None) => Err(self.poison(impossible(name, stamp, due))),
            Err(Some(e)) => Err(self.poison(unreadable(name, e))),
        }
    }

    #[inline]
    fn check(&self) -> Result<(), Poisoned> {
        match &self.poisoned {
            Some(poisoned) => Err(poisoned.clone()),
            None => Ok(()),
        }
    }
}

impl Desk {
    /// Copies a request that is due. `None` as the error: the frame's last request is unanswered.
    #[inline]
    fn take(
        &mut self,
        exchange: &mut Exchange,
        frame: usize,
        stamp: Stamp,
    ) -> Result<Ticket, Option<FrameError>> {
        if self.held.is_some() {
            return Err(None);
        }
        let mut payload = std::mem::take(&mut self.buffer);
        exchange.request.read(stamp, &mut payload).map_err(Some)?;
        self.held = Some(stamp.sequence());
        self.seen = stamp;
        Ok(Ticket {
            frame,
            sequence: stamp.sequence(),
            identity: exchange.request.claimed_identity(),
            kind: stamp.label(),
            payload,
            accepted: false,
        })
    }
}

/// After the answer was published: wakes the parent and frees the desk.
#[inline]
fn answered(desk: &mut Desk, ticket: Ticket, shared: &Shared) {
    shared.doorbell.ring();
    assert!(
        desk.held == Some(ticket.sequence),
        "a request is answered on its own mailbox"
    );
    desk.held = None;
    desk.buffer = ticket.payload;
}

/// Whether anything has changed that the parent writes. This is the loop that a waiting child runs.
#[inline(always)]
fn has_news(shared: &Shared, tasks: &[Desk; FRAMES], control: &Desk) -> bool {
    let task_news = shared
        .tasks
        .iter()
        .zip(tasks)
        .any(|(e, desk)| e.request.stamp() != desk.seen);
    task_news || shared.control.request.stamp() != control.seen || shared.life() != Life::Open
}

/// Writes and publishes an answer.
#[inline]
fn answer(
    reply: &mut crate::frame::Frame,
    ticket: &Ticket,
    outcome: Result<&[u8], Failure<'_>>,
    failed: u8,
    scratch: &mut Vec<u8>,
) -> Result<(), ReplyError> {
    let (label, bytes) = match &outcome {
        Ok(bytes) => (label::DONE, *bytes),
        Err(failure) => {
            encode_failure(failure, reply.capacity(), scratch);
            (failed, scratch.as_slice())
        }
    };
    reply.write(&ticket.identity, bytes).map_err(|e| match e {
        FrameError::TooLong(TooLong { len, limit }) => ReplyError::TooLarge {
            needed: len,
            capacity: reply.capacity(),
            limit,
        },
        FrameError::Spill(source) => ReplyError::Spill(source),
    })?;
    reply.publish(Stamp::new(ticket.sequence, label, bytes.len()));
    Ok(())
}
