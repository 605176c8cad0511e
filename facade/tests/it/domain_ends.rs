//! The end of domains beside tasks that have nothing to do with them, and beside the end of everything.

use facade::{AddressReuse, Domain, RunHandle, Worker, args, named, on};

use crate::support::{Gate, INCREMENT, STAND, builder, directory, stand_at};

/// A run with one task, which stands at the gate on a chip.
fn standing(node: &Worker, stand: &facade::ChipHandle, chip: u32, gate: &Gate) -> RunHandle {
    let place = stand_at(node, chip, gate);
    let task = node.submit(|orch| {
        let list = args().input(&place);
        orch.submit_next_level(stand, list, on(chip)).map(drop)
    });
    task.unwrap()
}

/// Waits without driving: the memory goes by itself.
fn await_freed(domain: &Domain) {
    while !domain.is_freed() {
        std::thread::yield_now();
    }
}

/// ```text
/// chip 1   | task at the gate ....................... | unmaps "old"
/// chip 0     unmaps "old"   maps "new" at its address
/// ```
pub(crate) fn an_address_is_free_as_soon_as_its_chip_has_unmapped_it() {
    let dir = directory();
    let gate = Gate::new(dir.path(), "gate");
    let node = builder(2, 0)
        .address_reuse(AddressReuse::AtOnce)
        .build()
        .unwrap();
    let stand = node.register_chip(&STAND).unwrap();
    node.init().unwrap();
    let buffers = [named::<f32>("x", 8)];
    let old = node.allocate_domain("old", &[0, 1], 64, &buffers).unwrap();
    let first = old.buffer::<f32>("x").unwrap()[0];
    let run = standing(&node, &stand, 1, &gate);
    let there = gate.reader_is_there();
    old.release();
    assert!(old.is_released() && !old.is_freed());
    let new = node.allocate_domain("new", &[0], 64, &buffers).unwrap();
    let again = new.buffer::<f32>("x").unwrap()[0];
    assert_eq!(
        first.ptr().base(),
        again.ptr().base(),
        "the hard case is not set up"
    );
    node.copy_to(again, &[1.0; 8]).unwrap();
    assert!(node.copy_to(first, &[2.0; 8]).is_err());
    drop(there);
    run.wait().unwrap();
    await_freed(&old);
    assert!(!new.is_freed());
    node.close().unwrap();
}

/// ```text
/// chip 0   | A at its gate | unmaps the domains of A
/// chip 1                   | unmaps one | B at its gate ... | unmaps the others
/// test       opens A's, waits for A, opens B's
/// ```
pub(crate) fn a_wait_does_not_wait_for_a_chip_that_is_in_the_task_of_another_run() {
    let dir = directory();
    let (gate_a, gate_b) = (Gate::new(dir.path(), "a"), Gate::new(dir.path(), "b"));
    let node = builder(2, 0).build().unwrap();
    let stand = node.register_chip(&STAND).unwrap();
    node.init().unwrap();
    let place = stand_at(&node, 0, &gate_a);
    let mut domains = Vec::new();
    let a = node
        .submit(|orch| {
            for name in ["first", "second", "third", "fourth"] {
                domains.push(orch.allocate_domain(name, &[0, 1], 64, &[])?);
            }
            let list = args().input(&place);
            orch.submit_next_level(&stand, list, on(0)).map(drop)
        })
        .unwrap();
    // It begins when the run before it has ended, before what that forgot is given back.
    let b = standing(&node, &stand, 1, &gate_b);
    gate_a.open();
    a.wait().unwrap();
    let there = gate_b.reader_is_there();
    assert!(domains.iter().all(Domain::is_released));
    // Neither does a release where the chips are in no task.
    let apart = node.allocate_domain("apart", &[0], 64, &[]).unwrap();
    apart.release();
    assert!(apart.is_freed());
    drop(there);
    b.wait().unwrap();
    domains.iter().for_each(await_freed);
    node.close().unwrap();
}

pub(crate) fn what_a_run_without_a_waiter_forgot_goes_by_itself() {
    let node = builder(2, 0).build().unwrap();
    let increment = node.register_chip(&INCREMENT).unwrap();
    node.init().unwrap();
    let buffers = [named::<f32>("x", 8)];
    for _ in 0..20 {
        let mut domains = Vec::new();
        let run = node.submit(|orch| {
            for name in ["first", "second"] {
                let domain = orch.allocate_domain(name, &[0, 1], 64, &buffers)?;
                let x = domain.buffer::<f32>("x")?;
                domains.push(domain);
                orch.submit_next_level(&increment, args().inout(&x[0]), on(1))?;
            }
            Ok(())
        });
        drop(run.unwrap());
        domains.iter().for_each(await_freed);
    }
    node.close().unwrap();
}

pub(crate) fn a_domain_is_gone_with_its_worker_and_a_release_after_that_is_quiet() {
    let node = builder(2, 0).build().unwrap();
    node.init().unwrap();
    let domains = ["before", "after", "never"]
        .map(|name| node.allocate_domain(name, &[1, 0], 64, &[]).unwrap());
    domains[0].release();
    assert!(domains[0].is_freed() && !domains[1].is_freed());
    node.close().unwrap();
    assert!(domains.iter().all(Domain::is_freed), "{domains:?}");
    domains[1].release();
    drop(node);
    domains[2].release();
    assert!(domains.iter().all(|it| it.is_released() && it.is_freed()));
}
