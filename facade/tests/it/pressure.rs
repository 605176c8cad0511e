//! Full tables: back-pressure first, an error that names who is in the way where waiting would not help, and never a hang.

use facade::{Args, BufferError, Error, SubmitError, TaskResult, View, Worker, args};

use crate::support::{Gate, builder, directory, n_mappings, nothing, pids};

const HEAP: u64 = 1024;

/// Two sub workers, and rings of 1 KiB.
fn small() -> Worker {
    builder(0, 2).heap(HEAP).build().unwrap()
}

/// Fills its output with its scalar.
fn fill(args: &Args) -> TaskResult {
    let value = args.scalar::<u32>(0)?;
    args.output::<u32>(0)?.fill(value);
    Ok(())
}

/// Adds the first element of its input to the sum, when all elements are equal.
fn add_up(args: &Args) -> TaskResult {
    let (x, sum) = (args.input::<u32>(0)?, args.output::<u64>(1)?);
    if x.iter().any(|value| *value != x[0]) {
        return Err("the tensor was overwritten while it was wanted".into());
    }
    sum[0] += u64::from(x[0]);
    Ok(())
}

/// TG-4, case 1: more is wanted at once than there is, and no end of a task brings it.
pub(crate) fn a_graph_that_needs_more_memory_than_its_ring_is_told_at_once_with_the_blocker() {
    let node = small();
    let fill = node.register_fn("fill", fill).unwrap();
    let dir = directory();
    let gate = Gate::new(dir.path(), "gate");
    let inside = gate.clone();
    let hold = node
        .register_fn("hold", move |_| {
            inside.pass();
            Ok(())
        })
        .unwrap();
    node.init().unwrap();
    let error = node
        .run(|orch| {
            let x = orch.alloc::<u32>(192)?;
            orch.submit_sub(&hold, args().output(&x))?;
            let refused = orch.alloc::<u32>(128).map(|_| ());
            // Room that is left can still be had.
            let y = orch.alloc::<u32>(64)?;
            orch.submit_sub(&fill, args().output(&y).scalar(1_u32))?;
            gate.open();
            refused
        })
        .unwrap_err();
    insta::assert_snapshot!(error, @"make an intermediate tensor on worker `node`: cannot allocate 512 bytes: 256 of 1024 are free at depth 0, and the oldest block in the way belongs to the run itself; allocate in scopes that end, or give the ring more bytes (`WorkerBuilder::heap`); `hold` (task 0.0) uses that block");
    let error = node
        .run(|orch| orch.alloc::<u32>(1024).map(|_| ()))
        .unwrap_err();
    insta::assert_snapshot!(error, @"make an intermediate tensor on worker `node`: cannot allocate 4096 bytes in scopes of depth 0: the ring there has 1024 bytes; give it more, or cut the tensor into pieces (`WorkerBuilder::heap`)");
    assert!(matches!(
        error,
        Error::Buffer(BufferError::Intermediate { .. })
    ));
    node.run(|orch| {
        let x = orch.alloc::<u32>(256)?;
        orch.submit_sub(&fill, args().output(&x).scalar(1_u32))
    })
    .unwrap();
    node.close().unwrap();
}

/// TG-4, case 2: the consumer is slow, and frees in time. Also: memory that is given out again is never mixed up.
pub(crate) fn memory_that_comes_back_is_waited_for_and_never_shared_too_early() {
    let node = small();
    let fill = node.register_fn("fill", fill).unwrap();
    let add_up = node.register_fn("add_up", add_up).unwrap();
    node.init().unwrap();
    let sum = node.buffer::<u64>(1).unwrap();
    node.run(|orch| {
        for i in 0..200_u32 {
            orch.scope(|orch| {
                let x = orch.alloc::<u32>(160)?;
                orch.submit_sub(&fill, args().output(&x).scalar(i))?;
                orch.submit_sub(&add_up, args().input(&x).inout(&sum))
            })?;
        }
        Ok(())
    })
    .unwrap();
    assert_eq!(sum.to_vec().unwrap(), [(0..200).sum::<u64>()]);
    node.close().unwrap();
}

/// TG-4, case 2, staged: the orchestration is held up while the one task that has the memory stands before a gate that
/// only another thread opens.
pub(crate) fn an_allocation_waits_for_the_task_that_has_the_memory() {
    let node = builder(0, 1)
        .heap(HEAP)
        .start_mode(facade::StartMode::Spawn)
        .build()
        .unwrap();
    let wait = node.register_fn("wait", wait_for_gate).unwrap();
    let fill = node.register_fn("fill", fill).unwrap();
    node.init().unwrap();
    let dir = directory();
    let gate = Gate::new(dir.path(), "gate");
    let path = node
        .buffer_from(dir.path().join("gate").to_str().unwrap().as_bytes())
        .unwrap();
    let opener = std::thread::spawn(move || gate.open());
    node.run(|orch| {
        orch.scope(|orch| {
            let x = orch.alloc::<u32>(256)?;
            orch.submit_sub(&wait, args().output(&x).input(&path))
        })?;
        orch.scope(|orch| {
            let x = orch.alloc::<u32>(256)?;
            orch.submit_sub(&fill, args().output(&x).scalar(7_u32))
        })
    })
    .unwrap();
    opener.join().unwrap();
    node.close().unwrap();
}

/// Passes the gate whose path its second argument holds.
fn wait_for_gate(args: &Args) -> TaskResult {
    let path = std::str::from_utf8(args.input::<u8>(1)?)?;
    std::fs::File::open(path)?;
    Ok(())
}

/// TG-4, case 3: a ring that is empty serves its whole size, wherever its ends had been.
pub(crate) fn a_drained_ring_serves_its_whole_size() {
    let node = small();
    let fill = node.register_fn("fill", fill).unwrap();
    node.init().unwrap();
    node.run(|orch| {
        for n_elements in [160, 160, 160, 256, 1, 256] {
            orch.scope(|orch| {
                let x = orch.alloc::<u32>(n_elements)?;
                orch.submit_sub(&fill, args().output(&x).scalar(1_u32))
            })?;
        }
        Ok(())
    })
    .unwrap();
    node.close().unwrap();
}

/// TG-4, case 4: a submit beyond the table waits for a slot, in a scope or not.
pub(crate) fn a_scope_may_have_more_tasks_than_there_are_slots() {
    let node = builder(0, 2).tasks_max(4).build().unwrap();
    let nothing = node.register_fn("nothing", nothing).unwrap();
    let add_up = node.register_fn("add_up", add_up).unwrap();
    node.init().unwrap();
    let (one, sum) = (
        node.buffer_from(&[1_u32]).unwrap(),
        node.buffer::<u64>(1).unwrap(),
    );
    node.run(|orch| {
        orch.scope(|orch| {
            for _ in 0..500 {
                orch.submit_sub(&nothing, args())?;
                orch.submit_sub(&add_up, args().input(&one).inout(&sum))?;
            }
            Ok(())
        })
    })
    .unwrap();
    assert_eq!(sum.to_vec().unwrap(), [500]);
    node.close().unwrap();
}

/// Several threads build graphs in turn over the same few slots and the same small rings.
pub(crate) fn runs_of_several_threads_share_what_there_is() {
    let node = builder(0, 2)
        .heap(HEAP)
        .tasks_max(3)
        .start_mode(facade::StartMode::Spawn)
        .build()
        .unwrap();
    let fill = node.register_fn("fill", fill).unwrap();
    let add_up = node.register_fn("add_up", add_up).unwrap();
    node.init().unwrap();
    let sums: Vec<_> = (0..3).map(|_| node.buffer::<u64>(1).unwrap()).collect();
    std::thread::scope(|scope| {
        for (thread, sum) in (1_u32..).zip(&sums) {
            let (node, fill, add_up) = (&node, &fill, &add_up);
            scope.spawn(move || {
                for _ in 0..10 {
                    let run = node.submit(|orch| {
                        for _ in 0..5 {
                            orch.scope(|orch| {
                                let x = orch.alloc::<u32>(200)?;
                                orch.submit_sub(fill, args().output(&x).scalar(thread))?;
                                orch.submit_sub(add_up, args().input(&x).inout(sum))
                            })?;
                        }
                        Ok(())
                    });
                    run.unwrap().wait().unwrap();
                }
            });
        }
    });
    for (thread, sum) in (1_u64..).zip(&sums) {
        assert_eq!(sum.to_vec().unwrap(), [50 * thread]);
    }
    node.close().unwrap();
}

/// A failure among tasks that share the memory neither keeps it nor lets it go too early.
pub(crate) fn memory_of_failed_and_skipped_tasks_comes_back() {
    let node = small();
    let fill = node.register_fn("fill", fill).unwrap();
    let bad = node
        .register_fn("bad", |_: &Args| Err("no".into()))
        .unwrap();
    node.init().unwrap();
    let failed = node.run(|orch| {
        for _ in 0..20 {
            orch.scope(|orch| {
                let x = orch.alloc::<u32>(200)?;
                orch.submit_sub(&bad, args().output(&x))?;
                orch.submit_sub(&fill, args().inout(&x).scalar(1_u32))
            })?;
        }
        Ok(())
    });
    let error = crate::support::failure(failed);
    assert_eq!(
        (error.task.as_str(), error.failed, error.skipped),
        ("bad", 20, 20)
    );
    node.run(|orch| {
        let x = orch.alloc::<u32>(256)?;
        orch.submit_sub(&fill, args().output(&x).scalar(1_u32))
    })
    .unwrap();
    node.close().unwrap();
}

pub(crate) fn a_tensor_is_refused_when_its_scope_has_ended() {
    let node = small();
    let fill = node.register_fn("fill", fill).unwrap();
    node.init().unwrap();
    let kept: View<u32> = node.run(|orch| orch.alloc::<u32>(16)).unwrap();
    let error = node
        .run(|orch| orch.submit_sub(&fill, args().output(&kept).scalar(1_u32)))
        .unwrap_err();
    assert!(
        matches!(error, Error::Submit(SubmitError::Graph { .. })),
        "{error}"
    );
    let error = node
        .run(|orch| {
            let x = orch.scope(|orch| orch.alloc::<u32>(16))?;
            orch.submit_sub(&fill, args().output(&x).scalar(1_u32))
        })
        .unwrap_err();
    assert!(
        error.to_string().contains("scope that has ended"),
        "{error}"
    );
    node.close().unwrap();
}

pub(crate) fn scopes_nest_to_their_limit_and_say_so() {
    fn nest(orch: &mut facade::Orchestrator<'_>, depth: u32) -> Result<u32, Error> {
        let _ = orch.alloc::<u32>(1)?;
        match orch.scope(|orch| nest(orch, depth + 1)) {
            Err(Error::Submit(SubmitError::Scope { .. })) => Ok(depth),
            deeper => deeper,
        }
    }
    let node = small();
    node.init().unwrap();
    // 64 blocks of the last ring are more than it has, so only the first levels allocate there.
    let node_with_room = builder(0, 1).heap(1 << 16).build().unwrap();
    node_with_room.init().unwrap();
    assert_eq!(node_with_room.run(|orch| nest(orch, 0)).unwrap(), 64);
    let error = node.run(|orch| nest(orch, 0)).unwrap_err();
    assert!(error.to_string().contains("depth 3"), "{error}");
    node_with_room.close().unwrap();
    node.close().unwrap();
}

/// Tasks of a manual scope run at once although they touch the same bytes, and in order where they are told to.
pub(crate) fn a_manual_scope_infers_no_order() {
    let dir = directory();
    let (a, b) = (Gate::new(dir.path(), "a"), Gate::new(dir.path(), "b"));
    let node = builder(0, 2).build().unwrap();
    let (a2, b2) = (a.clone(), b.clone());
    let first = node
        .register_fn("first", move |_| {
            a.pass();
            b.open();
            Ok(())
        })
        .unwrap();
    let second = node
        .register_fn("second", move |_| {
            a2.open();
            b2.pass();
            Ok(())
        })
        .unwrap();
    let fill = node.register_fn("fill", fill).unwrap();
    node.init().unwrap();
    let x = node.buffer::<u32>(4).unwrap();
    node.run(|orch| {
        orch.manual_scope(|orch| {
            let one = orch.submit_sub(&first, args().inout(&x))?;
            let two = orch.submit_sub(&second, args().inout(&x))?;
            orch.submit_sub(
                &fill,
                args().output(&x).scalar(3_u32).after(&one).after(&two),
            )
        })
    })
    .unwrap();
    assert_eq!(x.to_vec().unwrap(), [3; 4]);
    node.close().unwrap();
}

/// A worker below maps a ring once, whatever is allocated in it, and passes intermediate tensors on to its own tasks.
pub(crate) fn a_worker_below_maps_a_ring_once_and_passes_its_tensors_on() {
    let below = Worker::node().sub_workers(1).name("below");
    let root = Worker::node()
        .sub_workers(1)
        .worker(below)
        .heap(HEAP)
        .build()
        .unwrap();
    let fill = root.register_fn("fill", fill).unwrap();
    let add_up = root.register_fn("add_up", add_up).unwrap();
    let again = add_up.clone();
    let pass_on = root
        .register_orchestration("pass_on", move |orch, given| {
            let list = args().input(&given.tensor(0)?).inout(&given.tensor(1)?);
            orch.submit_sub(&again, list).map(|_| ())
        })
        .unwrap();
    root.init().unwrap();
    let sum = root.buffer::<u64>(1).unwrap();
    root.run(|orch| {
        for i in 0..50_u32 {
            orch.scope(|orch| {
                let x = orch.alloc::<u32>(100)?;
                orch.submit_sub(&fill, args().output(&x).scalar(i))?;
                orch.submit_next_level(&pass_on, args().input(&x).inout(&sum), facade::on(0))
            })?;
        }
        Ok(())
    })
    .unwrap();
    assert_eq!(sum.to_vec().unwrap(), [(0..50).sum::<u64>()]);
    let mappings: Vec<_> = pids(&root.tree().unwrap())
        .iter()
        .map(|pid| n_mappings(*pid, "heap"))
        .collect();
    assert!(mappings.iter().all(|n| *n <= 1), "{mappings:?}");
    root.close().unwrap();
}

pub(crate) fn capacities_that_no_graph_can_have_are_refused() {
    let refused = |builder: facade::WorkerBuilder| builder.build().unwrap_err().to_string();
    insta::assert_snapshot!(refused(builder(0, 1).heap(0)), @"build worker `node`: heap is 0; it must be from 1 to 576460752303423488");
    insta::assert_snapshot!(refused(builder(0, 1).tasks_max(0)), @"build worker `node`: tasks_max is 0; it must be from 1 to 2147483647");
}
