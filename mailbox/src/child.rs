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

use crate::frame::{Bytes, Frame, FrameError, Stamp, TooLong, following};
use crate::layout::Side;
use crate::mailbox::{Exchange, FRAMES, Life, Shared};
use crate::message::{Failure, Ticket, encode_failure, label};
use crate::poison::{Cause, FrameName, Poisoned, impossible, unreadable};
use crate::request::{Control, NextError, Refused, ReplyError, Request, Task};
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

/// What a look has found.
#[derive(Clone, Copy, Debug)]
enum News {
    /// The task that is due lies in a frame.
    Task(usize, Stamp),
    /// Anything else, or more than that.
    Other,
}

/// What the child remembers of one frame.
#[derive(Debug)]
struct Desk {
    /// The request stamp that has been dealt with: another one is news.
    seen: Stamp,
    /// Taken by the request that is held, unanswered.
    ticket: Option<Box<Ticket>>,
}

impl ChildEnd {
    pub(crate) fn new(shared: Shared) -> ChildEnd {
        let desk = |frame: usize, exchange: &Exchange| {
            let payload = Bytes::with_capacity(exchange.request.capacity());
            let ticket = Ticket {
                frame,
                payload,
                ..Ticket::default()
            };
            Desk {
                seen: Stamp::UNUSED,
                ticket: Some(Box::new(ticket)),
            }
        };
        let tasks =
            std::array::from_fn(|i| desk(i, shared.tasks.get(i).unwrap_or(&shared.control)));
        ChildEnd {
            control: desk(0, &shared.control),
            tasks,
            shared,
            waiter: Waiter::of_newborn(),
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
            let news = self.wait(probe, deadline)?;
            if let Some(request) = self.take(news)? {
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
        match look(&self.shared, &self.tasks, &self.control, self.due) {
            Some(news) => self.take(news),
            None => Ok(None),
        }
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
    ///
    /// # Panics
    ///
    /// If the task is one of another mailbox.
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
        let frame = ticket.frame;
        if let Err(error) = self.answer_task(&ticket, outcome, failed) {
            return Err(Refused {
                request: Task(ticket),
                error,
            });
        }
        self.tasks[frame].ticket = Some(ticket);
        Ok(())
    }

    /// Answers a control request.
    ///
    /// # Errors
    ///
    /// [`Refused`] with the request, which is still open: nothing has changed.
    ///
    /// # Panics
    ///
    /// If the request is one of another mailbox.
    pub fn reply(
        &mut self,
        control: Control,
        outcome: Result<&[u8], Failure<'_>>,
    ) -> Result<(), Refused<Control>> {
        let Control(ticket) = control;
        if let Err(error) = self.answer_control(&ticket, outcome) {
            return Err(Refused {
                request: Control(ticket),
                error,
            });
        }
        self.control.ticket = Some(ticket);
        Ok(())
    }

    /// Gives the endpoint up and tells the parent. The first cause stays; it is returned.
    pub fn poison(&mut self, cause: Cause) -> Poisoned {
        let poisoned = self
            .poisoned
            .get_or_insert_with(|| Poisoned::new(cause))
            .clone();
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

    #[inline]
    fn answer_task(
        &mut self,
        ticket: &Ticket,
        outcome: Result<&[u8], Failure<'_>>,
        failed: u8,
    ) -> Result<(), ReplyError> {
        self.check()?;
        let reply = &mut self.shared.tasks[ticket.frame].reply;
        answer(
            &self.tasks[ticket.frame],
            reply,
            ticket,
            outcome,
            failed,
            &mut self.failure,
        )?;
        self.shared.doorbell.ring();
        Ok(())
    }

    fn answer_control(
        &mut self,
        ticket: &Ticket,
        outcome: Result<&[u8], Failure<'_>>,
    ) -> Result<(), ReplyError> {
        self.check()?;
        let (reply, text) = (&mut self.shared.control.reply, &mut self.failure);
        answer(&self.control, reply, ticket, outcome, label::REFUSED, text)?;
        self.shared.doorbell.ring();
        Ok(())
    }

    /// Waits for news, spinning on lines that stay in this processor's cache until the parent writes.
    #[inline]
    fn wait(&mut self, probe: &impl Probe, deadline: Option<Instant>) -> Result<News, NextError> {
        let (shared, tasks, control, due) = (&self.shared, &self.tasks, &self.control, self.due);
        let mut news = None;
        let ready = || {
            news = look(shared, tasks, control, due);
            news.is_some()
        };
        match self
            .waiter
            .wait(&shared.child_bell, probe, Activity::Idle, deadline, ready)
        {
            Ok(()) => Ok(news.unwrap_or(News::Other)),
            Err(WaitError::Deadline) => Err(NextError::Deadline),
            Err(WaitError::PeerDied) => {
                Err(self.poison(Cause::PeerDied { side: Side::Parent }).into())
            }
        }
    }

    /// Turns news into a request, or into poison; `None` if it was no news after all.
    #[inline]
    fn take(&mut self, news: News) -> Result<Option<Request>, Poisoned> {
        match news {
            News::Task(frame, stamp) => self.take_task(frame, stamp).map(Some),
            News::Other => self.take_other(),
        }
    }

    /// Everything but a task that is due and alone, in its order of precedence.
    #[cold]
    fn take_other(&mut self) -> Result<Option<Request>, Poisoned> {
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
    fn due_task(&self) -> Option<(usize, Stamp)> {
        let stamps = self
            .shared
            .tasks
            .iter()
            .map(|exchange| exchange.request.stamp());
        stamps
            .enumerate()
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
        match desk.take(&mut self.shared.tasks[frame].request, stamp) {
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
        match self.control.take(&mut self.shared.control.request, stamp) {
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

/// The steps of an answer one by one, for models of a death between them.
#[cfg(all(loom, test))]
impl ChildEnd {
    pub(crate) fn write_unpublished(&mut self, task: &Task, bytes: &[u8]) {
        let reply = &mut self.shared.tasks[task.0.frame].reply;
        reply.write(&task.0.identity, bytes).unwrap();
    }

    pub(crate) fn publish_without_ringing(&mut self, task: &Task, stamp: Stamp) {
        self.shared.tasks[task.0.frame].reply.publish(stamp);
    }
}

impl Desk {
    /// Copies a request that is due. `None` as the error: the frame's last request is unanswered.
    #[inline]
    fn take(
        &mut self,
        request: &mut Frame,
        stamp: Stamp,
    ) -> Result<Box<Ticket>, Option<FrameError>> {
        let mut ticket = self.ticket.take().ok_or(None)?;
        request.read(stamp, &mut ticket.payload).map_err(Some)?;
        self.seen = stamp;
        ticket.sequence = stamp.sequence();
        ticket.identity = request.claimed_identity();
        ticket.kind = stamp.label();
        ticket.accepted = false;
        Ok(ticket)
    }
}

/// The loop that a waiting child runs: whether the parent has written anything.
#[inline(always)]
fn look(shared: &Shared, tasks: &[Desk; FRAMES], control: &Desk, due: u32) -> Option<News> {
    let mut task = None;
    let mut other = false;
    for (frame, (exchange, desk)) in shared.tasks.iter().zip(tasks).enumerate() {
        let stamp = exchange.request.watched_stamp();
        if stamp.sequence() == due {
            task = Some(News::Task(frame, stamp));
        } else {
            other |= stamp != desk.seen;
        }
    }
    // After the task frames: what the parent published before a task goes before it.
    other |= shared.control.request.stamp() != control.seen || shared.life() != Life::Open;
    match other {
        true if task.is_none() || is_urgent(shared, control) => Some(News::Other),
        _ => task,
    }
}

/// Whether something goes before a task that is due.
#[cold]
fn is_urgent(shared: &Shared, control: &Desk) -> bool {
    shared.control.request.stamp() != control.seen || shared.life() == Life::Poisoned
}

/// Writes and publishes an answer.
#[inline]
fn answer(
    desk: &Desk,
    reply: &mut Frame,
    ticket: &Ticket,
    outcome: Result<&[u8], Failure<'_>>,
    failed: u8,
    text: &mut Vec<u8>,
) -> Result<(), ReplyError> {
    let is_ours = desk.ticket.is_none() && desk.seen.sequence() == ticket.sequence;
    assert!(is_ours, "a request is answered on its own mailbox");
    let (label, bytes) = match outcome {
        Ok(bytes) => (label::DONE, bytes),
        Err(failure) => {
            encode_failure(&failure, reply.capacity(), text);
            (failed, text.as_slice())
        }
    };
    if let Err(e) = reply.write(&ticket.identity, bytes) {
        return Err(refusal(e, reply.capacity()));
    }
    reply.publish(Stamp::new(ticket.sequence, label, bytes.len()));
    Ok(())
}

#[cold]
fn refusal(error: FrameError, capacity: usize) -> ReplyError {
    match error {
        FrameError::TooLong(TooLong { len, limit }) => ReplyError::TooLarge {
            needed: len,
            capacity,
            limit,
        },
        FrameError::Spill(source) => ReplyError::Spill(source),
    }
}
