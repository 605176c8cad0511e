//! The texts and the trace file read as written.

use std::time::Duration;

use super::*;

fn task(callable: &str, worker: usize, times: [u64; 3], accepted_ns: Option<u64>) -> TaskTrace {
    TaskTrace {
        callable: callable.to_owned(),
        worker,
        run: 7,
        member: 0,
        submitted_ns: times[0],
        dispatched_ns: times[1],
        accepted_ns,
        done_ns: times[2],
        is_ok: true,
    }
}

#[test]
fn stats_read_as_written() {
    let mut stats = Stats {
        runs_begun: 3,
        runs_ended: 3,
        runs_failed: 1,
        tasks_submitted: 12,
        tasks_completed: 9,
        tasks_failed: 1,
        tasks_skipped: 2,
        sent: 10,
        workers: vec![WorkerLoad::new("node/sub0", 0, 10)],
        ..Stats::default()
    };
    (1..=10).for_each(|us| stats.ran.add(us * 1000));
    insta::assert_snapshot!(stats);
}

#[test]
fn a_trace_is_json_whose_slices_do_not_overlap_on_a_lane() {
    let trace = Trace {
        root: "node \"a\"".to_owned(),
        workers: vec!["node/chip0".to_owned(), "node/sub0".to_owned()],
        tasks: vec![
            task("add", 0, [0, 1_000, 9_000], Some(2_500)),
            // Staged behind the first: dispatched while that one ran.
            task("add", 0, [0, 1_200, 12_000], None),
            task("check\n", 1, [500, 13_000, 15_001], None),
        ],
    };
    let mut json = Vec::new();
    trace.write_json(&mut json).unwrap();
    let json = String::from_utf8(json).unwrap();
    let parsed: serde_json::Value = serde_json::from_str(&json).unwrap();
    let slices: Vec<(u64, f64, f64)> = parsed["traceEvents"]
        .as_array()
        .unwrap()
        .iter()
        .filter(|event| event["ph"] == "X")
        .map(|event| {
            let number = |key: &str| event[key].as_f64().unwrap();
            (event["tid"].as_u64().unwrap(), number("ts"), number("dur"))
        })
        .collect();
    assert_eq!(slices, [(0, 2.5, 6.5), (0, 9.0, 3.0), (1, 13.0, 2.001)]);
    insta::assert_snapshot!(json);
}

#[test]
fn nothing_measured_says_so() {
    let histogram = Histogram::default();
    assert_eq!(histogram.to_string(), "not measured");
    assert_eq!(histogram.mean(), Duration::ZERO);
}
