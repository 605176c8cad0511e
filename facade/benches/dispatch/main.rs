//! What a run and a task cost through the whole crate, beside the bare mailbox in the same run.
//!
//! `cargo bench -p facade --bench dispatch -- [--json] [NAME...]`; see `docs/benches.md`.
#![expect(clippy::print_stdout, reason = "a bench prints its figures")]

mod load;
mod memory;

use std::fs;
use std::time::{Duration, Instant};

use facade::{Args, FunctionHandle, TaskResult, Worker, args};
use mailbox::{Doorbell, Identity, Immortal, Layout, Mailbox, ParentEnd, Request, Waiter};
use procfork::{Child, ForkOptions};
use serde_json::{Value, json};

/// Rounds per measure; the median and the smallest are reported.
const ROUNDS: usize = 31;
/// Round trips per round.
const TRIPS: u32 = 2_000;
/// Tasks of one run.
const TASKS: u32 = 256;

fn main() {
    let (flags, names): (Vec<String>, Vec<String>) = std::env::args()
        .skip(1)
        .partition(|arg| arg.starts_with("--"));
    let wanted = |name: &str| names.is_empty() || names.iter().any(|wanted| wanted == name);
    let mut measures = Vec::new();
    if ["run_empty", "run_one", "task_in_run"]
        .iter()
        .any(|name| wanted(name))
    {
        measures.extend(runs());
    }
    if wanted("task_in_run_2") {
        measures.push(two_workers());
    }
    if wanted("oversubscribed") {
        measures.push(load::oversubscribed());
    }
    if wanted("buffer_map") {
        measures.push(memory::buffer_map());
    }
    if wanted("rss_child_mib") {
        measures.push(memory::rss_child());
    }
    if wanted("idle_cpu_percent") {
        measures.push(idle_cpu());
    }
    measures.retain(|measure| measure["name"].as_str().is_some_and(&wanted));
    if flags.iter().any(|flag| flag == "--json") {
        println!("{}", Value::Array(measures));
    } else {
        measures.iter().for_each(|measure| println!("{measure}"));
    }
}

fn nothing(_args: &Args) -> TaskResult {
    Ok(())
}

fn node(sub_workers: u32) -> (Worker, FunctionHandle) {
    let node = Worker::node()
        .sub_workers(sub_workers)
        .build()
        .expect("a sound specification");
    let nothing = node.register_fn("nothing", nothing).expect("a free name");
    node.init().expect("the tree starts");
    (node, nothing)
}

/// A child that answers empty tasks, without anything of this crate.
struct Bare {
    end: ParentEnd,
    waiter: Waiter,
    dispatch: u64,
    _child: Child,
}

impl Bare {
    fn new() -> Self {
        let doorbell = Doorbell::create().expect("shared memory");
        let mailbox = Mailbox::create(Layout::default(), &doorbell).expect("shared memory");
        let fds = mailbox
            .fds()
            .map(|fd| fd.try_clone_to_owned().expect("a descriptor"));
        let options = fds
            .into_iter()
            .fold(ForkOptions::new("bare"), ForkOptions::give);
        let child = procfork::fork(options, |context| {
            let mut fds = context.fds.into_iter();
            let (segment, bell) = (fds.next().expect("given"), fds.next().expect("given"));
            let mailbox = Mailbox::from_fds(segment, bell).expect("a mailbox");
            let mut end = mailbox.into_child().expect("nobody attached before");
            while let Ok(Request::Task(task)) = end.next(&Immortal, None) {
                end.complete(task, Ok(&[])).expect("the parent reads");
            }
        })
        .expect("one thread");
        let end = mailbox.into_parent().expect("nobody attached before");
        Self {
            end,
            waiter: Waiter::new(),
            dispatch: 0,
            _child: child,
        }
    }

    /// One task of 32 bytes there and back.
    fn trip(&mut self) {
        self.dispatch += 1;
        let identity = Identity {
            dispatch: self.dispatch,
            ..Identity::default()
        };
        self.end
            .submit(identity, 0, &[7; 32])
            .expect("a free frame");
        while self.end.poll().expect("a sound peer").is_none() {
            self.end
                .wait(&mut self.waiter, &Immortal, None)
                .expect("no deadline");
        }
    }
}

fn timed(n: u32, mut call: impl FnMut()) -> f64 {
    let start = Instant::now();
    (0..n).for_each(|_| call());
    start.elapsed().as_nanos() as f64 / f64::from(n)
}

fn median(values: &mut [f64]) -> f64 {
    values.sort_by(f64::total_cmp);
    values[values.len() / 2]
}

fn measure(name: &str, mut values: Vec<f64>, unit: &str, reference: Option<(&str, f64)>) -> Value {
    let value = median(&mut values);
    let mut measure = json!({ "name": name, "value": value, "unit": unit, "min": values[0], "runs": values.len() });
    if let Some((name, value)) = reference {
        measure["reference"] = json!({ "name": name, "value": value });
    }
    measure
}

/// Whole runs on one sub worker, in turns with bare round trips.
fn runs() -> Vec<Value> {
    let (node, nothing) = node(1);
    let mut bare = Bare::new();
    let (mut empty, mut one, mut many, mut rtt) = (vec![], vec![], vec![], vec![]);
    for _ in 0..ROUNDS {
        rtt.push(timed(TRIPS, || bare.trip()));
        one.push(timed(TRIPS, || {
            node.run(|orch| orch.submit_sub(&nothing, args()))
                .expect("the task does nothing");
        }));
        empty.push(timed(TRIPS, || {
            node.run(|_| Ok(())).expect("nothing was submitted")
        }));
        let per_run = timed(TRIPS / TASKS + 1, || run_many(&node, &nothing));
        many.push(per_run / f64::from(TASKS));
    }
    node.close().expect("everything has ended");
    let rtt = ("mailbox_rtt", median(&mut rtt));
    vec![
        measure("run_empty", empty, "ns", Some(rtt)),
        measure("run_one", one, "ns", Some(rtt)),
        measure("task_in_run", many, "ns", Some(rtt)),
    ]
}

fn run_many(node: &Worker, nothing: &FunctionHandle) {
    let run = node.run(|orch| {
        for _ in 0..TASKS {
            orch.submit_sub(nothing, args())?;
        }
        Ok(())
    });
    run.expect("the tasks do nothing");
}

/// The same tasks over two sub workers, in turns with one: three busy processes.
fn two_workers() -> Value {
    let ((one, f), (two, g)) = (node(1), node(2));
    let (mut ones, mut twos) = (vec![], vec![]);
    for _ in 0..ROUNDS {
        ones.push(timed(8, || run_many(&one, &f)) / f64::from(TASKS));
        twos.push(timed(8, || run_many(&two, &g)) / f64::from(TASKS));
    }
    one.close().expect("everything has ended");
    two.close().expect("everything has ended");
    measure(
        "task_in_run_2",
        twos,
        "ns",
        Some(("task_in_run", median(&mut ones))),
    )
}

/// What 16 idle children and their parent use of one core, over five seconds.
fn idle_cpu() -> Value {
    const IDLE: Duration = Duration::from_secs(5);
    let (node, nothing) = node(16);
    run_many(&node, &nothing);
    let tree = node.tree().expect("it is ready");
    let pids: Vec<u32> = tree.flatten().iter().map(|node| node.pid).collect();
    let used = || pids.iter().map(|pid| cpu_ns(*pid)).sum::<u64>();
    // Whoever still spins after the run parks within this.
    std::thread::sleep(Duration::from_millis(200));
    let before = used();
    std::thread::sleep(IDLE);
    let percent = (used() - before) as f64 / IDLE.as_nanos() as f64 * 100.0;
    node.close().expect("everything has ended");
    measure("idle_cpu_percent", vec![percent], "percent", None)
}

/// CPU time of a process in nanoseconds.
fn cpu_ns(pid: u32) -> u64 {
    let text = fs::read_to_string(format!("/proc/{pid}/schedstat")).unwrap_or_default();
    text.split(' ')
        .next()
        .and_then(|word| word.parse().ok())
        .unwrap_or(0)
}
