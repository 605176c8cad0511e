//! Tasks and orchestrations that fail: what the caller is told, and that the worker goes on.

use std::time::Duration;

use facade::{
    ChipArgs, ChipCallable, ChipOrchestrator, Error, FaultKind, Kernel, KernelContext, KernelError,
    OrchestrationError, SimFault, TaskCause, TaskFault, args, core_args, on,
};

use crate::support::{Gate, INCREMENT, VECTOR_ADD, builder, directory, failure, nothing};

pub(crate) fn a_function_that_returns_an_error_names_task_worker_and_text() {
    let node = builder(0, 1).build().unwrap();
    let f = node
        .register_fn("picky", |_| Err("the numbers are odd".into()))
        .unwrap();
    node.init().unwrap();
    let error = failure(node.run(|orch| orch.submit_sub(&f, args())));
    assert_eq!(
        (error.task.as_str(), error.worker.as_str()),
        ("picky", "node/sub0")
    );
    let TaskCause::Remote(remote) = &error.cause else {
        panic!("{error}")
    };
    assert_eq!(
        (remote.kind, remote.message.as_str()),
        (FaultKind::Returned, "the numbers are odd")
    );
    node.close().unwrap();
}

pub(crate) fn a_function_that_panics_names_task_worker_and_message_and_the_worker_goes_on() {
    let node = builder(0, 1).build().unwrap();
    let bad = node
        .register_fn("bad", |_| panic!("index {} is gone", 7))
        .unwrap();
    let good = node.register_fn("good", nothing).unwrap();
    node.init().unwrap();
    for _ in 0..3 {
        let error = failure(node.run(|orch| orch.submit_sub(&bad, args())));
        let TaskCause::Remote(remote) = &error.cause else {
            panic!("{error}")
        };
        assert_eq!(
            (remote.kind, remote.path.as_str()),
            (FaultKind::Panicked, "node/sub0")
        );
        assert!(remote.message.contains("index 7 is gone"), "{remote}");
        assert!(remote.message.contains("failures.rs"), "{remote}");
        assert_eq!(error.task, "bad");
        node.run(|orch| orch.submit_sub(&good, args())).unwrap();
    }
    node.close().unwrap();
}

static PANICS: ChipCallable = ChipCallable {
    name: "panics",
    orchestration: panics_orchestration,
    kernels: &[Kernel::vector("boom", panics_kernel)],
};

fn panics_orchestration(
    orch: &mut ChipOrchestrator<'_>,
    args: &ChipArgs,
) -> Result<(), OrchestrationError> {
    if args.tensors.is_empty() {
        panic!("nothing to do");
    }
    orch.submit("boom", core_args().inout(args.tensor(0)?))?;
    Ok(())
}

fn panics_kernel(_cx: &mut KernelContext<'_>) -> Result<(), KernelError> {
    panic!("lane 3 overflowed")
}

pub(crate) fn a_kernel_that_panics_names_task_worker_and_message_and_the_worker_goes_on() {
    let node = builder(1, 0).build().unwrap();
    let panics = node.register_chip(&PANICS).unwrap();
    let increment = node.register_chip(&INCREMENT).unwrap();
    node.init().unwrap();
    let x = node.buffer::<f32>(4).unwrap();
    let error = failure(node.run(|orch| orch.submit_next_level(&panics, args().inout(&x), on(0))));
    let TaskCause::Remote(remote) = &error.cause else {
        panic!("{error}")
    };
    assert_eq!(
        (remote.kind, error.worker.as_str()),
        (FaultKind::Panicked, "node/chip0")
    );
    assert!(
        remote.message.contains("lane 3 overflowed") && remote.message.contains("boom"),
        "{remote}"
    );
    // The chip's own orchestration can panic too.
    let error = failure(node.run(|orch| orch.submit_next_level(&panics, args(), on(0))));
    let TaskCause::Remote(remote) = &error.cause else {
        panic!("{error}")
    };
    assert_eq!(remote.kind, FaultKind::Panicked);
    assert!(remote.message.contains("nothing to do"), "{remote}");
    node.run(|orch| orch.submit_next_level(&increment, args().inout(&x), on(0)))
        .unwrap();
    assert_eq!(x.to_vec().unwrap(), vec![1.0; 4]);
    node.close().unwrap();
}

pub(crate) fn an_orchestration_that_panics_is_a_typed_error_and_the_worker_goes_on() {
    let node = builder(0, 1).build().unwrap();
    let good = node.register_fn("good", nothing).unwrap();
    node.init().unwrap();
    let error = failure(node.run(|orch| -> Result<(), Error> {
        orch.submit_sub(&good, args())?;
        panic!("no plan")
    }));
    assert!(
        matches!(&error.cause, TaskCause::Panicked(message) if message == "no plan"),
        "{error}"
    );
    node.run(|orch| orch.submit_sub(&good, args())).unwrap();
    node.close().unwrap();
}

pub(crate) fn an_error_of_the_orchestration_comes_back_after_started_tasks_have_ended() {
    let dir = directory();
    let gate = Gate::new(dir.path(), "gate");
    let node = builder(0, 1).build().unwrap();
    let inside = gate.clone();
    let slow = node
        .register_fn("slow", move |args| {
            inside.pass();
            args.output::<u32>(0)?[0] = 1;
            Ok(())
        })
        .unwrap();
    node.init().unwrap();
    let flag = node.buffer::<u32>(1).unwrap();
    let error = node
        .run(|orch| -> Result<(), Error> {
            orch.submit_sub(&slow, args().output(&flag))?;
            gate.open();
            Err(Error::orchestration("changed my mind"))
        })
        .unwrap_err();
    assert!(error.to_string().contains("changed my mind"), "{error}");
    assert_eq!(
        flag.to_vec().unwrap(),
        [1],
        "the task that had begun was waited for"
    );
    node.close().unwrap();
}

pub(crate) fn dependents_of_a_failed_task_are_skipped_and_others_run() {
    let node = builder(0, 2).build().unwrap();
    let fail = node
        .register_fn("fail", |_| Err("root cause".into()))
        .unwrap();
    let set = node
        .register_fn("set", |args| {
            args.output::<u32>(0)?[0] = 9;
            Ok(())
        })
        .unwrap();
    node.init().unwrap();
    let (x, y, z) = (
        node.buffer::<u32>(1).unwrap(),
        node.buffer::<u32>(1).unwrap(),
        node.buffer::<u32>(1).unwrap(),
    );
    let error = failure(node.run(|orch| {
        orch.submit_sub(&fail, args().output(&x))?;
        orch.submit_sub(&set, args().output(&y).input(&x))?;
        orch.submit_sub(&set, args().output(&z))
    }));
    assert_eq!(
        (error.task.as_str(), error.failed, error.skipped),
        ("fail", 1, 1)
    );
    assert_eq!((y.to_vec().unwrap()[0], z.to_vec().unwrap()[0]), (0, 9));
    node.close().unwrap();
}

/// DV-5: the simulator has a fault on request, and what follows is what follows on hardware.
pub(crate) fn a_chip_that_breaks_is_unusable_from_then_on_and_the_other_one_is_not() {
    let fault = SimFault::Task {
        run: 1,
        task: 0,
        kind: TaskFault::Hardware,
    };
    let node = builder(2, 0).sim_fault(1, fault).build().unwrap();
    let add = node.register_chip(&VECTOR_ADD).unwrap();
    node.init().unwrap();
    let x = [(); 3].map(|()| node.buffer::<f32>(4).unwrap());
    let run = |chip| {
        node.run(|orch| {
            let list = args().input(&x[0]).input(&x[1]).output(&x[2]);
            orch.submit_next_level(&add, list, on(chip)).map(drop)
        })
    };
    run(1).unwrap();
    let memory = node.malloc::<f32>(1, 4).unwrap();
    for _ in 0..2 {
        is_unusable(&run(1).unwrap_err(), 1);
        run(0).unwrap();
    }
    is_unusable(&node.copy_to(memory, &[1.0; 4]).unwrap_err(), 1);
    is_unusable(&node.malloc::<f32>(1, 4).unwrap_err(), 1);
    node.close().unwrap();
}

#[track_caller]
fn is_unusable(error: &Error, chip: usize) {
    let remote = error.remote().expect("it happened in the chip worker");
    assert_eq!(
        (remote.kind, remote.chip_index()),
        (FaultKind::Unusable, Some(chip)),
        "{error}"
    );
}

/// ST-6: the innermost limit reports, with the task and its core.
pub(crate) fn a_core_task_without_an_end_breaks_its_chip_at_the_limit_that_was_set() {
    let fault = SimFault::Task {
        run: 0,
        task: 0,
        kind: TaskFault::Hang,
    };
    let limit = Duration::from_millis(50);
    let node = builder(1, 0).sim_fault(0, fault).device_timeout(limit);
    let node = node.build().unwrap();
    let add = node.register_chip(&VECTOR_ADD).unwrap();
    node.init().unwrap();
    let x = [(); 3].map(|()| node.buffer::<f32>(4).unwrap());
    let list = args().input(&x[0]).input(&x[1]).output(&x[2]);
    let error = node
        .run(|orch| orch.submit_next_level(&add, list, on(0)).map(drop))
        .unwrap_err();
    is_unusable(&error, 0);
    assert!(error.to_string().contains("no end after 50ms"), "{error}");
    node.close().unwrap();
}
