//! Ends of a tree in which something hangs.

use std::fs;
use std::time::Duration;

use facade::{CloseError, Error, args, on};

use crate::support::{
    Gate, INCREMENT, builder, directory, failure, is_alive, pids, until, wait_gone,
};

/// What is owed to a chip at the end of a run is owed to nobody when the tree was killed: the drop waits for nothing.
pub(crate) fn a_worker_dropped_while_it_owes_memory_to_a_chip_ends_all_the_same() {
    let dir = directory();
    let gate = Gate::new(dir.path(), "never");
    let node = builder(1, 1).build().unwrap();
    let increment = node.register_chip(&INCREMENT).unwrap();
    let wait = node
        .register_fn("wait", move |_| {
            gate.pass();
            Ok(())
        })
        .unwrap();
    node.init().unwrap();
    let tree = node.tree().unwrap();
    let memory = node.malloc::<f32>(0, 8).unwrap();
    let handle = node
        .submit(|orch| {
            orch.submit_next_level(&increment, args().inout(&memory), on(0))?;
            orch.submit_sub(&wait, args())?;
            orch.free_after_runs(memory)
        })
        .unwrap();
    drop(node);
    wait_gone(&pids(&tree));
    let error = failure(handle.wait());
    assert!(error.to_string().contains("SIGKILL"), "{error}");
}

/// A task hangs and its run is waited for. A close waits, too; an end does not.
pub(crate) fn a_worker_is_ended_although_a_run_of_it_hangs() {
    let dir = directory();
    let (gate, here) = (Gate::new(dir.path(), "never"), dir.path().join("here"));
    let arrived = here.clone();
    let node = builder(0, 2).build().unwrap();
    let wait = node
        .register_fn("wait", move |_| {
            fs::write(&arrived, "")?;
            gate.pass();
            Ok(())
        })
        .unwrap();
    node.init().unwrap();
    let tree = node.tree().unwrap();
    std::thread::scope(|scope| {
        let running = scope.spawn(|| node.run(|orch| orch.submit_sub(&wait, args()).map(drop)));
        until(|| here.exists());
        let inside = node.run(|_| node.end(Duration::ZERO));
        assert!(
            matches!(
                inside,
                Err(Error::Close(CloseError { .. }) | Error::State(_))
            ),
            "{inside:?}"
        );
        assert!(pids(&tree).into_iter().all(is_alive));
        node.end(Duration::from_millis(50)).unwrap();
        wait_gone(&pids(&tree));
        let error = running.join().unwrap().unwrap_err();
        assert!(error.to_string().contains("SIGKILL"), "{error}");
    });
    node.close().unwrap();
    node.end(Duration::ZERO).unwrap();
}
