//! Device memory: kept over runs, refused when stale or foreign.

use facade::{Error, MemoryError, SubmitError, any, args, on};
use nix::sys::signal::Signal;

use crate::support::{Gate, INCREMENT, VECTOR_ADD, builder, directory, failure, kill};

#[track_caller]
fn refused<T: std::fmt::Debug>(outcome: Result<T, Error>) {
    assert!(
        matches!(outcome, Err(Error::Memory(MemoryError::Refused(_)))),
        "{outcome:?}"
    );
}

pub(crate) fn device_memory_is_kept_over_runs() {
    let node = builder(2, 0).build().unwrap();
    let increment = node.register_chip(&INCREMENT).unwrap();
    node.init().unwrap();
    let weights = node.malloc::<f32>(1, 1000).unwrap();
    node.copy_to(weights, &[0.5; 1000]).unwrap();
    for _ in 0..5 {
        // The argument decides where the task runs.
        node.run(|orch| orch.submit_next_level(&increment, args().inout(&weights), any()))
            .unwrap();
    }
    let mut back = vec![0.0; 1000];
    node.copy_from(&mut back, weights).unwrap();
    assert_eq!(back, vec![5.5; 1000]);
    node.free(weights).unwrap();
    node.close().unwrap();
}

pub(crate) fn a_freed_handle_is_stale_even_if_its_address_is_alive_again() {
    let node = builder(1, 0).build().unwrap();
    let increment = node.register_chip(&INCREMENT).unwrap();
    node.init().unwrap();
    let old = node.malloc::<f32>(0, 16).unwrap();
    node.free(old).unwrap();
    let new = node.malloc::<f32>(0, 16).unwrap();
    refused(node.copy_to(old, &[0.0; 16]));
    refused(node.copy_from(&mut [0.0; 16], old));
    refused(node.free(old));
    let task = node.run(|orch| orch.submit_next_level(&increment, args().inout(&old), on(0)));
    assert!(
        matches!(task, Err(Error::Submit(SubmitError::Device { .. }))),
        "{task:?}"
    );
    node.copy_to(new, &[0.0; 16]).unwrap();
    node.close().unwrap();
}

pub(crate) fn a_part_of_an_allocation_can_be_copied_and_not_freed() {
    let node = builder(1, 0).build().unwrap();
    node.init().unwrap();
    let whole = node.malloc::<u8>(0, 4096).unwrap();
    node.copy_to(whole, &[0; 4096]).unwrap();
    for (range, byte) in [(0..4096, 1), (4095..4096, 2), (0..1, 3)] {
        let part = whole.slice(range.clone()).unwrap();
        node.copy_to(part, &vec![byte; range.len()]).unwrap();
        if range.len() < 4096 {
            assert!(matches!(
                node.free(part),
                Err(Error::Memory(MemoryError::NotBase { .. }))
            ));
        }
    }
    assert!(whole.slice(4096..4097).is_err());
    assert!(whole.slice(0..4097).is_err());
    assert!(whole.slice(1..usize::MAX).is_err());
    assert!(matches!(
        node.copy_to(whole, &[0; 4095]),
        Err(Error::Memory(MemoryError::Length { .. }))
    ));
    let mut back = vec![0; 4096];
    node.copy_from(&mut back, whole).unwrap();
    assert_eq!((back[0], back[1], back[4095]), (3, 1, 2));
    node.free(whole).unwrap();
    node.close().unwrap();
}

pub(crate) fn memory_of_one_chip_is_refused_on_another_before_any_device_call() {
    let node = builder(2, 1).build().unwrap();
    let add = node.register_chip(&VECTOR_ADD).unwrap();
    let f = node.register_fn("f", crate::support::nothing).unwrap();
    node.init().unwrap();
    let (a, b) = (
        node.malloc::<f32>(0, 4).unwrap(),
        node.malloc::<f32>(1, 4).unwrap(),
    );
    let device = |outcome: Result<_, Error>, parts: &[&str]| {
        let Err(Error::Submit(SubmitError::Device { reason, .. })) = outcome else {
            panic!("{outcome:?}")
        };
        assert!(parts.iter().all(|part| reason.contains(part)), "{reason}");
    };
    device(
        node.run(|orch| orch.submit_next_level(&add, args().input(&a).input(&a).output(&a), on(1))),
        &["worker"],
    );
    device(
        node.run(|orch| orch.submit_next_level(&add, args().input(&a).input(&a).output(&b), any())),
        &["workers 0 and 1"],
    );
    let sub = node.run(|orch| orch.submit_sub(&f, args().input(&a)));
    assert!(matches!(
        sub,
        Err(Error::Submit(SubmitError::DeviceArgument { .. }))
    ));
    assert!(matches!(
        node.malloc::<f32>(2, 4),
        Err(Error::Memory(MemoryError::NoSuchChip { .. }))
    ));
    node.close().unwrap();
}

pub(crate) fn memory_named_by_an_unfinished_task_is_not_freed() {
    let dir = directory();
    let gate = Gate::new(dir.path(), "gate");
    let node = builder(1, 1).build().unwrap();
    let increment = node.register_chip(&INCREMENT).unwrap();
    let inside = gate.clone();
    let slow = node
        .register_fn("slow", move |_| {
            inside.pass();
            Ok(())
        })
        .unwrap();
    node.init().unwrap();
    let x = node.malloc::<f32>(0, 4).unwrap();
    node.copy_to(x, &[0.0; 4]).unwrap();
    let run = node
        .submit(|orch| {
            let first = orch.submit_sub(&slow, args())?;
            orch.submit_next_level(&increment, args().inout(&x).after(&first), any())
                .map(drop)
        })
        .unwrap();
    refused(node.free(x));
    gate.open();
    run.wait().unwrap();
    node.free(x).unwrap();
    node.close().unwrap();
}

pub(crate) fn out_of_memory_says_what_was_wanted_and_what_is_free() {
    let node = builder(1, 0).build().unwrap();
    node.init().unwrap();
    let error = node.malloc::<u8>(0, 1 << 50).unwrap_err().to_string();
    assert!(
        error.contains(&(1_u64 << 50).to_string()) && error.contains("free"),
        "{error}"
    );
    assert!(matches!(
        node.malloc::<f64>(0, usize::MAX),
        Err(Error::Memory(MemoryError::Size { .. }))
    ));
    assert!(matches!(
        node.malloc::<f64>(0, 0),
        Err(Error::Memory(MemoryError::Size { .. }))
    ));
    node.malloc::<u8>(0, 16).unwrap();
    node.close().unwrap();
}

pub(crate) fn a_chip_does_not_write_what_its_task_names_as_an_input() {
    let node = builder(1, 0).build().unwrap();
    let increment = node.register_chip(&INCREMENT).unwrap();
    node.init().unwrap();
    let x = node.buffer_from(&[1.0_f32; 4]).unwrap();
    let memory = node.malloc::<f32>(0, 4).unwrap();
    node.copy_to(memory, &[1.0; 4]).unwrap();
    let error = failure(node.run(|o| o.submit_next_level(&increment, args().input(&x), on(0))));
    insta::assert_snapshot!(error, @"run task `increment` on `node/chip0`: orchestrate `increment` on chip 0: submit `increment`: it writes its tensor 0, which lies in an argument that the run names as an input; name that as an output or as in-out");
    let error = node.run(|o| o.submit_next_level(&increment, args().input(&memory), on(0)));
    assert_eq!(
        failure(error)
            .to_string()
            .matches("names as an input")
            .count(),
        1
    );
    for list in [args().inout(&x), args().no_dep(&memory)] {
        node.run(|o| o.submit_next_level(&increment, list, on(0)))
            .unwrap();
    }
    let mut found = [0.0; 4];
    node.copy_from(&mut found, memory).unwrap();
    assert_eq!((x.to_vec().unwrap(), found), (vec![2.0; 4], [2.0; 4]));
    node.close().unwrap();
}

pub(crate) fn memory_of_a_dead_chip_is_gone() {
    let node = builder(1, 0).build().unwrap();
    let increment = node.register_chip(&INCREMENT).unwrap();
    node.init().unwrap();
    let x = node.malloc::<f32>(0, 4).unwrap();
    kill(node.tree().unwrap().children[0].pid, Signal::SIGKILL);
    let error = node.copy_to(x, &[0.0; 4]).unwrap_err();
    assert!(error.worker_died().is_some(), "{error}");
    let said = format!("{error:?}");
    assert!(
        said.starts_with("failed to copy to device memory: worker `node/chip0` (pid "),
        "{said}"
    );
    let error = node
        .run(|orch| orch.submit_next_level(&increment, args().inout(&x), any()))
        .unwrap_err();
    assert!(matches!(error, Error::Submit(_)), "{error}");
    node.close().unwrap();
}
