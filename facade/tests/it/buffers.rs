//! Shared buffers: who may use them when, and what is left of them.

use facade::{BufferError, Error, args};

use crate::support::{Gate, builder, directory, n_mappings, nothing};

pub(crate) fn a_buffer_that_a_task_writes_cannot_be_read_released_or_written() {
    let dir = directory();
    let gate = Gate::new(dir.path(), "gate");
    let node = builder(0, 1).build().unwrap();
    let inside = gate.clone();
    let slow = node
        .register_fn("slow", move |_| {
            inside.pass();
            Ok(())
        })
        .unwrap();
    node.init().unwrap();
    let (read, written) = (
        node.buffer::<u32>(4).unwrap(),
        node.buffer::<u32>(4).unwrap(),
    );
    let run = node
        .submit(|orch| {
            orch.submit_sub(&slow, args().input(&read).output(&written))
                .map(drop)
        })
        .unwrap();
    assert_eq!(
        read.to_vec().unwrap(),
        [0; 4],
        "reading beside a reader is fine"
    );
    let in_use = |outcome: Result<(), Error>| {
        assert!(
            matches!(outcome, Err(Error::Buffer(BufferError::InUse { .. }))),
            "{outcome:?}"
        );
    };
    in_use(written.to_vec().map(drop));
    in_use(written.release());
    in_use(read.copy_from(&[1; 4]));
    in_use(read.release());
    gate.open();
    run.wait().unwrap();
    written.to_vec().unwrap();
    read.copy_from(&[1; 4]).unwrap();
    read.release().unwrap();
    read.release().unwrap();
    assert!(matches!(
        read.view(),
        Err(Error::Buffer(BufferError::Released { .. }))
    ));
    let refused = node.run(|orch| orch.submit_sub(&slow, args().input(&read)));
    assert!(matches!(
        refused,
        Err(Error::Buffer(BufferError::Released { .. }))
    ));
    node.close().unwrap();
}

pub(crate) fn a_task_on_a_buffer_that_the_host_changes_is_refused() {
    let node = builder(0, 1).build().unwrap();
    let f = node.register_fn("f", nothing).unwrap();
    node.init().unwrap();
    let x = node.buffer::<u32>(4).unwrap();
    let y = node.buffer::<u32>(4).unwrap();
    {
        let _view = x.view_mut().unwrap();
        let refused = node.run(|orch| orch.submit_sub(&f, args().output(&y).input(&x)));
        assert!(matches!(
            refused,
            Err(Error::Buffer(BufferError::HostView { .. }))
        ));
        // What the refused task held of other buffers was given back.
        y.view_mut().unwrap();
    }
    {
        let _view = x.view().unwrap();
        node.run(|orch| orch.submit_sub(&f, args().input(&x)))
            .unwrap();
        let refused = node.run(|orch| orch.submit_sub(&f, args().inout(&x)));
        assert!(matches!(
            refused,
            Err(Error::Buffer(BufferError::HostView { .. }))
        ));
        assert!(x.view_mut().is_err());
    }
    node.run(|orch| orch.submit_sub(&f, args().inout(&x)))
        .unwrap();
    node.close().unwrap();
}

pub(crate) fn a_released_buffer_is_unmapped_by_every_worker() {
    let root = builder(1, 2)
        .worker(builder(0, 1).name("below"))
        .build()
        .unwrap();
    let f = root.register_fn("f", nothing).unwrap();
    let deep = f.clone();
    let below = root
        .register_orchestration("below", move |orch, a| {
            orch.submit_sub(&deep, args().input(&a.tensor(0)?))
                .map(drop)
        })
        .unwrap();
    root.init().unwrap();
    let tree = root.tree().unwrap();
    let x = root.buffer::<u32>(1 << 16).unwrap();
    root.run(|orch| {
        orch.submit_sub_group(&f, vec![args().input(&x), args().input(&x)])?;
        orch.submit_next_level(&below, args().input(&x), facade::on(1))
    })
    .unwrap();
    let users: Vec<u32> = vec![
        tree.children[2].pid,
        tree.children[3].pid,
        tree.children[1].pid,
        tree.children[1].children[0].pid,
    ];
    assert!(users.iter().all(|&pid| n_mappings(pid, "buffer") == 1));
    x.release().unwrap();
    let deadline = std::time::Instant::now() + std::time::Duration::from_secs(10);
    while users.iter().any(|&pid| n_mappings(pid, "buffer") > 0) {
        assert!(std::time::Instant::now() < deadline, "still mapped");
        std::thread::yield_now();
    }
    root.close().unwrap();
}

pub(crate) fn a_dropped_buffer_lives_until_its_task_has_ended() {
    let dir = directory();
    let gate = Gate::new(dir.path(), "gate");
    let node = builder(0, 1).build().unwrap();
    let inside = gate.clone();
    let copy = node
        .register_fn("copy", move |args| {
            inside.pass();
            args.output::<u32>(1)?
                .copy_from_slice(args.input::<u32>(0)?);
            Ok(())
        })
        .unwrap();
    node.init().unwrap();
    let y = node.buffer::<u32>(3).unwrap();
    let run = {
        let x = node.buffer_from(&[4_u32, 5, 6]).unwrap();
        node.submit(|orch| {
            orch.submit_sub(&copy, args().input(&x).output(&y))
                .map(drop)
        })
        .unwrap()
    };
    gate.open();
    run.wait().unwrap();
    assert_eq!(y.to_vec().unwrap(), [4, 5, 6]);
    node.close().unwrap();
}

pub(crate) fn sizes_that_do_not_fit_are_errors() {
    let node = builder(0, 1).build().unwrap();
    for n in [0, usize::MAX, usize::MAX / 4, 1 << 60] {
        assert!(
            matches!(node.buffer::<f32>(n), Err(Error::Buffer(_))),
            "{n}"
        );
    }
    let x = node.buffer::<f32>(10).unwrap();
    assert!(x.slice(5..11).is_err());
    assert!(x.reshape(&[3, 4]).is_err());
    assert!(x.copy_from(&[0.0; 9]).is_err());
    let square = x.slice(0..9).unwrap().reshape(&[3, 3]).unwrap();
    assert!(square.slice(2, 0..1).is_err());
    assert!(square.transpose(0, 1).unwrap().reshape(&[9]).is_err());
}

pub(crate) fn buffers_made_before_init_work() {
    let node = builder(0, 1).build().unwrap();
    let x = node.buffer_from(&[1_u32, 2, 3]).unwrap();
    let double = node
        .register_fn("double", |args| {
            args.output::<u32>(0)?.iter_mut().for_each(|x| *x *= 2);
            Ok(())
        })
        .unwrap();
    node.init().unwrap();
    node.run(|orch| orch.submit_sub(&double, args().inout(&x)))
        .unwrap();
    assert_eq!(x.to_vec().unwrap(), [2, 4, 6]);
    node.close().unwrap();
}
