//! The graphs that are timed.

use std::hint::black_box;
use std::time::{Duration, Instant};

use taskgraph::*;

use crate::counting::allocated;

/// A part of a run that was timed: how long, and for how many operations.
pub(crate) struct Timed {
    pub(crate) elapsed: Duration,
    pub(crate) operations: u32,
}

fn buffer(id: u64) -> BufferId {
    BufferId::new(0x5eed, id, 0, BufferKind::Shared)
}

fn tensor(id: u64) -> Tensor {
    Tensor::contiguous(buffer(id), DType::F32, &[64, 64], 64 * 64 * 4).expect("fits")
}

fn args(list: &[(u64, Tag)]) -> TaskArgs {
    let mut args = TaskArgs::new();
    for &(id, tag) in list {
        args.tensor(tensor(id), tag).expect("distinct");
    }
    args
}

/// A scheduler with one worker and an open run.
struct Graph {
    scheduler: Scheduler,
    on: Placement<'static>,
    run: RunId,
}

impl Graph {
    fn new() -> Graph {
        let mut scheduler = Scheduler::new(Limits::default().tasks_max(1 << 22));
        let worker = scheduler
            .add_worker(WorkerKind::NextLevel, Depth::One)
            .expect("the first");
        let run = scheduler.begin_run();
        Graph {
            scheduler,
            on: Placement::On(worker),
            run,
        }
    }

    fn submit(&mut self, args: &TaskArgs) -> TaskId {
        let spec = TaskSpec::new(self.on).args(args);
        self.scheduler
            .submit(self.run, &spec)
            .expect("the run is open")
    }

    fn submit_all<'a>(&mut self, all: impl Iterator<Item = &'a TaskArgs>) {
        for args in all {
            black_box(self.submit(args));
        }
    }

    /// Executes everything that is live; how many tasks that was.
    fn drain(&mut self) -> u32 {
        let mut n_tasks = 0;
        while let Some(dispatch) = self.scheduler.next_dispatch() {
            self.scheduler
                .completed(dispatch.dispatch, Outcome::Ok)
                .expect("in flight");
            while self.scheduler.next_effect().is_some() {}
            n_tasks += 1;
        }
        n_tasks
    }
}

/// What is timed; `cargo xtask instructions` counts in functions of this name.
#[inline(never)]
fn measured_part<T>(work: impl FnOnce() -> T) -> T {
    work()
}

fn timed<T>(operations: u32, work: impl FnOnce() -> T) -> Timed {
    let start = Instant::now();
    black_box(measured_part(work));
    Timed {
        elapsed: start.elapsed(),
        operations,
    }
}

thread_local! {
    static GRAPH: std::cell::RefCell<Graph> = std::cell::RefCell::new(Graph::new());
}

/// Every task writes a buffer of its own.
pub(crate) fn submit_independent(n: u32) -> Timed {
    let all: Vec<_> = (0..n)
        .map(|i| args(&[(u64::from(i), Tag::Output)]))
        .collect();
    GRAPH.with_borrow_mut(|graph| {
        let timed = timed(n, || graph.submit_all(all.iter()));
        assert_eq!(graph.drain(), n);
        timed
    })
}

/// Every task reads two buffers that live tasks write, and writes a third.
pub(crate) fn submit_with_two_dependencies(n: u32) -> Timed {
    let id = |i: u32, k: u64| 3 * u64::from(i) + k;
    let consumer = |i| {
        args(&[
            (id(i, 0), Tag::Input),
            (id(i, 1), Tag::Input),
            (id(i, 2), Tag::Output),
        ])
    };
    let consumers: Vec<_> = (0..n).map(consumer).collect();
    GRAPH.with_borrow_mut(|graph| {
        for i in 0..n {
            graph.submit(&args(&[(id(i, 0), Tag::Output)]));
            graph.submit(&args(&[(id(i, 1), Tag::Output)]));
        }
        let timed = timed(n, || graph.submit_all(consumers.iter()));
        assert_eq!(graph.drain(), 3 * n);
        timed
    })
}

/// Every completion releases two tasks and is followed by the next dispatch.
pub(crate) fn complete_with_two_dependents(n: u32) -> Timed {
    GRAPH.with_borrow_mut(|graph| {
        for i in 0..u64::from(n) {
            graph.submit(&args(&[(i, Tag::Output)]));
        }
        for i in 0..u64::from(n) {
            graph.submit(&args(&[(i, Tag::Input)]));
            graph.submit(&args(&[(i, Tag::Input)]));
        }
        let scheduler = &mut graph.scheduler;
        let mut next = scheduler.next_dispatch().expect("all are ready");
        let timed = timed(n, || {
            for _ in 0..n {
                scheduler
                    .completed(next.dispatch, Outcome::Ok)
                    .expect("in flight");
                black_box(scheduler.next_effect());
                next = scheduler.next_dispatch().expect("the next is ready");
            }
        });
        scheduler
            .completed(next.dispatch, Outcome::Ok)
            .expect("in flight");
        while scheduler.next_effect().is_some() {}
        assert_eq!(graph.drain() + 1, 2 * n);
        timed
    })
}

/// Chains of tasks, one per buffer, all of them live.
pub(crate) struct Chains {
    graph: Graph,
    args: Vec<TaskArgs>,
}

impl Chains {
    pub(crate) fn new(n_chains: u64) -> Chains {
        let args = (0..n_chains).map(|i| args(&[(i, Tag::InOut)])).collect();
        Chains {
            graph: Graph::new(),
            args,
        }
    }

    pub(crate) fn submit(&mut self, n: u32) -> Timed {
        let (graph, args) = (&mut self.graph, &self.args);
        let cycle = args.iter().cycle().take(n as usize);
        let timed = timed(n, || graph.submit_all(cycle));
        assert_eq!(graph.drain(), n);
        timed
    }
}

/// Tasks on disjoint views of one buffer, so many of them live.
pub(crate) struct Views {
    graph: Graph,
    args: Vec<TaskArgs>,
}

impl Views {
    /// Row `i` of a matrix: one run of bytes each.
    pub(crate) fn of_rows(n: u64) -> Views {
        Views::along(0, &[n, 64], n)
    }

    /// Column `i` of a matrix: all of them between the same bounds.
    pub(crate) fn of_columns(n: u64) -> Views {
        Views::along(1, &[64, n], n)
    }

    fn along(dim: usize, shape: &[u64], n: u64) -> Views {
        let whole = Tensor::contiguous(buffer(0), DType::F32, shape, 256 * n).expect("fits");
        let of = |i| {
            let mut args = TaskArgs::new();
            let view = whole.slice(dim, i..i + 1).expect("inside");
            args.tensor(view, Tag::InOut).expect("the only one");
            args
        };
        let mut views = Views {
            graph: Graph::new(),
            args: (0..n).map(of).collect(),
        };
        shuffle(&mut views.args);
        views
    }

    /// With one live task on every view, another one on as many of them as are worth timing. Their arguments were just
    /// made, as those of a program are, and are not a part of what grows.
    pub(crate) fn submit(&mut self) -> Timed {
        let (graph, args) = (&mut self.graph, &self.args);
        graph.submit_all(args.iter());
        let n = 1000;
        let new: Vec<_> = args.iter().cycle().take(n).cloned().collect();
        let timed = timed(n as u32, || graph.submit_all(new.iter()));
        graph.drain();
        timed
    }
}

/// A fixed order that is neither ascending nor descending.
fn shuffle<T>(list: &mut [T]) {
    let mut state: u64 = 0x1234_5678_9abc_def1;
    for i in (1..list.len()).rev() {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        list.swap(i, (state % (i as u64 + 1)) as usize);
    }
}

/// Submit all, then schedule and complete all: everything that a task costs but its body.
pub(crate) fn whole(shape: &str, n: u32) -> Timed {
    let args_of = |i: u64| match shape {
        "chain" => args(&[(0, Tag::InOut)]),
        "independent" => args(&[(i, Tag::NoDep)]),
        "in_in_out" => {
            let (a, b, c) = (i % 64, (i * 7 + 1) % 64, (i * 13 + 5) % 64);
            let inputs: &[_] = if a == b { &[a] } else { &[a, b] };
            let mut list: Vec<_> = inputs.iter().map(|&id| (id, Tag::Input)).collect();
            list.push((c, Tag::Output));
            args(&list)
        }
        other => unreachable!("no shape {other}"),
    };
    let all: Vec<_> = (0..64).map(args_of).collect();
    GRAPH.with_borrow_mut(|graph| {
        timed(n, || {
            let cycle = all.iter().cycle().take(n as usize);
            graph.submit_all(cycle);
            assert_eq!(graph.drain(), n);
        })
    })
}

/// Bytes on the heap for each of `n` live tasks, each with two tensors in buffers of its own.
pub(crate) fn memory_per_task(n: u32) -> f64 {
    let mut graph = Graph::new();
    let before = allocated();
    for i in 0..u64::from(n) {
        graph.submit(&args(&[(2 * i, Tag::InOut), (2 * i + 1, Tag::InOut)]));
    }
    let grown = allocated() - before;
    grown as f64 / f64::from(n)
}
