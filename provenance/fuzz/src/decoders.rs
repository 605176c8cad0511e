//! One function per decoder: takes any bytes, must not panic.
//!
//! The fuzz target calls it, and so does an ordinary test (`tests/it/hostile.rs` includes this file).

use provenance::{Ask, DevicePtr, Operation, Table, WorkerRef};

/// Handles that a peer claims, one after another, against a table with a live and a freed allocation: none but the
/// live one's is worth an address, and that one only inside.
pub fn ptr(bytes: &[u8]) {
    let table = Table::new();
    let worker = WorkerRef {
        id: 1,
        incarnation: 7,
    };
    let live = table.record(worker, 0x1000, 256).expect("room");
    let freed = table.record(worker, 0x2000, 256).expect("room");
    let free = Ask::owner(Operation::Free);
    table
        .free(free, freed, |_| Ok::<(), std::io::Error>(()))
        .expect("it is live");
    for claim in bytes.chunks_exact(DevicePtr::ENCODED_BYTES + 8) {
        let (handle, length) = claim.split_at(DevicePtr::ENCODED_BYTES);
        let handle: &[u8; DevicePtr::ENCODED_BYTES] = handle.try_into().expect("as many");
        let length = u64::from_le_bytes(length.try_into().expect("eight bytes"));
        let mut near = live.to_bytes();
        near[24..].copy_from_slice(&handle[24..]);
        for handle in [handle, &near] {
            let claimed = DevicePtr::from_bytes(handle);
            let ask = Ask::on(Operation::CopyTo, 1);
            if let Ok(address) = table.check(ask, claimed.span(length)) {
                let end = address.checked_add(length);
                assert!(address >= 0x1000 && end.is_some_and(|end| end <= 0x1100));
            }
            let _ = (claimed.plus(length), claimed.to_string());
        }
    }
}
