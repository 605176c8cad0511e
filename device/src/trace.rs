//! What a chip did when: events on lanes, one for the orchestration, one per scheduler thread,
//! one per core.

use std::fmt::Write as _;

use crate::kernel::CoreType;

/// Where an event happened.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum TraceLane {
    /// The orchestration of a run, from its first submit to its return.
    Orchestration,
    /// The submit of one core task.
    TaskSubmit,
    /// The submit of a recorded graph, as one task.
    GraphSubmit,
    /// A bounded slice of work in which nodes of a submitted graph became core tasks.
    GraphPrepare,
    /// A scheduler thread by number: a slice of work in which it gave blocks to its cores.
    Scheduler(u16),
    /// A core, by type and number.
    Core(CoreType, u16),
}

/// Something that took time.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TraceEvent {
    /// Where.
    pub lane: TraceLane,
    /// The callable or the kernel.
    pub name: &'static str,
    /// The run's number among those that were launched.
    pub run: u64,
    /// The task and the block, of an event on a core.
    pub task: Option<(u64, u32)>,
    /// When it began, in nanoseconds since the chip was opened.
    pub start_ns: u64,
    /// How long it took.
    pub duration_ns: u64,
}

impl TraceLane {
    /// Its name as a lane of a viewer.
    fn name(self) -> String {
        match self {
            TraceLane::Orchestration => "orchestration".to_owned(),
            TraceLane::TaskSubmit => "task submit".to_owned(),
            TraceLane::GraphSubmit => "graph submit".to_owned(),
            TraceLane::GraphPrepare => "graph prepare".to_owned(),
            TraceLane::Scheduler(idx) => format!("scheduler {idx}"),
            TraceLane::Core(core, idx) => format!("{core} {idx:02}"),
        }
    }
}

/// The events of one chip as JSON for trace viewers (the Trace Event Format of Chromium and
/// Perfetto); `chip` is shown as the process.
#[must_use]
pub fn trace_json(chip: u32, events: &[TraceEvent]) -> String {
    let mut lanes: Vec<TraceLane> = Vec::new();
    let mut json = String::from("[");
    for event in events {
        let lane = lanes
            .iter()
            .position(|lane| *lane == event.lane)
            .unwrap_or_else(|| {
                lanes.push(event.lane);
                lanes.len() - 1
            });
        let TraceEvent {
            name,
            run,
            start_ns,
            duration_ns,
            ..
        } = event;
        let (start, duration) = (*start_ns as f64 / 1e3, *duration_ns as f64 / 1e3);
        let task = event.task.map_or_else(String::new, |(task, block)| {
            format!(",\"task\":{task},\"block\":{block}")
        });
        let _infallible = write!(
            json,
            "{}{{\"ph\":\"X\",\"pid\":{chip},\"tid\":{lane},\"name\":\"{}\",\"ts\":{start:.3},\
             \"dur\":{duration:.3},\"args\":{{\"run\":{run}{task}}}}}",
            if json.len() > 1 { ",\n" } else { "" },
            escaped(name),
        );
    }
    for (idx, lane) in lanes.iter().enumerate() {
        let _infallible = write!(
            json,
            ",\n{{\"ph\":\"M\",\"pid\":{chip},\"tid\":{idx},\"name\":\"thread_name\",\
             \"args\":{{\"name\":\"{}\"}}}}",
            lane.name(),
        );
    }
    json.push(']');
    json
}

/// A name inside a JSON string.
fn escaped(name: &str) -> String {
    name.chars().fold(String::new(), |mut text, c| {
        match c {
            '"' | '\\' => text.extend(['\\', c]),
            c if c.is_control() => text.push('?'),
            c => text.push(c),
        }
        text
    })
}
