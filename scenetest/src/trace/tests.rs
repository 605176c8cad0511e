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
        elapsed: Duration::from_millis(15),
        broken_devices: Vec::new(),
        interrupted: None,
    };
    let trace: Value = serde_json::from_str(&super::json(&report)).expect("JSON");
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
