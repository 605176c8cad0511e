//! Runs: results, order, failures, waiting.

use std::future::Future;
use std::pin::Pin;
use std::sync::{Arc, mpsc};
use std::task::{Context, Poll, Wake, Waker};
use std::time::Duration;

use facade::{Args, Error, SubmitError, TaskResult, Worker, any, args, on};

use crate::support::{Gate, INCREMENT, VECTOR_ADD, builder, directory, failure, nothing};

pub(crate) fn a_vector_add_over_two_chips_is_right() {
    let node = builder(2, 0).build().unwrap();
    let add = node.register_chip(&VECTOR_ADD).unwrap();
    node.init().unwrap();
    let n = 1001;
    let xs: Vec<f32> = (0..n).map(|i| i as f32).collect();
    let (a, b) = (
        node.buffer_from(&xs).unwrap(),
        node.buffer_from(&vec![0.5_f32; n]).unwrap(),
    );
    let c = node.buffer::<f32>(n).unwrap();
    node.run(|orch| {
        for (chip, tile) in [(0, 0..500), (1, 500..n)] {
            let list = args()
                .input(&a.slice(tile.clone())?)
                .input(&b.slice(tile.clone())?)
                .output(&c.slice(tile)?);
            orch.submit_next_level(&add, list, on(chip))?;
        }
        Ok(())
    })
    .unwrap();
    let expected: Vec<f32> = xs.iter().map(|x| x + 0.5).collect();
    assert_eq!(c.to_vec().unwrap(), expected);
    node.close().unwrap();
}

/// Appends its scalar to a list: the element count stands in front.
fn append(args: &Args) -> TaskResult {
    let list = args.output::<u32>(0)?;
    let len = list[0] as usize;
    list[len + 1] = args.scalar::<u32>(0)?;
    list[0] += 1;
    Ok(())
}

pub(crate) fn conflicting_tasks_run_in_the_order_of_submission() {
    let node = builder(0, 2).build().unwrap();
    let append = node.register_fn("append", append).unwrap();
    node.init().unwrap();
    let list = node.buffer::<u32>(101).unwrap();
    node.run(|orch| {
        for i in 0..100_u32 {
            orch.submit_sub(&append, args().inout(&list).scalar(i))?;
        }
        Ok(())
    })
    .unwrap();
    let expected: Vec<u32> = std::iter::once(100).chain(0..100).collect();
    assert_eq!(list.to_vec().unwrap(), expected);
    node.close().unwrap();
}

pub(crate) fn independent_tasks_of_two_sub_workers_overlap() {
    let dir = directory();
    let (a, b) = (Gate::new(dir.path(), "a"), Gate::new(dir.path(), "b"));
    let node = builder(0, 2).build().unwrap();
    // Each waits for the other, so they end only if they run at once.
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
    node.init().unwrap();
    node.run(|orch| {
        orch.submit_sub(&first, args())?;
        orch.submit_sub(&second, args())
    })
    .unwrap();
    node.close().unwrap();
}

pub(crate) fn a_group_runs_on_all_of_its_members_at_once() {
    let node = builder(2, 3).build().unwrap();
    let add = node.register_chip(&VECTOR_ADD).unwrap();
    let dir = directory();
    let gates: Vec<Gate> = (0..3)
        .map(|i| Gate::new(dir.path(), &format!("g{i}")))
        .collect();
    // Member i lets its neighbour through and waits for its own gate: a ring that needs all of them.
    let ring = node
        .register_fn("ring", move |args| {
            let i = args.scalar::<u32>(0)? as usize;
            if i == 0 {
                gates[1].open();
                gates[0].pass();
            } else {
                gates[i].pass();
                gates[(i + 1) % 3].open();
            }
            Ok(())
        })
        .unwrap();
    node.init().unwrap();
    node.run(|orch| orch.submit_sub_group(&ring, (0..3_u32).map(|i| args().scalar(i)).collect()))
        .unwrap();

    let one = node.buffer_from(&[1.0_f32; 4]).unwrap();
    let (c, d) = (
        node.buffer::<f32>(4).unwrap(),
        node.buffer::<f32>(4).unwrap(),
    );
    let member = |out| args().input(&one).input(&one).output(out);
    node.run(|orch| {
        // `any` takes what the others leave.
        orch.submit_next_level_group(&add, vec![(member(&c), any()), (member(&d), on(0))])
    })
    .unwrap();
    assert_eq!(
        (c.to_vec().unwrap(), d.to_vec().unwrap()),
        (vec![2.0; 4], vec![2.0; 4])
    );
    let same = node.run(|orch| {
        orch.submit_next_level_group(&add, vec![(member(&c), on(1)), (member(&d), on(1))])
    });
    assert!(matches!(same, Err(Error::Submit(_))));
    let empty = node.run(|orch| orch.submit_sub_group(&ring, Vec::new()));
    assert!(matches!(
        empty,
        Err(Error::Submit(SubmitError::Group { .. }))
    ));
    node.close().unwrap();
}

pub(crate) fn explicit_order_is_kept_without_data() {
    let node = builder(0, 2).build().unwrap();
    let append = node.register_fn("append", append).unwrap();
    node.init().unwrap();
    let list = node.buffer::<u32>(51).unwrap();
    node.run(|orch| {
        // The graph is not told of the list; only the explicit edges order the tasks.
        let mut last = orch.submit_sub(&append, args().no_dep(&list).scalar(0_u32))?;
        for i in 1..50_u32 {
            last = orch.submit_sub(&append, args().no_dep(&list).scalar(i).after(&last))?;
        }
        Ok(())
    })
    .unwrap();
    assert_eq!(list.to_vec().unwrap()[1..], (0..50).collect::<Vec<u32>>());
    node.close().unwrap();
}

pub(crate) fn what_the_graph_does_not_order_by_is_read_and_written_all_the_same() {
    let node = builder(1, 1).build().unwrap();
    let increment = node.register_chip(&INCREMENT).unwrap();
    let last = node
        .register_fn("last", |args| match args.input::<f32>(0)?[15] {
            1.0 => Ok(()),
            other => Err(format!("found {other}").into()),
        })
        .unwrap();
    node.init().unwrap();
    let x = node.buffer::<f32>(16).unwrap();
    node.run(|orch| {
        let done = orch.submit_next_level(&increment, args().no_dep(&x), on(0))?;
        orch.submit_sub(&last, args().no_dep(&x).after(&done))
    })
    .unwrap();
    assert_eq!(x.to_vec().unwrap(), vec![1.0; 16]);
    // In one task the same bytes are either read or written.
    let twice = node.run(|orch| orch.submit_sub(&last, args().no_dep(&x).no_dep(&x)));
    assert!(twice.unwrap_err().to_string().contains("argument 0"));
    node.close().unwrap();
}

pub(crate) fn many_tasks_in_one_run_all_complete() {
    let node = builder(1, 1).build().unwrap();
    let increment = node.register_chip(&INCREMENT).unwrap();
    let noop = node.register_fn("nothing", nothing).unwrap();
    node.init().unwrap();
    let x = node.buffer::<f32>(16).unwrap();
    for _ in 0..3 {
        node.run(|orch| {
            for _ in 0..500 {
                orch.submit_next_level(&increment, args().inout(&x), any())?;
                orch.submit_sub(&noop, args())?;
            }
            Ok(())
        })
        .unwrap();
    }
    assert_eq!(x.to_vec().unwrap(), vec![1500.0; 16]);
    node.close().unwrap();
}

pub(crate) fn a_submitted_run_is_advanced_while_nobody_waits() {
    let dir = directory();
    let gate = Gate::new(dir.path(), "done");
    let node = builder(0, 1).build().unwrap();
    let noop = node.register_fn("nothing", nothing).unwrap();
    let inside = gate.clone();
    let last = node
        .register_fn("last", move |_| {
            inside.open();
            Ok(())
        })
        .unwrap();
    node.init().unwrap();
    let handle = node
        .submit(|orch| {
            let order = orch.submit_sub(&noop, args())?;
            orch.submit_sub(&last, args().after(&order)).map(drop)
        })
        .unwrap();
    // Blocks until the second task is there, which needs somebody to have taken the first one's completion.
    gate.pass();
    handle.wait().unwrap();
    handle.wait().unwrap();
    assert!(handle.is_done());
    node.close().unwrap();
}

pub(crate) fn several_threads_run_at_once() {
    let node = builder(0, 2).build().unwrap();
    let append = node.register_fn("append", append).unwrap();
    node.init().unwrap();
    std::thread::scope(|scope| {
        for _ in 0..4 {
            scope.spawn(|| {
                let list = node.buffer::<u32>(201).unwrap();
                for round in 0..4_u32 {
                    node.run(|orch| {
                        for i in 0..50 {
                            orch.submit_sub(&append, args().inout(&list).scalar(round * 50 + i))?;
                        }
                        Ok(())
                    })
                    .unwrap();
                }
                assert_eq!(list.to_vec().unwrap()[1..], (0..200).collect::<Vec<u32>>());
            });
        }
    });
    node.close().unwrap();
}

pub(crate) fn waiting_with_a_limit_does_no_harm() {
    let dir = directory();
    let gate = Gate::new(dir.path(), "gate");
    let node = builder(0, 1).build().unwrap();
    let inside = gate.clone();
    let slow = node
        .register_fn("slow", move |_| {
            inside.pass();
            Ok(())
        })
        .unwrap();
    node.init().unwrap();
    let handle = node
        .submit(|orch| orch.submit_sub(&slow, args()).map(drop))
        .unwrap();
    assert!(handle.wait_for(Duration::from_millis(1)).is_none());
    gate.open();
    handle.wait().unwrap();
    assert!(
        handle
            .wait_for(Duration::ZERO)
            .is_some_and(|outcome| outcome.is_ok())
    );
    node.close().unwrap();
}

pub(crate) fn a_close_inside_a_run_is_refused() {
    let node = builder(0, 1).build().unwrap();
    node.init().unwrap();
    node.run(|_orch| {
        assert!(matches!(node.close(), Err(Error::Close(_))));
        Ok(())
    })
    .unwrap();
    node.close().unwrap();
}

pub(crate) fn a_run_inside_an_orchestration_is_refused() {
    let node = builder(0, 1).build().unwrap();
    let f = node.register_fn("f", nothing).unwrap();
    node.init().unwrap();
    node.run(|orch| {
        let inner = node.run(|orch| orch.submit_sub(&f, args()));
        assert!(matches!(inner, Err(Error::Reentrant { .. })), "{inner:?}");
        assert!(matches!(
            node.submit(|_| Ok(())),
            Err(Error::Reentrant { .. })
        ));
        orch.submit_sub(&f, args())
    })
    .unwrap();
    node.run(|orch| orch.submit_sub(&f, args())).unwrap();
    node.close().unwrap();
}

pub(crate) fn a_handle_of_another_tree_is_refused() {
    let (ours, theirs) = (
        builder(0, 1).build().unwrap(),
        builder(0, 1).build().unwrap(),
    );
    ours.register_fn("f", nothing).unwrap();
    let foreign = theirs.register_fn("f", nothing).unwrap();
    ours.init().unwrap();
    let refused = ours.run(|orch| orch.submit_sub(&foreign, args()));
    assert!(matches!(refused, Err(Error::Callable(_))));
    ours.close().unwrap();
}

pub(crate) fn a_task_of_another_worker_is_refused_as_one_to_come_after() {
    let trees = [(); 2].map(|()| builder(0, 1).build().unwrap());
    let [ours, theirs] = trees.each_ref().map(|node| {
        let f = node.register_fn("f", nothing).unwrap();
        node.init().unwrap();
        f
    });
    // The same slot of the same generation is a task of each.
    let foreign = trees[1]
        .run(|orch| orch.submit_sub(&theirs, args()))
        .unwrap();
    let refused = trees[0].run(|orch| {
        let own = orch.submit_sub(&ours, args())?;
        orch.submit_sub(&ours, args().after(&own))?;
        orch.submit_sub(&ours, args().after(&foreign))
    });
    assert!(
        matches!(refused, Err(Error::Submit(SubmitError::OtherWorker { .. }))),
        "{refused:?}"
    );
    // A task of an earlier run of the same worker has ended, which is all that is asked of it.
    let earlier = trees[0].run(|orch| orch.submit_sub(&ours, args())).unwrap();
    trees[0]
        .run(|orch| orch.submit_sub(&ours, args().after(&earlier)))
        .unwrap();
    trees.iter().for_each(|node| node.close().unwrap());
}

pub(crate) fn a_target_that_does_not_exist_or_does_not_fit_is_refused() {
    let root = builder(1, 0)
        .worker(builder(0, 1).name("below"))
        .build()
        .unwrap();
    let add = root.register_chip(&VECTOR_ADD).unwrap();
    let orchestration = root.register_orchestration("o", |_, _| Ok(())).unwrap();
    root.init().unwrap();
    let check = |outcome: Result<facade::TaskHandle, Error>, wanted: &str| {
        let error = outcome.unwrap_err().to_string();
        assert!(error.contains(wanted), "{error}");
        Ok::<(), Error>(())
    };
    root.run(|orch| {
        check(orch.submit_next_level(&add, args(), on(7)), "has 2 of them")?;
        check(
            orch.submit_next_level(&add, args(), on(1)),
            "runs orchestrations",
        )?;
        check(
            orch.submit_next_level(&orchestration, args(), on(0)),
            "runs chip callables",
        )
    })
    .unwrap();
    root.close().unwrap();
}

pub(crate) fn arguments_are_checked_in_the_function() {
    let node = builder(0, 1).build().unwrap();
    let f = node
        .register_fn("f", |args| {
            let wrong = [
                args.input::<f64>(0).unwrap_err().to_string(),
                args.output::<f32>(0).unwrap_err().to_string(),
                args.input::<f32>(2).unwrap_err().to_string(),
                args.input::<f32>(1).unwrap_err().to_string(),
                args.scalar::<u64>(0).unwrap_err().to_string(),
                args.scalar::<u32>(1).unwrap_err().to_string(),
            ];
            let first = args.output::<f32>(1)?;
            first[0] = 1.0;
            let twice = args.output::<f32>(1).unwrap_err().to_string();
            Err(format!("{}; {twice}", wrong.join("; ")).into())
        })
        .unwrap();
    node.init().unwrap();
    let (x, y) = (
        node.buffer::<f32>(4).unwrap(),
        node.buffer::<f32>(4).unwrap(),
    );
    let error =
        failure(node.run(|orch| orch.submit_sub(&f, args().input(&x).output(&y).scalar(1_u32))));
    let text = error.to_string();
    for part in [
        "as f64: it holds f32",
        "named it as Input",
        "has 2 of them",
        "named it as Output",
        "as u64: it is U32(1)",
        "taken before",
    ] {
        assert!(text.contains(part), "{part} in {text}");
    }
    // An input that the task also writes has no slice of its own.
    let alias =
        failure(node.run(|orch| orch.submit_sub(&f, args().input(&x).output(&x).scalar(1_u32))));
    assert!(
        alias.to_string().contains("through another argument"),
        "{alias}"
    );
    node.close().unwrap();
}

pub(crate) fn disjoint_tiles_of_one_buffer_are_written_at_once() {
    let dir = directory();
    let (a, b) = (Gate::new(dir.path(), "a"), Gate::new(dir.path(), "b"));
    let node = builder(0, 2).build().unwrap();
    let meet = node
        .register_fn("meet", move |args| {
            let i = args.scalar::<u32>(0)?;
            if i == 0 {
                a.pass();
                b.open();
            } else {
                a.open();
                b.pass();
            }
            args.output::<u32>(0)?.fill(i + 1);
            Ok(())
        })
        .unwrap();
    node.init().unwrap();
    let x = node.buffer::<u32>(8).unwrap();
    node.run(|orch| {
        orch.submit_sub(&meet, args().output(&x.slice(0..4)?).scalar(0_u32))?;
        orch.submit_sub(&meet, args().output(&x.slice(4..8)?).scalar(1_u32))
    })
    .unwrap();
    assert_eq!(x.to_vec().unwrap(), [1, 1, 1, 1, 2, 2, 2, 2]);
    node.close().unwrap();
}

pub(crate) fn more_arguments_than_a_frame_holds_spill() {
    let node = builder(0, 1).build().unwrap();
    let sum = node
        .register_fn("sum", |args| {
            let n = args.n_tensors() - 1;
            let mut sum = 0;
            for i in 0..n {
                sum += args.input::<u32>(i)?[0];
            }
            args.output::<u32>(n)?[0] = sum;
            Ok(())
        })
        .unwrap();
    node.init().unwrap();
    let xs = node.buffer_from(&(0..500_u32).collect::<Vec<_>>()).unwrap();
    let out = node.buffer::<u32>(1).unwrap();
    node.run(|orch| {
        let mut list = args();
        for i in 0..500 {
            list = list.input(&xs.slice(i..i + 1)?);
        }
        orch.submit_sub(&sum, list.output(&out))
    })
    .unwrap();
    assert_eq!(out.to_vec().unwrap(), [(0..500).sum::<u32>()]);
    let too_many = node.run(|orch| {
        let list = (0..2000_u32).fold(args(), |list, i| list.scalar(i));
        orch.submit_sub(&sum, list)
    });
    assert!(matches!(
        too_many,
        Err(Error::Submit(SubmitError::TooManyArgs { .. }))
    ));
    node.close().unwrap();
}

/// Wakes by asking the worker for something, as an executor might that polls at once.
struct Asks(Arc<Worker>, mpsc::Sender<u64>);

impl Wake for Asks {
    fn wake(self: Arc<Self>) {
        let ended = self.0.stats().unwrap().runs_ended;
        let handle = self.0.submit(|_| Ok(())).unwrap();
        drop(handle);
        self.1.send(ended).unwrap();
    }
}

pub(crate) fn a_waker_may_call_the_worker_whose_run_it_awaits() {
    let dir = directory();
    let gate = Gate::new(dir.path(), "gate");
    let inside = gate.clone();
    let node = Arc::new(builder(0, 1).build().unwrap());
    let wait = node
        .register_fn("wait", move |_| {
            inside.pass();
            Ok(())
        })
        .unwrap();
    node.init().unwrap();
    let (said, heard) = mpsc::channel();
    let waker = Waker::from(Arc::new(Asks(Arc::clone(&node), said)));
    let mut run = node
        .submit(|orch| orch.submit_sub(&wait, args()).map(drop))
        .unwrap();
    let mut cx = Context::from_waker(&waker);
    assert!(Pin::new(&mut run).poll(&mut cx).is_pending());
    gate.open();
    // It is called by the background driver, which must hold nothing that the calls need.
    let ended = heard.recv_timeout(Duration::from_secs(10)).unwrap();
    assert_eq!(ended, 1);
    assert!(matches!(
        Pin::new(&mut run).poll(&mut cx),
        Poll::Ready(Ok(()))
    ));
    node.close().unwrap();
}
