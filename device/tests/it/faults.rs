//! Faults that are injected into a simulated chip, and what is left of it afterwards.

use std::time::Duration;

use device::{DeviceError, SimFault, SimOptions, TaskFault};

use crate::support::{FOUR_TASKS, FourTasks, chain, sim};

fn with_fault(fault: SimFault) -> SimOptions {
    SimOptions {
        faults: vec![fault],
        op_timeout: Duration::ZERO,
        ..SimOptions::default()
    }
}

#[test]
fn a_hardware_fault_names_its_place_and_blocks_the_chip_until_a_probe_passes() {
    let fault = SimFault::Task {
        run: 1,
        task: 2,
        kind: TaskFault::Hardware,
    };
    let mut options = with_fault(fault);
    options.faults.push(SimFault::Probe { times: 1 });
    let mut chip = sim(options);
    let work = FourTasks::on(&mut *chip, 8);
    let slot = chip.register(&FOUR_TASKS).unwrap();
    device::run(&mut *chip, slot, work.args.clone()).unwrap();

    let error = device::run(&mut *chip, slot, work.args.clone()).unwrap_err();
    assert_eq!(
        chain(&error),
        "execute task 2 (kernel `mul`, block 0, AIC core 0) of `four_tasks` on chip 0: \
         hardware fault; the chip is unusable until a probe passes"
    );
    let refused = chip.prepare(slot, work.args.clone()).unwrap_err();
    assert!(matches!(refused, DeviceError::Unusable { .. }), "{refused}");
    assert!(
        chip.unusable()
            .is_some_and(|cause| cause.contains("kernel `mul`"))
    );

    assert!(chip.probe().is_err(), "the first probe still fails");
    assert!(chip.unusable().is_some());
    chip.probe().unwrap();
    assert_eq!(chip.memory().unwrap().allocations, 0, "it comes back empty");
    let work = FourTasks::on(&mut *chip, 8);
    device::run(&mut *chip, slot, work.args.clone()).unwrap();
    work.check(&mut *chip);
}

#[test]
fn a_hanging_task_ends_its_run_at_the_time_limit() {
    let mut chip = sim(with_fault(SimFault::Task {
        run: 0,
        task: 0,
        kind: TaskFault::Hang,
    }));
    let work = FourTasks::on(&mut *chip, 8);
    let slot = chip.register(&FOUR_TASKS).unwrap();
    let error = device::run(&mut *chip, slot, work.args.clone()).unwrap_err();
    assert!(
        matches!(error, DeviceError::Timeout { task, .. } if task.kernel == "add"),
        "{error}"
    );
    chip.probe().unwrap();
    assert_eq!(chip.memory().unwrap().allocations, 0, "it comes back empty");
    let work = FourTasks::on(&mut *chip, 8);
    device::run(&mut *chip, slot, work.args.clone()).unwrap();
    work.check(&mut *chip);
}

#[test]
fn runs_launched_behind_a_fault_are_refused_and_the_next_chip_is_unaffected() {
    let mut chip = sim(with_fault(SimFault::Task {
        run: 0,
        task: 1,
        kind: TaskFault::Hardware,
    }));
    let mut other = sim(SimOptions::default());
    let work = FourTasks::on(&mut *chip, 8);
    let slot = chip.register(&FOUR_TASKS).unwrap();
    let runs = [(); 2].map(|()| {
        let run = chip.prepare(slot, work.args.clone()).unwrap();
        chip.launch(run).unwrap();
        run
    });
    let outcomes = runs.map(|run| {
        while chip.poll(run).unwrap() == device::Progress::Running {}
        chip.finalize(run).unwrap_err()
    });
    assert!(
        matches!(outcomes[0], DeviceError::Fault { .. }),
        "{}",
        outcomes[0]
    );
    assert!(
        matches!(outcomes[1], DeviceError::Unusable { .. }),
        "{}",
        outcomes[1]
    );

    let work = FourTasks::on(&mut *other, 8);
    let slot = other.register(&FOUR_TASKS).unwrap();
    device::run(&mut *other, slot, work.args.clone()).unwrap();
    work.check(&mut *other);
}

#[test]
fn a_refused_free_leaks_that_allocation_and_says_so() {
    let mut chip = sim(with_fault(SimFault::Free { nth: 0 }));
    let (leaked, fine) = (chip.malloc(10).unwrap(), chip.malloc(10).unwrap());
    let error = chip.free(leaked).unwrap_err();
    assert!(matches!(error, DeviceError::FreeFailed { .. }), "{error}");
    chip.free(fine).unwrap();
    let memory = chip.memory().unwrap();
    assert_eq!((memory.allocations, memory.used_bytes > 0), (0, true));
    assert!(
        chip.copy_to(leaked, &[0]).is_err(),
        "a leak is no live pointer"
    );
}

#[test]
fn two_chips_hand_out_equal_addresses_and_share_nothing() {
    let (mut a, mut b) = (sim(SimOptions::default()), sim(SimOptions::default()));
    let address = a.malloc(4).unwrap();
    assert_eq!(b.malloc(4).unwrap(), address);
    a.copy_to(address, &[1; 4]).unwrap();
    b.copy_to(address, &[2; 4]).unwrap();
    let mut found = [0; 4];
    a.copy_from(&mut found, address).unwrap();
    assert_eq!(found, [1; 4]);
}

#[test]
fn a_stray_write_fails_its_run_with_task_and_argument_and_the_chip_goes_on() {
    let fault = SimFault::Task {
        run: 0,
        task: 1,
        kind: TaskFault::StrayWrite,
    };
    let mut chip = sim(with_fault(fault));
    let work = FourTasks::on(&mut *chip, 8);
    let slot = chip.register(&FOUR_TASKS).unwrap();
    let error = device::run(&mut *chip, slot, work.args.clone()).unwrap_err();
    assert_eq!(
        chain(&error),
        "execute task 1 (kernel `sub`, block 0, AIV core 1) of `four_tasks` on chip 0: \
         stay inside tensor argument 2: bytes behind its allocation were overwritten"
    );
    assert!(chip.unusable().is_none());
    device::run(&mut *chip, slot, work.args.clone()).unwrap();
    work.check(&mut *chip);
}
