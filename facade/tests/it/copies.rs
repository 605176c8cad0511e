//! A process that was forked beside a tree, or by it, has copies of its handles and not the tree: they say so, and their
//! end touches nothing.
#![expect(unsafe_code, reason = "a fork beside threads, which procfork refuses")]

use std::sync::{Arc, OnceLock};
use std::time::{Duration, Instant};

use facade::{Error, Health, Worker, args, on};
use nix::libc;
use nix::sys::wait::{WaitStatus, waitpid};
use nix::unistd::{self, ForkResult};
use procfork::{ExitCause, ForkOptions};

use crate::support::{INCREMENT, builder, failure, pids, wait_gone};

/// Runs `inside` in a copy of this process, to its end.
fn in_a_copy(inside: impl FnOnce() -> Result<(), String>) {
    let copy = procfork::fork(ForkOptions::new("copy"), |_context| inside()).unwrap();
    let cause = copy.wait(Instant::now() + Duration::from_secs(10)).unwrap();
    assert_eq!(cause, ExitCause::Exited(0), "{:?}", copy.last_words());
}

fn copied<T>(what: &str, result: Result<T, Error>) -> Result<(), String> {
    match result {
        Err(Error::Copied { .. }) => Ok(()),
        Err(error) => Err(format!("{what}: {error}")),
        Ok(_) => Err(format!("{what}: done")),
    }
}

pub(crate) fn a_copy_of_a_worker_says_so_and_leaves_the_tree_alone() {
    let node = builder(1, 1).worker(builder(0, 1).name("below"));
    let node = node.build().unwrap();
    let increment = node.register_chip(&INCREMENT).unwrap();
    node.init().unwrap();
    let x = node.buffer_from(&[1.0_f32; 8]).unwrap();
    let memory = node.malloc::<f32>(0, 8).unwrap();
    let pids = pids(&node.tree().unwrap());
    let (mut slot, buffer) = (Some(node), &x);
    in_a_copy(|| {
        let node = slot.take().ok_or("taken")?;
        let task = || args().inout(buffer);
        copied(
            "run",
            node.run(|o| o.submit_next_level(&increment, task(), on(0))),
        )?;
        copied(
            "submit",
            node.submit(|o| o.submit_next_level(&increment, task(), on(0)).map(drop)),
        )?;
        copied("malloc", node.malloc::<f32>(0, 8))?;
        copied("copy", node.copy_to(memory, &[0.0; 8]))?;
        copied("register", node.register_fn("late", |_| Ok(())))?;
        copied("respawn", node.respawn("node/sub0"))?;
        copied("tree", node.tree())?;
        copied("buffer", node.buffer::<f32>(8))?;
        copied("close", node.close())?;
        copied("end", node.end(Duration::ZERO))?;
        if node.health() != Health::Copied {
            return Err(format!("{:?}", node.health()));
        }
        if buffer.to_vec().is_ok() || buffer.release().is_err() {
            return Err("the buffer is there".to_owned());
        }
        drop(node);
        Ok(())
    });
    let node = slot.take().unwrap();
    assert_eq!(node.health(), Health::Ready);
    node.run(|orch| orch.submit_next_level(&increment, args().inout(&x), on(0)))
        .unwrap();
    assert_eq!(x.to_vec().unwrap(), [2.0; 8]);
    node.close().unwrap();
    wait_gone(&pids);
}

pub(crate) fn a_copy_of_a_worker_with_a_background_driver_is_as_inert() {
    let node = builder(0, 1).build().unwrap();
    let f = node.register_fn("f", |_| Ok(())).unwrap();
    node.init().unwrap();
    node.submit(|orch| orch.submit_sub(&f, args()).map(drop))
        .unwrap()
        .wait()
        .unwrap();
    let exit = |code| -> ! {
        // SAFETY: ends the copy, which has nothing to clean up.
        unsafe { libc::_exit(code) }
    };
    // SAFETY: the copy asks, drops and exits; what other threads of this process held it does not touch.
    match unsafe { unistd::fork() }.unwrap() {
        ForkResult::Child => {
            let is_told = matches!(node.close(), Err(Error::Copied { .. }));
            drop(node);
            exit(if is_told { 7 } else { 8 })
        }
        ForkResult::Parent { child } => {
            assert_eq!(waitpid(child, None).unwrap(), WaitStatus::Exited(child, 7));
        }
    }
    node.run(|orch| orch.submit_sub(&f, args())).unwrap();
    node.close().unwrap();
}

pub(crate) fn a_function_that_captured_its_own_worker_is_told_that_it_has_a_copy() {
    let node = Arc::new(builder(0, 1).build().unwrap());
    let captured: Arc<OnceLock<Arc<Worker>>> = Arc::default();
    captured.set(Arc::clone(&node)).unwrap();
    let f = node
        .register_fn("inside", move |_| {
            captured.get().ok_or("not set")?.run(|_| Ok(()))?;
            Ok(())
        })
        .unwrap();
    node.init().unwrap();
    let error = failure(node.run(|orch| orch.submit_sub(&f, args())));
    insta::assert_snapshot!(error, @"run task `inside` on `node/sub0`: run on worker `node` in a forked copy of the process that started it: only that process reaches the tree; call it there, or build another worker here");
    node.close().unwrap();
}
