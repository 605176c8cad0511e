//! What every chip must do, whatever is behind the trait.

use std::time::Duration;

use device::{
    AddressReuse, Arch, Chip, ChipArgs, ChipCallable, ChipOrchestrator, DeviceAddress, DeviceError,
    DeviceTensor, Kernel, KernelContext, KernelError, OpenOptions, OrchestrationError, Platform,
    Progress, SimFault, SimOptions, TaskFault, core_args,
};
use rstest::rstest;
use taskgraph::DType;

use crate::fake::{CORE_EXCEPTION, Fake, NOT_READY};
use crate::support::{FOUR_TASKS, FOUR_TASKS_IN_C, FourTasks, chain, sim};

/// A chip to be checked.
struct Subject {
    chip: Box<dyn Chip>,
    /// The four tasks in a form that this chip can run.
    four_tasks: &'static ChipCallable,
}

impl Subject {
    fn simulated(arch: Arch) -> Self {
        let chip = device::open(Platform::Sim(arch), 0, &OpenOptions::default()).unwrap();
        Self {
            chip,
            four_tasks: &FOUR_TASKS,
        }
    }

    /// A vendor's chip, with the library that is there.
    fn vendor(platform: Platform, options: &OpenOptions) -> Result<Self, DeviceError> {
        let chip = device::open(platform, 0, options)?;
        Ok(Self {
            chip,
            four_tasks: &FOUR_TASKS_IN_C,
        })
    }
}

/// Runs a check on a fresh chip of every kind: both simulated ones, the vendor's backend on the
/// fake library, and what hardware there is.
fn on_every_chip(check: impl Fn(&mut dyn Chip, &'static ChipCallable)) {
    let fake = Fake::new(&[]);
    let mut subjects = vec![
        Subject::simulated(Arch::A2a3),
        Subject::simulated(Arch::A5),
        Subject::vendor(Platform::A2a3, &fake.options()).unwrap(),
    ];
    for platform in [Platform::A2a3, Platform::A5] {
        subjects.extend(Subject::vendor(platform, &OpenOptions::default()));
    }
    for Subject {
        mut chip,
        four_tasks,
    } in subjects
    {
        check(&mut *chip, four_tasks);
    }
}

#[rstest]
fn the_vendors_own_chip_is_checked_or_skipped(
    #[values(Platform::A2a3, Platform::A5)] on: Platform,
) {
    if let Err(error) = Subject::vendor(on, &OpenOptions::default()) {
        assert!(
            matches!(error, DeviceError::Missing(_)),
            "{}",
            chain(&error)
        );
        println!("skipped: {}", chain(&error));
    }
}

#[test]
fn memory_holds_what_was_copied_to_it() {
    on_every_chip(|chip, _| {
        let bytes: Vec<u8> = (0..10_000).map(|i| (i % 251) as u8).collect();
        let address = chip.malloc(10_000).unwrap();
        chip.copy_to(address, &bytes).unwrap();
        chip.copy_to(DeviceAddress(address.0 + 100), &[0xFF; 3])
            .unwrap();
        let mut found = vec![0; 104];
        chip.copy_from(&mut found, address).unwrap();
        assert_eq!(found[..100], bytes[..100]);
        assert_eq!(found[100..], [0xFF, 0xFF, 0xFF, bytes[103]]);
        chip.free(address).unwrap();
        assert_eq!(chip.memory().unwrap().allocations, 0);
    });
}

#[test]
fn a_wrong_address_is_refused_and_changes_nothing() {
    on_every_chip(|chip, _| {
        let address = chip.malloc(4096).unwrap();
        let past = DeviceAddress(address.0 + 4095);
        let refused = |result: Result<(), DeviceError>| {
            assert!(
                matches!(result, Err(DeviceError::Address { .. })),
                "{result:?}"
            );
        };
        refused(chip.copy_to(past, &[0; 2]));
        refused(chip.copy_from(&mut [0; 2], past));
        refused(chip.free(past));
        refused(chip.free(DeviceAddress(0)));
        chip.free(address).unwrap();
        refused(chip.free(address));
        refused(chip.copy_to(address, &[0]));
    });
}

#[test]
fn a_run_of_dependent_tasks_gives_the_result_of_program_order() {
    on_every_chip(|chip, four_tasks| {
        let work = FourTasks::on(chip, 1000);
        let slot = chip.register(four_tasks).unwrap();
        let report = device::run(chip, slot, work.args.clone()).unwrap();
        work.check(chip);
        assert_eq!((report.tasks, report.blocks), (4, 4));
        assert_eq!(
            chip.memory().unwrap().allocations,
            3,
            "intermediate memory is gone"
        );
    });
}

#[test]
fn registering_twice_gives_the_same_slot() {
    on_every_chip(|chip, four_tasks| {
        let slot = chip.register(four_tasks).unwrap();
        assert_eq!(chip.register(four_tasks).unwrap(), slot);
    });
}

#[test]
fn a_run_is_accepted_at_its_launch_and_each_step_has_its_order() {
    on_every_chip(|chip, four_tasks| {
        let work = FourTasks::on(chip, 8);
        let slot = chip.register(four_tasks).unwrap();
        let run = chip.prepare(slot, work.args.clone()).unwrap();
        let early = chip.poll(run).unwrap_err();
        assert!(
            matches!(
                early,
                DeviceError::RunState {
                    state: "prepared",
                    ..
                }
            ),
            "{early}"
        );
        chip.launch(run).unwrap();
        assert!(matches!(
            chip.launch(run),
            Err(DeviceError::RunState { .. })
        ));
        while chip.poll(run).unwrap() == Progress::Running {}
        assert_eq!(
            chip.poll(run).unwrap(),
            Progress::Finished,
            "asking again is harmless"
        );
        chip.finalize(run).unwrap();
        assert!(matches!(
            chip.finalize(run),
            Err(DeviceError::UnknownRun { .. })
        ));
        work.check(chip);
    });
}

#[test]
fn runs_are_prepared_up_to_the_limit_while_others_execute() {
    on_every_chip(|chip, four_tasks| {
        let work = FourTasks::on(chip, 8);
        let slot = chip.register(four_tasks).unwrap();
        let first = chip.prepare(slot, work.args.clone()).unwrap();
        chip.launch(first).unwrap();
        let max = chip.max_prepared();
        let more: Vec<_> = (0..max)
            .map(|_| chip.prepare(slot, work.args.clone()).unwrap())
            .collect();
        let refused = chip.prepare(slot, work.args.clone());
        assert!(matches!(refused, Err(DeviceError::TooManyPrepared { .. })));
        let withdrawn = chip.finalize(more[0]).unwrap();
        assert_eq!(withdrawn.tasks, 0, "it was never launched");
        while chip.poll(first).unwrap() == Progress::Running {}
        chip.finalize(first).unwrap();
        work.check(chip);
    });
}

#[test]
fn arguments_outside_live_memory_are_refused_before_the_device_sees_them() {
    on_every_chip(|chip, four_tasks| {
        let slot = chip.register(four_tasks).unwrap();
        let address = chip.malloc(16).unwrap();
        let tensor =
            |at: u64, n| DeviceTensor::contiguous(DeviceAddress(at), DType::F32, &[n]).unwrap();
        for tensor in [
            tensor(address.0, 5),
            tensor(address.0 + 4, 4),
            tensor(u64::MAX - 3, 4),
        ] {
            let refused = chip.prepare(slot, ChipArgs::new().with_tensor(tensor));
            assert!(refused.is_err(), "{tensor:?}");
        }
        assert!(
            chip.prepare(slot, ChipArgs::new().with_tensor(tensor(address.0, 4)))
                .is_ok()
        );
    });
}

#[test]
fn memory_that_a_launched_run_names_is_not_freed() {
    on_every_chip(|chip, four_tasks| {
        let work = FourTasks::on(chip, 8);
        let slot = chip.register(four_tasks).unwrap();
        let argument = work.args.tensor(0).unwrap().buffer_address();
        let run = chip.prepare(slot, work.args.clone()).unwrap();
        chip.launch(run).unwrap();
        let refused = chip.free(argument).unwrap_err();
        assert!(matches!(refused, DeviceError::InUse { .. }), "{refused}");
        while chip.poll(run).unwrap() == Progress::Running {}
        chip.finalize(run).unwrap();
        work.check(chip);
        chip.free(argument).unwrap();
    });
}

/// Chips of which the first launched run becomes a fault.
fn on_every_faulty_chip(check: impl Fn(&mut dyn Chip, &'static ChipCallable)) {
    let fault = SimFault::Task {
        run: 0,
        task: 1,
        kind: TaskFault::Hardware,
    };
    for address_reuse in [AddressReuse::Late, AddressReuse::AtOnce] {
        let mut chip = sim(SimOptions {
            faults: vec![fault],
            address_reuse,
            ..SimOptions::default()
        });
        check(&mut *chip, &FOUR_TASKS);
    }
    for (code, run_timeout) in [
        (CORE_EXCEPTION, Duration::from_secs(45)),
        (NOT_READY, Duration::ZERO),
    ] {
        let fake = Fake::new(&[]);
        let mut options = fake.options();
        options.vendor.run_timeout = run_timeout;
        let mut vendor = Subject::vendor(Platform::A2a3, &options).unwrap();
        fake.refuse("aclrtStreamQuery", (0, 1), code);
        check(&mut *vendor.chip, vendor.four_tasks);
    }
}

#[test]
fn what_was_on_a_chip_before_its_reset_ends_with_the_fault() {
    on_every_faulty_chip(|chip, four_tasks| {
        let work = FourTasks::on(chip, 8);
        let slot = chip.register(four_tasks).unwrap();
        let [first, second] = [(); 2].map(|()| {
            let run = chip.prepare(slot, work.args.clone()).unwrap();
            chip.launch(run).unwrap();
            run
        });
        let prepared = chip.prepare(slot, work.args.clone()).unwrap();
        while chip.poll(first).unwrap() == Progress::Running {}
        assert!(chip.unusable().is_some());
        chip.probe().unwrap();

        // What is on the chip now may lie where the lost runs' tensors were.
        let work = FourTasks::on(chip, 8);
        let launched = chip.launch(prepared);
        assert!(launched.is_err(), "its arguments are gone");
        for lost in [second, prepared] {
            assert_eq!(chip.poll(lost).unwrap(), Progress::Finished);
            let error = chip.finalize(lost).unwrap_err();
            assert!(matches!(error, DeviceError::Reset { .. }), "{error}");
        }
        assert!(chip.finalize(first).unwrap_err().is_device_fault());
        assert!(chip.unusable().is_none(), "the chip itself is fine");
        device::run(chip, slot, work.args.clone()).unwrap();
        work.check(chip);
        assert_eq!(chip.memory().unwrap().allocations, 3);
    });
}

static MISUSED: ChipCallable = ChipCallable {
    name: "misused",
    orchestration: misused,
    kernels: &[
        Kernel::vector("panics", panics),
        Kernel::vector("writes_input", writes_input),
    ],
};

/// The scalar chooses what goes wrong.
fn misused(orch: &mut ChipOrchestrator<'_>, args: &ChipArgs) -> Result<(), OrchestrationError> {
    let x = orch.alloc(DType::F32, &[4])?;
    match args.scalar(0)? {
        taskgraph::Scalar::U64(0) => orch.submit("panics", core_args().inout(&x))?,
        taskgraph::Scalar::U64(1) => orch.submit("writes_input", core_args().input(&x))?,
        taskgraph::Scalar::U64(2) => orch.submit("panicks", core_args())?,
        taskgraph::Scalar::U64(3) => orch.submit("panics", core_args().output(&x).output(&x))?,
        taskgraph::Scalar::U64(4) => orch.submit("panics", core_args().blocks(0))?,
        _ => panic!("no such misuse"),
    };
    Ok(())
}

fn panics(_: &mut KernelContext<'_>) -> Result<(), KernelError> {
    panic!("index 7 of 4");
}

fn writes_input(cx: &mut KernelContext<'_>) -> Result<(), KernelError> {
    cx.output::<f32>(0)?.fill(0.0);
    Ok(())
}

#[test]
fn a_failing_run_names_its_cause_and_leaves_the_chip_usable() {
    for arch in [Arch::A2a3, Arch::A5] {
        let Subject {
            mut chip,
            four_tasks,
        } = Subject::simulated(arch);
        let chip = &mut *chip;
        let slot = chip.register(&MISUSED).unwrap();
        let texts: Vec<String> = (0..6_u64)
            .map(|misuse| {
                let args = ChipArgs::new().with_scalar(misuse);
                chain(&device::run(chip, slot, args).unwrap_err())
            })
            .collect();
        insta::allow_duplicates! {
            insta::assert_snapshot!(texts.join("\n"), @r#"
            execute task 0 (kernel `panics`, block 0, AIV core 0) of `misused` on chip 0: finish: it panicked: index 7 of 4
            execute task 0 (kernel `writes_input`, block 0, AIV core 0) of `misused` on chip 0: use tensor argument 0 as f32: the task declared it Input
            orchestrate `misused` on chip 0: submit kernel `panicks`: the callable has ["panics", "writes_input"]
            orchestrate `misused` on chip 0: submit kernel `panics`: its tensors 0 and 1 write overlapping bytes
            orchestrate `misused` on chip 0: submit kernel `panics`: it has 0 blocks
            orchestrate `misused` on chip 0: finish: it panicked: no such misuse
            "#);
        }
        assert_eq!(
            chip.memory().unwrap().allocations,
            0,
            "intermediate memory is gone"
        );
        let work = FourTasks::on(chip, 8);
        let slot = chip.register(four_tasks).unwrap();
        device::run(chip, slot, work.args.clone()).unwrap();
        work.check(chip);
    }
}

#[test]
fn a_closed_chip_says_so_and_closes_again() {
    on_every_chip(|chip, _| {
        chip.close().unwrap();
        chip.close().unwrap();
        assert!(matches!(chip.malloc(1), Err(DeviceError::Closed { .. })));
    });
}
