//! Device memory as a stranger uses it: odd sizes, odd orders, handles of elsewhere; each is told apart in words.

use facade::{AllReduce, Domain, Error, MemoryError, Reduce, SubmitError, args, named, on};

use crate::support::{INCREMENT, builder};

#[track_caller]
fn text<T: std::fmt::Debug>(outcome: Result<T, Error>) -> String {
    outcome.expect_err("an odd use").to_string()
}

#[track_caller]
fn says(found: &str, parts: &[&str]) {
    for part in parts {
        assert!(found.contains(part), "`{part}` is missing in: {found}");
    }
}

pub(crate) fn sizes_that_no_chip_has_are_refused_with_what_there_is() {
    let node = builder(1, 0).build().unwrap();
    node.init().unwrap();
    says(
        &text(node.malloc::<f64>(0, 0)),
        &["0 elements", "above zero"],
    );
    says(
        &text(node.malloc::<f64>(0, usize::MAX)),
        &["elements of 8 bytes", "fit 64 bits"],
    );
    // Nearly all bytes there are: no sum overflows on the way.
    says(
        &text(node.malloc::<u8>(0, usize::MAX)),
        &["node/chip0", "are free"],
    );
    // With holes: what is free in all is not free in one piece.
    let usage = |node: &facade::Worker| *node.memory_report().unwrap().chip(0).unwrap();
    let quarter = (usage(&node).total_bytes / 4) as usize - 4096;
    let blocks = [(); 4].map(|()| node.malloc::<u8>(0, quarter).unwrap());
    for block in [blocks[0], blocks[2]] {
        node.free(block).unwrap();
    }
    let now = usage(&node);
    assert_eq!(
        (now.allocations, now.used_bytes + now.free_bytes),
        (2, now.total_bytes)
    );
    assert!(now.largest_block_bytes < now.free_bytes, "{now:?}");
    let wanted = quarter + quarter / 2;
    let Err(Error::Memory(MemoryError::OutOfMemory {
        wanted: told,
        usage: seen,
        ..
    })) = node.malloc::<u8>(0, wanted)
    else {
        panic!("it fits no hole")
    };
    assert_eq!(
        (told, seen.free_bytes, seen.largest_block_bytes),
        (wanted as u64, now.free_bytes, now.largest_block_bytes)
    );
    // The largest block is no idle word.
    let exact = node
        .malloc::<u8>(0, now.largest_block_bytes as usize)
        .unwrap();
    node.free(exact).unwrap();
    node.close().unwrap();
}

pub(crate) fn parts_that_leave_their_memory_are_errors_and_no_panics() {
    let node = builder(1, 0).build().unwrap();
    node.init().unwrap();
    let x = node.malloc::<u32>(0, 10).unwrap();
    for range in [
        9..11,
        usize::MAX - 1..usize::MAX,
        0..usize::MAX,
        usize::MAX..usize::MAX,
    ] {
        says(&text(x.slice(range)), &["does not lie"]);
    }
    #[expect(clippy::reversed_empty_ranges, reason = "what is refused here")]
    let reversed = x.slice(7..3);
    says(&text(reversed), &["7..3"]);
    assert!(x.reshape(&[usize::MAX, 2]).is_err() && x.reshape(&[3, 3]).is_err());
    let middle = x.slice(3..7).unwrap();
    assert!(middle.slice(0..5).is_err(), "a part of a part stays in it");
    says(
        &text(node.copy_to(middle, &[0; 5])),
        &["copy 5 elements", "has 4"],
    );
    node.copy_to(x, &[1; 10]).unwrap();
    node.copy_to(middle.slice(1..3).unwrap(), &[2; 2]).unwrap();
    let mut back = [0; 10];
    node.copy_from(&mut back, x).unwrap();
    assert_eq!(back, [1, 1, 1, 1, 2, 2, 1, 1, 1, 1]);
    // Empty wherever a slice may be.
    node.copy_to(x.slice(10..10).unwrap(), &[]).unwrap();
    says(&text(node.free(middle)), &["a part of its allocation"]);
    node.free(x).unwrap();
    says(&text(node.free(x)), &["free", "(#"]);
    says(
        &text(node.copy_from(&mut back, x)),
        &["copy from 40 bytes at w0:"],
    );
    node.close().unwrap();
}

pub(crate) fn handles_of_another_tree_are_refused_by_name() {
    let trees = [(); 2].map(|()| builder(2, 0).build().unwrap());
    let increments = trees.each_ref().map(|node| {
        let increment = node.register_chip(&INCREMENT).unwrap();
        node.init().unwrap();
        increment
    });
    // The same address on the same chip under the same entry.
    let [ours, theirs] = trees
        .each_ref()
        .map(|node| node.malloc::<f32>(1, 8).unwrap());
    assert_eq!(ours.ptr().base(), theirs.ptr().base());
    assert_ne!(ours.ptr(), theirs.ptr());
    let node = &trees[0];
    node.copy_to(ours, &[1.0; 8]).unwrap();
    let before = node.memory_report().unwrap();
    says(&text(node.copy_to(theirs, &[2.0; 8])), &["copy to", "w1:"]);
    says(
        &text(node.copy_from(&mut [2.0; 8], theirs)),
        &["copy from", "w1:"],
    );
    says(&text(node.free(theirs)), &["free", "w1:"]);
    says(&text(node.free_after_runs(theirs)), &["free", "w1:"]);
    let task = node.run(|orch| {
        orch.submit_next_level(&increments[0], args().inout(&theirs), on(1))
            .map(drop)
    });
    assert!(
        matches!(task, Err(Error::Submit(SubmitError::Device { .. }))),
        "{task:?}"
    );
    assert_eq!(node.memory_report().unwrap(), before, "a device was called");
    trees[1].free(theirs).unwrap();
    trees.iter().for_each(|node| node.close().unwrap());
}

pub(crate) fn memory_of_an_orchestration_that_fails_is_still_there_and_counted() {
    let node = builder(1, 0).device_memory(8192).build().unwrap();
    let increment = node.register_chip(&INCREMENT).unwrap();
    node.init().unwrap();
    let mut kept = None;
    let failed: Result<(), Error> = node.run(|orch| {
        let x = *kept.insert(orch.malloc::<f32>(0, 1024)?);
        orch.copy_to(x, &[1.0; 1024])?;
        orch.submit_next_level(&increment, args().inout(&x), on(0))?;
        orch.malloc::<f32>(0, 1025).map(drop)
    });
    assert!(
        matches!(failed, Err(Error::Memory(MemoryError::OutOfMemory { .. }))),
        "{failed:?}"
    );
    let x = kept.unwrap();
    let usage = *node.memory_report().unwrap().chip(0).unwrap();
    assert_eq!(
        (usage.allocations, usage.used_bytes, usage.free_bytes),
        (1, 4096, 4096)
    );
    // Once deferred it is gone, in whatever order one asks.
    node.free_after_runs(x).unwrap();
    for again in [
        node.free(x),
        node.free_after_runs(x),
        node.copy_to(x, &[0.0; 1024]),
    ] {
        assert!(
            matches!(again, Err(Error::Memory(MemoryError::Refused(_)))),
            "{again:?}"
        );
    }
    assert_eq!(
        node.memory_report().unwrap().chip(0).unwrap().free_bytes,
        8192
    );
    node.close().unwrap();
}

pub(crate) fn domains_of_one_chip_and_of_all_eight_add_up() {
    let node = builder(8, 0).device_memory(1 << 20).build().unwrap();
    let collectives = node.register_collectives().unwrap();
    node.init().unwrap();
    let empty = node.memory_report().unwrap();
    let alone = node
        .allocate_domain(
            "alone",
            &[5],
            4096,
            &[named::<f32>("x", 7), named::<f32>("y", 7)],
        )
        .unwrap();
    let (x, y) = (
        alone.buffer::<f32>("x").unwrap(),
        alone.buffer::<f32>("y").unwrap(),
    );
    node.copy_to(x[0], &[3.0; 7]).unwrap();
    node.run(|orch| {
        collectives.all_reduce(orch, &x, &y, Reduce::Sum, AllReduce::Ring)?;
        collectives.all_to_all(orch, &x, &y)?;
        collectives.broadcast(orch, &y, 0)?;
        collectives.barrier(orch, &alone)
    })
    .unwrap();
    let mut back = [0.0; 7];
    node.copy_from(&mut back, y[0]).unwrap();
    assert_eq!(back, [3.0; 7]);

    let chips: Vec<u32> = (0..8).collect();
    let buffers = [
        named::<f32>("x", 100),
        named::<f32>("y", 100),
        named::<u8>("bytes", 13),
        named::<u8>("all", 8 * 13),
    ];
    let all = node.allocate_domain("all", &chips, 8192, &buffers).unwrap();
    let (x, y) = (
        all.buffer::<f32>("x").unwrap(),
        all.buffer::<f32>("y").unwrap(),
    );
    // 100 elements are not eight pieces.
    let odd = node.run(|orch| collectives.all_to_all(orch, &x, &y));
    says(
        &text(odd),
        &["all-to-all", "100 elements are not 8 pieces of 12"],
    );
    assert!(all.buffer::<i8>("bytes").is_err(), "as other elements");
    let (bytes, gathered) = (
        all.buffer::<u8>("bytes").unwrap(),
        all.buffer::<u8>("all").unwrap(),
    );
    for (rank, of) in bytes.iter().enumerate() {
        node.copy_to(of, &[rank as u8; 13]).unwrap();
        node.copy_to(x[rank], &[rank as f32; 100]).unwrap();
    }
    // Different types in one run, with lengths that the ranks do not divide.
    node.run(|orch| {
        collectives.all_reduce(orch, &x, &y, Reduce::Sum, AllReduce::Ring)?;
        collectives.all_gather(orch, &bytes, &gathered)
    })
    .unwrap();
    let (mut sum, mut found) = ([0.0; 100], [0_u8; 104]);
    node.copy_from(&mut sum, y[6]).unwrap();
    node.copy_from(&mut found, gathered[3]).unwrap();
    assert_eq!(sum, [28.0; 100]);
    assert!(
        found
            .chunks(13)
            .enumerate()
            .all(|(rank, of)| of == [rank as u8; 13])
    );

    // The report adds up: what each chip holds of its own is what was asked for it, and all of it comes back.
    let report = node.memory_report().unwrap();
    for chip in chips {
        let (usage, before) = (report.chip(chip).unwrap(), empty.chip(chip).unwrap());
        let windows = if chip == 5 { 9 } else { 8 };
        let own = if chip == 5 { 4096 + 8192 } else { 8192 };
        assert_eq!(
            (usage.windows, usage.used_bytes),
            (windows, own),
            "chip {chip}"
        );
        assert_eq!(usage.used_bytes + usage.free_bytes, usage.total_bytes);
        assert_eq!(before.used_bytes, 0);
    }
    [&alone, &all].into_iter().for_each(Domain::release);
    let after = node.memory_report().unwrap();
    assert!((0..8).all(|chip| {
        after
            .chip(chip)
            .is_some_and(|it| it.used_bytes == 0 && it.windows == 0)
    }));
    node.close().unwrap();
}
