//! Trees of more than one level.

use facade::{FaultKind, Level, Platform, State, TaskCause, any, args, on};

use crate::support::{INCREMENT, builder, failure, pids, wait_gone};

pub(crate) fn a_tree_of_three_levels_runs_orchestrations_below() {
    let root = builder(0, 0)
        .name("root")
        .worker(builder(2, 1).name("left"))
        .worker(builder(2, 0).name("right"))
        .build()
        .unwrap();
    assert_eq!(root.level(), Level::Network1);
    let increment = root.register_chip(&INCREMENT).unwrap();
    let twice = root
        .register_orchestration("twice", move |orch, a| {
            for chip in 0..orch.next_level_workers() {
                orch.submit_next_level(&increment, args().inout(&a.tensor(0)?), on(chip))?;
            }
            Ok(())
        })
        .unwrap();
    root.init().unwrap();
    assert_eq!(root.tree().unwrap().count(), 8);
    let x = root.buffer::<f32>(100).unwrap();
    root.run(|orch| {
        for _ in 0..5 {
            orch.submit_next_level(&twice, args().inout(&x), on(0))?;
            orch.submit_next_level(&twice, args().inout(&x), any())?;
        }
        Ok(())
    })
    .unwrap();
    assert_eq!(x.to_vec().unwrap(), vec![20.0; 100]);
    let pids = pids(&root.tree().unwrap());
    root.close().unwrap();
    wait_gone(&pids);
}

pub(crate) fn a_failure_two_levels_down_names_where_it_began() {
    let root = builder(0, 0)
        .name("root")
        .worker(builder(0, 1).name("mid"))
        .build()
        .unwrap();
    let bad = root.register_fn("bad", |_| Err("E7".into())).unwrap();
    let below = root
        .register_orchestration("below", move |orch, _| {
            orch.submit_sub(&bad, args()).map(drop)
        })
        .unwrap();
    root.init().unwrap();
    let error = failure(root.run(|orch| orch.submit_next_level(&below, args(), on(0))));
    assert_eq!(
        (error.task.as_str(), error.worker.as_str()),
        ("below", "root/mid")
    );
    let TaskCause::Remote(remote) = &error.cause else {
        panic!("{error}")
    };
    assert_eq!(
        (remote.path.as_str(), remote.message.as_str()),
        ("root/mid/sub0", "E7")
    );
    assert_eq!(remote.kind, FaultKind::Returned);
    root.close().unwrap();
}

pub(crate) fn a_start_that_fails_two_levels_down_leaves_nothing() {
    if std::env::var_os("ASCEND_HOME_PATH").is_some() {
        procfork::testing::skip("the vendor's libraries may be present here");
    }
    let broken = builder(1, 1).name("broken").platform(Platform::A2a3);
    let root = builder(1, 1).name("root").worker(broken).build().unwrap();
    let error = root.init().unwrap_err();
    let remote = error.remote().unwrap_or_else(|| panic!("{error}"));
    assert_eq!(remote.path, "root/broken/chip0");
    assert_eq!(root.state(), State::Failed);
    assert_eq!(
        procfork::descendants(procfork::Pid::this()).unwrap().len(),
        0
    );
}
