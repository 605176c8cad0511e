//! The vendor's backend on a library that records its calls: which number each call gets, what is
//! checked before the first one, what a fault leaves behind.

use std::ffi::c_int;
use std::fs;
use std::time::Duration;

use device::{
    Chip, ChipArgs, ChipCallable, DeviceAddress, DeviceError, DeviceTensor, Platform, Progress,
    core_args,
};
use rstest::rstest;
use taskgraph::DType;

use crate::fake::{CORE_EXCEPTION, Fake, NOT_READY};
use crate::support::{FOUR_TASKS, FOUR_TASKS_IN_C, FourTasks, chain};

const ALWAYS: c_int = c_int::MAX;

/// The error of something that must not succeed; a chip is no value to print.
#[track_caller]
fn refused<T>(result: Result<T, DeviceError>) -> DeviceError {
    match result {
        Ok(_) => panic!("it was not refused"),
        Err(error) => error,
    }
}

/// The arguments with which a call was made.
fn arguments(calls: &[String], call: &str) -> Vec<String> {
    let of_call = |line: &String| line.strip_prefix(&format!("{call} ")).map(str::to_owned);
    calls.iter().filter_map(of_call).collect()
}

/// Runs the four tasks once.
fn run(chip: &mut dyn Chip) -> Result<(), DeviceError> {
    let work = FourTasks::on(chip, 8);
    let slot = chip.register(&FOUR_TASKS_IN_C)?;
    device::run(chip, slot, work.args.clone())?;
    work.check(chip);
    Ok(())
}

#[rstest]
#[case(Some("6"), 0, 6)]
#[case(Some("2,3"), 1, 3)]
#[case(Some("3,2"), 0, 3)]
#[case(Some("3,2"), 1, 2)]
#[case(None, 5, 5)]
fn the_runtime_gets_the_logical_number_and_the_driver_the_card(
    #[case] list: Option<&str>,
    #[case] logical: u32,
    #[case] card: u32,
) {
    if list.is_none() && std::env::var_os("ASCEND_RT_VISIBLE_DEVICES").is_some() {
        return; // The environment of this machine decides.
    }
    let fake = Fake::new(&[]);
    let mut chip = fake.open_visible(list, logical).unwrap();
    let info = chip.info().clone();
    assert_eq!((info.logical_id, info.physical_id), (logical, card));
    assert_eq!(
        (info.cores.aic, info.cores.aiv),
        (20, 40),
        "as the driver says"
    );
    chip.close().unwrap();
    let (runtime, driver) = (fake.calls(), fake.driver_calls());
    let (logical, card) = (logical.to_string(), card.to_string());
    assert_eq!(arguments(&runtime, "aclrtSetDevice"), [&*logical]);
    assert_eq!(arguments(&runtime, "aclrtResetDevice"), [&*logical]);
    assert_eq!(arguments(&driver, "halGetDeviceInfo"), [&*card, &*card]);
    assert!(arguments(&runtime, "halGetDeviceInfo").is_empty());
}

#[rstest]
#[case("2,3", 2)]
#[case("2,x", 0)]
#[case("", 0)]
fn a_device_that_no_list_has_is_refused_before_any_call(#[case] list: &str, #[case] id: u32) {
    let fake = Fake::new(&[]);
    let error = refused(fake.open_visible(Some(list), id));
    assert!(matches!(error, DeviceError::Visible(_)), "{error}");
    assert_eq!(fake.calls(), [""; 0]);
}

#[test]
fn a_device_behind_the_last_one_is_refused_before_it_is_set() {
    let fake = Fake::new(&["-DN_DEVICES=2"]);
    let error = refused(fake.open_visible(Some("0,1,2,3"), 2));
    assert_eq!(
        error.to_string(),
        "open device 2 of a2a3: this process sees 2 devices, numbered from 0"
    );
    assert_eq!(fake.calls(), ["aclInit 0", "aclrtGetDeviceCount 0"]);
}

#[test]
fn an_error_of_the_library_names_the_call_both_numbers_and_its_own_words() {
    let fake = Fake::new(&[]);
    let mut chip = fake.open_visible(Some("3,2"), 1).unwrap();
    fake.refuse("aclrtMemcpy", (0, 1), 107_000);
    let address = chip.malloc(16).unwrap();
    let error = chip.copy_to(address, &[0; 16]).unwrap_err();
    assert_eq!(
        error.to_string(),
        "call aclrtMemcpy for device 1 (card 2): error 107000: \
         EZ9999: aclrtMemcpy was told to refuse"
    );
    assert!(
        chip.unusable().is_none(),
        "a refused argument is no fault of the device"
    );
}

#[rstest]
#[case(&["-DWITHOUT_aclrtFree"], "find `aclrtFree` in $DIR/libascendcl.so: ")]
#[case(&["-DWITHOUT_aclrtFree"], "undefined symbol: aclrtFree")]
#[case(&["-DNULL_aclrtFree"], "use `aclrtFree` of $DIR/libascendcl.so: the symbol is there, but its address is null")]
#[case(&["-DMAJOR=2"], "use $DIR/libascendcl.so: its interface has version 2.15.0, version 1.x is needed")]
#[case(&["-DWITHOUT_aclrtGetVersion"], "find `aclrtGetVersion` in ")]
fn a_library_that_does_not_fit_is_refused_before_any_call(
    #[case] flags: &[&str],
    #[case] expected: &str,
) {
    let fake = Fake::new(flags);
    let error = refused(fake.open());
    let text = chain(&error).replace(&fake.path().display().to_string(), "$DIR");
    assert!(text.contains(expected), "{text}");
    assert_eq!(fake.calls(), [""; 0]);
}

#[test]
fn a_library_without_optional_functions_loses_only_what_they_do() {
    let fake = Fake::new(&[
        "-DWITHOUT_aclGetRecentErrMsg",
        "-DWITHOUT_aclrtResetDeviceForce",
    ]);
    fs::remove_file(fake.path().join("libascend_hal.so")).unwrap();
    let mut chip = fake.open().unwrap();
    run(&mut *chip).unwrap();
    let cores = chip.info().cores;
    assert_eq!(
        (cores.aic, cores.aiv),
        (24, 48),
        "as the architecture has them"
    );
    fake.refuse("aclrtFree", (0, 1), 107_000);
    let address = chip.malloc(1).unwrap();
    let error = chip.free(address).unwrap_err();
    assert_eq!(
        error.to_string(),
        "call aclrtFree for device 0 (card 0): error 107000"
    );
}

#[test]
fn a_missing_library_is_named_with_what_to_do() {
    let empty = tempfile::tempdir().unwrap();
    let mut options = Fake::new(&[]).options();
    options.vendor.library_dirs = vec![empty.path().to_owned()];
    let error = refused(device::open(Platform::A5, 0, &options));
    let text = chain(&error).replace(&empty.path().display().to_string(), "$DIR");
    assert_eq!(
        text,
        "find libascendcl.so, which platform a5 needs: it is not in $DIR; \
         set ASCEND_HOME_PATH to the CANN installation or add its lib64 to LD_LIBRARY_PATH, \
         or use the simulator (platform a5sim)"
    );
}

#[test]
fn a_file_that_is_no_library_for_this_machine_is_refused_with_the_loaders_words() {
    let fake = Fake::new(&[]);
    let path = fake.path().join("libascendcl.so");
    let mut elf = fs::read(&path).unwrap();
    elf[18] = if elf[18] == 62 { 183 } else { 62 }; // The other machine of the two.
    fs::write(&path, elf).unwrap();
    let error = refused(fake.open());
    let text = chain(&error);
    assert!(
        text.starts_with("load ") && text.contains("cannot open shared object file"),
        "{text}"
    );
}

#[test]
fn a_rust_kernel_is_refused_with_what_the_chip_needs() {
    let fake = Fake::new(&[]);
    let mut chip = fake.open().unwrap();
    let error = chip.register(&FOUR_TASKS).unwrap_err();
    assert_eq!(
        error.to_string(),
        "register callable `four_tasks`: kernel `add` is a Rust function, \
         which runs on simulated cores only; a2a3 needs sources"
    );
}

/// DV-4: the library has a thread of its own and a thread-local with a destructor.
#[test]
fn a_library_outlives_the_threads_that_used_it_and_is_loaded_once() {
    let fake = Fake::new(&[]);
    let options = fake.options();
    let use_once = || {
        let chip = device::open(Platform::A2a3, 0, &options);
        drop(chip.map_err(|error| chain(&error)).unwrap());
    };
    for _ in 0..100 {
        std::thread::scope(|scope| scope.spawn(use_once).join().unwrap());
    }
    assert_eq!(
        fake.destroyed(),
        100,
        "each thread's value was destroyed, by code that is there"
    );
    let maps = fs::read_to_string("/proc/self/maps").unwrap();
    let library = fake.path().join("libascendcl.so").display().to_string();
    let executable = |line: &&str| line.contains(&library) && line.contains(" r-xp ");
    assert_eq!(maps.lines().filter(executable).count(), 1);
}

#[test]
fn two_libraries_keep_globals_of_their_own() {
    let (a, b) = (Fake::new(&[]), Fake::new(&[]));
    let (_a, _b) = (a.open().unwrap(), b.open().unwrap());
    assert_ne!(a.global(), b.global());
}

/// DV-5: a faulted task, releases that would block, a settled card that is still broken, a reset
/// that helps late.
#[test]
fn a_faulted_card_refuses_work_closes_without_a_call_and_recovers_by_a_real_probe() {
    let (fake, other) = (Fake::new(&[]), Fake::new(&[]));
    let mut chip = fake.open().unwrap();
    let mut healthy = other.open().unwrap();
    run(&mut *chip).unwrap();
    fake.refuse("aclrtStreamQuery", (0, 1), CORE_EXCEPTION);
    let error = run(&mut *chip).unwrap_err();
    assert!(
        chain(&error).contains("aclrtStreamQuery for device 0 (card 0)"),
        "{error}"
    );

    fake.calls();
    let refused = run_prepared(&mut *chip);
    assert!(matches!(refused, DeviceError::Unusable { .. }), "{refused}");
    assert!(
        refused
            .to_string()
            .ends_with("probe it, or use another chip"),
        "{refused}"
    );
    assert_eq!(fake.calls(), [""; 0], "refused without a call");
    run(&mut *healthy).unwrap();

    // The first reset is refused; after the second one memory still fails once.
    fake.refuse("aclrtResetDeviceForce", (0, 1), CORE_EXCEPTION);
    fake.refuse("aclrtMalloc", (0, 1), CORE_EXCEPTION);
    chip.probe().unwrap();
    assert_eq!(arguments(&fake.calls(), "aclrtResetDeviceForce").len(), 3);
    assert!(chip.unusable().is_none());
    assert_eq!(
        chip.memory().unwrap().allocations,
        0,
        "what was on the card is gone"
    );
    run(&mut *chip).unwrap();
    chip.close().unwrap();
}

fn run_prepared(chip: &mut dyn Chip) -> DeviceError {
    let slot = chip.register(&FOUR_TASKS_IN_C);
    refused(slot.and_then(|slot| chip.prepare(slot, ChipArgs::new())))
}

#[test]
fn a_card_that_no_reset_helps_stays_unusable_and_closes_without_a_call() {
    let fake = Fake::new(&[]);
    let mut chip = fake.open().unwrap();
    let _kept = chip.malloc(64).unwrap();
    fake.refuse("aclrtStreamQuery", (0, ALWAYS), CORE_EXCEPTION);
    run(&mut *chip).unwrap_err();
    fake.refuse("aclrtMalloc", (0, ALWAYS), CORE_EXCEPTION);
    fake.calls();
    let error = chip.probe().unwrap_err();
    assert!(chain(&error).contains("aclrtMalloc"), "{error}");
    assert_eq!(
        arguments(&fake.calls(), "aclrtResetDeviceForce").len(),
        3,
        "attempts are bounded"
    );
    assert!(chip.unusable().is_some());
    chip.close().unwrap();
    drop(chip);
    assert_eq!(fake.calls(), [""; 0], "no release that could block");
}

#[test]
fn a_fault_in_the_first_test_of_a_card_fails_the_opening() {
    let fake = Fake::new(&[]);
    fake.refuse("aclrtMemcpy", (0, 1), CORE_EXCEPTION);
    let error = refused(fake.open());
    assert!(chain(&error).contains("aclrtMemcpy"), "{error}");
    assert!(
        arguments(&fake.calls(), "aclrtResetDevice").is_empty(),
        "no release on a faulted card"
    );
}

#[test]
fn a_run_that_does_not_end_fails_at_its_time_limit() {
    let fake = Fake::new(&[]);
    let mut options = fake.options();
    options.vendor.run_timeout = Duration::ZERO;
    let mut chip = device::open(Platform::A2a3, 0, &options).unwrap();
    fake.refuse("aclrtStreamQuery", (0, ALWAYS), NOT_READY);
    let error = run(&mut *chip).unwrap_err();
    assert!(matches!(error, DeviceError::RunTimeout { .. }), "{error}");
    assert!(chip.unusable().is_some());
}

#[test]
fn a_refused_launch_is_the_first_cause_of_its_run() {
    let fake = Fake::new(&[]);
    let mut chip = fake.open().unwrap();
    fake.refuse("aclrtLaunchKernelWithHostArgs", (2, 1), CORE_EXCEPTION);
    let error = run(&mut *chip).unwrap_err();
    assert!(
        chain(&error).contains("aclrtLaunchKernelWithHostArgs"),
        "{error}"
    );
    let launches = arguments(&fake.calls(), "aclrtLaunchKernelWithHostArgs");
    assert_eq!(
        launches.len(),
        3,
        "no task was launched behind the refused one"
    );
}

static HALF: ChipCallable = ChipCallable {
    name: "half",
    orchestration: |orch, args| {
        let x = args.tensor(0)?;
        let sum = orch.alloc_like(x)?;
        orch.submit("add", core_args().input(x).input(x).output(&sum))?;
        orch.submit("no such kernel", core_args()).map(drop)
    },
    kernels: FOUR_TASKS_IN_C.kernels,
};

#[test]
fn the_memory_of_a_run_that_failed_half_way_is_kept_until_the_card_is_done_with_it() {
    let fake = Fake::new(&[]);
    let mut chip = fake.open().unwrap();
    let slot = chip.register(&HALF).unwrap();
    let address = chip.malloc(16).unwrap();
    let x = DeviceTensor::contiguous(address, DType::F32, &[4]).unwrap();
    let run = chip.prepare(slot, ChipArgs::new().with_tensor(x)).unwrap();
    chip.launch(run).unwrap();
    fake.refuse("aclrtStreamQuery", (0, 2), NOT_READY);
    fake.calls();
    for _ in 0..2 {
        assert_eq!(chip.poll(run).unwrap(), Progress::Running);
        let early = chip.finalize(run).unwrap_err();
        assert!(matches!(early, DeviceError::RunState { .. }), "{early}");
        let in_use = chip.free(address).unwrap_err();
        assert!(matches!(in_use, DeviceError::InUse { .. }), "{in_use}");
    }
    assert!(arguments(&fake.calls(), "aclrtFree").is_empty());

    assert_eq!(chip.poll(run).unwrap(), Progress::Finished);
    let error = chip.finalize(run).unwrap_err();
    assert!(
        matches!(error, DeviceError::Orchestration { .. }),
        "{error}"
    );
    assert_eq!(arguments(&fake.calls(), "aclrtFree").len(), 1);
    chip.free(address).unwrap();
}

#[test]
fn exhausted_memory_says_what_was_wanted_and_is_no_fault() {
    let fake = Fake::new(&[]);
    let mut chip = fake.open().unwrap();
    fake.refuse("aclrtMalloc", (0, 1), 207_001);
    let error = chip.malloc(1 << 40).unwrap_err();
    assert!(
        matches!(
            error,
            DeviceError::OutOfMemory {
                wanted_bytes: 0x100_0000_0000,
                ..
            }
        ),
        "{error}"
    );
    assert!(chip.unusable().is_none());
}

#[test]
fn addresses_are_checked_before_the_library_sees_them() {
    let fake = Fake::new(&[]);
    let mut chip = fake.open().unwrap();
    let slot = chip.register(&FOUR_TASKS_IN_C).unwrap();
    fake.calls();
    let nowhere = DeviceAddress(0xdead_0000);
    chip.free(nowhere).unwrap_err();
    chip.copy_to(nowhere, &[0]).unwrap_err();
    chip.copy_from(&mut [0], nowhere).unwrap_err();
    let tensor = DeviceTensor::contiguous(nowhere, DType::F32, &[4]).unwrap();
    refused(chip.prepare(slot, ChipArgs::new().with_tensor(tensor)));
    assert_eq!(fake.calls(), [""; 0]);
}
