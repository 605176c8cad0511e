//! Tensors that come with the task that writes them.

use facade::{Args, Error, TaskResult, args, fresh, on};

use crate::support::{VECTOR_ADD, builder};

const HEAP: u64 = 1024;

fn fill(args: &Args) -> TaskResult {
    let value = args.scalar::<u32>(0)?;
    args.output::<u32>(0)?.fill(value);
    Ok(())
}

/// Writes its first argument, doubled, to its second one.
fn double(args: &Args) -> TaskResult {
    let (x, y) = (args.input::<u32>(0)?, args.output::<u32>(1)?);
    y.iter_mut().zip(x).for_each(|(y, x)| *y = 2 * x);
    Ok(())
}

pub(crate) fn a_chain_of_them_carries_values_in_bounded_memory() {
    let node = builder(0, 2).heap(HEAP).build().unwrap();
    let fill = node.register_fn("fill", fill).unwrap();
    let double = node.register_fn("double", double).unwrap();
    node.init().unwrap();
    let out = node.buffer::<u32>(64).unwrap();
    for value in 0..50_u32 {
        node.run(|orch| {
            orch.scope(|orch| {
                let (a, b) = (fresh::<u32>(64)?, fresh::<u32>(64)?);
                assert!(matches!(a.view(), Err(Error::Buffer(_))));
                orch.submit_sub(&fill, args().output(&a).scalar(value))?;
                orch.submit_sub(&double, args().input(&a).output(&b))?;
                // A part of one, as a view.
                let part = b.view()?.slice(0, 0..32)?;
                orch.submit_sub(&double, args().input(&part).output(&out.slice(0..32)?))?;
                orch.submit_sub(&double, args().input(&b).output(&out))
            })
        })
        .unwrap();
        assert_eq!(out.to_vec().unwrap(), [4 * value; 64]);
    }
    node.close().unwrap();
}

pub(crate) fn a_task_of_a_chip_and_a_group_bring_some_into_being_too() {
    let node = builder(1, 2).build().unwrap();
    let add = node.register_chip(&VECTOR_ADD).unwrap();
    let fill = node.register_fn("fill", fill).unwrap();
    let double = node.register_fn("double", double).unwrap();
    node.init().unwrap();
    let (a, b) = (
        node.buffer_from(&[1.0_f32; 8]).unwrap(),
        node.buffer_from(&[2.0_f32; 8]).unwrap(),
    );
    let (c, out) = (
        node.buffer::<f32>(8).unwrap(),
        node.buffer::<u32>(16).unwrap(),
    );
    node.run(|orch| {
        let sum = fresh::<f32>(8)?;
        orch.submit_next_level(&add, args().input(&a).input(&b).output(&sum), on(0))?;
        orch.submit_next_level(&add, args().input(&sum).input(&b).output(&c), on(0))?;
        let halves = [fresh::<u32>(8)?, fresh::<u32>(8)?];
        let list = |at: usize| args().output(&halves[at]).scalar(at as u32 + 1);
        orch.submit_sub_group(&fill, vec![list(0), list(1)])?;
        for (at, half) in halves.iter().enumerate() {
            let place = out.slice(8 * at..8 * at + 8)?;
            orch.submit_sub(&double, args().input(half).output(&place))?;
        }
        Ok(())
    })
    .unwrap();
    assert_eq!(c.to_vec().unwrap(), [5.0; 8]);
    assert_eq!(out.to_vec().unwrap(), [[2; 8], [4; 8]].concat());
    node.close().unwrap();
}

pub(crate) fn a_graph_writes_one_and_its_body_makes_others() {
    let node = builder(0, 1).build().unwrap();
    node.register_fn("fill", fill).unwrap();
    node.register_fn("double", double).unwrap();
    let double = node.register_fn("again", double).unwrap();
    node.init().unwrap();
    let out = node.buffer::<u32>(8).unwrap();
    for value in 1..4_u32 {
        node.run(|orch| {
            let made = fresh::<u32>(8)?;
            orch.graph("make", args().output(&made).scalar(value), |g, a| {
                let (fill, double) = (g.function("fill")?, g.function("double")?);
                let inner = fresh::<u32>(8)?;
                g.submit_sub(&fill, args().output(&inner).scalar(a.scalar(0)?))?;
                g.submit_sub(&double, args().input(&inner).output(&a.tensor(0)?))
                    .map(|_| ())
            })?;
            orch.submit_sub(&double, args().input(&made).output(&out))
        })
        .unwrap();
        assert_eq!(out.to_vec().unwrap(), [4 * value; 8]);
    }
    let stats = node.graph_stats().unwrap();
    assert_eq!((stats.recorded, stats.hits), (1, 3), "{stats:?}");
    node.close().unwrap();
}

pub(crate) fn a_refused_submit_gives_the_memory_back_and_the_tensor_can_be_made_later() {
    let node = builder(1, 1).heap(HEAP).build().unwrap();
    let add = node.register_chip(&VECTOR_ADD).unwrap();
    let fill = node.register_fn("fill", fill).unwrap();
    node.init().unwrap();
    node.run(|orch| {
        let all = fresh::<u32>(256)?;
        for _ in 0..10 {
            let refused = orch.submit_next_level(&add, args().output(&all), on(7));
            assert!(matches!(refused, Err(Error::Submit(_))));
            let refused = orch.submit_sub_group(&fill, vec![args().output(&all), args().output(&all)]);
            assert!(matches!(refused, Err(Error::Submit(_))));
            assert!(all.view().is_err());
        }
        let (half, more) = (fresh::<u32>(200)?, fresh::<u32>(100)?);
        let refused = orch.submit_sub(&fill, args().output(&half).output(&more).scalar(0_u32)).unwrap_err();
        insta::assert_snapshot!(refused, @"make an intermediate tensor on worker `node`: cannot allocate 400 bytes: 192 of 1024 are free at depth 0, and the oldest block in the way belongs to the run itself; allocate in scopes that end, or give the ring more bytes (`WorkerBuilder::heap`)");
        orch.submit_sub(&fill, args().output(&all).scalar(1_u32))?;
        // Made once: the next submit writes the same memory, after the first.
        orch.submit_sub(&fill, args().output(&all).scalar(2_u32))
    })
    .unwrap();
    node.close().unwrap();
}

pub(crate) fn one_without_memory_is_an_output_or_an_error_that_says_so() {
    let node = builder(0, 1).build().unwrap();
    let fill = node.register_fn("fill", fill).unwrap();
    node.init().unwrap();
    let (kept, other) = (fresh::<u32>(4).unwrap(), fresh::<u32>(4).unwrap());
    let error = node
        .run(|orch| orch.submit_sub(&fill, args().scalar(1_u32).inout(&other)))
        .unwrap_err();
    insta::assert_snapshot!(error, @"submit a task: argument 0 has no memory yet; name it as output of the task that makes it, before others use it");
    insta::assert_snapshot!(kept.view().unwrap_err(), @"use a fresh tensor: it has no memory yet; submit the task first that names it as its output");
    assert!(matches!(fresh::<u32>(0), Err(Error::Buffer(_))));
    assert!(matches!(
        fresh::<u64>(usize::MAX / 4),
        Err(Error::Buffer(_))
    ));
    node.run(|orch| orch.submit_sub(&fill, args().output(&kept).scalar(1_u32)))
        .unwrap();
    // It belonged to that run.
    let error = node
        .run(|orch| orch.submit_sub(&fill, args().output(&kept).scalar(1_u32)))
        .unwrap_err();
    assert!(
        error.to_string().contains("scope that has ended"),
        "{error}"
    );
    node.close().unwrap();
}

/// Scopes from depth 3 on share a ring: what an outer one keeps does not starve the inner ones.
pub(crate) fn deep_scopes_use_their_part_of_a_shared_ring_again_and_again() {
    let node = builder(0, 1).heap(HEAP).build().unwrap();
    let fill = node.register_fn("fill", fill).unwrap();
    node.init().unwrap();
    node.run(|orch| {
        orch.scope(|orch| {
            orch.scope(|orch| {
                orch.scope(|orch| {
                    let outer = orch.alloc::<u32>(32)?;
                    for value in 0..50_u32 {
                        orch.scope(|orch| {
                            let inner = fresh::<u32>(200)?;
                            orch.submit_sub(&fill, args().output(&inner).scalar(value))
                        })?;
                    }
                    orch.submit_sub(&fill, args().output(&outer).scalar(1_u32))
                })
            })
        })
    })
    .unwrap();
    node.close().unwrap();
}
