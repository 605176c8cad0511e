//! The trace of a session: which case ran when, on which devices, and its rounds; in the JSON that
//! Perfetto and `chrome://tracing` read.
//!
//! ```text
//! devices    device 0   [ a::x        ][ c::x ]
//!            device 1   [ b::x ]
//! host       slot 0     [ h::x   ]
//! rounds     a::x         [r0][r1][r2]
//! ```

use std::collections::BTreeMap;
use std::time::Duration;

use serde_json::{Value, json};

use crate::outcome::{CaseReport, SessionReport};

/// Groups of lanes, as processes of the trace.
const DEVICES: u32 = 1;
const HOST: u32 = 2;
const ROUNDS: u32 = 3;

/// The trace as JSON.
pub(crate) fn json(report: &SessionReport) -> String {
    let ran: Vec<&CaseReport> = report
        .cases
        .iter()
        .filter(|case| case.attempts > 0)
        .collect();
    let mut events = vec![
        named(DEVICES, "devices"),
        named(HOST, "host"),
        named(ROUNDS, "rounds"),
    ];
    let mut lanes: BTreeMap<(u32, u32), String> = BTreeMap::new();
    let mut host_busy: Vec<Duration> = Vec::new();
    for (row, case) in (0..).zip(&ran) {
        if case.devices.is_empty() {
            let lane = free_lane(&mut host_busy, case);
            lanes.insert((HOST, lane), format!("slot {lane}"));
            events.push(span(
                HOST,
                lane,
                &case.name,
                case.began,
                case.elapsed,
                outcome(case),
            ));
        }
        for &device in &case.devices {
            lanes.insert((DEVICES, device), format!("device {device}"));
            events.push(span(
                DEVICES,
                device,
                &case.name,
                case.began,
                case.elapsed,
                outcome(case),
            ));
        }
        for (number, round) in case.rounds().enumerate() {
            lanes.insert((ROUNDS, row), case.name.clone());
            let begin = case.began + Duration::from_nanos(round.begin_ns);
            let (name, length) = (format!("round {number}"), Duration::from_nanos(round.ns));
            events.push(span(ROUNDS, row, &name, begin, length, json!({})));
        }
    }
    let names = lanes.iter().map(|((group, lane), name)| {
        json!({"ph": "M", "name": "thread_name", "pid": group, "tid": lane, "args": {"name": name}})
    });
    events.extend(names);
    json!({"displayTimeUnit": "ms", "traceEvents": events}).to_string()
}

fn outcome(case: &CaseReport) -> Value {
    json!({"outcome": case.outcome.kind(), "why": case.outcome.why(), "leaked": case.leaked})
}

fn named(group: u32, name: &str) -> Value {
    json!({"ph": "M", "name": "process_name", "pid": group, "tid": 0, "args": {"name": name}})
}

fn span(
    group: u32,
    lane: u32,
    name: &str,
    begin: Duration,
    length: Duration,
    args: Value,
) -> Value {
    let micros = |time: Duration| time.as_nanos() as f64 / 1e3;
    json!({
        "ph": "X", "name": name, "pid": group, "tid": lane,
        "ts": micros(begin), "dur": micros(length), "args": args,
    })
}

/// The first lane on which nothing ran any more when the case began.
fn free_lane(busy_until: &mut Vec<Duration>, case: &CaseReport) -> u32 {
    let end = case.began + case.elapsed;
    let free = busy_until.iter().position(|until| *until <= case.began);
    let lane = free.unwrap_or(busy_until.len());
    match free {
        Some(lane) => busy_until[lane] = end,
        None => busy_until.push(end),
    }
    u32::try_from(lane).unwrap_or(u32::MAX)
}

#[cfg(test)]
mod tests;
