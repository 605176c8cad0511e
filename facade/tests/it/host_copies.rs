//! Copies between the host and device memory beside tasks and beside each other: of two that conflict the second is refused.

use facade::{Error, MemoryError, SubmitError, args, named, on};

use crate::support::{Gate, INCREMENT, STAND, builder, directory, n_mappings, stand_at};

pub(crate) fn what_conflicts_with_a_copy_under_way_is_refused_until_it_is_over() {
    let dir = directory();
    let gate = Gate::new(dir.path(), "gate");
    let node = builder(2, 0).build().unwrap();
    let stand = node.register_chip(&STAND).unwrap();
    let increment = node.register_chip(&INCREMENT).unwrap();
    node.init().unwrap();
    let buffers = [named::<f32>("x", 8)];
    let domain = node.allocate_domain("d", &[0, 1], 1024, &buffers).unwrap();
    let x = domain.buffer::<f32>("x").unwrap();
    let place = stand_at(&node, 0, &gate);
    let run = node
        .submit(|orch| {
            let list = args().input(&place);
            orch.submit_next_level(&stand, list, on(0)).map(drop)
        })
        .unwrap();
    let task = || node.run(|orch| orch.submit_next_level(&increment, args().inout(&x[0]), on(1)));
    std::thread::scope(|scope| {
        // Chip 0 is in a task, and serves no copy until the gate opens.
        let there = gate.reader_is_there();
        let me = std::process::id();
        let before = n_mappings(me, "buffer");
        let copy = scope.spawn(|| node.copy_to(x[0], &[1.0; 8]));
        // The copy has begun when it has the memory for its steps.
        while n_mappings(me, "buffer") == before {
            std::thread::yield_now();
        }
        let beside = task();
        assert!(
            matches!(
                beside,
                Err(Error::Submit(SubmitError::HostCopy { how: "copy to", .. }))
            ),
            "{beside:?}"
        );
        for (beside, name) in [
            (node.copy_from(&mut [0.0; 8], x[0]), "copy from"),
            (node.copy_to(x[0].slice(7..8).unwrap(), &[2.0]), "copy to"),
        ] {
            let Err(Error::Memory(MemoryError::CopyUnderWay {
                operation, other, ..
            })) = beside
            else {
                panic!("{beside:?}")
            };
            assert_eq!((operation, other), (name, "copy to"));
        }
        // Other bytes are nobody's concern.
        let beside = node.submit(|orch| {
            let list = args().inout(&x[1]);
            orch.submit_next_level(&increment, list, on(1)).map(drop)
        });
        drop(there);
        copy.join().unwrap().unwrap();
        beside.unwrap().wait().unwrap();
    });
    run.wait().unwrap();
    task().unwrap();
    let mut back = [0.0; 8];
    node.copy_from(&mut back, x[0]).unwrap();
    assert_eq!(back, [2.0; 8]);
    node.close().unwrap();
}
