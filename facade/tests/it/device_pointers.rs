//! Wrong and early uses of device pointers: refused before any device call, whatever the allocator hands out.

use facade::{AddressReuse, DeviceBuffer, Error, MemoryError, SubmitError, Worker, any, args, on};
use nix::sys::signal::Signal;

use crate::support::{Gate, INCREMENT, VECTOR_ADD, builder, directory, kill, nothing};

#[track_caller]
fn refused<T: std::fmt::Debug>(outcome: Result<T, Error>) {
    let expected = matches!(
        outcome,
        Err(Error::Memory(
            MemoryError::Refused(_) | MemoryError::NotBase { .. } | MemoryError::Length { .. }
        ) | Error::Submit(SubmitError::Device { .. } | SubmitError::DeviceArgument { .. }))
    );
    assert!(expected, "{outcome:?}");
}

/// Checks that `attempts` called no device.
fn without_device_calls(node: &Worker, attempts: impl FnOnce()) {
    let before = node.memory_report().unwrap();
    attempts();
    assert_eq!(node.memory_report().unwrap(), before, "a device was called");
}

fn same_address(a: DeviceBuffer<f32>, b: DeviceBuffer<f32>) {
    assert_eq!(
        a.ptr().base(),
        b.ptr().base(),
        "the hard case is not set up"
    );
}

pub(crate) fn no_wrong_use_of_equal_addresses_reaches_a_device() {
    let node = builder(2, 1).build().unwrap();
    let add = node.register_chip(&VECTOR_ADD).unwrap();
    let increment = node.register_chip(&INCREMENT).unwrap();
    let f = node.register_fn("f", nothing).unwrap();
    node.init().unwrap();
    let (a, b) = (
        node.malloc::<f32>(0, 64).unwrap(),
        node.malloc::<f32>(1, 64).unwrap(),
    );
    same_address(a, b);
    without_device_calls(&node, || {
        let submit = |list, target| node.run(|orch| orch.submit_next_level(&add, list, target));
        refused(submit(args().input(&a).input(&a).output(&a), on(1)));
        refused(submit(args().input(&a).input(&b).output(&a), on(0)));
        refused(submit(args().input(&a).input(&b).output(&a), any()));
        refused(node.run(|orch| orch.submit_sub(&f, args().input(&a))));
        let pair = |x, y| vec![(args().inout(&a), x), (args().inout(&b), y)];
        let group = |members| node.run(|orch| orch.submit_next_level_group(&increment, members));
        refused(group(pair(on(1), on(0))));
        let one = group(vec![
            (args().inout(&a.slice(0..1).unwrap()), any()),
            (args().inout(&a.slice(1..2).unwrap()), any()),
        ]);
        assert!(
            matches!(
                one,
                Err(Error::Submit(
                    SubmitError::Group { .. } | SubmitError::Graph { .. }
                ))
            ),
            "{one:?}"
        );
    });
    // One buffer has one key, however its target was found.
    node.copy_to(a, &[0.0; 64]).unwrap();
    node.run(|orch| {
        for step in 0..20 {
            let target = if step % 2 == 0 { on(0) } else { any() };
            orch.submit_next_level(&increment, args().inout(&a), target)?;
        }
        Ok(())
    })
    .unwrap();
    let mut back = [0.0; 64];
    node.copy_from(&mut back, a).unwrap();
    assert_eq!(back, [20.0; 64]);
    node.close().unwrap();
}

pub(crate) fn a_pointer_whose_address_is_in_use_again_at_once_stays_dead() {
    let node = builder(1, 0)
        .address_reuse(AddressReuse::AtOnce)
        .build()
        .unwrap();
    let increment = node.register_chip(&INCREMENT).unwrap();
    node.init().unwrap();
    let old = node.malloc::<f32>(0, 64).unwrap();
    node.free(old).unwrap();
    let new = node.malloc::<f32>(0, 64).unwrap();
    same_address(old, new);
    without_device_calls(&node, || {
        refused(node.copy_to(old, &[1.0; 64]));
        refused(node.copy_from(&mut [1.0; 64], old));
        refused(node.copy_to(old.slice(3..4).unwrap(), &[1.0]));
        refused(node.free(old));
        refused(node.free_after_runs(old));
        for target in [on(0), any()] {
            let list = args().inout(&old);
            refused(node.run(|orch| orch.submit_next_level(&increment, list, target)));
        }
    });
    node.copy_to(new, &[2.0; 64]).unwrap();
    node.close().unwrap();
}

pub(crate) fn ranges_are_checked_without_overflow_and_free_takes_the_base_only() {
    let node = builder(1, 0).build().unwrap();
    node.init().unwrap();
    let whole = node.malloc::<u8>(0, 4096).unwrap();
    let neighbour = node.malloc::<u8>(0, 4096).unwrap();
    node.copy_to(whole, &[0; 4096]).unwrap();
    without_device_calls(&node, || {
        for range in [
            4096..4097,
            0..4097,
            1..usize::MAX,
            usize::MAX - 1..usize::MAX,
        ] {
            assert!(whole.slice(range.clone()).is_err(), "{range:?}");
        }
        // A slice cannot reach into the next allocation, nor be freed for the whole.
        assert!(whole.slice(4000..4096).unwrap().slice(0..97).is_err());
        for part in [
            whole.slice(0..4095),
            whole.slice(1..4096),
            whole.slice(4095..4096),
        ] {
            refused(node.free(part.unwrap()));
        }
        refused(node.copy_to(whole, &[0; 4097]));
    });
    for (range, byte) in [(0..4096, 1), (4095..4096, 2), (17..18, 3)] {
        let part = whole.slice(range.clone()).unwrap();
        node.copy_to(part, &vec![byte; range.len()]).unwrap();
    }
    let mut back = vec![0; 4096];
    node.copy_from(&mut back, whole).unwrap();
    assert_eq!((back[0], back[17], back[18], back[4095]), (1, 3, 1, 2));
    // An empty range touches nothing, wherever it is.
    node.copy_to(whole.slice(4096..4096).unwrap(), &[]).unwrap();
    node.copy_from(&mut [], neighbour.slice(0..0).unwrap())
        .unwrap();
    node.close().unwrap();
}

pub(crate) fn memory_of_an_unfinished_task_is_neither_freed_nor_copied_on_any_path() {
    let dir = directory();
    let node = builder(2, 1).build().unwrap();
    let increment = node.register_chip(&INCREMENT).unwrap();
    let gate = Gate::new(dir.path(), "gate");
    let inside = gate.clone();
    let wait = node
        .register_fn("wait", move |_| {
            inside.pass();
            Ok(())
        })
        .unwrap();
    node.init().unwrap();
    for path in ["single", "group", "abandoned"] {
        let (x, y) = (
            node.malloc::<f32>(0, 4).unwrap(),
            node.malloc::<f32>(1, 4).unwrap(),
        );
        node.copy_to(x, &[0.0; 4]).unwrap();
        node.copy_to(y, &[0.0; 4]).unwrap();
        let run = node
            .submit(|orch| {
                let first = orch.submit_sub(&wait, args())?;
                let list = |memory| args().inout(memory).after(&first);
                match path {
                    "group" => {
                        let members = vec![(list(&x), any()), (list(&y), on(1))];
                        orch.submit_next_level_group(&increment, members)
                    }
                    _ => orch.submit_next_level(&increment, list(&x), any()),
                }
                .map(drop)
            })
            .unwrap();
        let run = if path == "abandoned" {
            drop(run);
            None
        } else {
            Some(run)
        };
        refused(node.free(x));
        for copy in [node.copy_to(x, &[9.0; 4]), node.copy_from(&mut [9.0; 4], x)] {
            let Err(Error::Memory(MemoryError::InUse { task, how, .. })) = copy else {
                panic!("{path}: {copy:?}")
            };
            assert_eq!((&*task, how), ("increment", "writes"), "{path}");
        }
        gate.open();
        match run {
            Some(run) => run.wait().unwrap(),
            // Nobody waits for it; a later run on the same memory does.
            None => {
                node.run(|orch| orch.submit_next_level(&increment, args().inout(&x), any()))
                    .unwrap();
            }
        }
        let mut back = [0.0; 4];
        node.copy_from(&mut back, x).unwrap();
        assert_eq!(
            back,
            [if path == "abandoned" { 2.0 } else { 1.0 }; 4],
            "{path}"
        );
        node.free(x).unwrap();
        refused(node.free(x));
        node.free(y).unwrap();
    }
    assert_eq!(
        node.memory_report().unwrap().chip(0).unwrap().allocations,
        0
    );
    node.close().unwrap();
}

pub(crate) fn memory_is_not_freed_while_the_chip_runs_on_it() {
    let dir = directory();
    let node = builder(1, 0).build().unwrap();
    let gate = Gate::new(dir.path(), "gate");
    // A kernel is a plain function; it finds the gate by its path in the environment of the test.
    let path = dir.path().join("gate");
    let bytes: Vec<u8> = path.to_str().unwrap().bytes().collect();
    let held = node.register_chip(&HELD).unwrap();
    node.init().unwrap();
    let x = node.malloc::<u8>(0, bytes.len()).unwrap();
    node.copy_to(x, &bytes).unwrap();
    let run = node
        .submit(|orch| {
            orch.submit_next_level(&held, args().inout(&x), any())
                .map(drop)
        })
        .unwrap();
    refused(node.free(x));
    node.free_after_runs(x).unwrap();
    refused(node.free_after_runs(x));
    refused(node.run(|orch| orch.submit_next_level(&held, args().inout(&x), any())));
    gate.open();
    run.wait().unwrap();
    assert_eq!(
        node.memory_report().unwrap().chip(0).unwrap().allocations,
        0
    );
    node.close().unwrap();
}

static HELD: facade::ChipCallable = facade::ChipCallable {
    name: "held",
    orchestration: |orch, args| {
        orch.submit("held", facade::core_args().inout(args.tensor(0)?))
            .map(drop)
    },
    kernels: &[facade::Kernel::vector("held", |cx| {
        let path = String::from_utf8(cx.output::<u8>(0)?.to_vec()).expect("a path");
        std::fs::File::open(path).expect("the gate's pipe");
        Ok(())
    })],
};

pub(crate) fn memory_of_a_run_can_be_freed_by_the_run() {
    let node = builder(1, 0).device_memory(1 << 20).build().unwrap();
    let increment = node.register_chip(&INCREMENT).unwrap();
    node.init().unwrap();
    // More than the budget in sum: each run gives back what it took.
    for round in 0..8 {
        let elements = 200 << 10;
        node.run(|orch| {
            let x = orch.malloc::<f32>(0, elements)?;
            orch.copy_to(x, &vec![round as f32; elements])?;
            orch.submit_next_level(&increment, args().inout(&x), any())?;
            orch.free_after_runs(x)
        })
        .unwrap();
    }
    let report = node.memory_report().unwrap();
    assert_eq!(report.chip(0).unwrap().allocations, 0, "{report}");
    node.close().unwrap();
}

pub(crate) fn a_budget_is_kept_and_what_is_wanted_free_and_largest_is_told() {
    let node = builder(2, 0).device_memory(10_000).build().unwrap();
    node.init().unwrap();
    node.malloc::<u8>(0, 4_000).unwrap();
    let refused = node.malloc::<u8>(0, 6_001);
    let Err(Error::Memory(MemoryError::OutOfMemory {
        worker,
        wanted,
        usage,
        ..
    })) = refused
    else {
        panic!("{refused:?}")
    };
    assert_eq!((worker.as_str(), wanted), ("node/chip0", 6_001));
    assert_eq!(
        (usage.total_bytes, usage.used_bytes, usage.free_bytes),
        (10_000, 4_000, 6_000)
    );
    assert_eq!((usage.largest_block_bytes, usage.allocations), (6_000, 1));
    // The budget is that of each chip.
    node.malloc::<u8>(0, 6_000).unwrap();
    node.malloc::<u8>(1, 10_000).unwrap();
    assert!(builder(1, 0).device_memory(0).build().is_err());
    node.close().unwrap();
}

pub(crate) fn a_report_counts_what_was_copied_and_names_the_dead() {
    let node = builder(2, 0).build().unwrap();
    let increment = node.register_chip(&INCREMENT).unwrap();
    node.init().unwrap();
    let (x, host) = (
        node.malloc::<f32>(1, 100).unwrap(),
        node.buffer_from(&[1.0_f32; 50]).unwrap(),
    );
    node.copy_to(x, &[1.0; 100]).unwrap();
    node.run(|orch| {
        orch.submit_next_level(&increment, args().inout(&x), any())?;
        orch.submit_next_level(&increment, args().inout(&host), on(0))
    })
    .unwrap();
    node.copy_from(&mut [0.0; 100], x).unwrap();
    let report = node.memory_report().unwrap();
    let (first, second) = (report.chip(0).unwrap(), report.chip(1).unwrap());
    assert_eq!((first.copied_to_bytes, first.copied_from_bytes), (200, 200));
    assert_eq!(
        (second.copied_to_bytes, second.copied_from_bytes),
        (400, 400)
    );
    assert_eq!((second.allocations, second.leaked), (1, 0));
    assert_eq!(report.copied_to_bytes(), 600);
    kill(node.tree().unwrap().children[1].pid, Signal::SIGKILL);
    while node.health() == facade::Health::Ready {
        std::thread::yield_now();
    }
    let report = node.memory_report().unwrap();
    assert!(report.chip(1).is_none());
    insta::assert_snapshot!(report.to_string());
    node.close().unwrap();
}

pub(crate) fn pointers_of_an_earlier_life_are_refused_after_a_respawn() {
    let node = builder(1, 0)
        .address_reuse(AddressReuse::AtOnce)
        .build()
        .unwrap();
    let increment = node.register_chip(&INCREMENT).unwrap();
    node.init().unwrap();
    let old = node.malloc::<f32>(0, 16).unwrap();
    kill(node.tree().unwrap().children[0].pid, Signal::SIGKILL);
    while node.health() == facade::Health::Ready {
        std::thread::yield_now();
    }
    let dead = node.malloc::<f32>(0, 16).unwrap_err();
    assert!(dead.worker_died().is_some(), "{dead}");
    node.respawn("node/chip0").unwrap();
    let new = node.malloc::<f32>(0, 16).unwrap();
    same_address(old, new);
    let error = node.copy_to(old, &[0.0; 16]).unwrap_err().to_string();
    assert!(error.contains("ended, and its memory with it"), "{error}");
    without_device_calls(&node, || {
        refused(node.copy_from(&mut [0.0; 16], old));
        refused(node.free(old));
        refused(node.run(|orch| orch.submit_next_level(&increment, args().inout(&old), on(0))));
    });
    node.copy_to(new, &[0.0; 16]).unwrap();
    node.close().unwrap();
}
