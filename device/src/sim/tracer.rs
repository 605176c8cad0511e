//! Collects trace events of a simulated chip; costs nothing while it is off.

use std::time::Instant;

use crate::error::TaskPlace;
use crate::trace::{TraceEvent, TraceLane};

/// The events since they were last taken.
#[derive(Debug)]
pub(crate) struct Tracer {
    /// When the chip was opened; `None` while tracing is off.
    opened: Option<Instant>,
    events: Vec<TraceEvent>,
}

impl Tracer {
    pub(crate) fn new(is_on: bool) -> Self {
        Self {
            opened: is_on.then(Instant::now),
            events: Vec::new(),
        }
    }

    /// Nanoseconds since the chip was opened, if anybody wants to know.
    pub(crate) fn now(&self) -> Option<u64> {
        self.opened.map(|opened| opened.elapsed().as_nanos() as u64)
    }

    /// A block that began at `began` and ends now.
    pub(crate) fn event(
        &self,
        began: Option<u64>,
        place: &TaskPlace,
        run: u64,
    ) -> Option<TraceEvent> {
        let (start_ns, now) = (began?, self.now()?);
        Some(TraceEvent {
            lane: TraceLane::Core(place.core, place.core_idx),
            name: place.kernel,
            run,
            task: Some((place.task, place.block)),
            start_ns,
            duration_ns: now - start_ns,
        })
    }

    pub(crate) fn block(&mut self, began: Option<u64>, place: &TaskPlace, run: u64) {
        self.events.extend(self.event(began, place, run));
    }

    /// An orchestration that began at `began` and ends now.
    pub(crate) fn orchestration(&mut self, began: Option<u64>, callable: &'static str, run: u64) {
        self.span(TraceLane::Orchestration, began, callable, run);
    }

    pub(crate) fn extend(&mut self, events: impl Iterator<Item = TraceEvent>) {
        self.events.extend(events);
    }

    /// The events so far, which are forgotten here.
    pub(crate) fn take(&mut self) -> Vec<TraceEvent> {
        std::mem::take(&mut self.events)
    }

    /// Something on a lane of its own that began at `began` and ends now.
    pub(crate) fn span(
        &mut self,
        lane: TraceLane,
        began: Option<u64>,
        name: &'static str,
        run: u64,
    ) {
        if let (Some(start_ns), Some(now)) = (began, self.now()) {
            let duration_ns = now - start_ns;
            self.events.push(TraceEvent {
                lane,
                name,
                run,
                task: None,
                start_ns,
                duration_ns,
            });
        }
    }
}
