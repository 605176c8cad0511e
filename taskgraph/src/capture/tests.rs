//! Damaged definitions: whatever the bytes, decoding refuses them or what it yields is safe to use.

use super::fuzzing::{forge, sample, use_whole};
use super::*;

#[test]
fn a_definition_with_any_word_zeroed_is_refused_or_safe_to_use() {
    let bytes = sample().to_bytes().to_vec();
    for at in (0..bytes.len()).step_by(4) {
        let mut changed = bytes.clone();
        changed[at..at + 4].fill(0);
        if let Ok(read) = Definition::decode(&forge(changed)) {
            use_whole(read);
        }
    }
}

#[test]
fn what_is_written_is_read_again() {
    let sample = sample();
    let again = Definition::decode(sample.to_bytes()).unwrap();
    assert_eq!(again, sample);
    assert_eq!(again.content_hash(), sample.content_hash());
    use_whole(again);
}

#[test]
fn every_changed_byte_is_found() {
    let good = sample().to_bytes().to_vec();
    for at in 0..good.len() {
        for bit in [0, 3, 7] {
            let mut bytes = good.clone();
            bytes[at] ^= 1 << bit;
            assert!(
                Definition::decode(&bytes).is_err(),
                "bit {bit} of byte {at}"
            );
        }
    }
}

#[test]
fn every_cut_is_found() {
    let good = sample().to_bytes().to_vec();
    for end in 0..good.len() {
        assert!(Definition::decode(&good[..end]).is_err(), "{end} bytes");
    }
    let longer = [&good[..], &[0; 8]].concat();
    assert!(matches!(
        Definition::decode(&longer),
        Err(DecodeError::Length { .. })
    ));
}

#[test]
fn a_forged_definition_is_refused_or_safe_to_use() {
    let good = sample().to_bytes().to_vec();
    let mut n_refused = 0;
    for at in 0..good.len() {
        for value in [0, 1, 0x7f, 0xff, good[at] ^ 1, good[at].wrapping_add(1)] {
            let mut bytes = good.clone();
            bytes[at] = value;
            match Definition::decode(&forge(bytes)) {
                Ok(definition) => use_whole(definition),
                Err(_) => n_refused += 1,
            }
        }
    }
    assert!(
        n_refused > good.len(),
        "hardly anything was refused: {n_refused} of {}",
        good.len()
    );
}

proptest::proptest! {
    #[test]
    fn random_changes_are_refused_or_safe_to_use(
        changes in proptest::collection::vec((0usize..4096, proptest::num::u8::ANY), 1..6),
    ) {
        let mut bytes = sample().to_bytes().to_vec();
        for (at, value) in changes {
            let at = at % bytes.len();
            bytes[at] = value;
        }
        if let Ok(definition) = Definition::decode(&forge(bytes)) {
            use_whole(definition);
        }
    }

    #[test]
    fn random_bytes_are_refused(bytes in proptest::collection::vec(proptest::num::u8::ANY, 0..400)) {
        proptest::prop_assert!(Definition::decode(&bytes).is_err());
    }
}

#[test]
fn a_definition_of_another_layout_says_so() {
    let mut bytes = sample().to_bytes().to_vec();
    bytes[32] = 9;
    let refused = Definition::decode(&forge(bytes)).unwrap_err();
    assert_eq!(refused, DecodeError::Schema { found: 9 });
}
