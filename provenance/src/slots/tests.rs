//! The slots of the table: how they grow, and that they stay where they are.

use super::*;

#[test]
fn every_entry_number_has_one_place() {
    let mut expected = (0, 0);
    for entry in 0..10_000 {
        assert_eq!(place(entry), expected, "entry {entry}");
        expected.1 += 1;
        if expected.1 == 1 << (FIRST_BITS as usize + expected.0) {
            expected = (expected.0 + 1, 0);
        }
    }
}

#[test]
fn the_largest_entry_number_is_looked_up_without_a_panic() {
    let slots = Slots::new();
    assert!(slots.at(u32::MAX).is_none());
    assert!(place(u32::MAX).0 < CHUNKS);
}

#[test]
fn a_slot_is_one_cache_line() {
    assert_eq!((size_of::<Slot>(), align_of::<Slot>()), (64, 64));
}
