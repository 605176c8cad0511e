//! What a child keeps for itself, and what the first use of a buffer costs it.

use std::fs;
use std::time::Instant;

use facade::{Buffer, Worker, args};
use procfork::ForkOptions;
use serde_json::Value;

use crate::{measure, median, node};

/// The first task that names a buffer of 64 MiB, beside the first that names one of 4 KiB: mapping costs the same.
pub(crate) fn buffer_map() -> Value {
    let (node, nothing) = node(1);
    let first_use = |bytes: usize| {
        let buffer: Buffer<u8> = node.create_buffer(bytes).expect("shared memory");
        let start = Instant::now();
        node.run(|orch| orch.submit_sub(&nothing, args().input(&buffer)))
            .expect("the task does nothing");
        let elapsed = start.elapsed().as_nanos() as f64;
        buffer.release().expect("nobody uses it");
        drop(buffer);
        // The child unmaps before it takes the next task, which is not timed.
        node.run(|orch| orch.submit_sub(&nothing, args()))
            .expect("the task does nothing");
        elapsed
    };
    let (mut large, mut small) = (vec![], vec![]);
    for _ in 0..31 {
        small.push(first_use(4 << 10));
        large.push(first_use(64 << 20));
    }
    node.close().expect("everything has ended");
    let small = ("buffer_map_4kib", median(&mut small));
    measure("buffer_map", large, "ns", Some(small))
}

/// Private memory of an idle sub worker that has run a task, above that of a bare forked child. At most 1 MiB.
pub(crate) fn rss_child() -> Value {
    let (node, nothing) = node(1);
    node.run(|orch| orch.submit_sub(&nothing, args()))
        .expect("the task does nothing");
    let idle = |context: procfork::ChildContext| {
        let _ = context.parent.wait_gone(None);
    };
    let bare = procfork::fork(ForkOptions::new("bare"), idle).expect("one thread");
    let pid = sub_worker(&node);
    let own = private_mib(pid);
    let bare_mib = private_mib(bare.pid().raw().unsigned_abs());
    drop(bare);
    node.close().expect("everything has ended");
    measure(
        "rss_child_mib",
        vec![own - bare_mib],
        "MiB",
        Some(("bare_child_mib", bare_mib)),
    )
}

fn sub_worker(node: &Worker) -> u32 {
    node.tree().expect("it is ready").children[0].pid
}

/// Memory that only this process has, in MiB.
fn private_mib(pid: u32) -> f64 {
    let rollup = fs::read_to_string(format!("/proc/{pid}/smaps_rollup")).unwrap_or_default();
    let kib = |key: &str| -> f64 {
        let line = rollup.lines().find_map(|line| line.strip_prefix(key));
        let number = line.and_then(|line| line.trim().strip_suffix("kB"));
        number.and_then(|n| n.trim().parse().ok()).unwrap_or(0.0)
    };
    (kib("Private_Dirty:") + kib("Private_Clean:")) / 1024.0
}
