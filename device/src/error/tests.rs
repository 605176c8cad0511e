//! Which errors take a chip out of use.

use super::*;

fn refused(code: i32) -> DeviceError {
    let (logical, physical) = (0, 3);
    DeviceError::Vendor(VendorError {
        call: "aclrtStreamQuery",
        logical,
        physical,
        code,
        message: String::new(),
    })
}

#[test]
fn a_chip_is_lost_by_faults_of_the_device_and_not_by_refusals() {
    let mismatch = DeviceError::ProbeMismatch {
        chip: 0,
        address: DeviceAddress(64),
    };
    for fault in [refused(507_015), refused(507_899), mismatch] {
        assert!(fault.is_device_fault(), "{fault}");
    }
    let closed = DeviceError::Closed {
        operation: "run",
        chip: 0,
    };
    for refusal in [refused(207_001), refused(100_000), closed] {
        assert!(!refusal.is_device_fault(), "{refusal}");
    }
}
