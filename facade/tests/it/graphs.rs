//! Graphs: recorded once, replayed with other buffers and scalars, and run eagerly where that is right.

use facade::{
    Args, Buffer, Error, ExitCause, GraphArgs, GraphStats, How, Orchestrator, TaskCause,
    TaskResult, Worker, args,
};

use crate::support::{builder, failure};

/// `y = x + s`.
pub(crate) fn add_scalar(args: &Args) -> TaskResult {
    let (x, s) = (args.input::<u32>(0)?, args.scalar::<u32>(0)?);
    for (y, x) in args.output::<u32>(1)?.iter_mut().zip(x) {
        *y = x.wrapping_add(s);
    }
    Ok(())
}

/// `x = 2 x`, in place.
pub(crate) fn double(args: &Args) -> TaskResult {
    args.output::<u32>(0)?.iter_mut().for_each(|x| *x *= 2);
    Ok(())
}

fn picky(args: &Args) -> TaskResult {
    match args.input::<u32>(0)?[0] {
        13 => Err("thirteen is not liked".into()),
        _ => Ok(()),
    }
}

pub(crate) fn node(chips: u32, sub_workers: u32) -> Worker {
    let node = builder(chips, sub_workers).build().unwrap();
    node.register_fn("add_scalar", add_scalar).unwrap();
    node.register_fn("double", double).unwrap();
    node.register_fn("picky", picky).unwrap();
    node
}

/// `y = 2^n (x + s)`, by way of intermediate memory; `n` is the key.
pub(crate) fn layer(g: &mut Orchestrator<'_>, a: &GraphArgs<'_, u32>) -> Result<(), Error> {
    let (add, double) = (g.function("add_scalar")?, g.function("double")?);
    let between = g.alloc::<u32>(4)?;
    let first = args()
        .input(&a.tensor(0)?)
        .output(&between)
        .scalar(a.scalar(0)?);
    g.submit_sub(&add, first)?;
    for _ in 0..*a.key() {
        g.submit_sub(&double, args().inout(&between))?;
    }
    g.submit_sub(
        &add,
        args().input(&between).output(&a.tensor(1)?).scalar(0_u32),
    )?;
    Ok(())
}

pub(crate) fn stats(hits: u64, recorded: u64, mismatches: u64, uncacheable: u64) -> GraphStats {
    let mut stats = GraphStats::default();
    (stats.hits, stats.recorded) = (hits, recorded);
    (stats.mismatches, stats.uncacheable) = (mismatches, uncacheable);
    stats
}

/// Compares the counters, without size.
#[track_caller]
pub(crate) fn check_stats(node: &Worker, expected: GraphStats) {
    let mut found = node.graph_stats().unwrap();
    (found.entries, found.bytes, found.memory_bytes) = (0, 0, 0);
    assert_eq!(found, expected);
}

pub(crate) fn a_graph_is_recorded_once_and_replayed_with_the_buffers_of_each_call() {
    let node = node(0, 2);
    node.init().unwrap();
    let x = |at: u32| node.buffer_from(&[at, 10 * at, 100 * at, 7]).unwrap();
    let expected = |at: u32, s: u32| [at, 10 * at, 100 * at, 7].map(|x| 4 * (x + s));
    let mut hows = Vec::new();
    for at in 0..5 {
        let (x, y) = (x(at), node.buffer::<u32>(4).unwrap());
        let list = args().input(&x).output(&y).scalar(at + 1);
        let handle = node.run(|orch| orch.graph(2, list, layer)).unwrap();
        hows.push(handle.how());
        assert_eq!(y.to_vec().unwrap(), expected(at, at + 1));
    }
    assert_eq!(hows[0], How::Recorded);
    assert!(
        hows[1..].iter().all(|how| *how == How::Replayed),
        "{hows:?}"
    );
    // The same two, swapped; then both in one buffer.
    let (a, b) = (x(3), node.buffer::<u32>(4).unwrap());
    node.run(|orch| orch.graph(2, args().input(&a).output(&b).scalar(0_u32), layer))
        .unwrap();
    node.run(|orch| orch.graph(2, args().input(&b).output(&a).scalar(0_u32), layer))
        .unwrap();
    assert_eq!(a.to_vec().unwrap(), [3, 30, 300, 7].map(|x| 16 * x));
    let pool = node.buffer_from(&[1_u32, 2, 3, 4, 0, 0, 0, 0]).unwrap();
    let list = || {
        Ok::<_, Error>(
            args()
                .input(&pool.slice(0..4)?)
                .output(&pool.slice(4..8)?)
                .scalar(1_u32),
        )
    };
    node.run(|orch| orch.graph(2, list()?, layer)).unwrap();
    assert_eq!(pool.to_vec().unwrap(), [1, 2, 3, 4, 8, 12, 16, 20]);
    check_stats(&node, stats(8, 1, 0, 0));
    node.close().unwrap();
}

pub(crate) fn the_key_shapes_the_graph_and_scalars_are_those_of_each_call() {
    let node = node(0, 1);
    node.init().unwrap();
    let x = node.buffer_from(&[1_u32; 4]).unwrap();
    let y = node.buffer::<u32>(4).unwrap();
    for round in 0..2 {
        for n in 0..3_u32 {
            for s in 1..4_u32 {
                let list = args().input(&x).output(&y).scalar(s + round);
                node.run(|orch| orch.graph(n, list, layer)).unwrap();
                assert_eq!(
                    y.to_vec().unwrap(),
                    [(1 + s + round) << n; 4],
                    "n {n}, s {s}"
                );
            }
        }
    }
    check_stats(&node, stats(18, 3, 0, 0));
    assert_eq!(node.graph_stats().unwrap().entries, 3);
    node.close().unwrap();
}

pub(crate) fn graphs_of_one_run_follow_each_other_by_their_tensors() {
    let node = node(0, 2);
    let list = node.register_fn("check", |args| {
        let x = args.input::<u32>(0)?;
        if x.iter().all(|x| *x == x0(args)) {
            Ok(())
        } else {
            Err(format!("{x:?}").into())
        }
    });
    let check = list.unwrap();
    node.init().unwrap();
    let (x, y) = (
        node.buffer_from(&[1_u32; 4]).unwrap(),
        node.buffer::<u32>(4).unwrap(),
    );
    node.run(|orch| {
        let mut expected = 1_u32;
        for round in 0..40 {
            let (from, to) = if round % 2 == 0 { (&x, &y) } else { (&y, &x) };
            orch.graph(0, args().input(from).output(to).scalar(round), layer)?;
            expected += round;
            orch.submit_sub(&check, args().input(to).scalar(expected))?;
        }
        Ok(())
    })
    .unwrap();
    check_stats(&node, stats(40, 1, 0, 0));
    node.close().unwrap();
}

fn x0(args: &Args) -> u32 {
    args.scalar::<u32>(0).unwrap_or(0)
}

pub(crate) fn a_call_that_does_not_fit_runs_eagerly_and_is_counted() {
    let node = node(0, 2);
    node.init().unwrap();
    let in_place = |g: &mut Orchestrator<'_>, a: &GraphArgs<'_, &str>| {
        let add = g.function("add_scalar")?;
        for (from, to) in [(0, 1), (1, 2)] {
            let list = args()
                .input(&a.tensor(from)?)
                .output(&a.tensor(to)?)
                .scalar(a.scalar(0)?);
            g.submit_sub(&add, list)?;
        }
        Ok(())
    };
    let new = || -> [Buffer<u32>; 3] { [1, 0, 0].map(|v| node.buffer_from(&[v; 4]).unwrap()) };
    let call = |a: &Buffer<u32>, b: &Buffer<u32>, c: &Buffer<u32>, half: bool| {
        node.run(|orch| {
            let list = match half {
                false => args().input(a).inout(b).output(c),
                true => args()
                    .input(&a.slice(0..2)?)
                    .inout(&b.slice(0..2)?)
                    .output(&c.slice(0..2)?),
            };
            orch.graph("pair", list.scalar(5_u32), in_place)
        })
    };
    let [a, b, c] = new();
    assert_eq!(call(&a, &b, &c, false).unwrap().how(), How::Recorded);
    assert_eq!(c.to_vec().unwrap(), [11; 4]);
    // Another shape.
    let [a, b, c] = new();
    assert_eq!(call(&a, &b, &c, true).unwrap().how(), How::Eager);
    assert_eq!(c.to_vec().unwrap(), [11, 11, 0, 0]);
    // Another overlap.
    let whole = node.buffer_from(&[1_u32; 8]).unwrap();
    let (b, c) = (
        node.buffer::<u32>(4).unwrap(),
        node.buffer::<u32>(4).unwrap(),
    );
    let handle = node.run(|orch| {
        let list = args()
            .input(&whole.slice(0..4)?)
            .inout(&b)
            .output(&c)
            .scalar(5_u32);
        orch.graph("pair", list, in_place)
    });
    assert_eq!(handle.unwrap().how(), How::Replayed);
    let handle = node.run(|orch| {
        let list = args()
            .input(&whole.slice(2..6)?)
            .inout(&whole.slice(2..6)?)
            .inout(&c)
            .scalar(5_u32);
        orch.graph("pair", list, |g, a| {
            let double = g.function("double")?;
            g.submit_sub(&double, args().inout(&a.tensor(1)?))?;
            Ok(())
        })
    });
    assert_eq!(
        handle.unwrap().how(),
        How::Recorded,
        "another body is another graph"
    );
    assert_eq!(whole.to_vec().unwrap(), [1, 1, 2, 2, 2, 2, 1, 1]);
    // Another type of scalar is refused by the task, as it is without a graph.
    let [a, b, c] = new();
    let error = failure(node.run(|orch| {
        let list = args().input(&a).inout(&b).output(&c).scalar(5_i64);
        orch.graph("pair", list, in_place)
    }));
    assert_eq!(error.task, "add_scalar");
    check_stats(&node, stats(3, 2, 2, 0));
    node.close().unwrap();
}

pub(crate) fn a_body_that_fails_or_panics_leaves_nothing_and_is_recorded_later() {
    let node = node(0, 1);
    node.init().unwrap();
    let x = node.buffer_from(&[1_u32; 4]).unwrap();
    let y = node.buffer::<u32>(4).unwrap();
    let list = || args().input(&x).output(&y).scalar(1_u32);
    // The same body and the same key; what it does at its third task is left to the test.
    static MOOD: std::sync::atomic::AtomicU32 = std::sync::atomic::AtomicU32::new(0);
    let moody = |g: &mut Orchestrator<'_>, a: &GraphArgs<'_, &str>| {
        let (add, double) = (g.function("add_scalar")?, g.function("double")?);
        let first = args()
            .input(&a.tensor(0)?)
            .output(&a.tensor(1)?)
            .scalar(a.scalar(0)?);
        g.submit_sub(&add, first)?;
        g.submit_sub(&double, args().inout(&a.tensor(1)?))?;
        match MOOD.load(std::sync::atomic::Ordering::Relaxed) {
            0 => return Err(Error::orchestration("not today")),
            1 => panic!("not at all"),
            _ => {}
        }
        g.submit_sub(&double, args().inout(&a.tensor(1)?))
            .map(|_| ())
    };
    for mood in 0..2 {
        MOOD.store(mood, std::sync::atomic::Ordering::Relaxed);
        for _ in 0..2 {
            let error = node
                .run(|orch| orch.graph("moody", list(), moody))
                .unwrap_err();
            let expected = ["not today", "not at all"][mood as usize];
            assert!(error.to_string().contains(expected), "{error}");
            assert_eq!(y.to_vec().unwrap(), [0; 4], "nothing of it has run");
        }
    }
    check_stats(&node, stats(0, 0, 0, 0));
    MOOD.store(2, std::sync::atomic::Ordering::Relaxed);
    for how in [How::Recorded, How::Replayed] {
        let handle = node.run(|orch| orch.graph("moody", list(), moody)).unwrap();
        assert_eq!((handle.how(), y.to_vec().unwrap()), (how, vec![8; 4]));
    }
    check_stats(&node, stats(2, 1, 0, 0));
    node.close().unwrap();
}

pub(crate) fn what_cannot_be_recorded_runs_eagerly_every_time() {
    let node = node(0, 1);
    node.init().unwrap();
    let x = node.buffer_from(&[1_u32; 4]).unwrap();
    // It writes what the boundary says is read. Whether the body passes the refusal on makes no difference.
    for round in 1..4 {
        let handle = node.run(|orch| {
            orch.graph("liar", args().input(&x), |g, a| {
                let double = g.function("double")?;
                g.submit_sub(&double, args().inout(&a.tensor(0)?))
                    .map(|_| ())
            })
        });
        assert_eq!(handle.unwrap().how(), How::Eager);
        assert_eq!(x.to_vec().unwrap(), [1 << round; 4]);
    }
    let handle = node.run(|orch| {
        orch.graph("quiet liar", args().input(&x), |g, a| {
            let double = g.function("double")?;
            let _ = g.submit_sub(&double, args().inout(&a.tensor(0)?));
            Ok(())
        })
    });
    assert_eq!(handle.unwrap().how(), How::Eager);
    assert_eq!(x.to_vec().unwrap(), [16; 4]);
    check_stats(&node, stats(0, 0, 0, 4));
    node.close().unwrap();
}

/// `picky` in the middle of other tasks.
fn suspicious(g: &mut Orchestrator<'_>, a: &GraphArgs<'_, ()>) -> Result<(), Error> {
    let (add, picky) = (g.function("add_scalar")?, g.function("picky")?);
    let between = g.alloc::<u32>(4)?;
    g.submit_sub(
        &add,
        args().input(&a.tensor(0)?).output(&between).scalar(0_u32),
    )?;
    let looked = g.submit_sub(&picky, args().input(&between))?;
    let last = args().input(&between).output(&a.tensor(1)?).scalar(1_u32);
    g.submit_sub(&add, last.after(&looked))?;
    Ok(())
}

pub(crate) fn a_failure_inside_of_a_graph_names_its_task_and_skips_what_depends_on_the_graph() {
    let node = node(0, 1);
    let double = node.register_fn("double again", double).unwrap();
    node.init().unwrap();
    let (good, bad) = (
        node.buffer_from(&[1_u32; 4]).unwrap(),
        node.buffer_from(&[13_u32; 4]).unwrap(),
    );
    let (y, z) = (
        node.buffer::<u32>(4).unwrap(),
        node.buffer_from(&[3_u32; 4]).unwrap(),
    );
    node.run(|orch| orch.graph((), args().input(&good).output(&y), suspicious))
        .unwrap();
    for _ in 0..2 {
        let error = failure(node.run(|orch| {
            orch.graph((), args().input(&bad).output(&y), suspicious)?;
            orch.submit_sub(&double, args().inout(&y))?;
            orch.graph((), args().input(&y).output(&bad), suspicious)?;
            orch.submit_sub(&double, args().inout(&z))
        }));
        assert_eq!(
            (error.task.as_str(), error.worker.as_str()),
            ("picky", "node/sub0")
        );
        let TaskCause::Remote(remote) = &error.cause else {
            panic!("{error}")
        };
        assert_eq!(remote.message, "thirteen is not liked");
        assert_eq!(
            (error.failed, error.skipped),
            (1, 2),
            "the graph; a task and a graph behind it"
        );
    }
    assert_eq!(
        y.to_vec().unwrap(),
        [2; 4],
        "what followed the failure has not run"
    );
    assert_eq!(
        z.to_vec().unwrap(),
        [12; 4],
        "what does not depend on it has"
    );
    node.run(|orch| orch.graph((), args().input(&good).output(&y), suspicious))
        .unwrap();
    check_stats(&node, stats(6, 1, 0, 0));
    node.close().unwrap();
}

pub(crate) fn a_worker_that_dies_in_a_graph_is_named_and_the_graph_is_whole_again_after_it_is_back()
{
    let node = node(0, 1);
    node.register_fn("leave", |args| {
        if args.input::<u32>(0)?[0] == 13 {
            std::process::exit(3);
        }
        Ok(())
    })
    .unwrap();
    node.init().unwrap();
    let body = |g: &mut Orchestrator<'_>, a: &GraphArgs<'_, u8>| {
        let (leave, double) = (g.function("leave")?, g.function("double")?);
        g.submit_sub(&leave, args().input(&a.tensor(0)?))?;
        g.submit_sub(&double, args().inout(&a.tensor(0)?))?;
        Ok(())
    };
    let (good, bad) = (
        node.buffer_from(&[1_u32; 4]).unwrap(),
        node.buffer_from(&[13_u32; 4]).unwrap(),
    );
    node.run(|orch| orch.graph(1_u8, args().inout(&good), body))
        .unwrap();
    let error = failure(node.run(|orch| orch.graph(1_u8, args().inout(&bad), body)));
    assert_eq!(error.task, "leave");
    let TaskCause::WorkerDied(died) = &error.cause else {
        panic!("{error}")
    };
    assert_eq!(died.cause, ExitCause::Exited(3));
    let refused = node
        .run(|orch| orch.graph(1_u8, args().inout(&good), body))
        .unwrap_err();
    assert!(matches!(refused, Error::Submit(_)), "{refused}");
    node.respawn("node/sub0").unwrap();
    let handle = node.run(|orch| orch.graph(1_u8, args().inout(&good), body));
    assert_eq!(handle.unwrap().how(), How::Replayed);
    assert_eq!(good.to_vec().unwrap(), [4; 4]);
    node.close().unwrap();
}

pub(crate) fn a_graph_inside_of_a_graph_becomes_part_of_it() {
    let node = node(0, 1);
    node.init().unwrap();
    let outer = |g: &mut Orchestrator<'_>, a: &GraphArgs<'_, u32>| {
        let between = g.alloc::<u32>(4)?;
        let first = args()
            .input(&a.tensor(0)?)
            .output(&between)
            .scalar(a.scalar(0)?);
        let inner = g.graph(1, first, layer)?;
        assert!(matches!(inner.how(), How::Inlined), "{inner:?}");
        let second = args()
            .input(&between)
            .output(&a.tensor(1)?)
            .scalar(a.scalar(1)?);
        g.graph(2, second.after(&inner), layer).map(|_| ())
    };
    let y = node.buffer::<u32>(4).unwrap();
    for (round, how) in [How::Recorded, How::Replayed, How::Replayed]
        .into_iter()
        .enumerate()
    {
        let x = node.buffer_from(&[round as u32; 4]).unwrap();
        let (s, t) = (10 + round as u32, 20 + round as u32);
        let list = args().input(&x).output(&y).scalar(s).scalar(t);
        let handle = node.run(|orch| orch.graph(0, list, outer)).unwrap();
        assert_eq!(handle.how(), how);
        assert_eq!(y.to_vec().unwrap(), [4 * (2 * (round as u32 + s) + t); 4]);
    }
    check_stats(&node, stats(3, 1, 0, 0));
    assert_eq!(node.graph_stats().unwrap().entries, 1);
    node.close().unwrap();
}

pub(crate) fn replays_at_once_do_not_share_memory_that_one_of_them_uses() {
    let node = node(0, 3);
    node.init().unwrap();
    let body = |g: &mut Orchestrator<'_>, a: &GraphArgs<'_, ()>| {
        let add = g.function("add_scalar")?;
        g.scope(|g| {
            let sum = g.alloc::<u32>(8)?;
            for (half, s) in [(0..4, 1_u32), (4..8, 2)] {
                let list = args().input(&a.tensor(0)?).output(&sum.slice(0, half)?);
                g.submit_sub(&add, list.scalar(s))?;
            }
            let list = args().input(&sum).output(&a.tensor(1)?).scalar(0_u32);
            g.submit_sub(&add, list)?;
            Ok(())
        })
    };
    let inputs: Vec<_> = (0..20_u32)
        .map(|at| node.buffer_from(&[at; 4]).unwrap())
        .collect();
    let outputs: Vec<_> = inputs
        .iter()
        .map(|_| node.buffer::<u32>(8).unwrap())
        .collect();
    for _ in 0..3 {
        node.run(|orch| {
            for (x, y) in inputs.iter().zip(&outputs) {
                orch.graph((), args().input(x).output(y), body)?;
            }
            Ok(())
        })
        .unwrap();
        for (at, y) in (0..).zip(&outputs) {
            let (low, high) = (at + 1, at + 2);
            assert_eq!(
                y.to_vec().unwrap(),
                [low, low, low, low, high, high, high, high]
            );
            y.copy_from(&[0; 8]).unwrap();
        }
    }
    check_stats(&node, stats(60, 1, 0, 0));
    node.close().unwrap();
}

pub(crate) fn an_intermediate_tensor_can_be_given_to_a_graph() {
    let node = node(0, 1);
    node.init().unwrap();
    let y = node.buffer::<u32>(4).unwrap();
    let x = node.buffer_from(&[1_u32; 4]).unwrap();
    for _ in 0..2 {
        node.run(|orch| {
            let between = orch.alloc::<u32>(8)?.slice(0, 4..8)?;
            orch.graph(1, args().input(&x).output(&between).scalar(1_u32), layer)?;
            orch.graph(1, args().input(&between).output(&y).scalar(1_u32), layer)
        })
        .unwrap();
        assert_eq!(y.to_vec().unwrap(), [10; 4]);
    }
    check_stats(&node, stats(4, 1, 0, 0));
    node.close().unwrap();
}

pub(crate) fn a_manual_scope_inside_of_a_graph_infers_no_order() {
    let node = node(0, 1);
    node.init().unwrap();
    let body = |g: &mut Orchestrator<'_>, a: &GraphArgs<'_, ()>| {
        let double = g.function("double")?;
        g.manual_scope(|g| {
            let first = g.submit_sub(&double, args().inout(&a.tensor(0)?))?;
            g.submit_sub(&double, args().inout(&a.tensor(0)?).after(&first))?;
            Ok(())
        })?;
        g.submit_sub(&double, args().inout(&a.tensor(1)?))
            .map(|_| ())
    };
    let (x, y) = (
        node.buffer_from(&[1_u32; 4]).unwrap(),
        node.buffer_from(&[1_u32; 4]).unwrap(),
    );
    for round in 1..3 {
        node.run(|orch| orch.graph((), args().inout(&x).inout(&y), body))
            .unwrap();
        assert_eq!(x.to_vec().unwrap(), [1 << (2 * round); 4]);
        assert_eq!(y.to_vec().unwrap(), [1 << round; 4]);
    }
    node.close().unwrap();
}
