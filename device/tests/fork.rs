//! What a fork does to chips. Each test runs in a process of its own, which may fork: hence a
//! program apart from `it`.

use std::time::{Duration, Instant};

use device::{Arch, Chip, DeviceError, OpenOptions, Platform};
use procfork::{ExitCause, ForkOptions};

procfork::testing::tests! {
    a_chip_opens_in_the_child_of_a_parent_that_touched_none,
    a_child_of_a_process_that_touched_a_device_can_open_none,
    a_chip_that_was_carried_over_a_fork_is_refused,
    asking_about_platforms_touches_nothing,
}

fn open() -> Result<Box<dyn Chip>, DeviceError> {
    device::open(Platform::Sim(Arch::A2a3), 0, &OpenOptions::default())
}

/// Runs `child` in a forked child, which must find what it looks for.
#[track_caller]
fn in_a_child(child: impl FnOnce() -> bool) {
    let ended = procfork::fork(ForkOptions::new("chip"), |_| u8::from(!child())).unwrap();
    let deadline = Instant::now() + Duration::from_secs(20);
    assert_eq!(ended.wait(deadline).unwrap(), ExitCause::Exited(0));
}

fn a_chip_opens_in_the_child_of_a_parent_that_touched_none() {
    assert_eq!(device::touched_in(), None);
    in_a_child(|| {
        let mut chip = open().unwrap();
        let here = std::process::id();
        chip.malloc(1).is_ok() && device::touched_in() == Some(here)
    });
    assert_eq!(device::touched_in(), None);
}

fn a_child_of_a_process_that_touched_a_device_can_open_none() {
    drop(open().unwrap());
    let parent = std::process::id();
    assert_eq!(device::touched_in(), Some(parent));
    in_a_child(move || match open() {
        Err(DeviceError::TouchedBeforeFork { touched_in, here }) => {
            touched_in == parent && here == std::process::id()
        }
        _ => false,
    });
}

fn a_chip_that_was_carried_over_a_fork_is_refused() {
    let mut chip = open().unwrap();
    let address = chip.malloc(4).unwrap();
    chip.copy_to(address, &[1; 4]).unwrap();
    let inherited = &mut *chip;
    let refused =
        |result: Result<(), DeviceError>| matches!(result, Err(DeviceError::Forked { .. }));
    in_a_child(|| {
        refused(inherited.copy_to(address, &[2; 4]))
            && refused(inherited.free(address))
            && refused(inherited.malloc(1).map(drop))
            && refused(inherited.close())
    });
    let mut found = [0; 4];
    chip.copy_from(&mut found, address).unwrap();
    assert_eq!(found, [1; 4]);
}

fn asking_about_platforms_touches_nothing() {
    for platform in Platform::ALL {
        assert!(platform.arch().cores().aic > 0);
    }
    assert_eq!(device::touched_in(), None);
}
