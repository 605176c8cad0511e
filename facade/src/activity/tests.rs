//! Places are read back whole, cut where they are too long, and refused where they are torn.

use super::*;

#[test]
fn what_was_written_is_read_back() {
    let board = Board::new().expect("memory");
    assert_eq!(board.read(std::process::id()), None, "nothing was said");
    board.write("node/chip-0", Some(3), "run chip callable `add`");
    let doing = board.read(std::process::id()).expect("it was said");
    assert_eq!(
        (doing.worker.as_str(), doing.what.as_str(), doing.run),
        ("node/chip-0", "run chip callable `add`", Some(3))
    );
    assert!(
        doing
            .to_string()
            .starts_with("node/chip-0: run chip callable `add`, run 3, for ")
    );
    board.write("node/chip-0", None, "idle");
    let doing = board.read(std::process::id()).expect("it was said");
    assert_eq!((doing.what.as_str(), doing.run), ("idle", None));
}

#[test]
fn a_process_at_the_same_place_is_not_taken_for_another() {
    let board = Board::new().expect("memory");
    board.write("node", None, "idle");
    let other = std::process::id() + PLACES as u32;
    assert_eq!(board.read(other), None);
}

#[test]
fn a_long_text_is_cut_at_a_character() {
    let place = encode(7, WireInstant(0), 1, "node", &"ä".repeat(200));
    let doing = decode(&place, 7, WireInstant(1_000_000_000)).expect("it is whole");
    assert_eq!(doing.what, "ä".repeat((PLACE - HEAD - "node\0".len()) / 2));
}

#[test]
fn a_torn_place_is_refused_at_every_byte() {
    let place = encode(7, WireInstant(5), 1, "node", "run function `f`");
    for at in 0..PLACE {
        let mut torn = place;
        torn[at] ^= 0x10;
        assert_eq!(decode(&torn, 7, WireInstant(0)), None, "byte {at}");
    }
    assert_eq!(decode(&[0; PLACE], 0, WireInstant(0)), None, "an empty one");
}

#[test]
fn a_length_beyond_the_place_is_refused() {
    let mut place = encode(7, WireInstant(5), 1, "node", "x");
    place[12..16].copy_from_slice(&u32::MAX.to_le_bytes());
    let sum = checksum(&place[8..]);
    place[..8].copy_from_slice(&sum.to_le_bytes());
    assert_eq!(decode(&place, 7, WireInstant(0)), None);
}
