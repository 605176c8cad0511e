//! A mailbox before and after its sides attach.
//!
//! Typestate only here: a [`Mailbox`] belongs to nobody yet; [`Mailbox::into_parent`] and
//! [`Mailbox::into_child`] consume it. After a fork each process still has the value and turns it into
//! its own side; a spawned child rebuilds it from descriptors. The segment itself remembers who has
//! attached, so that a second attach, or a new child on a dead one's mailbox, is refused.

#[cfg(not(loom))]
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
#[cfg(not(loom))]
use std::sync::Arc;

use crate::bell::{Bell, Doorbell};
use crate::child::ChildEnd;
use crate::frame::Frame;
#[cfg(not(loom))]
use crate::frame::Spill;
use crate::layout::{AttachError, Layout, Side, TASK_FRAMES_MAX};
#[cfg(not(loom))]
use crate::layout::{MAGIC, Map, Pair, Place, header};
use crate::parent::ParentEnd;
#[cfg(not(loom))]
use crate::segment::{Reserve, Segment, SegmentOptions};
use crate::sync::{OBSERVE, Ordering, PUBLISH};
use crate::words::Words;

/// Room for messages between one parent and one child, not attached yet.
#[derive(Debug)]
pub struct Mailbox {
    #[cfg(not(loom))]
    segment: Arc<Segment>,
    #[cfg(not(loom))]
    layout: Layout,
    shared: Shared,
}

/// Everything that both sides see.
#[derive(Debug)]
pub(crate) struct Shared {
    pub(crate) doorbell: Doorbell,
    pub(crate) child_bell: Bell,
    pub(crate) control: Exchange,
    pub(crate) tasks: Vec<Exchange>,
    attached: Words,
    life: Words,
    fault: Words,
}

/// One frame in both directions.
#[derive(Debug)]
pub(crate) struct Exchange {
    pub(crate) request: Frame,
    pub(crate) reply: Frame,
}

/// What the parent says about the mailbox as a whole. It only ever rises.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Life {
    Open = 0,
    ShutDown = 1,
    Poisoned = 2,
}

#[cfg(not(loom))]
impl Mailbox {
    /// Creates a mailbox of a layout, whose child will ring `doorbell`.
    ///
    /// All of its fixed memory is reserved here; spill areas cost nothing until first used.
    ///
    /// # Errors
    ///
    /// [`AttachError::Layout`], or [`AttachError::Segment`] when the memory cannot be had.
    pub fn create(layout: Layout, doorbell: &Doorbell) -> Result<Mailbox, AttachError> {
        let map = layout.map()?;
        let options = SegmentOptions {
            reserve: Reserve::First(map.fixed),
            ..Default::default()
        };
        let segment = Arc::new(Segment::create_with("mailbox", map.total, options)?);
        let header = Words::new(&segment, 0, header::WORDS)?;
        for (word, value) in header.as_slice()[header::LAYOUT..]
            .iter()
            .zip(layout.to_words())
        {
            word.store(value, Ordering::Relaxed);
        }
        header.as_slice()[header::MAGIC].store(MAGIC, PUBLISH);
        Mailbox::over(segment, layout, map, doorbell.clone())
    }

    /// A mailbox from descriptors that [`Mailbox::fds`] gave in another process.
    ///
    /// # Errors
    ///
    /// [`AttachError::NotAMailbox`], [`AttachError::Layout`], or [`AttachError::Segment`] when the
    /// descriptors are not sealed segments of the size that their own header asks for.
    pub fn from_fds(mailbox: OwnedFd, doorbell: OwnedFd) -> Result<Mailbox, AttachError> {
        let doorbell = Doorbell::from_fd(doorbell)?;
        let bytes = crate::segment::size_of_fd(&mailbox)?;
        let segment = Arc::new(Segment::from_fd(mailbox, bytes)?);
        let layout = claimed_layout(&segment)?;
        let map = layout.map()?;
        if map.total != bytes {
            let (expected, found) = (map.total, bytes as u64);
            return Err(crate::segment::SegmentError::WrongSize { expected, found }.into());
        }
        Mailbox::over(segment, layout, map, doorbell)
    }

    /// The descriptors that a spawned child needs: the mailbox's and the doorbell's, in this order.
    #[must_use]
    pub fn fds(&self) -> [BorrowedFd<'_>; 2] {
        [self.segment.as_fd(), self.shared.doorbell.as_fd()]
    }

    /// Keeps this mapping out of later forks, so that no child sees a sibling's: see [`Segment::keep_from_forks`]. A child
    /// rebuilds its side from [`Mailbox::fds`], or inherits it from a fork that [`Mailbox::share_with_forks`] precedes.
    ///
    /// # Errors
    ///
    /// [`AttachError::Segment`].
    pub fn keep_from_forks(&self) -> Result<(), AttachError> {
        Ok(self.segment.keep_from_forks()?)
    }

    /// Lets the child that is forked next inherit this mapping: see [`Segment::share_with_forks`]. It must be left the
    /// descriptors of [`Mailbox::fds`] too, under their numbers.
    ///
    /// # Errors
    ///
    /// [`AttachError::Segment`].
    pub fn share_with_forks(&self) -> Result<(), AttachError> {
        Ok(self.segment.share_with_forks()?)
    }

    /// The same mailbox once more, over the same mapping: one for each side where this process is both, or forks the other.
    ///
    /// # Errors
    ///
    /// None is known; the places of the layout were checked when this one was made.
    pub fn twin(&self) -> Result<Mailbox, AttachError> {
        let map = self.layout.map()?;
        let (segment, bell) = (Arc::clone(&self.segment), self.shared.doorbell.clone());
        Mailbox::over(segment, self.layout, map, bell)
    }

    /// Both sides in this process, for children that are threads, and for tests.
    ///
    /// # Errors
    ///
    /// [`AttachError::Taken`].
    pub fn split(self) -> Result<(ParentEnd, ChildEnd), AttachError> {
        let twin = self.twin()?;
        Ok((self.into_parent()?, twin.into_child()?))
    }

    fn over(
        segment: Arc<Segment>,
        layout: Layout,
        map: Map,
        doorbell: Doorbell,
    ) -> Result<Mailbox, AttachError> {
        let frame = |place: Place| -> Result<Frame, AttachError> {
            let words = Words::new(&segment, place.offset, place.n_words)?;
            Ok(Frame::new(
                words,
                Spill::new(&segment, map.spill_offset(place), map.spill_bytes)?,
            ))
        };
        let exchange = |pair: &Pair| -> Result<Exchange, AttachError> {
            Ok(Exchange {
                request: frame(pair.request)?,
                reply: frame(pair.reply)?,
            })
        };
        let shared = Shared {
            child_bell: Bell::new(&segment, map.bell, doorbell.crowd())?,
            doorbell,
            control: exchange(&map.control)?,
            tasks: map.tasks[..layout.task_frames]
                .iter()
                .map(exchange)
                .collect::<Result<_, _>>()?,
            attached: Words::new(&segment, header::ATTACHED * crate::words::WORD, 1)?,
            life: Words::new(&segment, map.life, 1)?,
            fault: Words::new(&segment, map.fault, 1)?,
        };
        Ok(Mailbox {
            segment,
            layout,
            shared,
        })
    }
}

impl Mailbox {
    /// Becomes the parent's side, in the process that submits.
    ///
    /// # Errors
    ///
    /// [`AttachError::Taken`].
    pub fn into_parent(self) -> Result<ParentEnd, AttachError> {
        self.shared.attach(Side::Parent)?;
        Ok(ParentEnd::new(self.shared))
    }

    /// Becomes the child's side, in the process that serves.
    ///
    /// # Errors
    ///
    /// [`AttachError::Taken`].
    pub fn into_child(self) -> Result<ChildEnd, AttachError> {
        self.shared.attach(Side::Child)?;
        Ok(ChildEnd::new(self.shared))
    }
}

#[cfg(loom)]
impl Mailbox {
    /// Both sides of a mailbox whose memory the model checker watches.
    pub(crate) fn modelled(doorbell: &Doorbell, task_frames: usize) -> (Mailbox, Mailbox) {
        use crate::frame::{LINE, Spill};
        use crate::words::WORD;
        let words = |n| Words::modelled(n);
        let pair = || (words(2 * LINE / WORD), words(2 * LINE / WORD));
        let (bell, one) = (Bell::modelled(), [words(1), words(1), words(1)]);
        let (control, tasks) = (pair(), (0..task_frames).map(|_| pair()).collect::<Vec<_>>());
        let exchange = |(request, reply): &(Words, Words)| Exchange {
            request: Frame::new(request.clone(), Spill::none()),
            reply: Frame::new(reply.clone(), Spill::none()),
        };
        let side = || Mailbox {
            shared: Shared {
                doorbell: doorbell.clone(),
                child_bell: bell.clone(),
                control: exchange(&control),
                tasks: tasks.iter().map(exchange).collect(),
                attached: one[0].clone(),
                life: one[1].clone(),
                fault: one[2].clone(),
            },
        };
        (side(), side())
    }
}

impl Shared {
    fn attach(&self, side: Side) -> Result<(), AttachError> {
        let bit = match side {
            Side::Parent => 1,
            Side::Child => 2,
        };
        // Relaxed: the bit excludes a second attacher and carries no data.
        match self.attached.as_slice()[0].fetch_or(bit, Ordering::Relaxed) & bit {
            0 => Ok(()),
            _ => Err(AttachError::Taken { side }),
        }
    }

    /// Raises the mailbox's life word. Parent only. Partner of [`Shared::life`].
    ///
    /// The fence of the ring after each earlier message would order it as well; so no model can tell that the order is
    /// needed here. It stays, so that this word does not depend on the bell.
    pub(crate) fn set_life(&self, life: Life) {
        self.life.as_slice()[0].store(life as u64, PUBLISH);
    }

    /// The mailbox's life word. Any value that is not one of its own counts as poisoned. Partner of
    /// [`Shared::set_life`].
    #[inline(always)]
    pub(crate) fn life(&self) -> Life {
        match self.life.as_slice()[0].load(OBSERVE) {
            0 => Life::Open,
            1 => Life::ShutDown,
            _ => Life::Poisoned,
        }
    }

    /// Tells the parent that the child gave up on this mailbox. Child only. Partner of [`Shared::has_fault`]; for
    /// its order see [`Shared::set_life`].
    pub(crate) fn set_fault(&self) {
        self.fault.as_slice()[0].store(1, PUBLISH);
    }

    /// Whether the child gave up on this mailbox. Partner of [`Shared::set_fault`].
    #[inline(always)]
    pub(crate) fn has_fault(&self) -> bool {
        self.fault.as_slice()[0].load(OBSERVE) != 0
    }
}

/// The largest number of task frames, for arrays.
pub(crate) const FRAMES: usize = TASK_FRAMES_MAX;

/// The layout in a received segment's header.
#[cfg(not(loom))]
fn claimed_layout(segment: &Arc<Segment>) -> Result<Layout, AttachError> {
    let header = Words::new(segment, 0, header::WORDS)?;
    let words = header.as_slice();
    let found = words[header::MAGIC].load(OBSERVE);
    if found != MAGIC {
        return Err(AttachError::NotAMailbox {
            found,
            expected: MAGIC,
        });
    }
    let claim = std::array::from_fn(|i| words[header::LAYOUT + i].load(Ordering::Relaxed));
    Ok(Layout::from_claim(claim))
}
