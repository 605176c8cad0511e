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
