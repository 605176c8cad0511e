//! Graphs beyond one call: the cache and its bounds, threads, files, chips, explicit order, callables that go.

use facade::{Error, GraphArgs, How, Orchestrator, SubmitError, Worker, args, on};

use crate::graphs::{check_stats, double, layer, node, stats};
use crate::support::{INCREMENT, VECTOR_ADD, builder, directory};

pub(crate) fn many_keys_stay_within_bounds_and_are_counted_exactly() {
    let node = node(0, 1);
    node.init().unwrap();
    let x = node.buffer_from(&[1_u32; 4]).unwrap();
    let body = |g: &mut Orchestrator<'_>, _: &GraphArgs<'_, u32>| g.function("double").map(|_| ());
    node.run(|orch| {
        for key in 0..1000_u32 {
            orch.graph(key, args().input(&x), body)?;
        }
        for key in 900..1000_u32 {
            orch.graph(key, args().input(&x), body)?;
        }
        orch.graph(0, args().input(&x), body)
    })
    .unwrap();
    let found = node.graph_stats().unwrap();
    assert_eq!(
        (found.hits, found.recorded, found.entries),
        (1101, 1001, 256)
    );
    assert_eq!(found.evicted, 1001 - 256);
    node.close().unwrap();
}

pub(crate) fn threads_that_ask_at_once_record_a_key_once() {
    let node = node(0, 2);
    node.init().unwrap();
    std::thread::scope(|scope| {
        for thread in 0..4_u32 {
            let node = &node;
            scope.spawn(move || {
                let x = node.buffer_from(&[thread; 4]).unwrap();
                let y = node.buffer::<u32>(4).unwrap();
                for s in 0..10_u32 {
                    let list = args().input(&x).output(&y).scalar(s);
                    node.run(|orch| orch.graph(1, list, layer)).unwrap();
                    assert_eq!(y.to_vec().unwrap(), [2 * (thread + s); 4]);
                }
            });
        }
    });
    check_stats(&node, stats(40, 1, 0, 0));
    node.close().unwrap();
}

pub(crate) fn recorded_graphs_are_saved_and_loaded_by_the_same_program() {
    let (dir, path) = {
        let dir = directory();
        let path = dir.path().join("graphs");
        (dir, path)
    };
    let call = |node: &Worker, n: u32| {
        let (x, y) = (
            node.buffer_from(&[3_u32; 4]).unwrap(),
            node.buffer::<u32>(4).unwrap(),
        );
        let list = args().input(&x).output(&y).scalar(1_u32);
        let handle = node.run(|orch| orch.graph(n, list, layer)).unwrap();
        assert_eq!(y.to_vec().unwrap(), [4 << n; 4]);
        handle.how()
    };
    let first = node(0, 1);
    first.init().unwrap();
    assert_eq!(
        (call(&first, 1), call(&first, 2)),
        (How::Recorded, How::Recorded)
    );
    assert_eq!(first.save_graphs(&path).unwrap(), 2);
    first.close().unwrap();
    let second = node(0, 1);
    assert_eq!(
        second.load_graphs(&path).unwrap(),
        2,
        "before or after the start"
    );
    second.init().unwrap();
    assert_eq!(
        (call(&second, 1), call(&second, 2), call(&second, 3)),
        (How::Replayed, How::Replayed, How::Recorded)
    );
    second.close().unwrap();
    // Without its callables a graph is of no use.
    let third = builder(0, 1).build().unwrap();
    assert_eq!(third.load_graphs(&path).unwrap(), 0);
    let mut bytes = std::fs::read(&path).unwrap();
    let middle = bytes.len() / 2;
    bytes[middle] ^= 1;
    std::fs::write(&path, bytes).unwrap();
    let refused = third.load_graphs(&path).unwrap_err();
    assert!(
        refused
            .to_string()
            .ends_with("is damaged; delete it, and record again"),
        "{refused}"
    );
    drop(dir);
    let missing = third.load_graphs(&path).unwrap_err();
    assert!(matches!(missing, Error::GraphFile(_)), "{missing}");
}

pub(crate) fn graphs_of_chip_tasks_stay_on_their_chip() {
    let node = node(2, 1);
    node.register_chip(&VECTOR_ADD).unwrap();
    node.register_chip(&INCREMENT).unwrap();
    node.init().unwrap();
    let body = |g: &mut Orchestrator<'_>, a: &GraphArgs<'_, u32>| {
        let (add, increment) = (g.chip("vector_add")?, g.chip("increment")?);
        let target = facade::any();
        g.submit_next_level(&increment, args().inout(&a.tensor(0)?), target)?;
        let list = args()
            .input(&a.tensor(0)?)
            .input(&a.tensor(0)?)
            .output(&a.tensor(1)?);
        g.submit_next_level(&add, list, target)?;
        Ok(())
    };
    let mut hows = Vec::new();
    for chip in [0, 0, 1, 0] {
        let (x, y) = (
            node.malloc::<f32>(chip, 4).unwrap(),
            node.malloc::<f32>(chip, 4).unwrap(),
        );
        node.copy_to(x, &[1.0; 4]).unwrap();
        let handle = node
            .run(|orch| orch.graph(4, args().inout(&x).output(&y), body))
            .unwrap();
        let mut found = [0.0; 4];
        node.copy_from(&mut found, y).unwrap();
        assert_eq!(found, [4.0; 4]);
        hows.push(handle.how());
    }
    assert_eq!(
        hows,
        [How::Recorded, How::Replayed, How::Eager, How::Replayed]
    );
    check_stats(&node, stats(3, 1, 1, 0));
    node.close().unwrap();
}

pub(crate) fn tasks_can_come_after_a_graph_and_not_after_what_is_inside() {
    let node = node(0, 2);
    let double = node.register_fn("double again", double).unwrap();
    node.init().unwrap();
    let (x, y) = (
        node.buffer_from(&[1_u32; 4]).unwrap(),
        node.buffer::<u32>(4).unwrap(),
    );
    let z = node.buffer_from(&[1_u32; 4]).unwrap();
    node.run(|orch| {
        let graph = orch.graph(3, args().input(&x).output(&y).scalar(1_u32), layer)?;
        let task = orch.submit_sub(&double, args().inout(&z).after(&graph))?;
        orch.graph(
            3,
            args().input(&x).output(&z).scalar(1_u32).after(&task),
            layer,
        )
    })
    .unwrap();
    assert_eq!(z.to_vec().unwrap(), [16; 4]);
    // A handle that left the body of its graph by a back door.
    static LEAKED: std::sync::OnceLock<facade::TaskHandle> = std::sync::OnceLock::new();
    let refused = node.run(|orch| {
        orch.graph("leak", args().inout(&z), |g, a| {
            let double = g.function("double")?;
            let task = g.submit_sub(&double, args().inout(&a.tensor(0)?))?;
            LEAKED.get_or_init(|| task);
            Ok(())
        })?;
        let leaked = LEAKED.get().expect("put there above");
        orch.submit_sub(&double, args().inout(&z).after(leaked))
    });
    let error = refused.unwrap_err();
    assert!(
        matches!(error, Error::Submit(SubmitError::OutsideGraph { .. })),
        "{error}"
    );
    node.close().unwrap();
}

pub(crate) fn a_graph_whose_callable_is_gone_is_recorded_anew() {
    let node = node(0, 1);
    let temporary = node.register_fn("temporary", double).unwrap();
    node.init().unwrap();
    let x = node.buffer_from(&[1_u32; 4]).unwrap();
    let body = |g: &mut Orchestrator<'_>, a: &GraphArgs<'_, ()>| {
        let task = g.function("temporary").or_else(|_| g.function("double"))?;
        g.submit_sub(&task, args().inout(&a.tensor(0)?)).map(|_| ())
    };
    let call = || {
        node.run(|orch| orch.graph((), args().inout(&x), body))
            .unwrap()
            .how()
    };
    assert_eq!((call(), call()), (How::Recorded, How::Replayed));
    node.unregister(&temporary).unwrap();
    assert_eq!((call(), call()), (How::Recorded, How::Replayed));
    assert_eq!(x.to_vec().unwrap(), [16; 4]);
    node.close().unwrap();
}

pub(crate) fn a_group_is_a_node_like_any_other() {
    let node = node(2, 2);
    node.register_chip(&INCREMENT).unwrap();
    node.init().unwrap();
    let body = |g: &mut Orchestrator<'_>, a: &GraphArgs<'_, ()>| {
        let (increment, double) = (g.chip("increment")?, g.function("double")?);
        let part = |at: usize| a.tensor(0)?.slice(0, 4 * at..4 * at + 4);
        let members = vec![
            (args().inout(&part(0)?), on(1)),
            (args().inout(&part(1)?), on(0)),
        ];
        g.submit_next_level_group(&increment, members)?;
        let halves = vec![
            args().inout(&a.tensor(1)?.slice(0, 0..2)?),
            args().inout(&a.tensor(1)?.slice(0, 2..4)?),
        ];
        g.submit_sub_group(&double, halves)?;
        Ok(())
    };
    let (x, y) = (
        node.buffer_from(&[1.0_f32; 8]).unwrap(),
        node.buffer_from(&[1_u32; 4]).unwrap(),
    );
    for round in 1..4 {
        node.run(|orch| orch.graph((), args().inout(&x).inout(&y), body))
            .unwrap();
        assert_eq!(x.to_vec().unwrap(), [1.0 + round as f32; 8]);
        assert_eq!(y.to_vec().unwrap(), [1 << round; 4]);
    }
    check_stats(&node, stats(3, 1, 0, 0));
    node.close().unwrap();
}

/// Writes `x` to the first half of `y`, by way of intermediate memory of half a ring.
fn half(g: &mut Orchestrator<'_>, a: &GraphArgs<'_, ()>) -> Result<(), Error> {
    let add = g.function("add_scalar")?;
    let between = g.alloc::<u32>(128)?;
    let first = args().input(&a.tensor(0)?).output(&between);
    g.submit_sub(&add, first.scalar(a.scalar(0)?))?;
    let part = a.tensor(1)?.slice(0, 0..64)?;
    let second = args().input(&between).output(&part);
    g.submit_sub(&add, second.scalar(0_u32)).map(|_| ())
}

pub(crate) fn an_output_that_a_body_writes_in_part_is_refused_and_eager_calls_give_memory_back() {
    let node = builder(0, 1).heap(1024).build().unwrap();
    node.register_fn("add_scalar", crate::graphs::add_scalar)
        .unwrap();
    node.init().unwrap();
    let x = node.buffer_from(&[3_u32; 128]).unwrap();
    let y = node.buffer::<u32>(128).unwrap();
    node.run(|orch| {
        for s in 0..40_u32 {
            let list = args().input(&x).output(&y).scalar(s);
            assert_eq!(orch.graph((), list, half)?.how(), How::Eager);
        }
        Ok(())
    })
    .unwrap();
    let y = y.to_vec().unwrap();
    assert_eq!((&y[..64], &y[64..]), (&[42; 64][..], &[0; 64][..]));
    check_stats(&node, stats(0, 0, 0, 40));
    node.close().unwrap();
}

pub(crate) fn a_graph_in_a_manual_scope_is_another_graph_than_outside_of_one() {
    let node = node(0, 1);
    node.init().unwrap();
    let x = node.buffer_from(&[1_u32; 4]).unwrap();
    let body = |g: &mut Orchestrator<'_>, a: &GraphArgs<'_, ()>| {
        let double = g.function("double")?;
        let first = g.submit_sub(&double, args().inout(&a.tensor(0)?))?;
        let second = args().inout(&a.tensor(0)?).after(&first);
        g.submit_sub(&double, second).map(|_| ())
    };
    for how in [How::Recorded, How::Replayed] {
        let call = |orch: &mut Orchestrator<'_>| orch.graph((), args().inout(&x), body);
        assert_eq!(node.run(call).unwrap().how(), how);
        let inside = node.run(|orch| orch.manual_scope(call));
        assert_eq!(inside.unwrap().how(), how);
    }
    assert_eq!(x.to_vec().unwrap(), [1 << 8; 4]);
    check_stats(&node, stats(4, 2, 0, 0));
    node.close().unwrap();
}
