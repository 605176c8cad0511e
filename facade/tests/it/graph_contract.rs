//! What a recording holds of the call that made it, and what not: keys by their value, workers by what was asked for,
//! memory within a bound.

use std::hash::{Hash, Hasher};

use facade::{Error, GraphArgs, How, Orchestrator, SubmitError, Worker, any, args, on};
use nix::sys::signal::Signal;

use crate::graphs::{check_stats, layer, node, stats};
use crate::support::{INCREMENT, builder, directory, kill};

/// A key that feeds less to a hasher than it is.
#[derive(Clone, PartialEq, Eq)]
struct Careless {
    name: &'static str,
    times: u32,
}

impl Hash for Careless {
    fn hash<H: Hasher>(&self, to: &mut H) {
        self.name.hash(to);
    }
}

fn times(g: &mut Orchestrator<'_>, a: &GraphArgs<'_, Careless>) -> Result<(), Error> {
    let double = g.function("double")?;
    for _ in 0..a.key().times {
        g.submit_sub(&double, args().inout(&a.tensor(0)?))?;
    }
    Ok(())
}

pub(crate) fn keys_that_hash_alike_are_told_apart_and_stay_out_of_files() {
    let (dir, node) = (directory(), node(0, 1));
    let path = dir.path().join("graphs");
    node.init().unwrap();
    let x = node.buffer_from(&[1_u32; 4]).unwrap();
    let call = |node: &Worker, name, times: u32, how| {
        let key = Careless { name, times };
        let found = node.run(|orch| orch.graph(key, args().inout(&x), self::times));
        assert_eq!(found.unwrap().how(), how);
    };
    call(&node, "a", 2, How::Recorded);
    call(&node, "a", 3, How::Recorded);
    call(&node, "a", 2, How::Replayed);
    call(&node, "a", 3, How::Replayed);
    call(&node, "b", 1, How::Recorded);
    assert_eq!(x.to_vec().unwrap(), [1 << (2 + 3 + 2 + 3 + 1); 4]);
    check_stats(&node, stats(5, 3, 0, 0));
    assert_eq!(
        node.save_graphs(&path).unwrap(),
        1,
        "only the key that nothing else hashes like"
    );
    node.close().unwrap();
    let later = crate::graphs::node(0, 1);
    assert_eq!(later.load_graphs(&path).unwrap(), 1);
    assert_eq!(
        later.load_graphs(&path).unwrap(),
        1,
        "which is there already"
    );
    later.init().unwrap();
    let y = later.buffer_from(&[1_u32; 4]).unwrap();
    for (times, how) in [(1, How::Replayed), (4, How::Recorded), (1, How::Replayed)] {
        let key = Careless { name: "b", times };
        let found = later.run(|orch| orch.graph(key, args().inout(&y), self::times));
        assert_eq!(found.unwrap().how(), how, "the first to ask is whose it is");
    }
    assert_eq!(y.to_vec().unwrap(), [1 << 6; 4]);
    later.close().unwrap();
}

/// Kills a chip worker, and waits until its parent knows.
fn lose(node: &Worker, chip: usize) {
    kill(node.tree().unwrap().children[chip].pid, Signal::SIGKILL);
    while node.health() == facade::Health::Ready {
        std::thread::yield_now();
    }
}

pub(crate) fn any_worker_stays_any_whoever_lived_when_the_graph_was_recorded() {
    let node = builder(2, 0).build().unwrap();
    node.register_chip(&INCREMENT).unwrap();
    node.init().unwrap();
    let body = |g: &mut Orchestrator<'_>, a: &GraphArgs<'_, ()>| {
        let increment = g.chip("increment")?;
        g.submit_next_level(&increment, args().inout(&a.tensor(0)?), any())
            .map(|_| ())
    };
    let x = node.buffer_from(&[0.0_f32; 4]).unwrap();
    let call = || {
        node.run(|orch| orch.graph((), args().inout(&x), body))
            .unwrap()
            .how()
    };
    lose(&node, 1);
    assert_eq!(call(), How::Recorded);
    node.respawn("node/chip1").unwrap();
    lose(&node, 0);
    assert_eq!(
        call(),
        How::Replayed,
        "on the chip that was lost when it was recorded"
    );
    node.respawn("node/chip0").unwrap();
    assert_eq!(call(), How::Replayed);
    assert_eq!(x.to_vec().unwrap(), [3.0; 4]);
    node.close().unwrap();
}

pub(crate) fn a_graph_whose_worker_is_lost_runs_eagerly_and_is_counted_until_it_is_back() {
    let node = builder(2, 0).build().unwrap();
    node.register_chip(&INCREMENT).unwrap();
    node.init().unwrap();
    let body = |g: &mut Orchestrator<'_>, a: &GraphArgs<'_, ()>| {
        let increment = g.chip("increment")?;
        g.submit_next_level(&increment, args().inout(&a.tensor(0)?), on(1))
            .map(|_| ())
    };
    let x = node.buffer_from(&[0.0_f32; 4]).unwrap();
    let call = || node.run(|orch| orch.graph((), args().inout(&x), body));
    assert_eq!(call().unwrap().how(), How::Recorded);
    lose(&node, 1);
    let refused = call().unwrap_err();
    assert!(
        matches!(refused, Error::Submit(SubmitError::WorkerDied { .. })),
        "{refused}"
    );
    check_stats(&node, stats(1, 1, 1, 0));
    node.respawn("node/chip1").unwrap();
    assert_eq!(call().unwrap().how(), How::Replayed);
    assert_eq!(x.to_vec().unwrap(), [2.0; 4]);
    node.close().unwrap();
}

pub(crate) fn graphs_of_a_worker_with_other_children_are_refused() {
    let (dir, first) = (directory(), node(0, 1));
    let path = dir.path().join("graphs");
    first.init().unwrap();
    let (x, y) = (
        first.buffer_from(&[3_u32; 4]).unwrap(),
        first.buffer::<u32>(4).unwrap(),
    );
    let list = args().input(&x).output(&y).scalar(1_u32);
    first.run(|orch| orch.graph(1_u32, list, layer)).unwrap();
    assert_eq!(first.save_graphs(&path).unwrap(), 1);
    first.close().unwrap();
    let refused = node(0, 2).load_graphs(&path).unwrap_err().to_string();
    let ending = "the file of definitions was recorded with other workers (0 chips, 0 workers below, 1 sub workers, here \
                  0 chips, 0 workers below, 2 sub workers); record again";
    assert!(refused.ends_with(ending), "{refused}");
}

/// `y = x + s` by way of intermediate memory of the size in the key, all of it live at once.
fn through(g: &mut Orchestrator<'_>, a: &GraphArgs<'_, (u32, usize)>) -> Result<(), Error> {
    let add = g.function("add_scalar")?;
    let (_, n) = *a.key();
    let outer = g.alloc::<u32>(n)?;
    let first = args().input(&a.tensor(0)?).output(&outer.slice(0, 0..4)?);
    g.submit_sub(&add, first.scalar(a.scalar(0)?))?;
    g.scope(|g| {
        let inner = g.alloc::<u32>(n)?;
        let second = args()
            .input(&outer.slice(0, 0..4)?)
            .output(&inner.slice(0, 0..4)?);
        g.submit_sub(&add, second.scalar(0_u32))?;
        let third = args().input(&inner.slice(0, 0..4)?).output(&a.tensor(1)?);
        g.submit_sub(&add, third.scalar(0_u32)).map(|_| ())
    })
}

pub(crate) fn the_memory_of_all_replays_is_bounded_and_who_finds_none_runs_eagerly() {
    const BYTES: u64 = 8192;
    let node = builder(0, 2).heap(BYTES).build().unwrap();
    node.register_fn("add_scalar", crate::graphs::add_scalar)
        .unwrap();
    node.init().unwrap();
    let x = node.buffer_from(&[1_u32; 4]).unwrap();
    let outputs: Vec<_> = (0..60).map(|_| node.buffer::<u32>(4).unwrap()).collect();
    // Graphs of 2 KiB each: the pieces of some must go for the others, and many run at once.
    node.run(|orch| {
        for (at, y) in (0_u32..).zip(&outputs) {
            let list = args().input(&x).output(y).scalar(at);
            orch.graph((at % 20, 256), list, through)?;
        }
        Ok(())
    })
    .unwrap();
    for (at, y) in (0_u32..).zip(&outputs) {
        assert_eq!(y.to_vec().unwrap(), [1 + at; 4]);
    }
    let found = node.graph_stats().unwrap();
    assert!(
        found.memory_bytes > 0 && found.memory_bytes <= BYTES,
        "{found:?}"
    );
    assert_eq!(found.hits + found.without_memory, 60, "{found:?}");
    let before = found.without_memory;
    // One that needs more than all may have.
    for _ in 0..3 {
        let list = args().input(&x).output(&outputs[0]).scalar(7_u32);
        let handle = node
            .run(|orch| orch.graph((99, 1500), list, through))
            .unwrap();
        assert_eq!(handle.how(), How::Eager);
        assert_eq!(outputs[0].to_vec().unwrap(), [8; 4]);
    }
    let found = node.graph_stats().unwrap();
    assert_eq!(found.without_memory, before + 3);
    assert!(found.memory_bytes <= BYTES, "{found:?}");
    node.close().unwrap();
}
