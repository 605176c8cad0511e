//! The lanes and spans of a small session.

use std::time::Duration;

use serde_json::{Value, json};

use crate::outcome::{CaseReport, Outcome, SessionReport};

fn ran(name: &str, devices: &[u32], began_ms: u64, ms: u64) -> CaseReport {
    let mut case = CaseReport::unstarted(name.to_owned(), Outcome::Passed);
    case.attempts = 1;
    case.devices = devices.to_vec();
    case.began = Duration::from_millis(began_ms);
    case.elapsed = Duration::from_millis(ms);
    case
}

#[test]
fn cases_stand_on_their_devices_and_host_cases_on_free_lanes() {
    let mut first = ran("a::x", &[0, 1], 0, 10);
    first.rounds_begin_ns = vec![2_000_000];
    first.rounds_ns = vec![1_000_000];
    let unstarted = CaseReport::unstarted(
        "z::x".to_owned(),
        Outcome::Skipped {
            reason: String::new(),
        },
    );
    let cases = vec![
        first,
        ran("h::a", &[], 0, 10),
        ran("h::b", &[], 5, 10),
        ran("h::c", &[], 12, 1),
        unstarted,
    ];
    let report = SessionReport {
        cases,
        began_ns: 0,
        elapsed: Duration::from_millis(15),
        broken_devices: Vec::new(),
        interrupted: None,
    };
    let trace: Value = serde_json::from_str(&super::json(&report, None)).expect("JSON");
    let events = trace["traceEvents"].as_array().expect("a list");
    let spans: Vec<Value> = events
        .iter()
        .filter(|event| event["ph"] == "X")
        .map(|event| {
            json!([
                event["name"],
                event["pid"],
                event["tid"],
                event["ts"],
                event["dur"]
            ])
        })
        .collect();
    let expected = [
        json!(["a::x", 1, 0, 0.0, 10_000.0]),
        json!(["a::x", 1, 1, 0.0, 10_000.0]),
        json!(["round 0", 3, 0, 2_000.0, 1_000.0]),
        json!(["h::a", 2, 0, 0.0, 10_000.0]),
        json!(["h::b", 2, 1, 5_000.0, 10_000.0]),
        json!(["h::c", 2, 0, 12_000.0, 1_000.0]),
    ];
    assert_eq!(spans, expected, "the first host lane is free again");
}

#[test]
fn what_a_worker_wrote_is_put_into_the_session() {
    let dir = tempfile::tempdir().expect("a directory");
    let own = super::dir_of(dir.path(), 1);
    std::fs::create_dir(&own).expect("made");
    let named = json!({"ph": "M", "pid": 1, "name": "process_name", "args": {"name": "node"}});
    let slice = json!({"ph": "X", "pid": 1, "tid": 2, "name": "add", "ts": 7_000.5, "dur": 1.0});
    let queued = json!({"ph": "b", "pid": 1, "tid": 2, "id": 3, "name": "add", "ts": 7_000.0});
    let trace = json!({"traceEvents": [named, slice, queued]});
    std::fs::write(own.join("a.json"), trace.to_string()).expect("written");
    std::fs::write(own.join("b.json"), "{\"traceEvents\":[").expect("written");
    let report = SessionReport {
        cases: vec![ran("a::x", &[0], 0, 10), ran("b::x", &[0], 10, 10)],
        began_ns: 5_000_000,
        elapsed: Duration::from_millis(20),
        broken_devices: Vec::new(),
        interrupted: None,
    };
    let text = super::json(&report, Some(dir.path()));
    let trace: Value = serde_json::from_str(&text).expect("JSON");
    let events = trace["traceEvents"].as_array().expect("a list");
    let expected = [
        json!({"ph": "M", "pid": 4, "name": "process_name", "args": {"name": "b::x node"}}),
        json!({"ph": "X", "pid": 4, "tid": 2, "name": "add", "ts": 2_000.5, "dur": 1.0}),
        json!({"ph": "b", "pid": 4, "tid": 2, "id": "4.3", "name": "add", "ts": 2_000.0}),
    ];
    assert_eq!(events[events.len() - 3..], expected);
}
