//! The word of an entry: every transition, and generations that are never used twice.

use super::*;

#[test]
fn only_a_live_word_of_the_same_generation_takes_pins() {
    let word = Word::new();
    assert!(!word.pin(1), "vacant");
    word.publish(1);
    assert!(!word.pin(2) && !word.pin(0), "another generation");
    assert!(word.pin(1));
    assert_eq!(word.load(), Snapshot::new(1, State::Live, 1));
}

#[test]
fn a_pinned_word_is_not_revoked_but_retired() {
    let word = Word::new();
    word.publish(1);
    assert!(word.pin(1));
    assert_eq!(word.revoke(1), Err(Snapshot::new(1, State::Live, 1)));
    assert_eq!(word.retire(1), Ok(State::Retired));
    assert!(!word.pin(1), "retired");
    assert!(!word.revoke_retired(1), "still pinned");
    assert_eq!(word.unpin().pins(), 0);
    assert!(word.revoke_retired(1));
    assert!(word.vacate(1));
    assert_eq!(word.load(), Snapshot::new(2, State::Vacant, 0));
}

#[test]
fn a_lost_word_keeps_its_generation_until_the_last_pin() {
    let word = Word::new();
    word.publish(1);
    assert!(word.pin(1));
    assert_eq!(word.lose(), Ok(Snapshot::new(1, State::Lost, 1)));
    assert!(!word.vacate(1));
    word.unpin();
    assert!(word.vacate(1));
}

#[test]
fn a_leaked_word_stays_leaked() {
    let word = Word::new();
    word.publish(1);
    assert_eq!(word.revoke(1), Ok(()));
    word.leak();
    assert!(!word.vacate(1) && !word.pin(1) && word.lose().is_err() && word.revoke(1).is_err());
}

#[test]
fn the_last_generation_is_never_followed_by_the_first() {
    let word = Word::new();
    assert_eq!(word.advance(u32::MAX), Ok(()));
    word.publish(u32::MAX);
    assert_eq!(word.revoke(u32::MAX), Ok(()));
    assert!(!word.vacate(u32::MAX));
    assert_eq!(word.load().state(), State::Revoked);
}

#[test]
fn pins_stop_at_their_maximum_without_touching_the_state() {
    let full = Snapshot::new(3, State::Live, PINS_MAX);
    let word = Word(AtomicU64::new(full.0));
    assert!(!word.pin(3));
    assert_eq!(word.load(), full);
    assert_eq!(word.unpin(), Snapshot::new(3, State::Live, PINS_MAX - 1));
}

#[test]
fn a_mirrored_word_moves_forward_only() {
    let word = Word::new();
    assert_eq!(word.advance(5), Ok(()));
    assert_eq!(word.advance(4), Err(Snapshot::new(5, State::Vacant, 0)));
    assert!(word.skip(5));
    assert_eq!(word.advance(5), Err(Snapshot::new(6, State::Vacant, 0)));
}
