//! What a failure of a body means for its devices.

use super::*;

#[test]
fn an_unusable_chip_takes_its_device_out_and_no_other() {
    let verdict = |kind, rounds_begun| {
        let failure = Failure {
            kind,
            message: String::new(),
        };
        match verdict_of(failure, &[4, 7], rounds_begun) {
            Verdict::DeviceUnusable {
                devices,
                before_first_round,
                ..
            } => (devices, before_first_round),
            other => panic!("{other:?}"),
        }
    };
    assert_eq!(
        verdict(FailureKind::ChipUnusable(Some(1)), 0),
        (vec![7], true)
    );
    assert_eq!(
        verdict(FailureKind::ChipUnusable(None), 1),
        (vec![4, 7], false)
    );
    assert_eq!(
        verdict(FailureKind::DeviceUnusable(vec![4]), 2),
        (vec![4], false)
    );
}

#[test]
fn a_case_takes_no_device_of_others_out() {
    let verdict = |named: &[u32]| {
        let failure = Failure::device_unusable(named, "it is gone");
        verdict_of(failure, &[4, 7], 0)
    };
    let told = |others: &str| {
        format!(
            "it is gone (it says that {others} cannot be used any more, and its devices are [4, 7]; name them as `SceneContext::devices` does)"
        )
    };
    assert_eq!(
        verdict(&[0]),
        Verdict::Failed {
            reason: told("[0]")
        }
    );
    let partly = Verdict::DeviceUnusable {
        devices: vec![7],
        reason: told("[1]"),
        before_first_round: true,
    };
    assert_eq!(verdict(&[1, 7]), partly);
}
