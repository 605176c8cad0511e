//! The root's side: records from the feed become events of its own subscriber.
//!
//! An event's metadata is static, and a record tells it at run time. So the metadata of each place that ever logged is
//! made once and kept for ever; their number is bounded, since a record is a claim, and places beyond the bound share
//! one per level.

use std::sync::OnceLock;

use hashbrown::HashMap;
use mailbox::Feed;
use parking_lot::Mutex;
use tracing_core::callsite::{self, Callsite};
use tracing_core::field::{FieldSet, Value};
use tracing_core::{Event, Interest, Kind, Level, Metadata, dispatcher, identify_callsite};

use super::Record;

/// Places that get metadata of their own.
const PLACES_MAX: usize = 4096;
/// The fields of a replayed event.
const FIELDS: &[&str] = &["message", "worker"];
/// The target of events whose place is one too many.
const TARGET: &str = "facade::worker";

/// The number of a level in a record: 1 for an error to 5 for a trace.
pub(super) fn number(level: Level) -> u8 {
    match level {
        Level::ERROR => 1,
        Level::WARN => 2,
        Level::INFO => 3,
        Level::DEBUG => 4,
        _ => 5,
    }
}

/// The level of a number in a record; whatever else it is counts as a trace.
fn level(number: u8) -> Level {
    match number {
        1 => Level::ERROR,
        2 => Level::WARN,
        3 => Level::INFO,
        4 => Level::DEBUG,
        _ => Level::TRACE,
    }
}

/// Replays everything that is in the feed, then says what was lost.
pub(super) fn all(feed: &mut Feed) {
    let missed = feed.read(|bytes| match crate::control::decode::<Record<'_>>(bytes) {
        Ok(record) => replay(&record),
        Err(error) => tracing::warn!(%error, "a worker logged something unreadable"),
    });
    if missed.lost > 0 {
        tracing::warn!(
            lost = missed.lost,
            "workers logged more than could be taken: messages were lost"
        );
    }
    if missed.malformed > 0 {
        tracing::warn!("a worker broke the log feed: what was in it is lost");
    }
}

fn replay(record: &Record<'_>) {
    let metadata = place(record).metadata();
    dispatcher::get_default(|dispatch| {
        if dispatch.enabled(metadata) {
            let fields = metadata.fields();
            let (Some(message), Some(worker)) = (fields.field("message"), fields.field("worker"))
            else {
                return;
            };
            let text = tracing_core::field::display(record.text);
            let path = tracing_core::field::display(record.worker);
            let values: [_; 2] = [
                (&message, Some(&text as &dyn Value)),
                (&worker, Some(&path as &dyn Value)),
            ];
            dispatch.event(&Event::new(metadata, &fields.value_set(&values)));
        }
    });
}

/// Where a worker logged, for this process's subscriber.
struct Place(OnceLock<Metadata<'static>>);

impl Callsite for Place {
    fn set_interest(&self, _interest: Interest) {} // Asked anew for each record.

    fn metadata(&self) -> &Metadata<'_> {
        self.0
            .get()
            .expect("set before the place is shown to anybody")
    }
}

/// What tells places apart.
type Key = (u8, String, Option<String>, Option<u32>);

/// The place of a record, made when it is first seen.
fn place(record: &Record<'_>) -> &'static Place {
    static PLACES: OnceLock<Mutex<HashMap<Key, &'static Place>>> = OnceLock::new();
    let mut places = PLACES.get_or_init(Mutex::default).lock();
    let key = (
        record.level,
        record.target.to_owned(),
        record.file.map(str::to_owned),
        record.line,
    );
    if let Some(place) = places.get(&key) {
        return place;
    }
    let key = if places.len() < PLACES_MAX {
        key
    } else {
        (record.level, TARGET.to_owned(), None, None)
    };
    places.entry(key.clone()).or_insert_with(|| make_place(key))
}

fn make_place((number, target, file, line): Key) -> &'static Place {
    let place: &'static Place = Box::leak(Box::new(Place(OnceLock::new())));
    let target: &'static str = target.leak();
    let file = file.map(|file| &*file.leak());
    let metadata = Metadata::new(
        "event of a worker",
        target,
        level(number),
        file,
        line,
        Some(target),
        FieldSet::new(FIELDS, identify_callsite!(place)),
        Kind::EVENT,
    );
    // Set once: the place is new.
    let _ = place.0.set(metadata);
    callsite::register(place);
    place
}
