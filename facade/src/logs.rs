//! What workers log, told where the tree's owner listens.
//!
//! A child has no subscriber of its own that anybody sees. So each child installs one that writes its events into the
//! tree's one feed (`mailbox::Feed`), and the root replays them to its own subscriber: same level, same target, same
//! place in the source, with the path of the worker as the field `worker`.
//!
//! ```text
//!  worker, any depth                         root
//!  tracing::info!(..)                        who drives, and every call that waits or looks:
//!    level wanted? one load                    anything new? two loads
//!    Voice: encode, write, ring ---- feed -->  replay: decode, check, Event::dispatch
//! ```
//!
//! - Nobody listens (`LevelFilter::current()` is off): an event in a worker costs a load and a branch.
//! - A worker never waits for the root: what does not fit is lost, counted, and reported as a warning.
//! - When a wait for a run returns, what its tasks logged has been replayed: a record is written before the answer.
//! - The root needs no thread for it. Where there is a background driver anyway, because runs were submitted, it hears
//!   what is logged while nobody waits; otherwise that stays in the feed until the next call.

mod replay;
mod voice;

use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use mailbox::{CUT_MARK, Doorbell, Feed, FeedWriter, RECORD_MAX, SegmentError};
use parking_lot::Mutex;
use serde::{Deserialize, Serialize};
use tracing::level_filters::LevelFilter;

pub(crate) use self::voice::Voice;

/// One event on its way to the root. What is decoded from a feed is a claim: text and numbers, shown and not acted on.
#[derive(Debug, Serialize, Deserialize, PartialEq, Eq)]
struct Record<'a> {
    worker: &'a str,
    /// 1 for an error to 5 for a trace.
    level: u8,
    target: &'a str,
    file: Option<&'a str>,
    line: Option<u32>,
    /// The message, then the other fields.
    text: &'a str,
}

impl Record<'_> {
    /// The bytes of the record, its text cut with a mark where it is longer than a feed takes.
    fn encode(&self) -> Vec<u8> {
        let bytes = crate::control::encode(self);
        let Some(excess) = bytes.len().checked_sub(RECORD_MAX + 1) else {
            return bytes;
        };
        let mut cut = self.text.len().saturating_sub(excess + 1 + CUT_MARK.len());
        while !self.text.is_char_boundary(cut) {
            cut -= 1;
        }
        let text = format!("{}{CUT_MARK}", &self.text[..cut]);
        crate::control::encode(&Record {
            text: &text,
            ..*self
        })
    }
}

/// Whatever bytes are taken for a record fit a feed when they are written again.
#[cfg(any(test, fuzzing))]
pub(crate) fn check_record(bytes: &[u8]) {
    if let Ok(record) = crate::control::decode::<Record<'_>>(bytes) {
        let again = record.encode();
        assert!(again.len() <= RECORD_MAX);
        assert!(crate::control::decode::<Record<'_>>(&again).is_ok());
    }
}

/// A tree's feed, as one of its processes has it.
pub(crate) struct Logs {
    /// Handed on to every child.
    writer: Arc<FeedWriter>,
    /// The root reads.
    reader: Option<Reader>,
}

struct Reader {
    feed: Mutex<Feed>,
    /// Readable while something is in the feed.
    pipe: OwnedFd,
    /// What the writers' count was when the feed was last read.
    seen: AtomicU64,
}

impl Logs {
    /// The feed of a new tree, whose writers ring the root's doorbell.
    pub(crate) fn root(doorbell: &Doorbell) -> Result<Self, SegmentError> {
        let feed = Feed::create(doorbell)?;
        let pipe = feed.as_fd().try_clone_to_owned();
        let pipe = pipe.map_err(|source| SegmentError::Os {
            call: "dup",
            bytes: 0,
            source,
        })?;
        Ok(Self {
            writer: Arc::clone(feed.writer()),
            reader: Some(Reader {
                pipe,
                feed: Mutex::new(feed),
                seen: AtomicU64::new(0),
            }),
        })
    }

    /// The feed of a worker's tree.
    pub(crate) fn below(writer: Arc<FeedWriter>) -> Self {
        let reader = None;
        Self { writer, reader }
    }

    /// The end that every child gets.
    pub(crate) fn writer(&self) -> &Arc<FeedWriter> {
        &self.writer
    }

    /// Tells the workers what this process listens for now. A few loads when that has not changed.
    pub(crate) fn ask(&self) {
        if self.reader.is_some() {
            let level = LevelFilter::current().into_level();
            let wanted = level.map_or(0, replay::number);
            self.writer.ask_for(u64::from(wanted));
        }
    }

    /// Whether workers have logged something that was not replayed. Two loads.
    #[inline]
    pub(crate) fn has_news(&self) -> bool {
        let news = |reader: &Reader| self.writer.told() != reader.seen.load(Ordering::Relaxed);
        self.reader.as_ref().is_some_and(news)
    }

    /// Readable while a worker has logged something that was not read. None below the root.
    pub(crate) fn pipe(&self) -> Option<BorrowedFd<'_>> {
        self.reader.as_ref().map(|reader| reader.pipe.as_fd())
    }

    /// Replays what workers have logged to this process's subscriber, which is the user's: no lock of the engine may be
    /// needed there, except by a driver's own thread.
    #[inline]
    pub(crate) fn replay(&self) {
        if self.has_news() {
            self.drain();
        }
    }

    /// As [`Logs::replay`], also of what a writer has not counted yet, or died before it could.
    #[cold]
    pub(crate) fn drain(&self) {
        if let Some(reader) = &self.reader {
            // Who comes while another thread replays waits for it: afterwards everything told before is replayed.
            let mut feed = reader.feed.lock();
            // Relaxed: changed under the lock; read without it as a hint.
            reader.seen.store(self.writer.told(), Ordering::Relaxed);
            replay::all(&mut feed);
        }
    }
}

#[cfg(test)]
mod tests;
