//! What is done as soon as core is free again.
//!
//! Wakers, spans and events run code of the user's: an executor, a subscriber. Such code may be slow, may take locks of
//! its own, and may call this engine. So nothing of it runs under core. What came up under core is put down here, in
//! order, and whoever held core does it right after letting go ([`HeldCore`](super::guards::HeldCore)).

use std::task::Waker;

use tracing::Span;

/// One thing to be done.
pub(crate) enum Later {
    /// Somebody awaits what has happened.
    Wake(Waker),
    /// A run or a task is over.
    End(Span),
    /// Anything else, mostly an event for the subscriber.
    Tell(Box<dyn FnOnce() + Send>),
}

/// What came up under core, oldest first. Empty almost always.
#[derive(Default)]
pub(crate) struct Laters(Vec<Later>);

impl Laters {
    pub(crate) fn wake(&mut self, waker: Waker) {
        self.0.push(Later::Wake(waker));
    }

    /// Ends a span, unless nobody watches it.
    pub(crate) fn end(&mut self, span: Span) {
        if !span.is_disabled() {
            self.0.push(Later::End(span));
        }
    }

    pub(crate) fn tell(&mut self, tell: impl FnOnce() + Send + 'static) {
        self.0.push(Later::Tell(Box::new(tell)));
    }

    /// Takes everything, or `None` where there is nothing.
    #[inline]
    pub(super) fn take(&mut self) -> Option<Laters> {
        (!self.0.is_empty()).then(|| std::mem::take(self))
    }

    /// Does everything. Under no lock of core.
    #[cold]
    pub(super) fn run(self) {
        for later in self.0 {
            match later {
                Later::Wake(waker) => waker.wake(),
                Later::End(span) => drop(span),
                Later::Tell(tell) => tell(),
            }
        }
    }
}
