//! Handles: arithmetic, encoding, and how they are shown.

use super::*;

fn some() -> DevicePtr {
    DevicePtr {
        worker: WorkerRef {
            id: 1,
            incarnation: 0x0203_0405_0607_0809,
        },
        entry: 10,
        generation: 11,
        base: u64::MAX - 4096,
        offset: 12,
        made: Made::BY_NOBODY,
    }
}

#[test]
fn a_handle_survives_its_bytes() {
    assert_eq!(DevicePtr::from_bytes(&some().to_bytes()), some());
}

#[test]
fn the_bytes_are_the_documented_ones() {
    let mut expected = Vec::new();
    expected.extend([
        1, 0, 0, 0, 10, 0, 0, 0, 9, 8, 7, 6, 5, 4, 3, 2, 11, 0, 0, 0, 0, 0, 0, 0,
    ]);
    expected.extend((u64::MAX - 4096).to_le_bytes());
    expected.extend(12_u64.to_le_bytes());
    assert_eq!(some().to_bytes().to_vec(), expected);
}

#[test]
fn any_bytes_are_a_claim() {
    let claim = DevicePtr::from_bytes(&[0xff; DevicePtr::ENCODED_BYTES]);
    assert_eq!((claim.base(), claim.offset()), (u64::MAX, u64::MAX));
    assert!(claim.plus(1).is_err());
}

#[test]
fn arithmetic_stays_within_64_bits() {
    let ptr = some().to_base();
    assert_eq!(ptr.plus(4096).map(DevicePtr::offset), Ok(4096));
    assert_eq!(ptr.plus(4097), Err(Overflow { ptr, bytes: 4097 }));
    assert_eq!(ptr.plus(8).and_then(|ptr| ptr.minus(8)), Ok(ptr));
    assert_eq!(ptr.minus(1), Err(Overflow { ptr, bytes: 1 }));
}

#[test]
fn a_range_is_inside_as_a_slice_would_be() {
    let span = |offset, bytes| DevicePtr { offset, ..some() }.span(bytes);
    for (offset, bytes) in [(0, 4096), (4095, 1), (4096, 0), (0, 0)] {
        assert!(span(offset, bytes).within(4096), "{offset}, {bytes}");
    }
    let beyond = [
        (4096, 1),
        (0, 4097),
        (1, u64::MAX),
        (4097, 0),
        (u64::MAX, u64::MAX),
    ];
    for (offset, bytes) in beyond {
        assert!(!span(offset, bytes).within(4096), "{offset}, {bytes}");
    }
}

#[test]
fn a_handle_reads_as_worker_base_offset_entry() {
    let ptr = DevicePtr {
        base: 0x1000,
        ..some()
    };
    assert_eq!(ptr.to_string(), "w1:0x1000+12 (#10.11)");
    assert_eq!(
        ptr.to_base().span(64).to_string(),
        "64 bytes at w1:0x1000 (#10.11)"
    );
}
