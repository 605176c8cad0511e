//! A worker's subscriber: every event that the root listens for becomes a record in the feed.

use std::fmt::{self, Write as _};
use std::sync::Arc;

use mailbox::FeedWriter;
use tracing::field::{Field, Visit};
use tracing::subscriber::Interest;
use tracing::{Dispatch, Event, Metadata, Subscriber, dispatcher, span};

use super::{Record, replay};

/// The subscriber of one worker. Spans are not forwarded.
pub(crate) struct Voice {
    path: String,
    writer: Arc<FeedWriter>,
}

impl Voice {
    /// Makes the calling thread log to the root, and every other thread of this process unless it inherited a subscriber
    /// from a parent that was forked with one.
    pub(crate) fn install(path: &str, writer: Arc<FeedWriter>) {
        let path = path.to_owned();
        let dispatch = Dispatch::new(Voice { path, writer });
        // For the rest of the process: the guard would take it back.
        std::mem::forget(dispatcher::set_default(&dispatch));
        // An error says that a subscriber was inherited, which cannot be replaced.
        let _ = dispatcher::set_global_default(dispatch);
    }
}

impl Subscriber for Voice {
    fn register_callsite(&self, metadata: &'static Metadata<'static>) -> Interest {
        if metadata.is_event() {
            Interest::sometimes() // What is wanted changes with what the root listens for.
        } else {
            Interest::never()
        }
    }

    fn enabled(&self, metadata: &Metadata<'_>) -> bool {
        let level = u64::from(replay::number(*metadata.level()));
        metadata.is_event() && level <= self.writer.wanted()
    }

    fn event(&self, event: &Event<'_>) {
        let mut text = Text::default();
        event.record(&mut text);
        let metadata = event.metadata();
        let record = Record {
            worker: &self.path,
            level: replay::number(*metadata.level()),
            target: metadata.target(),
            file: metadata.file(),
            line: metadata.line(),
            text: &text.finish(),
        };
        // What was lost is counted by the feed and reported by the root.
        self.writer.write(&record.encode());
    }

    fn new_span(&self, _span: &span::Attributes<'_>) -> span::Id {
        span::Id::from_u64(1) // Never asked for: no span is enabled.
    }

    fn record(&self, _span: &span::Id, _values: &span::Record<'_>) {}
    fn record_follows_from(&self, _span: &span::Id, _follows: &span::Id) {}
    fn enter(&self, _span: &span::Id) {}
    fn exit(&self, _span: &span::Id) {}
}

/// The fields of an event as one text: the message first, then `name=value` each.
#[derive(Default)]
struct Text {
    message: String,
    fields: String,
}

impl Text {
    fn finish(mut self) -> String {
        if self.message.is_empty() {
            return self.fields.trim_start().to_owned();
        }
        self.message.push_str(&self.fields);
        self.message
    }
}

impl Visit for Text {
    fn record_str(&mut self, field: &Field, value: &str) {
        match field.name() {
            "message" => self.message.push_str(value),
            name => write!(self.fields, " {name}={value:?}").expect("a string grows"),
        }
    }

    fn record_debug(&mut self, field: &Field, value: &dyn fmt::Debug) {
        // An error would come from the value's own implementation; what it wrote before is kept.
        let _ = match field.name() {
            "message" => write!(self.message, "{value:?}"),
            name => write!(self.fields, " {name}={value:?}"),
        };
    }
}
