//! The parent's side: submits tasks, learns what became of them.
//!
//! ```text
//!          stage             activate            accepted            done | failed
//!   Free ---------> Staged -----------> Flying -----------> Flying ----------------> Free
//!     ^               |  (submit does both)   \__________________________________/
//!     +---------------+ discard
//! ```
//!
//! The parent writes request frames only and trusts reply frames in nothing: a stamp must be the one
//! that is due, a label one of four, a length within its place, an identity the one that was sent.
//! Anything else poisons the endpoint before any of it is used.

use std::time::Instant;

use crate::bell::Doorbell;
use crate::events::{ControlId, ControlReply, Event, Staged, SubmitError};
use crate::frame::{Bytes, FrameError, Identity, Stamp, TooLong, following};
use crate::layout::Side;
use crate::mailbox::{FRAMES, Life, Shared};
use crate::message::{decode_outcome, label};
use crate::poison::{Cause, FrameName, Poisoned, impossible, unreadable};
use crate::sync::unique;
use crate::wait::{Activity, Probe, WaitError, Waiter};

/// The parent's side of a mailbox.
#[derive(Debug)]
pub struct ParentEnd {
    /// Different for each endpoint of this process.
    number: u64,
    shared: Shared,
    slots: [Slot; FRAMES],
    /// The reply stamps that have been dealt with, by frame: another one is news.
    seen: [Stamp; FRAMES],
    control: ControlSlot,
    /// Sequence number of the next task to be activated.
    next: u32,
    /// Slots that are flying.
    in_flight: usize,
    buffer: Bytes,
    life: Life,
    poisoned: Option<Poisoned>,
}

#[derive(Clone, Copy, Debug)]
enum Slot {
    Free,
    Staged,
    Flying(Flight),
}

#[derive(Clone, Copy, Debug)]
struct Flight {
    identity: Identity,
    sequence: u32,
    accepted: bool,
}

#[derive(Debug)]
struct ControlSlot {
    sequence: u32,
    state: ControlState,
    seen: Stamp,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum ControlState {
    Idle,
    Awaited,
    Abandoned,
}

impl ParentEnd {
    pub(crate) fn new(shared: Shared) -> ParentEnd {
        let buffer = Bytes::with_capacity(shared.tasks[0].reply.capacity());
        ParentEnd {
            number: unique(),
            shared,
            slots: [Slot::Free; FRAMES],
            seen: [Stamp::UNUSED; FRAMES],
            control: ControlSlot {
                sequence: 0,
                state: ControlState::Idle,
                seen: Stamp::UNUSED,
            },
            next: 1,
            in_flight: 0,
            buffer,
            life: Life::Open,
            poisoned: None,
        }
    }

    /// Sends a task: writes a free frame, publishes it, and wakes the child if it sleeps.
    ///
    /// `kind` is the caller's own. Costs no system call while the child is awake.
    ///
    /// # Errors
    ///
    /// [`SubmitError`]; nothing has changed then.
    #[inline]
    pub fn submit(
        &mut self,
        identity: Identity,
        kind: u8,
        payload: &[u8],
    ) -> Result<(), SubmitError> {
        let frame = self.write_free_frame(&identity, payload)?;
        self.fly(frame, identity, kind, payload.len());
        Ok(())
    }

    /// Writes a task into a free frame without publishing it.
    ///
    /// # Errors
    ///
    /// [`SubmitError`]; nothing has changed then.
    #[inline]
    pub fn stage(
        &mut self,
        identity: Identity,
        kind: u8,
        payload: &[u8],
    ) -> Result<Staged, SubmitError> {
        let frame = self.write_free_frame(&identity, payload)?;
        if cfg!(weaken = "early_stamp") {
            let stamp = Stamp::new(self.next, kind, payload.len());
            self.shared.tasks[frame].request.publish(stamp);
        }
        self.slots[frame] = Slot::Staged;
        Ok(Staged {
            end: self.number,
            frame,
            identity,
            kind,
            len: payload.len(),
        })
    }

    /// Publishes a staged task: the child executes tasks in the order of their activation.
    ///
    /// # Errors
    ///
    /// [`SubmitError::Poisoned`] or [`SubmitError::ShutDown`], and the staged task is gone.
    ///
    /// # Panics
    ///
    /// When the task was staged at another mailbox: the frame of that number may hold anything here.
    #[inline]
    pub fn activate(&mut self, staged: Staged) -> Result<(), SubmitError> {
        let identity = staged.identity;
        self.activate_as(staged, identity)
    }

    /// Publishes a staged task under another identity than it was staged with: for a caller that numbers
    /// its tasks when it sends them.
    ///
    /// # Errors
    ///
    /// As [`ParentEnd::activate`].
    ///
    /// # Panics
    ///
    /// As [`ParentEnd::activate`].
    #[inline]
    pub fn activate_as(&mut self, staged: Staged, identity: Identity) -> Result<(), SubmitError> {
        self.check_own(&staged);
        let Staged {
            frame, kind, len, ..
        } = staged;
        self.slots[frame] = Slot::Free;
        self.check_open()?;
        if identity != staged.identity {
            self.shared.tasks[frame].request.write_identity(&identity);
        }
        self.fly(frame, identity, kind, len);
        Ok(())
    }

    /// Takes a staged task back; the child never sees it.
    ///
    /// # Panics
    ///
    /// When it was staged at another mailbox.
    pub fn discard(&mut self, staged: Staged) {
        self.check_own(&staged);
        self.slots[staged.frame] = Slot::Free;
    }

    /// Task frames that are free now.
    #[must_use]
    pub fn free_frames(&self) -> usize {
        let frames = &self.slots[..self.shared.tasks.len()];
        frames
            .iter()
            .filter(|slot| matches!(slot, Slot::Free))
            .count()
    }

    /// Tasks that the child still owes an end.
    #[inline]
    #[must_use]
    pub fn in_flight(&self) -> usize {
        self.in_flight
    }

    /// Whether [`ParentEnd::poll`] or [`ParentEnd::poll_control`] has news: a few loads that stay in
    /// this processor's cache until there are.
    #[inline]
    #[must_use]
    pub fn is_ready(&self) -> bool {
        self.poisoned.is_some() || self.has_news()
    }

    /// Asks this processor for what [`ParentEnd::is_ready`] will look at, without waiting for it: for a caller that
    /// has other work first. A hint; a transfer from the child's cache takes as long as some hundred instructions.
    #[inline]
    pub fn prefetch(&self) {
        for (slot, exchange) in self.slots.iter().zip(self.shared.tasks.iter()) {
            if matches!(slot, Slot::Flying(_)) {
                exchange.reply.prefetch_stamp();
            }
        }
    }

    /// The next event, if there is one; never blocks. Older tasks first.
    ///
    /// # Errors
    ///
    /// [`Poisoned`], now and for ever: by what the child wrote, or for the cause it was poisoned with.
    #[inline]
    pub fn poll(&mut self) -> Result<Option<Event<'_>>, Poisoned> {
        self.check()?;
        // Before the frames: what the child published before it gave up counts.
        let fault = self.shared.has_fault();
        if let Some((frame, stamp)) = self.oldest_news() {
            return self.take(frame, stamp).map(Some);
        }
        match fault {
            true => Err(self.poison(Cause::PeerGaveUp { side: Side::Child })),
            false => Ok(None),
        }
    }

    /// Sends a control request beside whatever tasks are in flight. One at a time.
    ///
    /// The child serves it before tasks that it has not begun. Its answer comes through
    /// [`ParentEnd::poll_control`].
    ///
    /// # Errors
    ///
    /// [`SubmitError`]; nothing has changed then. [`SubmitError::ControlTaken`] while an earlier request, even
    /// an abandoned one, is unanswered.
    pub fn control(&mut self, kind: u8, payload: &[u8]) -> Result<ControlId, SubmitError> {
        self.check_open()?;
        if self.control.state != ControlState::Idle {
            return Err(SubmitError::ControlTaken);
        }
        let sequence = following(self.control.sequence);
        let identity = Identity {
            dispatch: u64::from(sequence),
            ..Identity::default()
        };
        let exchange = &mut self.shared.control;
        let request = &mut exchange.request;
        request
            .write(&identity, payload)
            .map_err(|e| refusal(e, request.capacity()))?;
        let seen = exchange.reply.stamp();
        self.control = ControlSlot {
            sequence,
            state: ControlState::Awaited,
            seen,
        };
        exchange
            .request
            .publish(Stamp::new(sequence, kind, payload.len()));
        self.shared.child_bell.ring();
        Ok(ControlId(sequence))
    }

    /// The answer to the control request, if it has come; never blocks.
    ///
    /// # Errors
    ///
    /// [`Poisoned`], now and for ever.
    pub fn poll_control(&mut self) -> Result<Option<ControlReply<'_>>, Poisoned> {
        self.check()?;
        let fault = self.shared.has_fault();
        let stamp = self.shared.control.reply.stamp();
        if stamp != self.control.seen {
            return self.take_control(stamp);
        }
        match fault {
            true => Err(self.poison(Cause::PeerGaveUp { side: Side::Child })),
            false => Ok(None),
        }
    }

    /// Gives up waiting for a control request, after a time-out.
    ///
    /// The one state that follows: tasks are unaffected, the control frame stays taken until the late
    /// answer has come, and that answer is then dropped by [`ParentEnd::poll_control`].
    pub fn abandon_control(&mut self, id: ControlId) {
        if self.control.state == ControlState::Awaited && self.control.sequence == id.0 {
            self.control.state = ControlState::Abandoned;
        }
    }

    /// Waits until [`ParentEnd::is_ready`], for a parent with one child; with several, wait on the
    /// [`Doorbell`] and ask each.
    ///
    /// # Errors
    ///
    /// As [`Doorbell::wait`]. A dead child poisons the endpoint.
    #[inline]
    pub fn wait(
        &mut self,
        waiter: &mut Waiter,
        probe: &impl Probe,
        deadline: Option<Instant>,
    ) -> Result<(), WaitError> {
        let owed = self.in_flight() > 0 || self.control.state != ControlState::Idle;
        let activity = if owed {
            Activity::InFlight
        } else {
            Activity::Idle
        };
        let waited = self
            .shared
            .doorbell
            .wait(waiter, probe, activity, deadline, || self.is_ready());
        if waited == Err(WaitError::PeerDied) {
            self.poison(Cause::PeerDied { side: Side::Child });
        }
        waited
    }

    /// Tells the child that nothing more will come. One way: everything submitted before is still
    /// served and answered, nothing can be submitted afterwards.
    pub fn shutdown(&mut self) {
        self.raise(Life::ShutDown);
    }

    /// Gives the endpoint up. The first cause stays; it is returned.
    pub fn poison(&mut self, cause: Cause) -> Poisoned {
        let poisoned = self
            .poisoned
            .get_or_insert_with(|| Poisoned::new(cause))
            .clone();
        self.raise(Life::Poisoned);
        poisoned
    }

    /// Why the endpoint was given up, if it was.
    #[must_use]
    pub fn poisoned(&self) -> Option<&Poisoned> {
        self.poisoned.as_ref()
    }

    /// The bell that this mailbox's child rings.
    #[must_use]
    pub fn doorbell(&self) -> &Doorbell {
        &self.shared.doorbell
    }

    #[inline]
    fn check_own(&self, staged: &Staged) {
        assert!(
            staged.end == self.number,
            "a staged task belongs to the mailbox that it was staged at"
        );
    }

    /// Writes the body of a task that is not visible yet.
    #[inline]
    fn write_free_frame(
        &mut self,
        identity: &Identity,
        payload: &[u8],
    ) -> Result<usize, SubmitError> {
        self.check_open()?;
        let n_frames = self.shared.tasks.len();
        let mut slots = self.slots[..n_frames].iter();
        let free = slots.position(|slot| matches!(slot, Slot::Free));
        let frame = free.ok_or(SubmitError::Full { frames: n_frames })?;
        let request = &mut self.shared.tasks[frame].request;
        request
            .write(identity, payload)
            .map_err(|e| refusal(e, request.capacity()))?;
        Ok(frame)
    }

    /// Publishes a body that was written; the books come after, while the stamp is on its way.
    #[inline]
    fn fly(&mut self, frame: usize, identity: Identity, kind: u8, len: usize) {
        let sequence = self.next;
        self.shared.tasks[frame]
            .request
            .publish(Stamp::new(sequence, kind, len));
        self.shared.child_bell.ring();
        self.next = following(sequence);
        self.in_flight += 1;
        self.slots[frame] = Slot::Flying(Flight {
            identity,
            sequence,
            accepted: false,
        });
    }

    /// The loop that a waiting parent runs.
    #[inline(always)]
    fn has_news(&self) -> bool {
        let replies = self.shared.tasks.iter().zip(&self.seen);
        let task_news = replies
            .into_iter()
            .any(|(e, seen)| e.reply.watched_stamp() != *seen);
        let control_news = self.shared.control.reply.stamp() != self.control.seen;
        task_news || control_news || self.shared.has_fault()
    }

    /// A reply stamp that has not been dealt with; of two, the one of the older task.
    #[inline]
    fn oldest_news(&self) -> Option<(usize, Stamp)> {
        let replies = self
            .shared
            .tasks
            .iter()
            .map(|e| e.reply.stamp())
            .zip(self.seen)
            .enumerate();
        let mut news = replies
            .filter(|(_, (stamp, seen))| stamp != seen)
            .map(|(i, (s, _))| (i, s));
        let first = news.next()?;
        match news.next() {
            Some(second) if following(second.1.sequence()) == first.1.sequence() => Some(second),
            _ => Some(first),
        }
    }

    /// Turns a new reply stamp into an event, or into poison.
    #[inline]
    fn take(&mut self, frame: usize, stamp: Stamp) -> Result<Event<'_>, Poisoned> {
        let name = FrameName::Task(frame);
        let Slot::Flying(flight) = self.slots[frame] else {
            return Err(self.poison(impossible(name, stamp, self.seen[frame].sequence())));
        };
        let legal = match stamp.label() {
            label::ACCEPTED => !flight.accepted && stamp.claimed_len() == 0,
            label::DONE | label::FAILED => true,
            label::REFUSED => !flight.accepted,
            _ => false,
        };
        if !legal || stamp.sequence() != flight.sequence {
            return Err(self.poison(impossible(name, stamp, flight.sequence)));
        }
        let reply = &mut self.shared.tasks[frame].reply;
        let found = reply.claimed_identity();
        if found != flight.identity {
            let expected = flight.identity;
            return Err(self.poison(Cause::StaleIdentity {
                frame,
                expected,
                found,
            }));
        }
        self.seen[frame] = stamp;
        if stamp.label() == label::ACCEPTED {
            self.slots[frame] = Slot::Flying(Flight {
                accepted: true,
                ..flight
            });
            return Ok(Event::Accepted(found));
        }
        if let Err(e) = reply.read(stamp, &mut self.buffer) {
            return Err(self.poison(unreadable(name, e)));
        }
        self.slots[frame] = Slot::Free;
        self.in_flight -= 1;
        let accepted = stamp.label() != label::REFUSED;
        let outcome = decode_outcome(stamp.label(), &self.buffer);
        Ok(Event::Done {
            identity: found,
            accepted,
            outcome,
        })
    }

    fn take_control(&mut self, stamp: Stamp) -> Result<Option<ControlReply<'_>>, Poisoned> {
        let name = FrameName::Control;
        let due = self.control.sequence;
        let legal = matches!(stamp.label(), label::DONE | label::REFUSED)
            && self.control.state != ControlState::Idle;
        let reply = &mut self.shared.control.reply;
        let tied = reply.claimed_identity().dispatch == u64::from(due);
        if !legal || !tied || stamp.sequence() != due {
            return Err(self.poison(impossible(name, stamp, due)));
        }
        if let Err(e) = reply.read(stamp, &mut self.buffer) {
            return Err(self.poison(unreadable(name, e)));
        }
        self.control.seen = stamp;
        let wanted = self.control.state == ControlState::Awaited;
        self.control.state = ControlState::Idle;
        let outcome = decode_outcome(stamp.label(), &self.buffer);
        Ok(wanted.then_some(ControlReply {
            id: ControlId(due),
            outcome,
        }))
    }

    fn raise(&mut self, life: Life) {
        if self.life < life {
            self.life = life;
            self.shared.set_life(life);
            self.shared.child_bell.ring();
        }
    }

    #[inline]
    fn check(&self) -> Result<(), Poisoned> {
        match &self.poisoned {
            Some(poisoned) => Err(poisoned.clone()),
            None => Ok(()),
        }
    }

    #[inline]
    fn check_open(&self) -> Result<(), SubmitError> {
        match self.life {
            Life::Open => Ok(()),
            _ => Err(self.closed()),
        }
    }

    #[cold]
    fn closed(&self) -> SubmitError {
        self.check()
            .map_or_else(SubmitError::Poisoned, |()| SubmitError::ShutDown)
    }
}

#[cold]
fn refusal(error: FrameError, capacity: usize) -> SubmitError {
    match error {
        FrameError::TooLong(TooLong { len, limit }) => SubmitError::TooLarge {
            needed: len,
            capacity,
            limit,
        },
        FrameError::Spill(source) => SubmitError::Spill(source),
    }
}
