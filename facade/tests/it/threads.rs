//! One worker used by several threads at once: each of them gets on.

use std::future::Future;
use std::pin::pin;
use std::sync::atomic::{AtomicBool, Ordering};
use std::task::{Context, Waker};
use std::time::Duration;

use facade::{Error, FunctionHandle, Health, TaskCause, Worker, args, on};
use nix::sys::signal::Signal;

use crate::support::{INCREMENT, builder, kill, n_mappings, nothing, pids, wait_gone};

/// Enough for threads to meet in every place where one lets go of what another waits for.
const ROUNDS: usize = 400;

pub(crate) fn looking_and_dropping_beside_runs_loses_no_wake_up() {
    let node = builder(1, 2).build().unwrap();
    let f = node.register_fn("f", nothing).unwrap();
    let increment = node.register_chip(&INCREMENT).unwrap();
    node.init().unwrap();
    let over = AtomicBool::new(false);
    std::thread::scope(|scope| {
        let looking = scope.spawn(|| {
            while !over.load(Ordering::Relaxed) {
                assert_eq!(node.health(), Health::Ready);
                node.tree().unwrap();
            }
        });
        let dropping = scope.spawn(|| {
            while !over.load(Ordering::Relaxed) {
                drop(node.buffer::<f32>(16).unwrap());
            }
        });
        let submitting = scope.spawn(|| {
            for _ in 0..ROUNDS {
                let handle = node.submit(|orch| orch.submit_sub(&f, args()).map(drop));
                handle.unwrap().wait().unwrap();
            }
        });
        for round in 0..ROUNDS {
            let x = node.buffer::<f32>(16).unwrap();
            node.run(|orch| {
                orch.submit_next_level(&increment, args().inout(&x), on(0))?;
                orch.submit_sub(&f, args().input(&x))
            })
            .unwrap_or_else(|error| panic!("round {round}: {error}"));
        }
        submitting.join().unwrap();
        over.store(true, Ordering::Relaxed);
        looking.join().unwrap();
        dropping.join().unwrap();
    });
    node.close().unwrap();
}

/// A dead worker is started again while others work and detached runs begin: nobody waits for the other's end.
pub(crate) fn a_respawn_beside_runs_waits_for_none_of_them() {
    let node = builder(0, 3)
        .name("root")
        .start_mode(facade::StartMode::Spawn)
        .build()
        .unwrap();
    let f = node.register_fn("f", nothing).unwrap();
    node.init().unwrap();
    let over = AtomicBool::new(false);
    std::thread::scope(|scope| {
        let submitting = scope.spawn(|| {
            while !over.load(Ordering::Relaxed) {
                let submitted = node.submit(|orch| {
                    for _ in 0..20 {
                        orch.submit_sub(&f, args())?;
                    }
                    Ok(())
                });
                // Tasks on the worker that is killed fail; the others go on.
                let _typed: Result<(), Error> = submitted.and_then(|handle| handle.wait());
            }
        });
        for _ in 0..5 {
            let pid = node.tree().unwrap().children[1].pid;
            kill(pid, Signal::SIGKILL);
            wait_gone(&[pid]);
            while !matches!(node.health(), Health::Degraded { .. }) {
                std::thread::yield_now();
            }
            node.respawn("root/sub1").unwrap();
        }
        over.store(true, Ordering::Relaxed);
        submitting.join().unwrap();
    });
    assert_eq!(node.health(), Health::Ready);
    node.close().unwrap();
}

/// What others ask of a worker that comes up again waits until it is up: they are told of its death, or get an answer.
pub(crate) fn a_chip_that_comes_up_again_is_asked_for_nothing_before_it_is_up() {
    let node = builder(1, 0)
        .start_mode(facade::StartMode::Spawn)
        .build()
        .unwrap();
    node.init().unwrap();
    let over = AtomicBool::new(false);
    std::thread::scope(|scope| {
        let asking: Vec<_> = (0..2)
            .map(|_| {
                scope.spawn(|| {
                    let mut answers = 0;
                    while !over.load(Ordering::Relaxed) {
                        match node.malloc::<u8>(0, 64) {
                            Ok(memory) => answers += u32::from(node.free(memory).is_ok()),
                            Err(error) => assert!(error.worker_died().is_some(), "{error}"),
                        }
                    }
                    answers
                })
            })
            .collect();
        for _ in 0..20 {
            let pid = node.tree().unwrap().children[0].pid;
            kill(pid, Signal::SIGKILL);
            while node.health() == Health::Ready {
                std::thread::yield_now();
            }
            node.respawn("node/chip0").unwrap();
        }
        over.store(true, Ordering::Relaxed);
        for asking in asking {
            assert!(asking.join().unwrap() > 0);
        }
    });
    node.close().unwrap();
}

/// Nobody drives an idle tree, and yet what is released is unmapped everywhere, however much at once.
pub(crate) fn many_buffers_released_on_an_idle_tree_are_all_unmapped() {
    let root = builder(1, 1)
        .worker(builder(1, 1).name("below"))
        .build()
        .unwrap();
    let f = root.register_fn("f", nothing).unwrap();
    let increment = root.register_chip(&INCREMENT).unwrap();
    let deep = (f.clone(), increment.clone());
    let below = root
        .register_orchestration("below", move |orch, list| {
            orch.submit_sub(&deep.0, args().input(&list.tensor(0)?))?;
            orch.submit_next_level(&deep.1, args().inout(&list.tensor(0)?), on(0))
                .map(drop)
        })
        .unwrap();
    root.init().unwrap();
    let buffers: Vec<_> = (0..12).map(|_| root.buffer::<f32>(4096).unwrap()).collect();
    root.run(|orch| {
        for x in &buffers {
            orch.submit_sub(&f, args().input(x))?;
            orch.submit_next_level(&increment, args().inout(x), on(0))?;
            orch.submit_next_level(&below, args().inout(x), on(1))?;
        }
        Ok(())
    })
    .unwrap();
    let all = pids(&root.tree().unwrap());
    let mapped = || {
        all.iter()
            .map(|pid| n_mappings(*pid, "buffer"))
            .sum::<usize>()
    };
    assert!(mapped() >= 12, "{}", mapped());
    drop(buffers);
    let deadline = std::time::Instant::now() + std::time::Duration::from_secs(10);
    while mapped() > 0 {
        assert!(
            std::time::Instant::now() < deadline,
            "{} are still mapped",
            mapped()
        );
        std::thread::yield_now();
    }
    root.close().unwrap();
}

/// One of the ways in which a thread may use a worker.
fn use_somehow(node: &Worker, (sum, fail): (&FunctionHandle, &FunctionHandle), way: usize) {
    let x = node.buffer_from(&[1_u32; 4]).unwrap();
    let submit = |n: u32| {
        node.submit(|orch| {
            // From none to far more scalars than a frame holds.
            let scalars = (0..n).fold(args().inout(&x), |list, i| list.scalar(i));
            orch.submit_sub(sum, scalars).map(drop)
        })
    };
    let expected = |n: u32| 1 + (0..n).sum::<u32>();
    match way % 8 {
        0 => {
            let run = submit(3).unwrap();
            run.wait().unwrap();
            run.wait().unwrap();
            assert_eq!(x.to_vec().unwrap()[0], expected(3));
        }
        1 => {
            let run = submit(700).unwrap();
            let timed = run.wait_for(Duration::ZERO);
            timed.unwrap_or_else(|| run.wait()).unwrap();
            assert_eq!(x.to_vec().unwrap()[0], expected(700));
        }
        2 => drop(submit(1).unwrap()),
        3 => {
            let run = submit(2).unwrap();
            let mut polled = pin!(submit(5).unwrap());
            let mut cx = Context::from_waker(Waker::noop());
            while polled.as_mut().poll(&mut cx).is_pending() {
                std::thread::yield_now();
            }
            assert!(run.is_done(), "it was submitted before");
        }
        4 => {
            let failed = node.run(|orch| {
                orch.submit_sub(fail, args().inout(&x))?;
                orch.submit_sub(sum, args().inout(&x))
            });
            let Err(Error::Run(error)) = failed else {
                panic!("it fails");
            };
            assert_eq!((error.failed, error.skipped), (1, 1));
        }
        5 => {
            let run = submit(4).unwrap();
            let cancelled = run.cancel();
            match run.wait() {
                Err(Error::Run(error)) => {
                    assert!(cancelled && matches!(error.cause, TaskCause::Cancelled));
                }
                outcome => outcome.unwrap(),
            }
        }
        6 => {
            let stop = node.submit(|orch| {
                orch.submit_sub(sum, args().inout(&x))?;
                orch.function("nobody").map(drop)
            });
            assert!(matches!(stop, Err(Error::Callable(_))));
        }
        _ => node
            .run(|orch| (0..20).try_for_each(|_| orch.submit_sub(sum, args().inout(&x)).map(drop)))
            .unwrap(),
    }
}

pub(crate) fn every_way_to_use_a_worker_gets_on_beside_every_other() {
    let node = builder(0, 2).build().unwrap();
    let sum = node
        .register_fn("sum", |args| {
            let x = args.output::<u32>(0)?;
            for i in 0..args.n_scalars() {
                x[0] += args.scalar::<u32>(i)?;
            }
            Ok(())
        })
        .unwrap();
    let fail = node
        .register_fn("fail", |_| Err("it is to fail".into()))
        .unwrap();
    node.init().unwrap();
    std::thread::scope(|scope| {
        for first in 0..4_usize {
            let (node, with) = (&node, (&sum, &fail));
            scope.spawn(move || {
                for round in 0..16_usize {
                    use_somehow(node, with, first * 3 + round * (first + 1));
                    use_somehow(node, with, round);
                }
            });
        }
    });
    // Whoever was dropped or cancelled has ended too, and nothing is left of anybody.
    node.run(|_| Ok(())).unwrap();
    let stats = node.stats().unwrap();
    assert_eq!((stats.tasks_live, stats.requests_queued), (0, 0));
    assert_eq!(stats.runs_begun, stats.runs_ended);
    node.close().unwrap();
}
