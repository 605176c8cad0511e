//! Graphs as somebody calls them who has not read how they work: the same tensor twice, nothing at all, views of views, a
//! body that calls itself, one that fails only when it runs eagerly.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::atomic::{AtomicU32, Ordering};

use facade::{Error, GraphArgs, How, Orchestrator, args};

use crate::graphs::{check_stats, node, stats};

/// `y = x + 1`, `x` and `y` being whatever the call says.
fn plus_one(g: &mut Orchestrator<'_>, a: &GraphArgs<'_, &str>) -> Result<(), Error> {
    let add = g.function("add_scalar")?;
    let list = args().input(&a.tensor(0)?).output(&a.tensor(1)?);
    g.submit_sub(&add, list.scalar(1_u32)).map(|_| ())
}

pub(crate) fn tensors_of_any_cut_are_replayed_wherever_they_lie() {
    let node = node(0, 1);
    node.init().unwrap();
    let x = node.buffer_from(&(0..32_u32).collect::<Vec<_>>()).unwrap();
    let y = node.buffer::<u32>(32).unwrap();
    let mut hows = Vec::new();
    for at in [0, 3, 17] {
        let from = x.slice(at..at + 12).unwrap().slice(0, 2..10).unwrap();
        let to = y.slice(at..at + 8).unwrap().slice(0, 0..8).unwrap();
        let list = args().input(&from).output(&to);
        hows.push(
            node.run(|orch| orch.graph("cut", list, plus_one))
                .unwrap()
                .how(),
        );
        let found = y.to_vec().unwrap()[at..at + 8].to_vec();
        let wanted: Vec<_> = (0..8).map(|i| (at + 2 + i + 1) as u32).collect();
        assert_eq!(found, wanted);
    }
    assert_eq!(hows, [How::Recorded, How::Replayed, How::Replayed]);
    // Nothing of something is something, too.
    let nothing = |at: usize| x.slice(at..at).unwrap();
    let empty = |g: &mut Orchestrator<'_>, a: &GraphArgs<'_, ()>| {
        let double = g.function("double")?;
        let all = args().inout(&a.tensor(0)?).input(&a.tensor(1)?);
        g.submit_sub(&double, all).map(|_| ())
    };
    for (at, how) in [(0, How::Recorded), (32, How::Replayed), (16, How::Replayed)] {
        let list = args().inout(&y).input(&nothing(at));
        assert_eq!(
            node.run(|orch| orch.graph((), list, empty)).unwrap().how(),
            how
        );
    }
    check_stats(&node, stats(6, 2, 0, 0));
    node.close().unwrap();
}

pub(crate) fn a_tensor_that_is_given_twice_is_two_arguments_that_overlap() {
    let node = node(0, 1);
    node.init().unwrap();
    let fresh = || node.buffer_from(&[1_u32; 4]).unwrap();
    // Reads both, and writes the second in place.
    let body = |g: &mut Orchestrator<'_>, a: &GraphArgs<'_, ()>| {
        let (double, picky) = (g.function("double")?, g.function("picky")?);
        g.submit_sub(&picky, args().input(&a.tensor(0)?))?;
        g.submit_sub(&double, args().inout(&a.tensor(1)?))
            .map(|_| ())
    };
    let (one, other) = (fresh(), fresh());
    let call = |x: &facade::Buffer<u32>, y: &facade::Buffer<u32>| {
        let list = args().input(x).inout(y);
        node.run(|orch| orch.graph((), list, body)).unwrap().how()
    };
    assert_eq!(call(&one, &one), How::Recorded);
    assert_eq!(call(&other, &other), How::Replayed);
    assert_eq!(call(&one, &other), How::Eager, "they do not overlap");
    assert_eq!(call(&other, &other), How::Replayed);
    assert_eq!(
        (one.to_vec().unwrap(), other.to_vec().unwrap()),
        (vec![2; 4], vec![8; 4])
    );
    check_stats(&node, stats(3, 1, 1, 0));
    node.close().unwrap();
}

pub(crate) fn a_graph_of_nothing_and_one_without_arguments_are_graphs() {
    let node = node(0, 1);
    node.init().unwrap();
    let alone = |g: &mut Orchestrator<'_>, _: &GraphArgs<'_, ()>| {
        let (add, double) = (g.function("add_scalar")?, g.function("double")?);
        let (x, y) = (g.alloc::<u32>(4)?, g.alloc::<u32>(4)?);
        g.submit_sub(&add, args().input(&x).output(&y).scalar(1_u32))?;
        g.submit_sub(&double, args().inout(&y)).map(|_| ())
    };
    for how in [How::Recorded, How::Replayed, How::Replayed] {
        let found = node.run(|orch| {
            let nothing = orch.graph((), args(), |_, _| Ok(()))?.how();
            Ok((nothing, orch.graph((), args(), alone)?.how()))
        });
        assert_eq!(found.unwrap(), (how, how));
    }
    check_stats(&node, stats(6, 2, 0, 0));
    node.close().unwrap();
}

/// Doubles, and calls itself with one less.
fn countdown(g: &mut Orchestrator<'_>, a: &GraphArgs<'_, u32>) -> Result<(), Error> {
    let (x, left) = (a.tensor(0)?, *a.key());
    let double = g.function("double")?;
    g.submit_sub(&double, args().inout(&x))?;
    match left {
        0 => Ok(()),
        left => g.graph(left - 1, args().inout(&x), countdown).map(|_| ()),
    }
}

pub(crate) fn a_body_that_calls_itself_is_one_graph_for_each_depth() {
    let node = node(0, 1);
    node.init().unwrap();
    let x = node.buffer_from(&[1_u32; 4]).unwrap();
    for how in [How::Recorded, How::Replayed] {
        for depth in [5, 0] {
            let call = node.run(|orch| orch.graph(depth, args().inout(&x), countdown));
            assert_eq!(call.unwrap().how(), how);
        }
    }
    assert_eq!(x.to_vec().unwrap(), [1 << 14; 4]);
    check_stats(&node, stats(4, 2, 0, 0));
    // Eagerly, what is inside is a graph of its own.
    let half = x.slice(0..2).unwrap();
    let found = node.run(|orch| orch.graph(5_u32, args().inout(&half), countdown));
    assert_eq!(found.unwrap().how(), How::Eager);
    assert_eq!(x.to_vec().unwrap(), [1 << 20, 1 << 20, 1 << 14, 1 << 14]);
    node.close().unwrap();
}

pub(crate) fn a_body_that_fails_only_when_it_runs_eagerly_does_no_harm_to_its_recording() {
    let node = node(0, 1);
    node.init().unwrap();
    let (x, y) = (
        node.buffer_from(&[1_u32; 4]).unwrap(),
        node.buffer_from(&[1_u32; 8]).unwrap(),
    );
    static MOOD: AtomicU32 = AtomicU32::new(0);
    let moody = |g: &mut Orchestrator<'_>, a: &GraphArgs<'_, ()>| {
        let double = g.function("double")?;
        g.submit_sub(&double, args().inout(&a.tensor(0)?))?;
        match MOOD.load(Ordering::Relaxed) {
            0 => Ok(()),
            1 => Err(Error::orchestration("not today")),
            _ => panic!("not at all"),
        }
    };
    let small = || node.run(|orch| orch.graph((), args().inout(&x), moody));
    let large = || node.run(|orch| orch.graph((), args().inout(&y), moody));
    assert_eq!(small().unwrap().how(), How::Recorded);
    for (mood, text) in [(1, "not today"), (2, "not at all")] {
        MOOD.store(mood, Ordering::Relaxed);
        match catch_unwind(AssertUnwindSafe(large)) {
            Ok(refused) => assert!(refused.unwrap_err().to_string().contains(text)),
            Err(_) => panic!("a panic of a body is an error of its run"),
        }
        assert_eq!(
            small().unwrap().how(),
            How::Replayed,
            "a replay does not call the body"
        );
    }
    MOOD.store(0, Ordering::Relaxed);
    assert_eq!(large().unwrap().how(), How::Eager);
    assert_eq!(x.to_vec().unwrap(), [8; 4]);
    check_stats(&node, stats(3, 1, 3, 0));
    node.close().unwrap();
}
