//! What happens when a process of the tree dies.

use std::fs;
use std::time::{Duration, Instant};

use facade::{Error, ExitCause, Health, SubmitError, TaskCause, WorkerDied, any, args, on};
use nix::sys::signal::Signal;
use procfork::ForkOptions;

use crate::support::{
    Gate, INCREMENT, builder, directory, failure, is_alive, kill, n_mappings, nothing, pids, until,
    wait_gone,
};

#[track_caller]
fn died(error: &facade::RunError) -> &WorkerDied {
    match &error.cause {
        TaskCause::WorkerDied(died) => died,
        _ => panic!("expected a death, found {error}"),
    }
}

fn end_self(signal: Signal) -> ! {
    nix::sys::signal::raise(signal).expect("a signal to oneself");
    unreachable!("the signal ends this process")
}

pub(crate) fn a_worker_that_kills_itself_in_a_task_is_an_error_with_the_exact_cause() {
    for signal in [Signal::SIGKILL, Signal::SIGSEGV, Signal::SIGABRT] {
        let node = builder(0, 1).build().unwrap();
        let suicide = node
            .register_fn("suicide", move |_| end_self(signal))
            .unwrap();
        node.init().unwrap();
        let pid = node.tree().unwrap().children[0].pid;
        let error = failure(node.run(|orch| orch.submit_sub(&suicide, args())));
        assert_eq!(error.task, "suicide");
        let died = died(&error);
        assert_eq!((died.worker.as_str(), died.pid), ("node/sub0", pid));
        let raw = died.cause.signal().map(|signal| signal.number());
        assert_eq!(raw, Some(signal as i32), "{error}");
        node.close().unwrap();
    }
}

pub(crate) fn a_worker_that_exits_with_zero_in_a_task_has_died_too() {
    let node = builder(0, 1).build().unwrap();
    let leave = node
        .register_fn("leave", |_| std::process::exit(0))
        .unwrap();
    node.init().unwrap();
    let error = failure(node.run(|orch| orch.submit_sub(&leave, args())));
    assert_eq!(died(&error).cause, ExitCause::Exited(0));
    node.close().unwrap();
}

pub(crate) fn siblings_of_a_dead_worker_go_on() {
    let node = builder(1, 2).build().unwrap();
    let suicide = node
        .register_fn("suicide", |_| end_self(Signal::SIGKILL))
        .unwrap();
    let good = node.register_fn("good", nothing).unwrap();
    let increment = node.register_chip(&INCREMENT).unwrap();
    node.init().unwrap();
    failure(node.run(|orch| orch.submit_sub(&suicide, args())));
    let x = node.buffer::<f32>(8).unwrap();
    node.run(|orch| {
        for _ in 0..20 {
            orch.submit_sub(&good, args())?;
            orch.submit_next_level(&increment, args().inout(&x), any())?;
        }
        Ok(())
    })
    .unwrap();
    assert_eq!(x.to_vec().unwrap(), vec![20.0; 8]);
    // The last sub worker goes too: then there is nobody left, and a submit says so.
    failure(node.run(|orch| orch.submit_sub(&suicide, args())));
    assert!(node.run(|orch| orch.submit_sub(&good, args())).is_err());
    node.close().unwrap();
}

pub(crate) fn a_task_for_a_dead_worker_is_refused_with_its_cause() {
    let node = builder(2, 0).build().unwrap();
    let increment = node.register_chip(&INCREMENT).unwrap();
    node.init().unwrap();
    let x = node.buffer::<f32>(8).unwrap();
    let pid = node.tree().unwrap().children[0].pid;
    kill(pid, Signal::SIGKILL);
    failure(node.run(|orch| orch.submit_next_level(&increment, args().inout(&x), on(0))));
    let refused = node.run(|orch| orch.submit_next_level(&increment, args().inout(&x), on(0)));
    let refused = refused.unwrap_err();
    let Error::Submit(SubmitError::WorkerDied { died, .. }) = &refused else {
        panic!("{refused:?}")
    };
    assert_eq!(died.pid, pid);
    assert_eq!(refused.worker_died(), Some(died));
    node.run(|orch| orch.submit_next_level(&increment, args().inout(&x), any()))
        .unwrap();
    node.close().unwrap();
}

/// The task was queued behind another run when its only worker died, and comes to its turn after that was dealt with.
pub(crate) fn a_run_that_waited_while_its_worker_died_fails_with_that_death() {
    let (dir, below) = (directory(), builder(0, 1).name("below"));
    let node = builder(0, 1).worker(below).name("node").build().unwrap();
    let gate = Gate::new(dir.path(), "gate");
    let inside = gate.clone();
    let hold = node
        .register_orchestration("hold", move |_, _| {
            inside.stand();
            Ok(())
        })
        .unwrap();
    let suicide = node
        .register_fn("suicide", |_| end_self(Signal::SIGKILL))
        .unwrap();
    let good = node.register_fn("good", nothing).unwrap();
    node.init().unwrap();
    let dying = node.submit(|orch| {
        orch.submit_next_level(&hold, args(), any())?;
        orch.submit_sub(&suicide, args()).map(drop)
    });
    let waiting = node.submit(|orch| orch.submit_sub(&good, args()).map(drop));
    let opened_when_dropped = gate.reader_is_there();
    until(|| matches!(node.health(), Health::Degraded { .. }));
    drop(opened_when_dropped);
    let first = failure(dying.unwrap().wait());
    let later = failure(waiting.unwrap().wait());
    assert_eq!((&*first.task, &*later.task), ("suicide", "good"));
    assert_eq!(died(&first), died(&later));
    assert_eq!(died(&later).worker, "node/sub0");
    node.close().unwrap();
}

pub(crate) fn a_chip_worker_killed_while_idle_is_found_by_the_next_run() {
    let node = builder(1, 0).build().unwrap();
    let increment = node.register_chip(&INCREMENT).unwrap();
    node.init().unwrap();
    let x = node.buffer::<f32>(8).unwrap();
    let pid = node.tree().unwrap().children[0].pid;
    kill(pid, Signal::SIGKILL);
    let error =
        failure(node.run(|orch| orch.submit_next_level(&increment, args().inout(&x), on(0))));
    assert_eq!(died(&error).pid, pid);
    let tree = node.tree().unwrap();
    assert!(tree.children[0].state.contains("SIGKILL"), "{tree}");
    let Health::Degraded { dead } = node.health() else {
        panic!("{:?}", node.health())
    };
    assert_eq!(
        (dead.len(), dead[0].pid, dead[0].worker.as_str()),
        (1, pid, "node/chip0")
    );
    node.close().unwrap();
    assert_eq!(node.health(), Health::Closed);
}

pub(crate) fn health_tells_what_an_idle_tree_has_lost() {
    let node = builder(1, 1).build().unwrap();
    assert_eq!(node.health(), Health::New);
    node.init().unwrap();
    assert_eq!(node.health(), Health::Ready);
    let pid = node.tree().unwrap().children[1].pid;
    kill(pid, Signal::SIGKILL);
    wait_gone(&[pid]);
    let Health::Degraded { dead } = node.health() else {
        panic!("{:?}", node.health())
    };
    assert_eq!((dead.len(), dead[0].worker.as_str()), (1, "node/sub0"));
    node.close().unwrap();
    assert_eq!(node.health(), Health::Closed);
}

/// The process of the worker with this path.
fn pid_at(root: &facade::Worker, path: &str) -> u32 {
    let tree = root.tree().unwrap();
    let all = tree.flatten();
    all.iter().find(|node| node.path == path).unwrap().pid
}

pub(crate) fn a_dead_worker_comes_back_with_its_callables_and_buffers() {
    let root = builder(1, 1)
        .worker(builder(0, 1).name("below"))
        .name("root")
        .build()
        .unwrap();
    let increment = root.register_chip(&INCREMENT).unwrap();
    let good = root.register_fn("good", nothing).unwrap();
    let deep = good.clone();
    let below = root
        .register_orchestration("below", move |orch, _| {
            orch.submit_sub(&deep, args()).map(drop)
        })
        .unwrap();
    root.init().unwrap();
    let x = root.buffer::<f32>(8).unwrap();
    let memory = root.malloc::<f32>(0, 8).unwrap();
    let all = |n: f32| {
        root.run(|orch| {
            orch.submit_next_level(&increment, args().inout(&x), on(0))?;
            orch.submit_next_level(&below, args().input(&x), on(1))?;
            orch.submit_sub(&good, args().input(&x))
        })
        .unwrap();
        assert_eq!(x.to_vec().unwrap(), [n; 8]);
    };
    all(1.0);
    for alive in [
        "root/chip0",
        "root/below/sub0",
        "root/sub9",
        "other/sub0",
        "",
    ] {
        let refused = root.respawn(alive);
        assert!(matches!(refused, Err(Error::Alive { .. })), "{alive}");
    }
    let paths = ["root/chip0", "root/below", "root/below/sub0", "root/sub0"];
    for (round, path) in paths.into_iter().enumerate() {
        let pid = pid_at(&root, path);
        kill(pid, Signal::SIGKILL);
        wait_gone(&[pid]);
        let Health::Degraded { dead } = root.health() else {
            panic!("{path}: {:?}", root.health())
        };
        assert_eq!((dead.len(), &*dead[0].worker), (1, path));
        assert_eq!(dead[0].cause.signal().map(i32::from), Some(9));
        root.respawn(path).unwrap();
        assert_eq!(root.health(), Health::Ready);
        assert_ne!(pid_at(&root, path), pid);
        // It has nothing yet of what others were given before.
        assert_eq!(n_mappings(pid_at(&root, path), "buffer"), 0, "{path}");
        all(2.0 + round as f32);
    }
    // Its device memory went with the life that it belonged to, whatever address is alive now.
    let again = root.malloc::<f32>(0, 8).unwrap();
    assert!(root.copy_to(memory, &[0.0; 8]).is_err());
    root.copy_to(again, &[0.0; 8]).unwrap();
    root.close().unwrap();
}

/// Runs a tree in a process of its own, which can be killed: writes the pids of its tree to a file, then runs tasks
/// without end.
fn doomed_root(path: std::path::PathBuf, busy: bool) {
    let root = builder(1, 1)
        .worker(builder(1, 1).name("below"))
        .build()
        .unwrap();
    let spin = root
        .register_fn("spin", |_| {
            let begun = Instant::now();
            while begun.elapsed() < Duration::from_secs(60) {
                std::hint::spin_loop();
            }
            Ok(())
        })
        .unwrap();
    let deep = spin.clone();
    let below = root
        .register_orchestration("below", move |orch, _| {
            orch.submit_sub(&deep, args()).map(drop)
        })
        .unwrap();
    root.init().unwrap();
    let list: Vec<String> = pids(&root.tree().unwrap())
        .iter()
        .map(u32::to_string)
        .collect();
    fs::write(path.with_extension("new"), list.join("\n")).unwrap();
    fs::rename(path.with_extension("new"), &path).unwrap();
    root.run(|orch| {
        if busy {
            orch.submit_sub(&spin, args())?;
            orch.submit_next_level(&below, args(), on(1))?;
        }
        loop {
            std::thread::park();
        }
        #[expect(unreachable_code, reason = "says what the closure returns")]
        Ok(())
    })
    .unwrap();
}

pub(crate) fn after_the_root_is_killed_every_process_is_gone() {
    for busy in [false, true] {
        let dir = directory();
        let path = dir.path().join("pids");
        let in_child = path.clone();
        let root = procfork::fork(ForkOptions::new("root"), move |_context| {
            doomed_root(in_child, busy)
        })
        .unwrap();
        let deadline = Instant::now() + Duration::from_secs(20);
        while !path.exists() {
            assert!(
                root.try_wait().unwrap().is_none(),
                "the root ended early: {:?}",
                root.last_words()
            );
            assert!(Instant::now() < deadline, "the root did not start");
            std::thread::yield_now();
        }
        let list = fs::read_to_string(&path).unwrap();
        let pids: Vec<u32> = list.lines().map(|pid| pid.parse().unwrap()).collect();
        assert_eq!(pids.len(), 5);
        kill(root.pid().raw().cast_unsigned(), Signal::SIGKILL);
        wait_gone(&pids);
    }
}

pub(crate) fn after_a_middle_worker_is_killed_its_subtree_is_gone_and_the_root_goes_on() {
    let root = builder(0, 1)
        .worker(builder(1, 2).name("below"))
        .build()
        .unwrap();
    let good = root.register_fn("good", nothing).unwrap();
    let deep = good.clone();
    let below = root
        .register_orchestration("below", move |orch, _| {
            orch.submit_sub(&deep, args()).map(drop)
        })
        .unwrap();
    root.init().unwrap();
    root.run(|orch| orch.submit_next_level(&below, args(), on(0)))
        .unwrap();
    let tree = root.tree().unwrap();
    let subtree = pids(&tree.children[0]);
    assert_eq!(subtree.len(), 3);
    kill(tree.children[0].pid, Signal::SIGKILL);
    wait_gone(&subtree);
    let error = failure(root.run(|orch| orch.submit_next_level(&below, args(), on(0))));
    assert_eq!(
        died(&error).worker,
        "node/below".replace("node", root.name())
    );
    root.run(|orch| orch.submit_sub(&good, args())).unwrap();
    root.close().unwrap();
}

pub(crate) fn a_stopped_worker_does_not_block_the_close() {
    let node = builder(0, 2)
        .grace(Duration::from_millis(50))
        .build()
        .unwrap();
    node.init().unwrap();
    let pids = pids(&node.tree().unwrap());
    kill(pids[0], Signal::SIGSTOP);
    node.close().unwrap();
    assert!(pids.iter().all(|pid| !is_alive(*pid)));
}

/// The state letter of a process or of a thread, from its `stat` file.
fn state_in(stat: &str) -> char {
    let text = fs::read_to_string(stat).unwrap_or_default();
    let rest = text.rsplit(')').next().unwrap_or("").trim();
    rest.chars().next().unwrap_or('X')
}

/// Waits until every thread of this process but the calling one sleeps.
fn await_idle_threads() {
    let deadline = Instant::now() + Duration::from_secs(10);
    let me = nix::unistd::gettid().to_string();
    let all_sleep = || {
        let threads = fs::read_dir("/proc/self/task").unwrap().flatten();
        let mut others = threads.filter(|thread| thread.file_name().to_str() != Some(&me));
        others.all(|thread| state_in(thread.path().join("stat").to_str().unwrap()) == 'S')
    };
    // A spinning driver may be seen asleep for a moment; one that stays asleep is parked.
    let mut seen = 0;
    while seen < 100 {
        seen = if all_sleep() { seen + 1 } else { 0 };
        assert!(Instant::now() < deadline, "the driver never slept");
        std::thread::yield_now();
    }
}

pub(crate) fn a_death_wakes_the_driver_that_is_parked() {
    let dir = directory();
    let gate = crate::support::Gate::new(dir.path(), "never");
    let root = builder(0, 1)
        .worker(builder(0, 1).name("below"))
        .name("root")
        .build()
        .unwrap();
    let block = root
        .register_orchestration("block", move |_, _| {
            gate.pass();
            Ok(())
        })
        .unwrap();
    root.init().unwrap();
    let tree = root.tree().unwrap();
    let handle = root
        .submit(|orch| orch.submit_next_level(&block, args(), on(0)).map(drop))
        .unwrap();
    await_idle_threads();
    kill(tree.children[0].pid, Signal::SIGKILL);
    // Not waited for: whoever waits would look for itself. The parked background driver must be woken.
    let deadline = Instant::now() + Duration::from_secs(10);
    while !handle.is_done() {
        assert!(Instant::now() < deadline, "nobody was woken");
        std::thread::yield_now();
    }
    let error = failure(handle.wait());
    assert_eq!(died(&error).worker, "root/below");
    root.close().unwrap();
    wait_gone(&pids(&tree));
}

/// Every way in which a process can end in the middle of a task, an orderly exit included.
pub(crate) fn the_end_of_a_worker_in_a_task_is_told_exactly_and_stays_so() {
    type End = fn();
    let ends: [(&str, End, Option<u8>, Option<i32>); 6] = [
        ("exits 0", || std::process::exit(0), Some(0), None),
        ("exits 3", || std::process::exit(3), Some(3), None),
        ("exits 127", || std::process::exit(127), Some(127), None),
        ("faults", || end_self(Signal::SIGSEGV), None, Some(11)),
        ("is killed", || end_self(Signal::SIGKILL), None, Some(9)),
        ("aborts", || std::process::abort(), None, Some(6)),
    ];
    for (name, end, code, signal) in ends {
        let node = builder(0, 1).build().unwrap();
        let f = node
            .register_fn(name, move |_| {
                end();
                Ok(())
            })
            .unwrap();
        node.init().unwrap();
        // With both frames of the mailbox full, and more tasks behind them.
        let run = || {
            node.run(|orch| {
                for _ in 0..5 {
                    orch.submit_sub(&f, args())?;
                }
                Ok(())
            })
        };
        let first = died(&failure(run())).clone();
        assert_eq!(first.cause.code(), code, "{name}: {first}");
        assert_eq!(
            first.cause.signal().map(i32::from),
            signal,
            "{name}: {first}"
        );
        let Health::Degraded { dead } = node.health() else {
            panic!("{name}: {:?}", node.health())
        };
        assert_eq!(dead, std::slice::from_ref(&first), "{name}");
        let second = match run() {
            Err(Error::Submit(SubmitError::WorkerDied { died, .. })) => WorkerDied::clone(&died),
            other => died(&failure(other)).clone(),
        };
        assert_eq!(second, first, "{name}");
        node.close().unwrap();
    }
}

pub(crate) fn a_stopped_worker_that_is_killed_in_a_task_was_killed() {
    let dir = directory();
    let gate = crate::support::Gate::new(dir.path(), "never");
    let node = builder(0, 1).build().unwrap();
    let f = node
        .register_fn("wait", move |_| {
            gate.pass();
            Ok(())
        })
        .unwrap();
    node.init().unwrap();
    let handle = node
        .submit(|orch| orch.submit_sub(&f, args()).map(drop))
        .unwrap();
    let pid = node.tree().unwrap().children[0].pid;
    kill(pid, Signal::SIGSTOP);
    while state_in(&format!("/proc/{pid}/stat")) != 'T' {
        std::thread::yield_now();
    }
    assert!(
        handle.wait_for(Duration::from_millis(20)).is_none(),
        "stopped is not dead"
    );
    kill(pid, Signal::SIGKILL);
    let error = failure(handle.wait());
    assert_eq!(died(&error).cause.signal().map(i32::from), Some(9));
    node.close().unwrap();
}

/// The kernel forgets the death signal when a process changes an id. An idle worker notices.
pub(crate) fn a_worker_whose_task_changed_its_ids_is_still_killed_with_its_parent() {
    if !nix::unistd::geteuid().is_root() {
        procfork::testing::skip("only root may change its ids");
    }
    let node = builder(0, 1).build().unwrap();
    let change = node
        .register_fn("change", |_| {
            for id in [1, 0] {
                nix::unistd::setegid(nix::unistd::Gid::from_raw(id))?;
            }
            Ok(())
        })
        .unwrap();
    let armed = node
        .register_fn("armed", |_| {
            let watch = procfork::ParentWatch::current().ok_or("no watch")?;
            match watch.armed()? {
                Some(procfork::Signal::KILL) => Ok(()),
                other => Err(format!("armed is {other:?}").into()),
            }
        })
        .unwrap();
    node.init().unwrap();
    node.run(|orch| orch.submit_sub(&change, args())).unwrap();
    let stat = format!("/proc/{}/stat", node.tree().unwrap().children[0].pid);
    let mut asleep = 0;
    while asleep < 100 {
        asleep = if state_in(&stat) == 'S' {
            asleep + 1
        } else {
            0
        };
        std::thread::yield_now();
    }
    node.run(|orch| orch.submit_sub(&armed, args())).unwrap();
    node.close().unwrap();
}
