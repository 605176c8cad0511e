//! What workers log reaches the subscriber of the tree's owner, and costs nobody anything where there is none.

use std::fmt::Write as _;
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use facade::{args, on};
use tracing::field::{Field, Visit};
use tracing::level_filters::LevelFilter;
use tracing::{Dispatch, Event, Level, Metadata, Subscriber, dispatcher, span};

use super::support::{Gate, VECTOR_ADD, builder, directory, failure, nothing};

/// Keeps every event as one line: level, target, message, other fields.
struct Listener {
    level: Level,
    heard: Arc<Mutex<Vec<String>>>,
}

impl Subscriber for Listener {
    fn enabled(&self, metadata: &Metadata<'_>) -> bool {
        metadata.is_event() && *metadata.level() <= self.level
    }

    fn max_level_hint(&self) -> Option<LevelFilter> {
        Some(LevelFilter::from_level(self.level))
    }

    fn event(&self, event: &Event<'_>) {
        let mut line = format!("{} {}", event.metadata().level(), event.metadata().target());
        event.record(&mut Line(&mut line));
        self.heard.lock().unwrap().push(line);
    }

    fn new_span(&self, _: &span::Attributes<'_>) -> span::Id {
        span::Id::from_u64(1)
    }
    fn record(&self, _: &span::Id, _: &span::Record<'_>) {}
    fn record_follows_from(&self, _: &span::Id, _: &span::Id) {}
    fn enter(&self, _: &span::Id) {}
    fn exit(&self, _: &span::Id) {}
}

struct Line<'a>(&'a mut String);

impl Visit for Line<'_> {
    fn record_debug(&mut self, field: &Field, value: &dyn std::fmt::Debug) {
        write!(self.0, " {}={value:?}", field.name()).unwrap();
    }
}

/// Listens with the whole process from now on.
fn listen(level: Level) -> Arc<Mutex<Vec<String>>> {
    let heard = Arc::new(Mutex::new(Vec::new()));
    let listener = Listener {
        level,
        heard: Arc::clone(&heard),
    };
    dispatcher::set_global_default(Dispatch::new(listener)).unwrap();
    heard
}

/// What was heard of the target `work`, which is what the functions of these tests log to.
fn of_work(heard: &Mutex<Vec<String>>) -> Vec<String> {
    let heard = heard.lock().unwrap();
    let work = heard.iter().filter(|line| line.contains(" work "));
    work.cloned().collect()
}

pub(crate) fn what_a_worker_logs_is_heard_in_order_with_its_path() {
    let heard = listen(Level::INFO);
    let node = builder(0, 1).build().unwrap();
    let talk = node
        .register_fn("talk", |args| {
            let n = args.scalar::<u64>(0)?;
            tracing::info!(target: "work", n, name = "x", "begin");
            tracing::debug!(target: "work", "nobody listens for this");
            tracing::warn!(target: "work", n, "end");
            Ok(())
        })
        .unwrap();
    node.init().unwrap();
    node.run(|orch| {
        orch.submit_sub(&talk, args().scalar(1_u64))?;
        orch.submit_sub(&talk, args().scalar(2_u64))
    })
    .unwrap();
    // Without another call: a run is over when what its tasks said was heard.
    assert_eq!(
        of_work(&heard),
        [
            "INFO work message=begin n=1 name=\"x\" worker=node/sub0",
            "WARN work message=end n=1 worker=node/sub0",
            "INFO work message=begin n=2 name=\"x\" worker=node/sub0",
            "WARN work message=end n=2 worker=node/sub0",
        ]
    );
    node.close().unwrap();
}

pub(crate) fn workers_two_levels_down_are_heard_too() {
    let heard = listen(Level::INFO);
    let root = builder(0, 1)
        .worker(builder(0, 1).name("below"))
        .build()
        .unwrap();
    let talk = root
        .register_fn("talk", |_| {
            tracing::info!(target: "work", "deep");
            Ok(())
        })
        .unwrap();
    let deep = talk.clone();
    let below = root
        .register_orchestration("below", move |orch, _| {
            tracing::info!(target: "work", "above");
            orch.submit_sub(&deep, args()).map(drop)
        })
        .unwrap();
    root.init().unwrap();
    root.run(|orch| orch.submit_next_level(&below, args(), on(0)))
        .unwrap();
    assert_eq!(
        of_work(&heard),
        [
            "INFO work message=above worker=network1/below",
            "INFO work message=deep worker=network1/below/sub0",
        ]
    );
    root.close().unwrap();
}

pub(crate) fn a_panic_and_a_death_are_heard() {
    let heard = listen(Level::WARN);
    let node = builder(0, 2).build().unwrap();
    let fall = node
        .register_fn("fall", |_| panic!("over the edge"))
        .unwrap();
    let vanish = node
        .register_fn("vanish", |_| std::process::exit(3))
        .unwrap();
    node.init().unwrap();
    failure(node.run(|orch| orch.submit_sub(&fall, args())));
    failure(node.run(|orch| orch.submit_sub(&vanish, args())));
    let heard = heard.lock().unwrap().join("\n");
    assert!(
        heard.contains("ERROR facade::child::panics message=panicked: over the edge"),
        "{heard}"
    );
    assert!(heard.contains("worker=node/sub"), "{heard}");
    assert!(heard.contains("a worker died"), "{heard}");
    assert!(
        heard.contains("status 3") || heard.contains("code 3"),
        "{heard}"
    );
    node.close().unwrap();
}

pub(crate) fn a_worker_that_talks_too_much_loses_messages_and_never_waits() {
    let heard = listen(Level::INFO);
    let node = builder(0, 1).build().unwrap();
    let flood = node
        .register_fn("flood", |_| {
            (0..20_000)
                .for_each(|i| tracing::info!(target: "work", i, "a line of some length, to fill"));
            Ok(())
        })
        .unwrap();
    node.init().unwrap();
    node.run(|orch| orch.submit_sub(&flood, args())).unwrap();
    let n_heard = of_work(&heard).len();
    let all = heard.lock().unwrap().join("\n");
    assert!(n_heard > 0);
    let lost: usize = all
        .lines()
        .filter_map(|line| {
            line.split("lost=")
                .nth(1)?
                .split(' ')
                .next()?
                .parse::<usize>()
                .ok()
        })
        .sum();
    assert_eq!(
        n_heard + lost,
        20_000,
        "each line was heard or counted as lost"
    );
    node.close().unwrap();
}

pub(crate) fn a_listener_that_comes_later_is_heard_by_workers() {
    let node = builder(0, 1).build().unwrap();
    let talk = node
        .register_fn("talk", |_| {
            tracing::info!(target: "work", "hello");
            Ok(())
        })
        .unwrap();
    node.init().unwrap();
    let run = || node.run(|orch| orch.submit_sub(&talk, args())).unwrap();
    run();
    let heard = listen(Level::INFO);
    run();
    assert_eq!(
        of_work(&heard),
        ["INFO work message=hello worker=node/sub0"]
    );
    node.close().unwrap();
}

pub(crate) fn a_spawned_worker_and_its_threads_are_heard() {
    fn talk(_: &facade::Args) -> facade::TaskResult {
        let thread = std::thread::spawn(|| tracing::info!(target: "work", "from a thread"));
        thread.join().map_err(|_| "it does not panic")?;
        Ok(())
    }
    let heard = listen(Level::INFO);
    let node = builder(1, 1)
        .start_mode(facade::StartMode::Spawn)
        .build()
        .unwrap();
    let talk = node.register_fn("talk", talk).unwrap();
    node.register_chip(&VECTOR_ADD).unwrap();
    node.register_fn("nothing", nothing).unwrap();
    node.init().unwrap();
    node.run(|orch| orch.submit_sub(&talk, args())).unwrap();
    assert_eq!(
        of_work(&heard),
        ["INFO work message=from a thread worker=node/sub0"]
    );
    node.close().unwrap();
}

pub(crate) fn what_a_worker_logs_while_nobody_waits_is_heard() {
    let dir = directory();
    let gate = Gate::new(dir.path(), "gate");
    let node = builder(0, 1).build().unwrap();
    let inside = gate.clone();
    let leave_behind = node
        .register_fn("leave_behind", move |_| {
            let gate = inside.clone();
            std::thread::spawn(move || {
                gate.pass();
                tracing::info!(target: "work", "long after the task");
            });
            Ok(())
        })
        .unwrap();
    // Before anybody listens here, so that threads of the worker log to its own subscriber.
    node.init().unwrap();
    let heard = listen(Level::INFO);
    let run = node.submit(|orch| orch.submit_sub(&leave_behind, args()).map(drop));
    run.unwrap().wait().unwrap();
    assert!(of_work(&heard).is_empty());
    gate.open();
    let deadline = Instant::now() + Duration::from_secs(10);
    while of_work(&heard).is_empty() {
        assert!(Instant::now() < deadline, "nobody heard it");
        std::thread::yield_now();
    }
    let expected = "INFO work message=long after the task worker=node/sub0";
    assert_eq!(of_work(&heard), [expected]);
    node.close().unwrap();
}
