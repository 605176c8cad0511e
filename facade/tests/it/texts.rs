//! Every kind of error, as a user reads it.

use facade::{Error, MemoryError, SubmitError, Worker, any, args, named, on};

use crate::support::{VECTOR_ADD, builder, nothing};

pub(crate) fn errors_read_as_written() {
    let mut texts = Vec::new();
    let mut note = |error: Error| texts.push(error.to_string());

    note(Worker::node().build().unwrap().init().unwrap_err());
    note(builder(1, 0).devices([0]).build().unwrap_err());
    note(builder(65, 0).build().unwrap_err());
    note(builder(1, 0).name("a/b").build().unwrap_err());
    note(
        builder(1, 0)
            .grace(std::time::Duration::ZERO)
            .build()
            .unwrap_err(),
    );

    let node = builder(1, 1).build().unwrap();
    let add = node.register_chip(&VECTOR_ADD).unwrap();
    let f = node.register_fn("f", nothing).unwrap();
    let odd = node
        .register_fn("odd", |_| Err("the numbers are odd".into()))
        .unwrap();
    note(node.register_fn("f", nothing).unwrap_err());
    note(node.register_orchestration("o", |_, _| Ok(())).unwrap_err());
    note(node.run(|_| Ok(())).unwrap_err());
    node.init().unwrap();
    note(node.register_chip(&VECTOR_ADD).unwrap_err());
    let captured = String::from("x");
    let bound = move |_: &facade::Args| -> facade::TaskResult { Err(captured.clone().into()) };
    note(node.register_fn("bound", bound).unwrap_err());
    let gone = node.register_fn("gone", nothing).unwrap();
    node.unregister(&gone).unwrap();
    note(node.unregister(&gone).unwrap_err());
    note(node.run(|_| node.unregister(&gone)).unwrap_err());

    note(node.buffer::<f32>(0).unwrap_err());
    let x = node.buffer::<f32>(10).unwrap();
    note(x.slice(5..11).unwrap_err());
    note(node.run(|orch| orch.submit_sub(&odd, args())).unwrap_err());
    note(
        node.run(|orch| orch.submit_next_level(&add, args(), on(3)))
            .unwrap_err(),
    );
    note(
        node.run(|orch| orch.submit_next_level(&add, args(), any()))
            .unwrap_err(),
    );
    note(
        node.run(|orch| orch.submit_sub(&f, args().output(&x).output(&x)))
            .unwrap_err(),
    );
    note(node.malloc::<f32>(1, 4).unwrap_err());
    note(node.malloc::<f32>(0, 1 << 40).unwrap_err());
    note(node.load_graphs("/nowhere/graphs").unwrap_err());
    note(
        node.run(|orch| orch.allocate_domain("ring", &[], 64, &[]))
            .unwrap_err(),
    );
    note(node.allocate_domain("ring", &[0, 0], 64, &[]).unwrap_err());
    note(node.allocate_domain("ring", &[0, 4], 64, &[]).unwrap_err());
    let (x, y) = (named::<f32>("x", 4), named::<u8>("x", 1));
    note(
        node.allocate_domain("ring", &[0], 15, std::slice::from_ref(&x))
            .unwrap_err(),
    );
    note(
        node.allocate_domain("ring", &[0], 1024, &[x.clone(), y])
            .unwrap_err(),
    );
    let ring = node.allocate_domain("ring", &[0], 16, &[x]).unwrap();
    note(ring.buffer::<f32>("z").unwrap_err());
    note(ring.buffer::<u8>("x").unwrap_err());
    ring.release();
    note(ring.buffer::<f32>("x").unwrap_err());
    let (task, ptr) = (facade::Name::from("sum"), node.malloc::<f32>(0, 4).unwrap());
    let buffer = ptr.tensor().buffer();
    let how = "copy to";
    note(
        SubmitError::HostCopy {
            callable: task.clone(),
            buffer,
            how,
        }
        .into(),
    );
    let (operation, ptr) = ("copy from", ptr.ptr());
    note(
        MemoryError::CopyUnderWay {
            operation,
            ptr,
            other: how,
        }
        .into(),
    );
    note(
        MemoryError::InUse {
            operation,
            ptr,
            task: task.clone(),
            how: "writes",
        }
        .into(),
    );
    note(
        MemoryError::Leaked {
            ptr,
            reason: "the device refused".to_owned(),
        }
        .into(),
    );
    let worker = facade::Name::from("node");
    note(
        SubmitError::OtherWorker {
            callable: task,
            worker,
        }
        .into(),
    );
    note(node.respawn("node/sub0").unwrap_err());
    node.close().unwrap();
    note(node.run(|_| Ok(())).unwrap_err());

    let texts = texts.join("\n");
    // Owners of buffers are random numbers.
    let mut shown = String::new();
    for part in texts.split_inclusive(" of ") {
        let hex = part.split([' ', ':', ';', ',', '\n']).next().unwrap_or("");
        let is_owner = hex.len() > 12 && hex.chars().all(|c| c.is_ascii_hexdigit());
        shown.push_str(&if is_owner {
            part.replacen(hex, "[owner]", 1)
        } else {
            part.to_owned()
        });
    }
    insta::assert_snapshot!(shown);
}
