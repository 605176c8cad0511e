//! Counters, latencies and traces say what really happened.

use facade::{Error, Observe, args, on};

use super::support::{VECTOR_ADD, builder, failure, nothing};

pub(crate) fn counters_count_what_happened() {
    let node = builder(0, 2).build().unwrap();
    let good = node.register_fn("good", nothing).unwrap();
    let bad = node.register_fn("bad", |_| Err("no".into())).unwrap();
    node.init().unwrap();
    let x = node.buffer::<u32>(1).unwrap();
    node.run(|orch| {
        (0..5).try_for_each(|_| orch.submit_sub(&good, args()).map(drop))?;
        orch.submit_sub_group(&good, vec![args(), args()])
    })
    .unwrap();
    failure(node.run(|orch| {
        orch.submit_sub(&bad, args().output(&x))?;
        orch.submit_sub(&good, args().input(&x))
    }));
    let stats = node.stats().unwrap();
    assert_eq!(
        (stats.runs_begun, stats.runs_ended, stats.runs_failed),
        (2, 2, 1)
    );
    assert_eq!((stats.tasks_submitted, stats.sent), (8, 8));
    assert_eq!(
        (
            stats.tasks_completed,
            stats.tasks_failed,
            stats.tasks_skipped
        ),
        (6, 1, 1)
    );
    assert_eq!((stats.tasks_live, stats.requests_queued), (0, 0));
    assert_eq!(stats.workers.iter().map(|w| w.sent).sum::<u64>(), 8);
    assert!(stats.workers.iter().all(|worker| worker.in_flight == 0));
    assert_eq!(stats.workers[1].path, "node/sub1");
    // Nobody asked for times.
    assert_eq!((stats.queued.count(), stats.ran.count()), (0, 0));
    assert!(node.take_trace().unwrap().tasks.is_empty());
    node.close().unwrap();
}

pub(crate) fn a_trace_has_every_task_in_its_worker_and_its_times_in_order() {
    let node = builder(2, 1).build().unwrap();
    let add = node.register_chip(&VECTOR_ADD).unwrap();
    let check = node.register_fn("check", nothing).unwrap();
    node.observe(Observe::Trace).unwrap();
    node.init().unwrap();
    let n = 64;
    let (a, b, c) = (
        node.buffer::<f32>(n).unwrap(),
        node.buffer::<f32>(n).unwrap(),
        node.buffer::<f32>(n).unwrap(),
    );
    node.run(|orch| {
        for chip in 0..2_u32 {
            let tile = chip as usize * n / 2..(chip as usize + 1) * n / 2;
            let list = args()
                .input(&a.slice(tile.clone())?)
                .input(&b.slice(tile.clone())?)
                .output(&c.slice(tile)?);
            orch.submit_next_level(&add, list, on(chip))?;
        }
        orch.submit_sub(&check, args().input(&c))
    })
    .unwrap();
    let trace = node.take_trace().unwrap();
    assert_eq!(
        trace.workers,
        ["node/chip0", "node/chip1", "node/sub0"].map(str::to_owned)
    );
    let mut places: Vec<(&str, usize)> = trace
        .tasks
        .iter()
        .map(|task| (task.callable.as_str(), task.worker))
        .collect();
    places.sort_unstable();
    assert_eq!(places, [("check", 2), ("vector_add", 0), ("vector_add", 1)]);
    for task in &trace.tasks {
        let accepted = task.accepted_ns.unwrap_or(task.dispatched_ns);
        let times = [
            task.submitted_ns,
            task.dispatched_ns,
            accepted,
            task.done_ns,
        ];
        assert!(times.is_sorted() && task.is_ok, "{task:?}");
    }
    // The check read what the chips wrote, so it was sent when both had ended.
    let check = trace.tasks.iter().find(|t| t.callable == "check").unwrap();
    let added = trace.tasks.iter().filter(|t| t.callable != "check");
    assert!(added.into_iter().all(|t| t.done_ns <= check.dispatched_ns));
    let stats = node.stats().unwrap();
    assert_eq!((stats.queued.count(), stats.ran.count()), (3, 3));
    // Taken once.
    assert!(node.take_trace().unwrap().tasks.is_empty());
    node.close().unwrap();
}

pub(crate) fn every_worker_of_a_traced_tree_writes_what_its_tasks_did_when_it_closes() {
    let dir = tempfile::tempdir().unwrap();
    let low = builder(1, 0).name("low");
    let root = builder(0, 1).worker(low).trace_to(dir.path().join("made"));
    let root = root.build().unwrap();
    let add = root.register_chip(&VECTOR_ADD).unwrap();
    let check = root.register_fn("check", nothing).unwrap();
    let below = root
        .register_orchestration("below", move |orch, list| {
            let (a, b, c) = (list.tensor(0)?, list.tensor(1)?, list.tensor(2)?);
            orch.submit_next_level(&add, args().input(&a).input(&b).output(&c), on(0))
                .map(drop)
        })
        .unwrap();
    root.init().unwrap();
    let x = [(); 3].map(|()| root.buffer::<f32>(4).unwrap());
    root.run(|orch| {
        let list = args().input(&x[0]).input(&x[1]).output(&x[2]);
        orch.submit_next_level(&below, list, on(0))?;
        orch.submit_sub(&check, args().input(&x[2]))
    })
    .unwrap();
    root.close().unwrap();
    let mut slices = Vec::new();
    for file in std::fs::read_dir(dir.path().join("made")).unwrap() {
        let text = std::fs::read_to_string(file.unwrap().path()).unwrap();
        let trace: serde_json::Value = serde_json::from_str(&text).unwrap();
        let events = trace["traceEvents"].as_array().unwrap();
        let root = events[0]["args"]["name"].as_str().unwrap().to_owned();
        for event in events.iter().filter(|event| event["ph"] == "X") {
            let (name, begin) = (
                event["name"].as_str().unwrap(),
                event["ts"].as_f64().unwrap(),
            );
            slices.push((root.clone(), name.to_owned(), begin));
        }
    }
    slices.sort_by(|a, b| (&a.0, &a.1).cmp(&(&b.0, &b.1)));
    let places: Vec<(&str, &str)> = slices
        .iter()
        .map(|(root, name, _)| (root.as_str(), name.as_str()))
        .collect();
    let expected = [
        ("network1", "below"),
        ("network1", "check"),
        ("network1/low", "vector_add"),
    ];
    assert_eq!(places, expected);
    assert!(slices[2].2 < slices[1].2, "one clock for all: {slices:?}");
}

pub(crate) fn a_task_that_dies_with_its_worker_is_in_the_trace_as_failed() {
    let node = builder(0, 1).build().unwrap();
    let vanish = node
        .register_fn("vanish", |_| std::process::exit(3))
        .unwrap();
    node.observe(Observe::Trace).unwrap();
    node.init().unwrap();
    let died = node.run(|orch| orch.submit_sub(&vanish, args()));
    assert!(matches!(died, Err(Error::Run(_))));
    let trace = node.take_trace().unwrap();
    assert_eq!(trace.tasks.len(), 1);
    assert!(!trace.tasks[0].is_ok);
    assert_eq!(node.stats().unwrap().workers[0].in_flight, 0);
    node.close().unwrap();
}
