//! Callables come and go while the tree runs, in all processes or in none.

use std::fs;
use std::time::{Duration, Instant};

use facade::{
    AgreeCause, Args, CallableError, ChipCallable, Error, Orchestrator, Settings, StartMode, State,
    TaskResult, Worker, any, args, core_args, on,
};

use crate::support::{
    COMPILED, Gate, INCREMENT, STAND, VECTOR_ADD, builder, directory, kernel_source, nothing,
    stand_at,
};

fn double(args: &Args) -> TaskResult {
    args.output::<f32>(0)?.iter_mut().for_each(|x| *x *= 2.0);
    Ok(())
}

/// Finds by name what was registered after it was.
fn below(orch: &mut Orchestrator<'_>, list: &Args) -> Result<(), Error> {
    let (increment, double, x) = (
        orch.chip("increment")?,
        orch.function("double")?,
        list.tensor(0)?,
    );
    orch.submit_next_level(&increment, args().inout(&x), any())?;
    orch.submit_sub(&double, args().inout(&x)).map(drop)
}

fn refusal<T>(outcome: Result<T, Error>) -> CallableError {
    match outcome {
        Err(Error::Callable(error)) => error,
        Err(other) => panic!("{other}"),
        Ok(_) => panic!("it was not refused"),
    }
}

pub(crate) fn what_is_registered_after_init_runs_everywhere_in_both_modes() {
    for mode in [StartMode::Fork, StartMode::Spawn] {
        let root = builder(2, 1)
            .worker(builder(1, 1).name("below").start_mode(mode))
            .start_mode(mode)
            .build()
            .unwrap();
        root.init().unwrap();
        let increment = root.register_chip(&INCREMENT).unwrap();
        let double = root.register_fn("double", double).unwrap();
        let below = root.register_orchestration("below", below).unwrap();
        let x = root.buffer_from(&[1.0_f32; 8]).unwrap();
        root.run(|orch| {
            orch.submit_next_level(&increment, args().inout(&x), on(0))?;
            orch.submit_next_level(&increment, args().inout(&x), on(1))?;
            orch.submit_next_level(&below, args().inout(&x), on(2))?;
            orch.submit_sub(&double, args().inout(&x))
        })
        .unwrap();
        assert_eq!(x.to_vec().unwrap(), [16.0; 8]);
        root.close().unwrap();
    }
}

pub(crate) fn what_is_unregistered_is_gone_everywhere_and_its_name_is_free() {
    let root = builder(1, 1)
        .worker(builder(1, 1).name("below"))
        .build()
        .unwrap();
    let early = root.register_fn("early", nothing).unwrap();
    root.unregister(&early).unwrap();
    let early = root.register_fn("double", nothing).unwrap();
    let increment = root.register_chip(&INCREMENT).unwrap();
    let below = root.register_orchestration("below", below).unwrap();
    root.init().unwrap();
    let x = root.buffer_from(&[1.0_f32; 8]).unwrap();
    root.unregister(&early).unwrap();
    let error = refusal(root.run(|orch| orch.submit_sub(&early, args())));
    assert!(matches!(error, CallableError::Gone { .. }), "{error}");
    // Below, too: it is not found by its name.
    let call = |root: &Worker| {
        root.run(|orch| {
            orch.submit_next_level(&below, args().inout(&x), on(1))
                .map(drop)
        })
    };
    let error = call(&root).unwrap_err();
    assert!(
        error.to_string().contains("find function `double`"),
        "{error}"
    );
    root.register_fn("double", double).unwrap();
    call(&root).unwrap();
    assert_eq!(x.to_vec().unwrap(), [4.0; 8]);
    root.unregister(&increment).unwrap();
    let error = refusal(root.unregister(&increment));
    assert!(matches!(error, CallableError::Gone { .. }), "{error}");
    root.register_chip(&INCREMENT).unwrap();
    call(&root).unwrap();
    assert_eq!(x.to_vec().unwrap(), [10.0; 8]);
    root.close().unwrap();
}

pub(crate) fn a_closure_that_captured_something_cannot_come_after_init() {
    let node = builder(0, 1).build().unwrap();
    node.init().unwrap();
    let captured = String::from("x");
    let bound = move |_: &Args| -> TaskResult { Err(captured.clone().into()) };
    let error = refusal(node.register_fn("bound", bound));
    assert!(matches!(error, CallableError::Captured { .. }), "{error}");
    let good = node.register_fn("bound", nothing).unwrap();
    node.run(|orch| orch.submit_sub(&good, args())).unwrap();
    node.close().unwrap();
}

/// Often enough to use up whatever a failed attempt would leave taken.
const ATTEMPTS: usize = 40;

/// Chip 1 of three, below, has no source: the others have prepared by then, and forget.
pub(crate) fn a_registration_that_one_worker_refuses_changes_nothing_however_often() {
    let dir = directory();
    let has = kernel_source(dir.path(), "");
    let chips = builder(3, 0)
        .name("below")
        .each_chip(has)
        .chip(1, Settings::new().env("FACADE_TEST_SOURCE", "/nowhere"));
    let root = builder(0, 1).name("root").worker(chips).build().unwrap();
    root.init().unwrap();
    let first = root.register_chip(&COMPILED).unwrap_err();
    for _ in 0..ATTEMPTS {
        let error = root.register_chip(&COMPILED).unwrap_err();
        assert_eq!(error.to_string(), first.to_string());
    }
    let CallableError::NotAgreed { cause, .. } = refusal(Err::<(), _>(first)) else {
        panic!("not a refusal of a worker")
    };
    let AgreeCause::Remote(remote) = &*cause else {
        panic!("{cause}")
    };
    assert_eq!(remote.path, "root/below/chip1");
    // Nobody is left with half of it, and all go on.
    let below = root
        .register_orchestration("by_name", |orch, _| orch.chip("compiled").map(drop))
        .unwrap();
    let error = root
        .run(|orch| orch.submit_next_level(&below, args(), on(0)))
        .unwrap_err();
    assert!(
        error.to_string().contains("find chip callable `compiled`"),
        "{error}"
    );
    let add = root.register_chip(&VECTOR_ADD).unwrap();
    assert_eq!(add.name(), "vector_add");
    root.close().unwrap();
}

static LOADED: ChipCallable = ChipCallable::new(
    "loaded",
    |orch, _| orch.submit("compiled", core_args()).map(drop),
    COMPILED.kernels,
);

/// A chip says that it is ready when it can run what it was given: the first task asks for nothing of the kernel any more.
pub(crate) fn a_first_task_needs_nothing_of_a_kernel_but_what_was_loaded_at_the_start() {
    for mode in [StartMode::Fork, StartMode::Spawn] {
        let sources = directory();
        let node = builder(2, 0)
            .each_chip(kernel_source(sources.path(), ""))
            .start_mode(mode)
            .build()
            .unwrap();
        let loaded = node.register_chip(&LOADED).unwrap();
        node.init().unwrap();
        // The artefact was kept there, too.
        drop(sources);
        for chip in 0..2 {
            node.run(|orch| orch.submit_next_level(&loaded, args(), on(chip)))
                .unwrap();
        }
        node.close().unwrap();
    }
}

/// Chip 0 is in a task and has not answered when chip 1 refuses: that is the error, at once, and chip 0 forgets the change
/// when it comes to it.
pub(crate) fn a_refusal_is_told_while_another_worker_is_busy() {
    let dir = directory();
    let (source, stand) = (directory(), Gate::new(dir.path(), "stand"));
    let node = builder(2, 0)
        .each_chip(kernel_source(source.path(), ""))
        .chip(1, Settings::new().env("FACADE_TEST_SOURCE", "/nowhere"))
        .build()
        .unwrap();
    let standing = node.register_chip(&STAND).unwrap();
    node.init().unwrap();
    let place = stand_at(&node, 0, &stand);
    let run = node.submit(|orch| {
        let list = args().input(&place);
        orch.submit_next_level(&standing, list, on(0)).map(drop)
    });
    let held = stand.reader_is_there();
    let error = node.register_chip(&COMPILED).unwrap_err();
    assert!(error.to_string().contains("`node/chip1`"), "{error}");
    drop(held);
    run.unwrap().wait().unwrap();
    // Chip 0 serves what comes next, with nothing of the change left in it.
    let error = node.register_chip(&COMPILED).unwrap_err();
    assert!(error.to_string().contains("`node/chip1`"), "{error}");
    node.register_chip(&VECTOR_ADD).unwrap();
    node.close().unwrap();
}

pub(crate) fn a_callable_that_an_unfinished_task_names_stays() {
    let dir = directory();
    let gate = Gate::new(dir.path(), "gate");
    let node = builder(0, 2).build().unwrap();
    let inside = gate.clone();
    let wait = node
        .register_fn("wait", move |_| {
            inside.pass();
            Ok(())
        })
        .unwrap();
    let other = node.register_fn("other", nothing).unwrap();
    node.init().unwrap();
    let handle = node
        .submit(|orch| orch.submit_sub(&wait, args()).map(drop))
        .unwrap();
    let error = refusal(node.unregister(&wait));
    assert!(
        matches!(error, CallableError::InUse { n_tasks: 1, .. }),
        "{error}"
    );
    gate.open();
    handle.wait().unwrap();
    node.unregister(&wait).unwrap();
    node.run(|orch| orch.submit_sub(&other, args())).unwrap();
    node.close().unwrap();
}

pub(crate) fn a_graph_cannot_unregister_what_it_may_still_submit() {
    let node = builder(0, 1).build().unwrap();
    let f = node.register_fn("f", nothing).unwrap();
    node.init().unwrap();
    node.run(|_orch| {
        let error = node.unregister(&f).unwrap_err();
        assert!(matches!(error, Error::Reentrant { .. }), "{error}");
        // Registering is another matter: it is for runs that begin later.
        node.register_fn("g", nothing).map(drop)
    })
    .unwrap();
    node.unregister(&f).unwrap();
    node.close().unwrap();
}

/// A close that comes while a callable is being registered waits for the agreement; whoever comes later finds it closed.
pub(crate) fn a_close_waits_for_a_registration_or_refuses_it() {
    let dir = directory();
    let gate = Gate::new(dir.path(), "gate");
    let compiler = dir.path().join("cc");
    let here = dir.path().display();
    let script = format!(
        "#!/bin/sh\nmkdir {here}/once 2>/dev/null && read line < {here}/gate\nexec cc \"$@\"\n"
    );
    fs::write(&compiler, script).unwrap();
    use std::os::unix::fs::PermissionsExt as _;
    fs::set_permissions(&compiler, fs::Permissions::from_mode(0o755)).unwrap();
    let settings = kernel_source(dir.path(), "").env("CC", compiler.to_str().unwrap());
    let node = builder(3, 1).each_chip(settings).build().unwrap();
    let f = node.register_fn("f", nothing).unwrap();
    node.init().unwrap();
    std::thread::scope(|scope| {
        let registering = scope.spawn(|| node.register_chip(&COMPILED));
        // The chip worker is at the gate once somebody can open it; it passes when the close has been claimed.
        let closing = scope.spawn(|| {
            let open = gate.reader_is_there();
            let close = std::thread::scope(|scope| {
                let close = scope.spawn(|| node.close());
                let deadline = Instant::now() + Duration::from_secs(10);
                while node.state() != State::Closed {
                    assert!(Instant::now() < deadline, "the close never claimed");
                    std::thread::yield_now();
                }
                for refused in [
                    node.unregister(&f),
                    node.register_fn("late", nothing).map(drop),
                ] {
                    let error = refused.unwrap_err();
                    assert!(matches!(error, Error::State(_)), "{error}");
                }
                drop(open);
                close.join().unwrap()
            });
            close.unwrap();
        });
        // Its workers were there until it had its answer: a handle, since the kernel compiled in the end.
        let registered = registering.join().unwrap();
        assert!(registered.is_ok(), "{}", registered.unwrap_err());
        closing.join().unwrap();
    });
}
