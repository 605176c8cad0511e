//! What a child is given for its life: mailbox, descriptor channel, board of the start, feed of the logs.
//!
//! ```text
//!                      forked child                         spawned child
//! mailbox, doorbell    inherits the mappings                maps what it is given, after checks
//! board, feed          inherits the mappings                maps what it is given, after checks
//! activity, if any     inherits the mapping                 maps what it is given, after checks
//! descriptor channel   is given the descriptor              is given the descriptor
//! ```
//!
//! A forked child finds mapped what its parent has mapped; its descriptors keep their numbers. The one thing that is its own, the
//! mailbox, is inherited by it alone: the mapping is kept out of all forks but this one, and the child keeps it out of its own.

use std::os::fd::OwnedFd;
use std::sync::Arc;

use mailbox::{AttachError, FdChannel, FeedWriter, Mailbox};
use procfork::{Child, ForkOptions, Group};

use crate::activity;
use crate::callable::Registry;
use crate::child::{self, Seat};
use crate::config::StartMode;
use crate::control::chain;
use crate::error::StartCause;
use crate::progress::{Board, StartPhase};

/// What a child has, in its own process.
pub(crate) struct Outfit {
    pub(crate) channel: FdChannel,
    pub(crate) mailbox: Mailbox,
    pub(crate) board: Board,
    pub(crate) feed: Arc<FeedWriter>,
}

impl Outfit {
    /// From the descriptors that [`Cradle::make`] gave. The eighth, if there is one, is the board of activity.
    pub(crate) fn received(mut fds: Vec<OwnedFd>, seat: &Seat) -> Result<Self, String> {
        fds.drain(fds.len().min(7)..).for_each(activity::publish_fd);
        let [channel, segment, bell, board, feed @ ..] = <[OwnedFd; 7]>::try_from(fds)
            .map_err(|fds| format!("7 descriptors, not {}", fds.len()))?;
        let mailbox = Mailbox::from_fds(segment, bell).map_err(|error| chain(&error))?;
        let board = Board::attach(board, seat.slot, seat.n_slots);
        let feed = FeedWriter::from_fds(feed).map_err(|error| chain(&error))?;
        Ok(Self {
            channel: FdChannel::from_fd(channel),
            mailbox,
            board: board.map_err(|error| chain(&error))?,
            feed: Arc::new(feed),
        })
    }
}

/// Everything for one child, made before its process, and dropped by the parent when all children are made.
pub(crate) struct Cradle {
    pub(crate) seat: Seat,
    /// Kept from forks, except from the child's.
    pub(crate) mailbox: Mailbox,
    pub(crate) board: Board,
    pub(crate) feed: Arc<FeedWriter>,
}

impl Cradle {
    /// Forks the child, or starts this program again for it, with its end of the channel for descriptors.
    pub(crate) fn make(
        &self,
        group: Group,
        channel: FdChannel,
        registry: &Arc<Registry>,
    ) -> Result<Child, StartCause> {
        self.board.note(StartPhase::Made);
        let path = &self.seat.path;
        let name = path.rsplit('/').next().unwrap_or(path);
        let options = ForkOptions::new(name).group(group).give(channel.into());
        match self.seat.made {
            StartMode::Fork => self.fork(options, registry),
            _ => self.spawn(options, registry),
        }
    }

    fn fork<'a>(
        &'a self,
        mut options: ForkOptions<'a>,
        registry: &Arc<Registry>,
    ) -> Result<Child, StartCause> {
        self.mailbox
            .share_with_forks()
            .map_err(StartCause::system)?;
        let (mailbox, feed) = (self.mailbox.fds(), self.feed.fds());
        let activity = activity::published_fd();
        for fd in mailbox
            .into_iter()
            .chain([self.board.fd()])
            .chain(feed)
            .chain(activity)
        {
            options = options.keep(fd);
        }
        let child = procfork::fork(options, |mut context| {
            let channel = context
                .fds
                .pop()
                .ok_or("the descriptor channel is missing")?;
            let outfit = self.inherited(channel).map_err(|error| chain(&error))?;
            child::main(context, self.seat.clone(), Arc::clone(registry), outfit)
        });
        let kept = self.mailbox.keep_from_forks();
        let child = child.map_err(|error| not_forked(error, registry))?;
        kept.map_err(StartCause::system)?;
        Ok(child)
    }

    /// In the child.
    fn inherited(&self, channel: OwnedFd) -> Result<Outfit, AttachError> {
        Ok(Outfit {
            channel: FdChannel::from_fd(channel),
            mailbox: self.mailbox.twin()?,
            board: self.board.clone(),
            feed: Arc::clone(&self.feed),
        })
    }

    fn spawn(
        &self,
        mut options: ForkOptions<'_>,
        registry: &Registry,
    ) -> Result<Child, StartCause> {
        let args = self.seat.to_wire(registry);
        let args = args.map_err(|callables| StartCause::Captured {
            callables,
            threads: Vec::new(),
        })?;
        // In the order in which `Outfit::received` takes them, after the channel.
        let (mailbox, feed) = (self.mailbox.fds(), self.feed.fds());
        for fd in mailbox.into_iter().chain([self.board.fd()]).chain(feed) {
            options = options.give(fd.try_clone_to_owned().map_err(StartCause::system)?);
        }
        options = activity::published_copy()
            .into_iter()
            .fold(options, ForkOptions::give);
        procfork::spawn(options, child::SPAWNED, &args)
            .map_err(|error| StartCause::Fork(Arc::new(error)))
    }
}

/// Where spawning would not do either, the error says both.
fn not_forked(error: procfork::StartError, registry: &Registry) -> StartCause {
    match (error, registry.to_wire()) {
        (procfork::StartError::OtherThreads { threads, .. }, Err(callables)) => {
            StartCause::Captured { callables, threads }
        }
        (error, _) => StartCause::Fork(Arc::new(error)),
    }
}
