//! Groups: tasks that run on several workers at once, in no order among their members.

use facade::{ArgList, Error, SubmitError, args, named, on};

use crate::domains::COPY;
use crate::support::{builder, nothing};

#[track_caller]
fn refused<T: std::fmt::Debug>(outcome: Result<T, Error>) {
    assert!(
        matches!(&outcome, Err(Error::Submit(SubmitError::Group { reason, .. })) if reason.contains("at once")),
        "{outcome:?}"
    );
}

pub(crate) fn members_that_touch_what_another_writes_are_refused() {
    let node = builder(2, 2).build().unwrap();
    let copy = node.register_chip(&COPY).unwrap();
    let sub = node.register_fn("nothing", nothing).unwrap();
    node.init().unwrap();
    let buffers = [named::<f32>("x", 8)];
    let domain = node.allocate_domain("d", &[0, 1], 1024, &buffers).unwrap();
    let x = domain.buffer::<f32>("x").unwrap();
    let (a, b) = (x[0].slice(0..4).unwrap(), x[0].slice(4..8).unwrap());
    let (c, d) = (x[1].slice(0..4).unwrap(), x[1].slice(4..8).unwrap());
    let group = |first: ArgList, second: ArgList| {
        node.run(|orch| orch.submit_next_level_group(&copy, vec![(first, on(0)), (second, on(1))]))
    };
    // Each reads what the other writes; one reads what the other writes; both write.
    refused(group(
        args().input(&c).output(&a),
        args().input(&a).output(&c),
    ));
    refused(group(
        args().input(&a).output(&c),
        args().input(&c).output(&d),
    ));
    refused(group(
        args().input(&c).output(&d),
        args().input(&a).output(&c),
    ));
    refused(group(
        args().input(&a).output(&c),
        args().input(&b).output(&c),
    ));
    let host = node.buffer::<f32>(4).unwrap();
    refused(
        node.run(|orch| {
            orch.submit_sub_group(&sub, vec![args().input(&host), args().inout(&host)])
        }),
    );
    // Both read the same; one member may read and write the same; neighbours are apart.
    node.copy_to(x[0], &[1.0, 1.0, 1.0, 1.0, 2.0, 2.0, 2.0, 2.0])
        .unwrap();
    group(args().input(&a).output(&c), args().input(&a).output(&d)).unwrap();
    group(args().input(&b).output(&c), args().input(&a).output(&d)).unwrap();
    let mut back = [0.0; 8];
    node.copy_from(&mut back, x[1]).unwrap();
    assert_eq!(back, [2.0, 2.0, 2.0, 2.0, 1.0, 1.0, 1.0, 1.0]);
    node.close().unwrap();
}
