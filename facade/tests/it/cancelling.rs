//! Cancelling: what has not started is dropped, what runs goes on, and everybody is told the same.

use std::future::Future;
use std::pin::pin;
use std::sync::{Arc, mpsc};
use std::task::{Context, Poll, Wake, Waker};

use facade::{Args, Error, RunError, SubmitError, TaskCause, TaskResult, Worker, args};

use crate::support::{Gate, builder, directory, failure, nothing};

/// One sub worker, a callable that stands at the gate, and one that does nothing.
fn at_a_gate(gate: &Gate) -> (Worker, facade::FunctionHandle, facade::FunctionHandle) {
    let node = builder(0, 1).build().unwrap();
    let inside = gate.clone();
    let hold = node
        .register_fn("hold", move |_| {
            inside.stand();
            Ok(())
        })
        .unwrap();
    let nothing = node.register_fn("nothing", nothing).unwrap();
    node.init().unwrap();
    (node, hold, nothing)
}

/// Completed, failed, skipped, cancelled.
fn counts(error: &RunError) -> [u64; 4] {
    [
        error.completed,
        error.failed,
        error.skipped,
        error.cancelled,
    ]
}

pub(crate) fn what_runs_goes_on_and_what_waits_is_dropped_and_counted() {
    let dir = directory();
    let gate = Gate::new(dir.path(), "gate");
    let (node, hold, nothing) = at_a_gate(&gate);
    let x = node.buffer::<u32>(1).unwrap();
    let run = node
        .submit(|orch| {
            orch.submit_sub(&nothing, args().inout(&x))?;
            orch.submit_sub(&hold, args().inout(&x))?;
            for _ in 0..3 {
                orch.submit_sub(&nothing, args().inout(&x))?;
            }
            Ok(())
        })
        .unwrap();
    let held = gate.reader_is_there();
    assert!(run.cancel());
    assert!(!run.is_done(), "a task still runs");
    drop(held);
    let error = failure(run.wait());
    assert_eq!(counts(&error), [2, 0, 0, 3]);
    assert!(matches!(error.cause, TaskCause::Cancelled));
    insta::assert_snapshot!(error, @"run on `node`: cancelled; 2 tasks had completed, 3 never started");
    assert!(!run.cancel(), "it is over");
    assert_eq!(counts(&failure(run.wait())), [2, 0, 0, 3]);
    node.run(|orch| orch.submit_sub(&nothing, args())).unwrap();
    node.close().unwrap();
}

pub(crate) fn a_run_behind_another_is_over_at_once_and_the_other_goes_on() {
    let dir = directory();
    let gate = Gate::new(dir.path(), "gate");
    let (node, hold, nothing) = at_a_gate(&gate);
    let first = node
        .submit(|orch| orch.submit_sub(&hold, args()).map(|_| ()))
        .unwrap();
    let two = |orch: &mut facade::Orchestrator<'_>| {
        orch.submit_sub(&nothing, args())?;
        orch.submit_sub(&nothing, args()).map(|_| ())
    };
    let (second, third) = (node.submit(two).unwrap(), node.submit(two).unwrap());
    assert!(second.cancel());
    assert!(second.is_done() && !first.is_done());
    assert_eq!(counts(&failure(second.wait())), [0, 0, 0, 2]);
    gate.open();
    first.wait().unwrap();
    third.wait().unwrap();
    node.close().unwrap();
}

pub(crate) fn an_orchestration_that_cancels_itself_submits_no_more() {
    let node = builder(0, 1).build().unwrap();
    let nothing = node.register_fn("nothing", nothing).unwrap();
    node.init().unwrap();
    let run = node
        .submit(|orch| {
            assert!(orch.canceller().cancel());
            let refused = orch.submit_sub(&nothing, args()).unwrap_err();
            insta::assert_snapshot!(refused, @"submit `nothing`: the run has been cancelled");
            assert!(matches!(
                refused,
                Error::Submit(SubmitError::Cancelled { .. })
            ));
            assert!(orch.alloc::<u32>(1).is_err() && orch.scope(|_| Ok(())).is_err());
            Ok(())
        })
        .unwrap();
    // Nothing was dropped, but more might have come.
    let error = failure(run.wait());
    assert_eq!(counts(&error), [0; 4]);
    assert!(matches!(error.cause, TaskCause::Cancelled));
    // A run may cancel one before it while it is built.
    let earlier = node
        .submit(|orch| orch.submit_sub(&nothing, args()).map(|_| ()))
        .unwrap();
    node.run(|orch| {
        earlier.cancel();
        orch.submit_sub(&nothing, args())
    })
    .unwrap();
    assert!(earlier.is_done());
    node.close().unwrap();
}

pub(crate) fn a_run_that_its_thread_waits_for_is_cancelled_by_another_thread() {
    let dir = directory();
    let gate = Gate::new(dir.path(), "gate");
    let (node, hold, nothing) = at_a_gate(&gate);
    let (give, take) = mpsc::channel::<facade::RunCanceller>();
    let other = std::thread::spawn(move || {
        let canceller = take.recv().unwrap();
        let held = gate.reader_is_there();
        assert!(canceller.cancel());
        drop(held);
        canceller
    });
    let x = node.buffer::<u32>(1).unwrap();
    let error = failure(node.run(|orch| {
        orch.submit_sub(&hold, args().inout(&x))?;
        orch.submit_sub(&nothing, args().inout(&x))?;
        give.send(orch.canceller()).unwrap();
        Ok(())
    }));
    assert_eq!(counts(&error), [1, 0, 0, 1]);
    let canceller = other.join().unwrap();
    node.close().unwrap();
    drop(node);
    assert!(!canceller.cancel(), "the run and its worker are gone");
}

/// However a cancel meets the ends of tasks: one outcome, and every task is counted once.
pub(crate) fn a_cancel_that_races_with_the_end_leaves_nothing_uncounted() {
    let node = builder(0, 2).build().unwrap();
    let nothing = node.register_fn("nothing", nothing).unwrap();
    node.init().unwrap();
    let x = node.buffer::<u32>(1).unwrap();
    let (mut n_cancelled, mut n_whole) = (0, 0);
    for round in 0..300_u32 {
        let run = node
            .submit(|orch| {
                for at in 0..4 {
                    let list = if at < round % 4 {
                        args().inout(&x)
                    } else {
                        args()
                    };
                    orch.submit_sub(&nothing, list)?;
                }
                Ok(())
            })
            .unwrap();
        if round % 3 == 0 {
            let _ = run.wait_for(std::time::Duration::from_micros(u64::from(round)));
        }
        let was_running = run.cancel();
        match run.wait() {
            Ok(()) => n_whole += 1,
            Err(Error::Run(error)) => {
                assert!(was_running && error.cancelled > 0, "{error}");
                assert_eq!(counts(&error).iter().sum::<u64>(), 4, "{error}");
                n_cancelled += 1;
            }
            Err(other) => panic!("{other}"),
        }
    }
    assert_eq!(n_cancelled + n_whole, 300);
    let stats = node.stats().unwrap();
    assert_eq!((stats.tasks_live, stats.runs_begun), (0, stats.runs_ended));
    node.close().unwrap();
}

/// A failure is the cause, also when the rest was cancelled.
pub(crate) fn a_failure_before_the_cancel_is_the_cause() {
    let dir = directory();
    let gate = Gate::new(dir.path(), "gate");
    let node = builder(0, 1).build().unwrap();
    let inside = gate.clone();
    let bad = node
        .register_fn("bad", move |_: &Args| -> TaskResult {
            inside.stand();
            Err("no".into())
        })
        .unwrap();
    let nothing = node.register_fn("nothing", nothing).unwrap();
    node.init().unwrap();
    let x = node.buffer::<u32>(1).unwrap();
    let run = node
        .submit(|orch| {
            orch.submit_sub(&bad, args().inout(&x))?;
            orch.submit_sub(&nothing, args().input(&x))?;
            orch.submit_sub(&nothing, args().output(&x)).map(|_| ())
        })
        .unwrap();
    let held = gate.reader_is_there();
    assert!(run.cancel());
    drop(held);
    let error = failure(run.wait());
    assert_eq!(counts(&error), [0, 1, 0, 2]);
    insta::assert_snapshot!(error, @"run task `bad` on `node/sub0`: no; the run was cancelled, 2 tasks never started");
    node.close().unwrap();
}

pub(crate) fn a_replayed_graph_stops_between_its_nodes() {
    let dir = directory();
    let gate = Gate::new(dir.path(), "gate");
    let (node, _, _) = at_a_gate(&gate);
    let x = node.buffer::<u32>(1).unwrap();
    let run = node
        .submit(|orch| {
            orch.graph("held", args().inout(&x), |g, a| {
                let (hold, nothing) = (g.function("hold")?, g.function("nothing")?);
                g.submit_sub(&hold, args().inout(&a.tensor(0)?))?;
                g.submit_sub(&nothing, args().inout(&a.tensor(0)?))
                    .map(|_| ())
            })?;
            Ok(())
        })
        .unwrap();
    let held = gate.reader_is_there();
    assert!(run.cancel());
    drop(held);
    let error = failure(run.wait());
    assert_eq!(counts(&error), [0, 0, 0, 1], "{error}");
    node.close().unwrap();
}

/// Cancels a run when another one is over.
struct CancelNext(facade::RunCanceller);

impl Wake for CancelNext {
    fn wake(self: Arc<Self>) {
        self.0.cancel();
    }
}

pub(crate) fn a_callback_at_the_end_of_a_run_may_cancel_the_next() {
    let dir = directory();
    let gate = Gate::new(dir.path(), "gate");
    let (node, hold, nothing) = at_a_gate(&gate);
    let x = node.buffer::<u32>(1).unwrap();
    let first = node
        .submit(|orch| orch.submit_sub(&hold, args()).map(|_| ()))
        .unwrap();
    let second = node
        .submit(|orch| {
            for _ in 0..20 {
                orch.submit_sub(&nothing, args().inout(&x))?;
            }
            Ok(())
        })
        .unwrap();
    let waker = Waker::from(Arc::new(CancelNext(second.canceller())));
    let mut awaited = pin!(first);
    let polled = awaited.as_mut().poll(&mut Context::from_waker(&waker));
    assert!(matches!(polled, Poll::Pending));
    gate.open();
    let error = failure(second.wait());
    assert!(
        matches!(error.cause, TaskCause::Cancelled) && error.cancelled > 0,
        "{error}"
    );
    node.close().unwrap();
}

/// A worker that dies, tasks that fail, memory that comes with tasks, and a cancel, all in one run: it ends, every task is
/// counted once, its graph is told, and the next run finds a whole tree.
pub(crate) fn a_death_a_failure_and_a_cancel_in_one_run_are_counted_once_each() {
    let node = builder(0, 2).heap(1024).build().unwrap();
    let bad = node
        .register_fn("bad", |_: &Args| -> TaskResult { Err("no".into()) })
        .unwrap();
    let die = node
        .register_fn("die", |_: &Args| -> TaskResult { std::process::abort() })
        .unwrap();
    let nothing = node.register_fn("nothing", nothing).unwrap();
    node.init().unwrap();
    let x = node.buffer::<u32>(8).unwrap();
    for round in 0..12_u64 {
        let mut n_tasks = 0;
        let run = node
            .submit(|orch| {
                orch.keep_graph();
                for at in 0..24_u64 {
                    let made = facade::fresh::<u32>(4)?;
                    let function = match (at + round) % 12 {
                        3 => &bad,
                        7 if at < 12 => &die,
                        _ => &nothing,
                    };
                    let list = match at % 3 {
                        0 => args().inout(&x),
                        1 => args().output(&made),
                        _ => args().input(&x).output(&made),
                    };
                    orch.submit_sub(function, list)?;
                    n_tasks += 1;
                }
                Ok(())
            })
            .unwrap();
        if round % 3 > 0 {
            let _ = run.wait_for(std::time::Duration::from_micros(300 * round));
            run.cancel();
        }
        let error = failure(run.wait());
        assert_eq!(
            counts(&error).iter().sum::<u64>(),
            n_tasks,
            "{round}: {error}"
        );
        let graph = run.graph().unwrap();
        assert_eq!(graph.view().nodes().len() as u64, n_tasks);
        assert!(graph.view().nodes().iter().all(|node| node.end.is_some()));
        for path in ["node/sub0", "node/sub1"] {
            // An error says that it is alive.
            let _ = node.respawn(path);
        }
    }
    node.run(|orch| orch.submit_sub_group(&nothing, vec![args(), args()]))
        .unwrap();
    node.close().unwrap();
}

pub(crate) fn a_run_whose_handle_is_dropped_goes_on() {
    let node = builder(0, 1).build().unwrap();
    let add = node
        .register_fn("add", |args: &Args| {
            args.output::<u32>(0)?[0] += 1;
            Ok(())
        })
        .unwrap();
    node.init().unwrap();
    let x = node.buffer::<u32>(1).unwrap();
    for _ in 0..20 {
        drop(
            node.submit(|orch| orch.submit_sub(&add, args().inout(&x)).map(|_| ()))
                .unwrap(),
        );
    }
    node.run(|orch| orch.submit_sub(&add, args().inout(&x)))
        .unwrap();
    assert_eq!(x.to_vec().unwrap(), [21]);
    node.close().unwrap();
}
