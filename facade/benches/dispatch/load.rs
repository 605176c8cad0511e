//! More workers than cores: how much of the machine reaches the work.

use std::hint::black_box;
use std::time::{Duration, Instant};

use facade::{Worker, args};
use procfork::{Child, ForkOptions};
use serde_json::Value;

use crate::measure;

/// Workers, and the work of one task.
const WORKERS: u32 = 8;
const WORK: Duration = Duration::from_micros(100);
const TASKS: u32 = 2_000;
const ROUNDS: usize = 7;

/// The share of the cores' throughput that eight workers reach with tasks of 100 us, against one bare process per core
/// that does the same work with nobody to talk to. At least 0.85 is wanted; more is better.
pub(crate) fn oversubscribed() -> Value {
    let turns = turns_of(WORK);
    let cores = std::thread::available_parallelism().map_or(2, usize::from) as u32;
    let node = Worker::node()
        .sub_workers(WORKERS)
        .build()
        .expect("a sound specification");
    let work = node
        .register_fn("work", move |_| {
            churn(turns);
            Ok(())
        })
        .expect("a free name");
    node.init().expect("the tree starts");
    let mut shares = Vec::new();
    for _ in 0..ROUNDS {
        let bare = bare(cores, TASKS / cores, turns);
        let start = Instant::now();
        node.run(|orch| (0..TASKS).try_for_each(|_| orch.submit_sub(&work, args()).map(drop)))
            .expect("the tasks only count");
        shares.push(bare.as_secs_f64() / start.elapsed().as_secs_f64());
    }
    node.close().expect("everything has ended");
    measure("oversubscribed", shares, "share", None)
}

/// One bare process per core, each doing the work of `tasks` tasks.
fn bare(cores: u32, tasks: u32, turns: u32) -> Duration {
    let start = Instant::now();
    let children: Vec<Child> = (0..cores)
        .map(|_| {
            let work = move |_| (0..tasks).for_each(|_| churn(turns));
            procfork::fork(ForkOptions::new("bare"), work).expect("one thread")
        })
        .collect();
    let soon = Instant::now() + Duration::from_secs(60);
    for child in &children {
        child.wait(soon).expect("it only counts");
    }
    start.elapsed()
}

/// How many turns take so long, at best.
fn turns_of(work: Duration) -> u32 {
    const PROBE: u32 = 100_000;
    let fastest = (0..20).map(|_| {
        let start = Instant::now();
        churn(PROBE);
        start.elapsed()
    });
    let fastest = fastest.min().expect("twenty of them").as_secs_f64();
    (f64::from(PROBE) * work.as_secs_f64() / fastest) as u32
}

fn churn(turns: u32) {
    let mut x = 0x9e37_79b9_7f4a_7c15_u64;
    for _ in 0..turns {
        x = black_box(x ^ (x << 13)).rotate_left(7);
    }
    black_box(x);
}
