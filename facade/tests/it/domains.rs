//! Domains: memory that several chips share, from its allocation to its end.

use facade::{
    AllReduce, Args, ChipArgs, ChipCallable, ChipOrchestrator, DomainError, Error, Kernel,
    KernelContext, KernelError, MemoryError, OrchestrationError, Orchestrator, Reduce, StartMode,
    SubmitError, Worker, any, args, core_args, named, on,
};
use nix::sys::signal::Signal;

use crate::support::{Gate, INCREMENT, builder, directory, failure, kill, n_mappings, pids};

/// `y = x`, for tensors of any layout.
pub(crate) static COPY: ChipCallable = ChipCallable {
    name: "copy",
    orchestration: copy_orchestration,
    kernels: &[Kernel::vector("copy", copy_kernel)],
};

fn copy_orchestration(
    orch: &mut ChipOrchestrator<'_>,
    args: &ChipArgs,
) -> Result<(), OrchestrationError> {
    let (x, y) = (args.tensor(0)?, args.tensor(1)?);
    orch.submit("copy", core_args().input(x).output(y))
        .map(drop)
}

fn copy_kernel(cx: &mut KernelContext<'_>) -> Result<(), KernelError> {
    cx.output::<f32>(1)?.copy_from_slice(cx.input::<f32>(0)?);
    Ok(())
}

/// How many windows each living chip has mapped.
#[track_caller]
fn windows(node: &Worker) -> Vec<u64> {
    let report = node.memory_report().unwrap();
    let usages = report.chips.iter().filter_map(|of| of.usage.as_ref().ok());
    usages.map(|usage| usage.windows).collect()
}

#[track_caller]
fn read(node: &Worker, x: facade::DeviceBuffer<f32>) -> Vec<f32> {
    let mut back = vec![f32::NAN; x.len()];
    node.copy_from(&mut back, x).unwrap();
    back
}

pub(crate) fn every_member_sees_the_zeroed_window_of_every_other() {
    let node = builder(3, 0).build().unwrap();
    let copy = node.register_chip(&COPY).unwrap();
    node.init().unwrap();
    let buffers = [named::<f32>("from", 5), named::<f32>("to", 15)];
    let domain = node
        .allocate_domain("d", &[2, 0, 1], 4096, &buffers)
        .unwrap();
    assert_eq!(
        (domain.ranks(), domain.worker(0), domain.rank_of(1)),
        (3, Some(2), Some(2))
    );
    assert_eq!((domain.worker(3), domain.rank_of(7)), (None, None));
    let (from, to) = (
        domain.buffer::<f32>("from").unwrap(),
        domain.buffer::<f32>("to").unwrap(),
    );
    for rank in 0..3 {
        assert_eq!(read(&node, from[rank]), [0.0; 5]);
        node.copy_to(from[rank], &[rank as f32 + 1.0; 5]).unwrap();
    }
    // Each rank reads the window of each rank into its own.
    node.run(|orch| {
        for reader in 0..3 {
            for (rank, peer) in from.iter().enumerate() {
                let part = to[reader].slice(rank * 5..rank * 5 + 5)?;
                let chip = domain.worker(reader).unwrap();
                orch.submit_next_level(&copy, args().input(&peer).output(&part), on(chip))?;
            }
        }
        Ok(())
    })
    .unwrap();
    let expected: Vec<f32> = [1.0, 2.0, 3.0].iter().flat_map(|x| [*x; 5]).collect();
    (0..3).for_each(|rank| assert_eq!(read(&node, to[rank]), expected, "rank {rank}"));
    node.close().unwrap();
}

pub(crate) fn four_buffers_of_one_window_are_four_places_for_another_chip() {
    let node = builder(2, 0).build().unwrap();
    let copy = node.register_chip(&COPY).unwrap();
    node.init().unwrap();
    let names = ["a", "b", "c", "d"];
    let buffers = names.map(|name| named::<f32>(name, 1));
    let domain = node.allocate_domain("d", &[0, 1], 4096, &buffers).unwrap();
    let out = node.malloc::<f32>(1, 4).unwrap();
    for (idx, name) in names.iter().enumerate() {
        let of_name = domain.buffer::<f32>(name).unwrap();
        node.copy_to(of_name[0], &[idx as f32 + 1.0]).unwrap();
    }
    node.run(|orch| {
        for (idx, name) in names.iter().enumerate() {
            let from = domain.buffer::<f32>(name)?[0];
            let to = out.slice(idx..idx + 1)?;
            // The plain memory decides where it runs.
            orch.submit_next_level(&copy, args().input(&from).output(&to), any())?;
        }
        Ok(())
    })
    .unwrap();
    assert_eq!(read(&node, out), [1.0, 2.0, 3.0, 4.0]);
    node.close().unwrap();
}

pub(crate) fn tasks_of_different_chips_on_one_window_run_in_the_order_of_submission() {
    let node = builder(2, 0).build().unwrap();
    let increment = node.register_chip(&INCREMENT).unwrap();
    let copy = node.register_chip(&COPY).unwrap();
    node.init().unwrap();
    let domain = node
        .allocate_domain("d", &[0, 1], 1024, &[named::<f32>("x", 8)])
        .unwrap();
    let x = domain.buffer::<f32>("x").unwrap();
    node.run(|orch| {
        for step in 0..40 {
            orch.submit_next_level(&increment, args().inout(&x[0]), on(step % 2))?;
        }
        orch.submit_next_level(&copy, args().input(&x[0]).output(&x[1]), on(0))?;
        orch.submit_next_level(&increment, args().inout(&x[0]), on(1))
    })
    .unwrap();
    assert_eq!(
        (read(&node, x[0]), read(&node, x[1])),
        (vec![41.0; 8], vec![40.0; 8])
    );
    node.close().unwrap();
}

pub(crate) fn a_forgotten_domain_goes_with_its_run_also_after_a_failure() {
    let node = builder(2, 1).build().unwrap();
    let increment = node.register_chip(&INCREMENT).unwrap();
    let fail = node.register_fn("fail", |_| Err("no".into())).unwrap();
    node.init().unwrap();
    let buffers = [named::<f32>("x", 8)];
    let (first, second) = node
        .run(|orch| {
            let first = orch.allocate_domain("first", &[0, 1], 1024, &buffers)?;
            let second = orch.allocate_domain("second", &[1], 1024, &buffers)?;
            let x = first.buffer::<f32>("x")?[1];
            orch.copy_to(x, &[1.0; 8])?;
            orch.submit_next_level(&increment, args().inout(&x), on(0))?;
            Ok((first, second))
        })
        .unwrap();
    assert!(
        first.is_freed() && second.is_freed(),
        "{first:?} {second:?}"
    );
    assert_eq!(windows(&node), [0, 0]);
    assert!(matches!(
        first.buffer::<f32>("x"),
        Err(Error::Domain(DomainError::Released { .. }))
    ));
    // A task that fails, an orchestration that fails: the same.
    let mut kept = Vec::new();
    let failed = node.run(|orch| {
        kept.push(orch.allocate_domain("third", &[0, 1], 1024, &buffers)?);
        orch.submit_sub(&fail, args())
    });
    failure(failed);
    let failed: Result<(), Error> = node.run(|orch| {
        kept.push(orch.allocate_domain("fourth", &[1, 0], 1024, &buffers)?);
        let x = kept[1].buffer::<f32>("x")?;
        orch.submit_next_level(&increment, args().inout(&x[0]), on(0))?;
        Err(Error::orchestration("enough"))
    });
    assert!(matches!(failed, Err(Error::Orchestration(_))), "{failed:?}");
    assert!(kept.iter().all(facade::Domain::is_freed), "{kept:?}");
    assert_eq!(windows(&node), [0, 0]);
    for pid in pids(&node.tree().unwrap()) {
        assert_eq!(n_mappings(pid, "buffer"), 0, "a domain is mapped still");
    }
    node.close().unwrap();
}

pub(crate) fn a_retained_domain_lives_until_it_is_released() {
    let node = builder(2, 0).build().unwrap();
    let increment = node.register_chip(&INCREMENT).unwrap();
    node.init().unwrap();
    let domain = node
        .run(|orch| {
            let domain = orch.allocate_domain("d", &[0, 1], 1024, &[named::<f32>("x", 8)])?;
            domain.retain_after_run();
            Ok(domain)
        })
        .unwrap();
    let x = domain.buffer::<f32>("x").unwrap();
    let pids = pids(&node.tree().unwrap());
    pids.iter()
        .for_each(|&pid| assert_ne!(n_mappings(pid, "buffer"), 0, "not mapped"));
    for step in 0..4 {
        node.run(|orch| orch.submit_next_level(&increment, args().inout(&x[1]), on(step % 2)))
            .unwrap();
    }
    assert_eq!(read(&node, x[1]), [4.0; 8]);
    assert!(!domain.is_released());
    domain.release();
    domain.release();
    assert!(domain.is_freed());
    assert_eq!(windows(&node), [0, 0]);
    pids.iter()
        .for_each(|&pid| assert_eq!(n_mappings(pid, "buffer"), 0, "mapped still"));
    for chip in [0, 1] {
        let task =
            node.run(|orch| orch.submit_next_level(&increment, args().inout(&x[1]), on(chip)));
        assert!(
            matches!(task, Err(Error::Submit(SubmitError::Device { .. }))),
            "{task:?}"
        );
    }
    let copy = node.copy_to(x[0], &[0.0; 8]);
    assert!(
        matches!(copy, Err(Error::Memory(MemoryError::Refused(_)))),
        "{copy:?}"
    );
    node.close().unwrap();
}

pub(crate) fn released_and_freed_are_two_facts() {
    let dir = directory();
    let gate = Gate::new(dir.path(), "gate");
    let node = builder(2, 1).build().unwrap();
    let increment = node.register_chip(&INCREMENT).unwrap();
    let inside = gate.clone();
    let wait = node
        .register_fn("wait", move |_| {
            inside.pass();
            Ok(())
        })
        .unwrap();
    node.init().unwrap();
    let domain = node
        .allocate_domain("d", &[0, 1], 1024, &[named::<f32>("x", 8)])
        .unwrap();
    let x = domain.buffer::<f32>("x").unwrap();
    let run = node
        .submit(|orch| {
            let first = orch.submit_sub(&wait, args())?;
            orch.submit_next_level(&increment, args().inout(&x[0]).after(&first), on(1))
                .map(drop)
        })
        .unwrap();
    domain.release();
    assert!(domain.is_released() && !domain.is_freed());
    let late = node.run(|orch| orch.submit_next_level(&increment, args().inout(&x[0]), on(1)));
    assert!(
        matches!(late, Err(Error::Submit(SubmitError::Device { .. }))),
        "{late:?}"
    );
    // The windows that nobody uses are refused as well, and none is unmapped yet.
    let late = node.copy_to(x[1], &[0.0; 8]);
    assert!(
        matches!(late, Err(Error::Memory(MemoryError::Refused(_)))),
        "{late:?}"
    );
    assert_eq!(windows(&node), [2, 2]);
    gate.open();
    run.wait().unwrap();
    assert!(domain.is_freed());
    assert_eq!(windows(&node), [0, 0]);
    node.close().unwrap();
}

pub(crate) fn one_chip_is_in_several_domains() {
    let node = builder(3, 0).build().unwrap();
    let copy = node.register_chip(&COPY).unwrap();
    node.init().unwrap();
    let buffers = [named::<f32>("x", 4)];
    let left = node.allocate_domain("left", &[0, 1], 64, &buffers).unwrap();
    let right = node
        .allocate_domain("right", &[1, 2], 64, &buffers)
        .unwrap();
    let (a, b) = (
        left.buffer::<f32>("x").unwrap(),
        right.buffer::<f32>("x").unwrap(),
    );
    node.copy_to(a[0], &[7.0; 4]).unwrap();
    // From chip 0 over chip 1, which is in both, to chip 2.
    node.run(|orch| {
        orch.submit_next_level(&copy, args().input(&a[0]).output(&b[0]), any())?;
        orch.submit_next_level(&copy, args().input(&b[0]).output(&b[1]), on(2))
    })
    .unwrap();
    assert_eq!(read(&node, b[1]), [7.0; 4]);
    assert_eq!(windows(&node), [2, 4, 2]);
    left.release();
    assert_eq!(windows(&node), [0, 2, 2]);
    assert_eq!(read(&node, b[0]), [7.0; 4]);
    node.close().unwrap();
}

pub(crate) fn a_window_is_refused_where_it_is_not_seen_and_where_that_is_not_decided() {
    let node = builder(3, 0).build().unwrap();
    let increment = node.register_chip(&INCREMENT).unwrap();
    node.init().unwrap();
    let domain = node
        .allocate_domain("d", &[0, 2], 1024, &[named::<f32>("x", 8)])
        .unwrap();
    let x = domain.buffer::<f32>("x").unwrap();
    let before = node.memory_report().unwrap();
    let reason = |target| {
        let task = node.run(|orch| orch.submit_next_level(&increment, args().inout(&x[1]), target));
        match task {
            Err(Error::Submit(SubmitError::Device { reason, .. })) => reason,
            other => panic!("{other:?}"),
        }
    };
    assert!(
        reason(on(1)).contains("belongs to worker 2"),
        "{}",
        reason(on(1))
    );
    assert!(
        reason(any()).contains("candidates are [0, 2]"),
        "{}",
        reason(any())
    );
    let free = node.free(x[1]);
    assert!(
        matches!(free, Err(Error::Memory(MemoryError::Window { .. }))),
        "{free:?}"
    );
    let group = node.run(|orch| {
        let list = || args().input(&x[1]);
        orch.submit_next_level_group(&increment, vec![(list(), on(0)), (list(), on(1))])
    });
    assert!(
        matches!(group, Err(Error::Submit(SubmitError::Device { .. }))),
        "{group:?}"
    );
    assert_eq!(node.memory_report().unwrap(), before, "a device was called");
    node.close().unwrap();
}

pub(crate) fn a_domain_that_does_not_fit_leaves_nothing() {
    let node = builder(2, 0).device_memory(10 << 10).build().unwrap();
    node.init().unwrap();
    let held = node.malloc::<u8>(1, 4 << 10).unwrap();
    let refused = node.allocate_domain("d", &[0, 1], 8 << 10, &[]);
    let Err(Error::Memory(MemoryError::OutOfMemory {
        worker,
        wanted,
        usage,
        ..
    })) = refused
    else {
        panic!("{refused:?}")
    };
    assert_eq!((worker.as_str(), wanted), ("node/chip1", 8 << 10));
    assert_eq!((usage.total_bytes, usage.free_bytes), (10 << 10, 6 << 10));
    assert_eq!(windows(&node), [0, 0]);
    node.free(held).unwrap();
    let domain = node.allocate_domain("d", &[0, 1], 8 << 10, &[]).unwrap();
    assert!(matches!(
        node.malloc::<u8>(0, 4 << 10),
        Err(Error::Memory(MemoryError::OutOfMemory { .. }))
    ));
    domain.release();
    node.malloc::<u8>(0, 4 << 10).unwrap();
    node.close().unwrap();
}

pub(crate) fn a_domain_of_a_dead_member_is_gone_and_another_can_be_made() {
    let node = builder(3, 0).build().unwrap();
    let increment = node.register_chip(&INCREMENT).unwrap();
    node.init().unwrap();
    let buffers = [named::<f32>("x", 8)];
    let domain = node
        .allocate_domain("d", &[0, 1, 2], 1024, &buffers)
        .unwrap();
    let x = domain.buffer::<f32>("x").unwrap();
    kill(node.tree().unwrap().children[1].pid, Signal::SIGKILL);
    while node.health() == facade::Health::Ready {
        std::thread::yield_now();
    }
    // What the dead one owned is gone for all, with an error that says so; what the others own is there.
    let task = node.run(|orch| orch.submit_next_level(&increment, args().inout(&x[1]), on(0)));
    let Err(Error::Submit(SubmitError::Device { reason, .. })) = task else {
        panic!("{task:?}")
    };
    assert!(
        reason.contains("worker 1") && reason.contains("ended"),
        "{reason}"
    );
    node.run(|orch| orch.submit_next_level(&increment, args().inout(&x[2]), on(0)))
        .unwrap();
    let again = node.allocate_domain("d", &[0, 1], 1024, &buffers);
    assert!(again.is_err_and(|error| error.worker_died().is_some()));
    domain.release();
    assert!(domain.is_freed());
    assert_eq!(windows(&node), [0, 0]);
    node.respawn("node/chip1").unwrap();
    let domain = node
        .allocate_domain("d", &[0, 1, 2], 1024, &buffers)
        .unwrap();
    let y = domain.buffer::<f32>("x").unwrap();
    node.run(|orch| orch.submit_next_level(&increment, args().inout(&y[1]), on(2)))
        .unwrap();
    assert_eq!(read(&node, y[1]), [1.0; 8]);
    let stale = node.copy_to(x[1], &[0.0; 8]);
    assert!(
        matches!(stale, Err(Error::Memory(MemoryError::Refused(_)))),
        "{stale:?}"
    );
    node.close().unwrap();
}

/// A living member keeps its windows of a dead one's memory until the domain is released; their names are free at once.
pub(crate) fn memory_of_living_members_comes_and_goes_beside_a_domain_that_lost_one() {
    let node = builder(3, 0).build().unwrap();
    node.init().unwrap();
    let buffers = [named::<f32>("x", 8)];
    let torn = node
        .allocate_domain("torn", &[0, 1, 2], 1024, &buffers)
        .unwrap();
    kill(node.tree().unwrap().children[1].pid, Signal::SIGKILL);
    while node.health() == facade::Health::Ready {
        std::thread::yield_now();
    }
    for _ in 0..8 {
        let memory: Vec<_> = [0, 2]
            .map(|chip| node.malloc::<f32>(chip, 8).unwrap())
            .to_vec();
        let domain = node.allocate_domain("d", &[0, 2], 1024, &buffers).unwrap();
        domain.release();
        memory
            .into_iter()
            .for_each(|memory| node.free(memory).unwrap());
    }
    torn.release();
    assert!(torn.is_freed());
    assert_eq!(windows(&node), [0, 0]);
    node.close().unwrap();
}

/// Sums over the chips below and hands the sum up: what an orchestration that captured nothing can do.
fn sum_below(orch: &mut Orchestrator<'_>, list: &Args) -> Result<(), Error> {
    let (collectives, copy) = (orch.collectives()?, orch.chip("copy")?);
    let domain = orch.allocate_domain("below", &[1, 0], 1024, &[named::<f32>("x", 4)])?;
    let x = domain.buffer::<f32>("x")?;
    for (rank, of) in x.iter().enumerate() {
        orch.copy_to(of, &[rank as f32 + 1.0; 4])?;
    }
    collectives.all_reduce(orch, &x, &x, Reduce::Sum, AllReduce::Ring)?;
    let scratch = orch.malloc::<f32>(0, 4)?;
    orch.submit_next_level(&copy, args().input(&x[0]).output(&scratch), any())?;
    let up = args().input(&scratch).output(&list.tensor(0)?);
    orch.submit_next_level(&copy, up, any())?;
    orch.free_after_runs(scratch)
}

pub(crate) fn an_orchestration_below_the_root_has_domains_also_in_a_spawned_tree() {
    for mode in [StartMode::Fork, StartMode::Spawn] {
        let below = builder(2, 0).start_mode(mode).device_memory(2048);
        let root = builder(0, 0)
            .start_mode(mode)
            .worker(below)
            .build()
            .unwrap();
        root.register_collectives().unwrap();
        root.register_chip(&COPY).unwrap();
        let sum = root.register_orchestration("sum", sum_below).unwrap();
        root.init().unwrap();
        let out = root.buffer::<f32>(4).unwrap();
        // More often than the budget below holds, were anything forgotten.
        for _ in 0..5 {
            root.run(|orch| orch.submit_next_level(&sum, args().output(&out), on(0)))
                .unwrap();
            assert_eq!(out.to_vec().unwrap(), [3.0; 4], "{mode:?}");
            out.copy_from(&[0.0; 4]).unwrap();
        }
        root.close().unwrap();
    }
}
