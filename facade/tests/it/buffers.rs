//! Shared buffers: who may use them when, and what is left of them.

use std::fs::File;

use facade::{
    BufferError, Error, FaultKind, FunctionHandle, Resource, Settings, TaskCause, Worker, args,
};

use crate::support::{Gate, builder, directory, failure, n_mappings, nothing};

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

/// The rights of the mappings of shared buffers in a process, as the kernel lists them.
fn rights(pid: u32) -> Vec<String> {
    let maps = std::fs::read_to_string(format!("/proc/{pid}/maps")).unwrap();
    let ours = maps.lines().filter(|line| line.contains("memfd:buffer"));
    let rights = ours.map(|line| line.split(' ').nth(1).unwrap().to_owned());
    rights.collect()
}

pub(crate) fn a_worker_that_only_reads_has_a_mapping_that_cannot_be_written() {
    let node = builder(0, 2).build().unwrap();
    let sum = node
        .register_fn("sum", |args| {
            let sum: u32 = args.input::<u32>(0)?.iter().sum();
            args.output::<u32>(1)?[0] = sum;
            Ok(())
        })
        .unwrap();
    let store = node
        .register_fn("store", |args| {
            // What a wild pointer of a reader would do: the mapping itself refuses.
            let [bytes] = args.input::<u32>(0)? else {
                return Err("one element".into());
            };
            let file = std::fs::OpenOptions::new()
                .write(true)
                .open("/proc/self/mem")?;
            std::os::unix::fs::FileExt::write_at(&file, &[1], std::ptr::from_ref(bytes) as u64)?;
            Ok(())
        })
        .unwrap();
    node.init().unwrap();
    let x = node.buffer_from(&[1_u32, 2, 3]).unwrap();
    let y = node.buffer::<u32>(1).unwrap();
    node.run(|orch| orch.submit_sub(&sum, args().input(&x).output(&y)))
        .unwrap();
    assert_eq!(y.to_vec().unwrap(), [6]);
    let user = node.tree().unwrap().children[0].pid;
    let mut found = rights(user);
    found.sort();
    assert_eq!(found, ["r--s", "rw-s"]);
    // Writing to a shared mapping without the right fails even by the kernel's own hand.
    let z = node.buffer_from(&[7_u32]).unwrap();
    failure(node.run(|orch| orch.submit_sub(&store, args().input(&z))));
    assert_eq!(z.to_vec().unwrap(), [7]);
    node.close().unwrap();
}

pub(crate) fn an_input_of_a_worker_cannot_be_written_by_its_own_tasks() {
    let root = builder(0, 1)
        .worker(builder(0, 1).name("below"))
        .build()
        .unwrap();
    let f = root.register_fn("f", nothing).unwrap();
    let deep = f.clone();
    let below = root
        .register_orchestration("below", move |orch, a| {
            let refused = orch.submit_sub(&deep, args().inout(&a.tensor(0)?));
            match refused {
                Err(Error::Buffer(BufferError::ReadOnly { .. })) => Ok(()),
                other => panic!("expected a refusal, found {other:?}"),
            }
        })
        .unwrap();
    root.init().unwrap();
    let x = root.buffer::<u32>(4).unwrap();
    root.run(|orch| orch.submit_next_level(&below, args().input(&x), facade::on(0)))
        .unwrap();
    root.close().unwrap();
}

pub(crate) fn a_captured_buffer_is_refused_and_no_worker_inherits_one() {
    let node = builder(0, 2)
        .start_mode(facade::StartMode::Fork)
        .build()
        .unwrap();
    let x = std::sync::Arc::new(node.buffer::<u32>(4).unwrap());
    let captured = std::sync::Arc::clone(&x);
    let f = node
        .register_fn("f", move |_| {
            captured.view()?;
            Ok(())
        })
        .unwrap();
    node.init().unwrap();
    let refused = failure(node.run(|orch| orch.submit_sub(&f, args())));
    assert!(refused.to_string().contains("captured"), "{refused}");
    for child in &node.tree().unwrap().children {
        assert_eq!(n_mappings(child.pid, "buffer"), 0);
        // Its own mailbox, and none of a sibling.
        assert_eq!(n_mappings(child.pid, "mailbox"), 1);
    }
    x.release().unwrap();
    node.close().unwrap();
}

pub(crate) fn a_captured_buffer_may_be_dropped_by_a_worker() {
    let node = builder(0, 1)
        .start_mode(facade::StartMode::Fork)
        .build()
        .unwrap();
    // The only handle there is: its drop is the one that would tell the engine.
    let only = std::sync::Mutex::new(Some(node.buffer::<u32>(4).unwrap()));
    let f = node
        .register_fn("f", move |_| {
            drop(only.lock().unwrap().take());
            Ok(())
        })
        .unwrap();
    node.init().unwrap();
    let y = node.buffer::<u32>(4).unwrap();
    for _ in 0..2 {
        node.run(|orch| orch.submit_sub(&f, args().inout(&y)))
            .unwrap();
    }
    node.close().unwrap();
}

pub(crate) fn a_buffer_is_not_released_under_a_task_on_any_path() {
    let dir = directory();
    let gate = Gate::new(dir.path(), "gate");
    let root = builder(0, 2)
        .worker(builder(0, 1).name("below"))
        .build()
        .unwrap();
    let inside = gate.clone();
    let hold = root
        .register_fn("hold", move |_| {
            inside.pass();
            Ok(())
        })
        .unwrap();
    let nothing = root.register_fn("nothing", nothing).unwrap();
    let deep = nothing.clone();
    let below = root
        .register_orchestration("below", move |orch, a| {
            orch.submit_sub(&deep, args().input(&a.tensor(0)?))
                .map(drop)
        })
        .unwrap();
    root.init().unwrap();
    let gated = root.buffer::<u32>(4).unwrap();
    type Path<'a> = &'a dyn Fn(&mut facade::Orchestrator<'_>, facade::ArgList) -> Result<(), Error>;
    let paths: [(&str, Path<'_>); 4] = [
        ("sub", &|orch, list| {
            orch.submit_sub(&nothing, list).map(drop)
        }),
        ("sub group", &|orch, list| {
            orch.submit_sub_group(&nothing, vec![list, args()])
                .map(drop)
        }),
        ("next level", &|orch, list| {
            orch.submit_next_level(&below, list, facade::on(0))
                .map(drop)
        }),
        ("next-level group", &|orch, list| {
            let members = vec![(list, facade::on(0))];
            orch.submit_next_level_group(&below, members).map(drop)
        }),
    ];
    for (path, submit) in paths {
        let x = root.buffer::<u32>(4).unwrap();
        let handle = root
            .submit(|orch| {
                orch.submit_sub(&hold, args().inout(&gated))?;
                // Queued behind the one that holds the gate.
                submit(orch, args().input(&x).input(&gated))
            })
            .unwrap();
        let refused = x.release();
        assert!(
            matches!(refused, Err(Error::Buffer(BufferError::InUse { .. }))),
            "{path}: queued"
        );
        // Abandoned by its waiter: the run goes on by itself, and the buffer stays in use.
        let abandoned = handle.wait_for(std::time::Duration::from_millis(1));
        assert!(
            abandoned.is_none() && x.release().is_err(),
            "{path}: abandoned"
        );
        gate.open();
        handle.wait().unwrap();
        x.release().unwrap();
        x.release().unwrap();
        assert!(x.view().is_err(), "{path}: a released buffer gives no view");
        let again = root.run(|orch| submit(orch, args().input(&x)));
        assert!(again.is_err(), "{path}: a released buffer is no argument");
    }
    root.close().unwrap();
}

/// A worker that is busy reads no announcements; those of the tasks behind it wait for it.
pub(crate) fn as_many_new_buffers_as_a_task_may_name_reach_a_busy_worker() {
    const MOST: usize = 128;
    let dir = directory();
    let gate = Gate::new(dir.path(), "gate");
    let inside = gate.clone();
    let node = builder(0, 1).build().unwrap();
    let wait = node
        .register_fn("wait", move |_| {
            inside.pass();
            Ok(())
        })
        .unwrap();
    let fill = node
        .register_fn("fill", |args| {
            for index in 0..args.n_tensors() {
                args.output::<u32>(index)?[0] = index as u32 + 1;
            }
            Ok(())
        })
        .unwrap();
    node.init().unwrap();
    let make = |n: usize| -> Vec<_> { (0..n).map(|_| node.buffer::<u32>(4).unwrap()).collect() };
    let all = |buffers: &[facade::Buffer<u32>]| {
        buffers
            .iter()
            .fold(args(), |list, buffer| list.inout(buffer))
    };
    let rounds = [make(MOST), make(MOST), make(MOST)];
    let handle = node
        .submit(|orch| {
            orch.submit_sub(&wait, args())?;
            for buffers in &rounds {
                orch.submit_sub(&fill, all(buffers))?;
            }
            Ok(())
        })
        .unwrap();
    gate.open();
    handle.wait().unwrap();
    for buffers in &rounds {
        for (index, buffer) in buffers.iter().enumerate() {
            assert_eq!(buffer.to_vec().unwrap()[0], index as u32 + 1);
        }
    }
    let more = make(MOST + 1);
    let refused = node
        .run(|orch| orch.submit_sub(&fill, all(&more)))
        .unwrap_err();
    let Error::Submit(facade::SubmitError::TooManyBuffers { found, max, .. }) = refused else {
        panic!("{refused}")
    };
    assert_eq!((found, max), (MOST + 1, MOST));
    node.run(|orch| orch.submit_sub(&fill, all(&more[1..])))
        .unwrap();
    node.close().unwrap();
}

/// A node whose one sub worker may have few files open, and a function that writes 7.
fn cramped(open_files: u64) -> (Worker, FunctionHandle) {
    let settings = Settings::new().limit(Resource::OpenFiles, open_files);
    let node = builder(0, 1).each_sub_worker(settings).build().unwrap();
    let seven = node
        .register_fn("seven", |args| {
            args.output::<u32>(0)?[0] = 7;
            Ok(())
        })
        .unwrap();
    node.init().unwrap();
    (node, seven)
}

pub(crate) fn a_buffer_that_found_no_descriptor_in_a_worker_is_mapped_when_there_is_one() {
    let (node, seven) = cramped(32);
    let mut mapped = Vec::new();
    let (unmapped, error) = loop {
        assert!(mapped.len() < 32, "the limit was never reached");
        let buffer = node.buffer::<u32>(4).unwrap();
        match node.run(|orch| orch.submit_sub(&seven, args().output(&buffer))) {
            Ok(_) => mapped.push(buffer),
            failed => break (buffer, failure(failed)),
        }
    };
    let TaskCause::Remote(remote) = &error.cause else {
        panic!("{error}")
    };
    assert_eq!(remote.kind, FaultKind::Mapping, "{error}");
    assert!(error.to_string().contains("limit of open files"), "{error}");
    assert_eq!(unmapped.to_vec().unwrap()[0], 0);
    mapped.truncate(mapped.len() / 2);
    node.run(|orch| {
        for buffer in mapped.iter().chain([&unmapped]) {
            orch.submit_sub(&seven, args().output(buffer))?;
        }
        Ok(())
    })
    .unwrap();
    assert_eq!(unmapped.to_vec().unwrap()[0], 7);
    node.close().unwrap();
}

pub(crate) fn a_task_that_found_no_descriptor_to_send_leaves_its_worker_usable() {
    let (node, seven) = cramped(32);
    let buffer = node.buffer::<u32>(4).unwrap();
    let every_descriptor: Vec<File> = std::iter::from_fn(|| File::open("/dev/null").ok()).collect();
    let error = failure(node.run(|orch| orch.submit_sub(&seven, args().output(&buffer))));
    assert!(matches!(error.cause, TaskCause::NotSent(_)), "{error}");
    drop(every_descriptor);
    node.run(|orch| orch.submit_sub(&seven, args().output(&buffer)))
        .unwrap();
    assert_eq!(buffer.to_vec().unwrap()[0], 7);
    node.close().unwrap();
}
