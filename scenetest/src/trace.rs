//! The trace of a session: which case ran when, on which devices, its rounds, and what its workers did;
//! in the JSON that Perfetto and `chrome://tracing` read.
//!
//! ```text
//! devices    device 0   [ a::x        ][ c::x ]
//!            device 1   [ b::x ]
//! host       slot 0     [ h::x   ]
//! rounds     a::x         [r0][r1][r2]
//! a::x node  node/chip0   [add][add][add]
//!            node/sub0     [check]
//! ```
//!
//! The last group is of one worker of a case: the workers of a case write files of their own when they
//! close ([`facade::WorkerBuilder::trace_to`]), on the clock of the machine, and they are put in here. A
//! case that was ended by force has none.

use std::collections::BTreeMap;
use std::fs;
use std::io;
use std::path::{Path, PathBuf};
use std::time::Duration;

use nix::time::{ClockId, clock_gettime};

use serde_json::{Value, json};

use crate::outcome::{CaseReport, SessionReport};

/// Groups of lanes, as processes of the trace.
const DEVICES: u32 = 1;
const HOST: u32 = 2;
const ROUNDS: u32 = 3;
/// The first group of a worker.
const WORKERS: u32 = 4;

/// Now, on the clock on which workers write their traces.
pub(crate) fn now_ns() -> io::Result<u64> {
    let now = Duration::from(clock_gettime(ClockId::CLOCK_MONOTONIC)?);
    Ok(u64::try_from(now.as_nanos()).unwrap_or(u64::MAX))
}

/// Where the workers of the case with this number write.
pub(crate) fn dir_of(traces: &Path, index: usize) -> PathBuf {
    traces.join(index.to_string())
}

/// The trace as JSON. `traces` is where the workers wrote.
pub(crate) fn json(report: &SessionReport, traces: Option<&Path>) -> String {
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
    if let Some(traces) = traces {
        events.extend(of_workers(report, traces));
    }
    json!({"displayTimeUnit": "ms", "traceEvents": events}).to_string()
}

/// What the workers of all cases wrote, each worker in a group of its own.
fn of_workers(report: &SessionReport, traces: &Path) -> Vec<Value> {
    let mut events = Vec::new();
    let mut group = WORKERS;
    for (index, case) in report.cases.iter().enumerate() {
        for file in files(&dir_of(traces, index)) {
            let text = fs::read(file).unwrap_or_default();
            // A worker that was killed while it wrote left half a file.
            let Ok(Value::Object(mut trace)) = serde_json::from_slice(&text) else {
                continue;
            };
            let own = trace.get_mut("traceEvents").and_then(Value::as_array_mut);
            let own = own.map(std::mem::take).unwrap_or_default();
            for mut event in own.into_iter().filter(Value::is_object) {
                put_in(&mut event, group, &case.name, report.began_ns);
                events.push(event);
            }
            group += 1;
        }
    }
    events
}

/// The files of a directory that may not be there, by name.
fn files(dir: &Path) -> Vec<PathBuf> {
    let entries = fs::read_dir(dir).into_iter().flatten();
    let mut files: Vec<PathBuf> = entries.flatten().map(|entry| entry.path()).collect();
    files.sort_unstable();
    files
}

/// Makes an event of one worker's trace one of the session's.
fn put_in(event: &mut Value, group: u32, case: &str, began_ns: u64) {
    let worker = event["args"]["name"].as_str().map(str::to_owned);
    event["pid"] = json!(group);
    if let Some(micros) = event["ts"].as_f64() {
        event["ts"] = json!(micros - began_ns as f64 / 1e3);
    }
    // Numbers of pairs of events are unique in one file only.
    if let Some(id) = event["id"].as_u64() {
        event["id"] = json!(format!("{group}.{id}"));
    }
    if event["name"] == "process_name" {
        let worker = worker.unwrap_or_default();
        event["args"] = json!({"name": format!("{case} {worker}")});
    }
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
