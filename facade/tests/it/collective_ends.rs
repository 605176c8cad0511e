//! Collectives that end badly, and collectives of several domains that share chips.

use facade::{AllReduce, Error, Health, Reduce, args, named, on};
use nix::sys::signal::Signal;

use crate::domains::COPY;
use crate::support::{Gate, STAND, builder, directory, failure, kill, stand_at};

/// ```text
/// chip 2   | at the gate ... killed
/// others   | the steps of the ring that need nothing of rank 2 | skipped
/// ```
pub(crate) fn a_rank_that_dies_in_a_collective_fails_its_run_and_nobody_hangs() {
    let dir = directory();
    let gate = Gate::new(dir.path(), "gate");
    let node = builder(4, 0).build().unwrap();
    let collectives = node.register_collectives().unwrap();
    let stand = node.register_chip(&STAND).unwrap();
    node.init().unwrap();
    let place = stand_at(&node, 2, &gate);
    let buffers = [named::<f32>("x", 1000)];
    let mut domain = None;
    let run = node
        .submit(|orch| {
            let d = domain.insert(orch.allocate_domain("d", &[0, 1, 2, 3], 1 << 13, &buffers)?);
            let x = d.buffer::<f32>("x")?;
            for of in x.iter() {
                orch.copy_to(of, &[1.0; 1000])?;
            }
            orch.submit_next_level(&stand, args().input(&place), on(2))?;
            collectives.all_reduce(orch, &x, &x, Reduce::Sum, AllReduce::Ring)
        })
        .unwrap();
    let domain = domain.expect("set by the orchestration");
    let there = gate.reader_is_there();
    kill(node.tree().unwrap().children[2].pid, Signal::SIGKILL);
    let error = failure(run.wait());
    let text = error.to_string();
    assert!(
        text.contains("node/chip2") && text.contains("SIGKILL"),
        "{text}"
    );
    drop(there);
    // The domain went with its run, on those that live; the one that died took its part along.
    assert!(domain.is_released() && domain.is_freed());
    let report = node.memory_report().unwrap();
    for chip in [0, 1, 3] {
        let usage = report.chip(chip).unwrap();
        assert_eq!((usage.windows, usage.leaked), (0, 0), "chip {chip}");
    }
    assert!(matches!(node.health(), Health::Degraded { .. }));
    // The others go on among themselves,
    let smaller = node
        .allocate_domain("three", &[3, 0, 1], 1 << 13, &buffers)
        .unwrap();
    let x = smaller.buffer::<f32>("x").unwrap();
    let sum =
        || node.run(|orch| collectives.all_reduce(orch, &x, &x, Reduce::Sum, AllReduce::Ring));
    for of in x.iter() {
        node.copy_to(of, &[2.0; 1000]).unwrap();
    }
    sum().unwrap();
    let mut back = [0.0; 1000];
    node.copy_from(&mut back, x[2]).unwrap();
    assert_eq!(back, [6.0; 1000]);
    // and with the dead one as soon as it is back.
    node.respawn("node/chip2").unwrap();
    let whole = node
        .allocate_domain("four", &[0, 1, 2, 3], 1 << 13, &buffers)
        .unwrap();
    let y = whole.buffer::<f32>("x").unwrap();
    node.run(|orch| collectives.broadcast(orch, &y, 2)).unwrap();
    node.close().unwrap();
}

pub(crate) fn a_collective_that_a_dead_rank_makes_impossible_is_refused() {
    let node = builder(3, 0).build().unwrap();
    let collectives = node.register_collectives().unwrap();
    node.init().unwrap();
    let buffers = [named::<u8>("x", 90)];
    let domain = node
        .allocate_domain("d", &[0, 1, 2], 4096, &buffers)
        .unwrap();
    let x = domain.buffer::<u8>("x").unwrap();
    kill(node.tree().unwrap().children[1].pid, Signal::SIGKILL);
    while node.health() == Health::Ready {
        std::thread::yield_now();
    }
    for how in [AllReduce::Ring, AllReduce::OneShot] {
        let y = domain.buffer::<u8>("x").unwrap();
        let outcome = node.run(|orch| collectives.all_reduce(orch, &x, &y, Reduce::Max, how));
        // One-shot needs two buffers, and says so first.
        assert!(
            matches!(outcome, Err(Error::Submit(_) | Error::Domain(_))),
            "{outcome:?}"
        );
    }
    domain.release();
    assert!(domain.is_freed());
    node.close().unwrap();
}

/// ```text
/// left    0 1 2          right   3 2 1
/// all-reduce in left, chip 1 hands over, all-reduce in right, chip 2 hands back; again
/// ```
pub(crate) fn collectives_of_domains_that_share_chips_follow_each_other() {
    let node = builder(4, 0).build().unwrap();
    let collectives = node.register_collectives().unwrap();
    let copy = node.register_chip(&COPY).unwrap();
    node.init().unwrap();
    let buffers = [named::<f32>("x", 301)];
    let left = node
        .allocate_domain("left", &[0, 1, 2], 4096, &buffers)
        .unwrap();
    let right = node
        .allocate_domain("right", &[3, 2, 1], 4096, &buffers)
        .unwrap();
    let (a, b) = (
        left.buffer::<f32>("x").unwrap(),
        right.buffer::<f32>("x").unwrap(),
    );
    for rank in 0..3 {
        node.copy_to(a[rank], &[1.0 + rank as f32; 301]).unwrap();
        node.copy_to(b[rank], &[1.0; 301]).unwrap();
    }
    let (mut expected_a, mut expected_b) = ([1.0_f32, 2.0, 3.0], [1.0_f32; 3]);
    let rounds = 4;
    node.run(|orch| {
        for _ in 0..rounds {
            collectives.all_reduce(orch, &a, &a, Reduce::Sum, AllReduce::Ring)?;
            // Chip 1 is rank 1 on the left and rank 2 on the right.
            orch.submit_next_level(&copy, args().input(&a[1]).output(&b[2]), on(1))?;
            collectives.all_reduce(orch, &b, &b, Reduce::Sum, AllReduce::Ring)?;
            orch.submit_next_level(&copy, args().input(&b[1]).output(&a[2]), on(2))?;
        }
        Ok(())
    })
    .unwrap();
    for _ in 0..rounds {
        expected_a = [expected_a.iter().sum(); 3];
        expected_b[2] = expected_a[1];
        expected_b = [expected_b.iter().sum(); 3];
        expected_a[2] = expected_b[1];
    }
    for rank in 0..3 {
        for (domain, expected) in [(&a, expected_a), (&b, expected_b)] {
            let mut back = [0.0; 301];
            node.copy_from(&mut back, domain[rank]).unwrap();
            assert_eq!(back, [expected[rank]; 301], "rank {rank}");
        }
    }
    // One goes, the other stays whole.
    left.release();
    node.run(|orch| collectives.broadcast(orch, &b, 0)).unwrap();
    assert!(left.is_freed() && !right.is_freed());
    node.close().unwrap();
}
