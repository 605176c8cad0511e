//! The allocator against a simple model, and every kind of wrong address.

use proptest::prelude::*;

use super::*;
use crate::error::AddressProblem;

const BUDGET: u64 = 64 * ALIGNMENT;

fn memory(reuse: AddressReuse) -> DeviceMemory {
    DeviceMemory::reserve(3, BUDGET, reuse, Vec::new()).unwrap()
}

#[track_caller]
fn problem<T: std::fmt::Debug>(result: Result<T, DeviceError>) -> AddressProblem {
    match result.unwrap_err() {
        DeviceError::Address { problem, .. } => problem,
        other => panic!("{other}"),
    }
}

#[test]
fn ranges_are_accepted_inside_one_live_allocation_only() {
    let mut memory = memory(AddressReuse::AtOnce);
    let base = memory.malloc(512).unwrap();
    let next = memory.malloc(512).unwrap();
    assert_eq!(next.0, base.0 + 1024, "the next block");
    let at = |offset: u64| DeviceAddress(base.0 + offset);
    let resolve = |address, bytes| memory.allocations().resolve("use", address, bytes);
    assert!(resolve(at(0), 512).is_ok());
    assert!(resolve(at(511), 1).is_ok());
    assert!(resolve(at(0), 0).is_ok());
    let past = AddressProblem::PastEnd {
        base: base.0,
        bytes: 512,
    };
    assert_eq!(problem(resolve(at(0), 513)), past);
    assert_eq!(problem(resolve(at(1), 512)), past);
    assert_eq!(problem(resolve(at(1), u64::MAX)), AddressProblem::Overflow);
    assert_eq!(
        problem(resolve(at(1024), 513)),
        AddressProblem::PastEnd {
            base: next.0,
            bytes: 512
        }
    );
    assert_eq!(problem(resolve(at(2048), 1)), AddressProblem::NotAllocated);
    assert_eq!(
        problem(resolve(DeviceAddress(0), 1)),
        AddressProblem::NotAllocated
    );
}

#[test]
fn only_the_base_of_a_live_allocation_can_be_freed_and_only_once() {
    let mut memory = memory(AddressReuse::Late);
    let base = memory.malloc(600).unwrap();
    let inside = memory.free(DeviceAddress(base.0 + 512));
    assert_eq!(
        problem(inside),
        AddressProblem::NotBase {
            base: base.0,
            bytes: 600
        }
    );
    assert_eq!(memory.report().allocations, 1, "nothing was freed");
    memory.free(base).unwrap();
    assert_eq!(problem(memory.free(base)), AddressProblem::NotAllocated);
    assert_eq!(
        problem(memory.write(base, &[0])),
        AddressProblem::NotAllocated
    );
}

#[test]
fn a_freed_address_comes_back_at_once_or_late_as_chosen() {
    let mut at_once = memory(AddressReuse::AtOnce);
    let first = at_once.malloc(100).unwrap();
    at_once.free(first).unwrap();
    assert_eq!(at_once.malloc(100).unwrap(), first);

    let mut late = memory(AddressReuse::Late);
    let first = late.malloc(100).unwrap();
    late.free(first).unwrap();
    let others: Vec<_> = (1..BUDGET / ALIGNMENT)
        .map(|_| late.malloc(100).unwrap())
        .collect();
    assert!(!others.contains(&first));
    assert_eq!(
        late.malloc(100).unwrap(),
        first,
        "when nothing else is left"
    );
}

#[test]
fn running_out_says_what_was_wanted_what_is_free_and_the_largest_block() {
    let mut memory = memory(AddressReuse::AtOnce);
    let quarter = BUDGET / 4 - GUARD_BYTES;
    let blocks: Vec<_> = (0..4).map(|_| memory.malloc(quarter).unwrap()).collect();
    memory.free(blocks[0]).unwrap();
    memory.free(blocks[2]).unwrap();
    let error = memory.malloc(quarter + 1).unwrap_err();
    assert_eq!(
        error.to_string(),
        "allocate 8129 bytes on chip 3: 16384 of 32768 bytes are free, the largest block has 8128"
    );
    assert!(memory.malloc(u64::MAX).is_err(), "a size that overflows");
    assert!(memory.malloc(quarter).is_ok(), "usable afterwards");
}

#[test]
fn chosen_addresses_are_handed_out_in_order_and_refused_when_taken() {
    let chosen = BASE + 8 * ALIGNMENT;
    let placed = vec![chosen, chosen];
    let mut memory = DeviceMemory::reserve(0, BUDGET, AddressReuse::Late, placed).unwrap();
    assert_eq!(memory.malloc(10).unwrap(), DeviceAddress(chosen));
    assert!(matches!(
        memory.malloc(10),
        Err(DeviceError::OutOfMemory { .. })
    ));
    assert_ne!(memory.malloc(10).unwrap(), DeviceAddress(chosen));
}

#[test]
fn a_large_freed_allocation_gives_its_pages_back() {
    let mut memory =
        DeviceMemory::reserve(0, 4 * RETURN_BYTES_MIN, AddressReuse::AtOnce, Vec::new()).unwrap();
    let address = memory.malloc(RETURN_BYTES_MIN).unwrap();
    memory
        .write(address, &vec![7; RETURN_BYTES_MIN as usize])
        .unwrap();
    memory.free(address).unwrap();
    let again = memory.malloc(RETURN_BYTES_MIN).unwrap();
    let mut bytes = [1; 4096];
    memory
        .read(&mut bytes, DeviceAddress(again.0 + 4096))
        .unwrap();
    assert_eq!((again, bytes), (address, [0; 4096]));
}

proptest! {
    /// Random allocations and frees: live ranges never overlap, contents stay, nothing is lost.
    #[test]
    fn random_use_keeps_allocations_apart_and_loses_nothing(
        operations in prop::collection::vec((any::<bool>(), 0_u64..4000, any::<u8>()), 1..200),
        reuse in prop_oneof![Just(AddressReuse::Late), Just(AddressReuse::AtOnce)],
    ) {
        let mut memory = memory(reuse);
        let mut live: Vec<(DeviceAddress, Vec<u8>)> = Vec::new();
        for (allocates, bytes, fill) in operations {
            if allocates || live.is_empty() {
                if let Ok(address) = memory.malloc(bytes) {
                    let contents = vec![fill; bytes as usize];
                    memory.write(address, &contents).unwrap();
                    live.push((address, contents));
                }
            } else {
                let (address, _) = live.swap_remove(bytes as usize % live.len());
                memory.free(address).unwrap();
            }
            for (address, contents) in &live {
                let mut found = vec![0; contents.len()];
                memory.read(&mut found, *address).unwrap();
                prop_assert_eq!(&found, contents);
            }
        }
        for (address, _) in live {
            memory.free(address).unwrap();
        }
        let report = memory.report();
        prop_assert_eq!((report.used_bytes, report.largest_block_bytes), (0, BUDGET - GUARD_BYTES));
    }
}

#[test]
fn a_write_behind_an_allocation_is_seen_at_its_guard() {
    let mut memory = memory(AddressReuse::AtOnce);
    for bytes in [1, 448, 449, 512, 1000] {
        let base = memory.malloc(bytes).unwrap();
        memory.write(base, &vec![7; bytes as usize]).unwrap();
        let guard = memory.guard(DeviceAddress(base.0 + bytes));
        assert!(guard.is_intact(), "{bytes} bytes may be written");
        guard.damage();
        assert!(!guard.is_intact());
        guard.restore();
        assert!(guard.is_intact());
    }
}
