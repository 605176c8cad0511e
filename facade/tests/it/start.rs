//! Start and close: whole or not at all, and dies whole.

use std::fs;
use std::sync::Arc;

use facade::{
    Args, ConfigError, Error, Orchestrator, Platform, StartCause, StartMode, State, Worker, any,
    args, on,
};

use procfork::ThreadName;

use crate::support::{
    INCREMENT, VECTOR_ADD, builder, directory, failure, n_descriptors, n_mappings, nothing, pids,
    wait_gone,
};

pub(crate) fn a_tree_is_ready_when_init_returns() {
    let node = builder(2, 1).build().unwrap();
    assert_eq!(node.state(), State::New);
    node.init().unwrap();
    assert_eq!(node.state(), State::Ready);
    let tree = node.tree().unwrap();
    let paths: Vec<&str> = tree
        .flatten()
        .iter()
        .map(|node| node.path.as_str())
        .collect();
    assert_eq!(paths, ["node", "node/chip0", "node/chip1", "node/sub0"]);
    assert!(tree.flatten().iter().all(|node| node.state == "ready"));
    let pids = pids(&tree);
    node.close().unwrap();
    wait_gone(&pids);
}

/// Runs `test` while another thread, named `logger`, exists.
fn beside_a_thread(test: impl FnOnce()) {
    let (open, gate) = std::sync::mpsc::channel::<()>();
    let other = std::thread::Builder::new().name("logger".to_owned());
    let other = other.spawn(move || gate.recv()).unwrap();
    test();
    drop(open);
    other.join().unwrap().unwrap_err();
}

pub(crate) fn a_process_with_threads_does_not_fork_and_names_them() {
    beside_a_thread(|| {
        let node = builder(0, 1).start_mode(StartMode::Fork).build().unwrap();
        let error = node.init().unwrap_err();
        let Error::Start(start) = &error else {
            panic!("{error}")
        };
        assert!(matches!(start.cause, StartCause::Fork(_)), "{error}");
        assert!(error.to_string().contains("logger"), "{error}");
        assert_eq!(node.state(), State::Failed);
    });
}

fn below(orch: &mut Orchestrator<'_>, list: &Args) -> Result<(), Error> {
    let (increment, x) = (orch.chip("increment")?, list.tensor(0)?);
    orch.submit_next_level(&increment, args().inout(&x), any())
        .map(drop)
}

/// A tree of two levels, with a callable of each kind, does its work.
fn works(mode: StartMode) {
    let root = builder(1, 1)
        .worker(builder(1, 1).name("below"))
        .start_mode(mode)
        .build()
        .unwrap();
    let increment = root.register_chip(&INCREMENT).unwrap();
    let below = root.register_orchestration("below", below).unwrap();
    let double = root
        .register_fn("double", |args| {
            args.output::<f32>(0)?.iter_mut().for_each(|x| *x *= 2.0);
            Ok(())
        })
        .unwrap();
    root.init().unwrap();
    assert_eq!(root.tree().unwrap().count(), 6);
    let x = root.buffer_from(&[1.0_f32; 8]).unwrap();
    root.run(|orch| {
        orch.submit_next_level(&increment, args().inout(&x), on(0))?;
        orch.submit_next_level(&below, args().inout(&x), on(1))?;
        orch.submit_sub(&double, args().inout(&x))
    })
    .unwrap();
    assert_eq!(x.to_vec().unwrap(), [6.0; 8]);
    let pids = pids(&root.tree().unwrap());
    root.close().unwrap();
    wait_gone(&pids);
}

pub(crate) fn a_spawned_tree_does_what_a_forked_one_does() {
    works(StartMode::Fork);
    works(StartMode::Spawn);
}

pub(crate) fn a_process_with_threads_starts_its_tree_by_spawning() {
    beside_a_thread(|| works(StartMode::Auto));
}

pub(crate) fn a_spawned_worker_that_dies_is_told_exactly() {
    let node = builder(0, 2).start_mode(StartMode::Spawn).build().unwrap();
    let abort = node
        .register_fn("abort", |_| std::process::abort())
        .unwrap();
    let panic = node.register_fn("panic", |_| panic!("on purpose")).unwrap();
    node.init().unwrap();
    let error = failure(node.run(|orch| orch.submit_sub(&panic, args())));
    assert!(error.to_string().contains("on purpose"), "{error}");
    let error = failure(node.run(|orch| orch.submit_sub(&abort, args())));
    assert!(error.to_string().contains("SIGABRT"), "{error}");
    node.close().unwrap();
}

pub(crate) fn a_callable_that_captured_something_is_not_spawned_and_is_named() {
    beside_a_thread(|| {
        let (_, threads) = refusal(StartMode::Spawn);
        assert!(threads.is_empty(), "{threads:?}");
    });
}

/// What a start says that cannot spawn, with a callable that captured something, and the threads that it names.
fn refusal(mode: StartMode) -> (String, Vec<ThreadName>) {
    let node = builder(0, 1).start_mode(mode).build().unwrap();
    let captured = String::from("x");
    node.register_fn("bound", move |_| Err(captured.clone().into()))
        .unwrap();
    let error = node.init().unwrap_err();
    let Error::Start(start) = &error else {
        panic!("{error}")
    };
    let StartCause::Captured { callables, threads } = &start.cause else {
        panic!("{error}")
    };
    assert_eq!(callables, &["bound"]);
    (error.to_string(), threads.clone())
}

pub(crate) fn a_tree_that_can_be_neither_forked_nor_spawned_names_the_threads_and_the_callables() {
    beside_a_thread(|| {
        let [text, of_fork] = [StartMode::Auto, StartMode::Fork].map(|mode| {
            let (text, threads) = refusal(mode);
            assert_eq!(threads.len(), 1, "{text}");
            text.replace(&threads[0].tid.to_string(), "7")
        });
        assert_eq!(of_fork, text);
        insta::assert_snapshot!(text, @r#"start worker `node/sub0`: neither fork it nor start this program again for it: the process has other threads (logger (7)), and the callables ["bound"] captured something, which only a fork copies; start before the threads, or let the callables capture nothing"#);
    });
}

pub(crate) fn a_device_that_does_not_open_fails_the_start_with_its_place_and_leaves_nothing() {
    if std::env::var_os("ASCEND_HOME_PATH").is_some() {
        procfork::testing::skip("the vendor's libraries may be present here");
    }
    let before = n_descriptors();
    {
        let node = builder(2, 2).platform(Platform::A2a3).build().unwrap();
        // What a worker has of its own, started or not.
        let _buffer = node.buffer::<u8>(1).unwrap();
        let own = n_descriptors();
        let error = node.init().unwrap_err();
        let me = std::process::id();
        assert_eq!((n_descriptors(), n_mappings(me, "mailbox")), (own, 0));
        let remote = error.remote().unwrap_or_else(|| panic!("{error}"));
        assert!(remote.path.starts_with("node/chip"), "{error}");
        // What is missing, what to set, what to use instead.
        for part in ["libascendcl.so", "ASCEND_HOME_PATH", "simulator"] {
            assert!(error.to_string().contains(part), "{error}");
        }
        assert_eq!(node.state(), State::Failed);
        // Everybody who asks later gets the same first cause.
        assert_eq!(node.init().unwrap_err().to_string(), error.to_string());
    }
    assert_eq!(n_descriptors(), before);
}

pub(crate) fn everybody_who_inits_gets_the_same_outcome() {
    let node = builder(0, 1).build().unwrap();
    node.init().unwrap();
    std::thread::scope(|scope| {
        for _ in 0..3 {
            scope.spawn(|| node.init().unwrap());
        }
    });
    node.close().unwrap();
}

pub(crate) fn a_worker_without_children_is_refused_before_any_fork() {
    let node = Worker::node().build().unwrap();
    let error = node.init().unwrap_err();
    assert!(
        matches!(error, Error::Config(ConfigError::NoChildren { .. })),
        "{error}"
    );
}

pub(crate) fn a_callable_that_nobody_could_run_is_refused() {
    let subs_only = builder(0, 1).build().unwrap();
    assert!(matches!(
        subs_only.register_chip(&VECTOR_ADD),
        Err(Error::Callable(_))
    ));
    let chips_only = builder(1, 0).build().unwrap();
    assert!(matches!(
        chips_only.register_fn("f", nothing),
        Err(Error::Callable(_))
    ));
    assert!(matches!(
        chips_only.register_orchestration("o", |_, _| Ok(())),
        Err(Error::Callable(_))
    ));
    // A refused registration leaves the name free.
    let both = builder(1, 1).build().unwrap();
    both.register_fn("f", nothing).unwrap();
    assert!(matches!(
        both.register_fn("f", nothing),
        Err(Error::Callable(_))
    ));
    assert!(matches!(
        both.register_fn("", nothing),
        Err(Error::Callable(_))
    ));
}

pub(crate) fn no_worker_is_added_after_init() {
    let node = builder(0, 1).build().unwrap();
    node.init().unwrap();
    assert!(matches!(
        node.add_worker(builder(0, 1)),
        Err(Error::State(_))
    ));
    node.close().unwrap();
}

pub(crate) fn close_is_final_and_repeatable() {
    let node = builder(0, 1).build().unwrap();
    let f = node.register_fn("f", nothing).unwrap();
    node.init().unwrap();
    node.close().unwrap();
    node.close().unwrap();
    assert_eq!(node.state(), State::Closed);
    assert!(matches!(node.init(), Err(Error::State(_))));
    let refused = node.run(|orch| orch.submit_sub(&f, args()));
    assert!(matches!(refused, Err(Error::State(_))));
    assert!(matches!(node.buffer::<f32>(1), Err(Error::State(_))));
}

pub(crate) fn a_dropped_worker_leaves_no_process() {
    let node = builder(1, 1).build().unwrap();
    node.init().unwrap();
    let pids = pids(&node.tree().unwrap());
    drop(node);
    wait_gone(&pids);
}

pub(crate) fn descriptors_are_as_many_after_close_as_before() {
    let before = n_descriptors();
    for _ in 0..3 {
        let node = builder(1, 2).build().unwrap();
        let f = node.register_fn("f", nothing).unwrap();
        node.init().unwrap();
        let buffer = node.buffer::<f32>(1000).unwrap();
        node.run(|orch| orch.submit_sub(&f, args().input(&buffer)))
            .unwrap();
        node.close().unwrap();
    }
    assert_eq!(n_descriptors(), before);
}

struct WritesOnDrop(std::path::PathBuf);

impl Drop for WritesOnDrop {
    fn drop(&mut self) {
        use std::io::Write;
        let mut file = fs::OpenOptions::new()
            .append(true)
            .create(true)
            .open(&self.0)
            .unwrap();
        writeln!(file, "dropped by {}", std::process::id()).unwrap();
    }
}

pub(crate) fn a_panic_hook_of_the_program_is_not_dropped_by_its_workers() {
    let dir = directory();
    let path = dir.path().join("lines");
    let owned = WritesOnDrop(path.clone());
    std::panic::set_hook(Box::new(move |_info| {
        let _keep = &owned;
    }));
    let node = builder(0, 2)
        .start_mode(facade::StartMode::Fork)
        .worker(builder(0, 1).name("below"))
        .build()
        .unwrap();
    let f = node.register_fn("f", |_args| panic!("E7")).unwrap();
    node.init().unwrap();
    node.run(|orch| orch.submit_sub(&f, args())).unwrap_err();
    node.close().unwrap();
    // It lasts as long as this process, whose it is.
    assert!(!path.exists(), "{}", fs::read_to_string(&path).unwrap());
}

pub(crate) fn a_program_with_an_exit_handler_runs_it_once() {
    let dir = directory();
    let path = dir.path().join("lines");
    {
        let captured = Arc::new(WritesOnDrop(path.clone()));
        let node = builder(0, 3).build().unwrap();
        let f = node
            .register_fn("f", move |_args| {
                let _keep = &captured;
                Err("no".into())
            })
            .unwrap();
        node.init().unwrap();
        node.run(|orch| orch.submit_sub(&f, args())).unwrap_err();
        node.close().unwrap();
    }
    let lines = fs::read_to_string(&path).unwrap();
    assert_eq!(lines, format!("dropped by {}\n", std::process::id()));
}
