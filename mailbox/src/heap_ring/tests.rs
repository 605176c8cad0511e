//! The ring against a naive map of bytes, and its refusals one by one.

use proptest::prelude::*;

use super::*;

fn ring(bytes: usize) -> HeapRing {
    HeapRing::create("test ring", bytes).unwrap()
}

#[test]
fn a_drained_ring_serves_its_whole_size_again() {
    let mut ring = ring(1000);
    assert_eq!(ring.total(), 1024);
    for _ in 0..3 {
        let a = ring.allocate(300, 1).unwrap();
        let b = ring.allocate(300, 2).unwrap();
        ring.free(a);
        ring.free(b);
        let whole = ring.allocate(1024, 3).unwrap();
        assert_eq!((whole.offset(), ring.free_bytes()), (0, 0));
        ring.free(whole);
    }
}

#[test]
fn a_full_ring_says_what_is_in_the_way() {
    let mut ring = ring(1024);
    let oldest = ring.allocate(500, 77).unwrap();
    let newest = ring.allocate(256, 78).unwrap();
    ring.free(newest);
    let refused = ring.allocate(300, 79).unwrap_err();
    assert_eq!(
        refused.to_string(),
        "allocate 300 bytes from a heap ring: 256 of 1024 are free, 256 in one piece \
         (waiting for the 500 bytes of owner 77)"
    );
    let RingError::Full {
        wanted: 300,
        free: 256,
        largest: 256,
        total: 1024,
        blocker,
    } = refused
    else {
        panic!("{refused}");
    };
    assert_eq!(
        blocker,
        Blocker {
            owner: 77,
            bytes: 500
        }
    );
    ring.free(oldest);
    let _fits = ring.allocate(300, 79).unwrap();
}

#[test]
#[should_panic(expected = "freed on the ring that it was cut from")]
fn a_block_of_another_ring_is_not_taken_for_one_of_its_own() {
    let (mut ring, mut other) = (ring(1024), self::ring(1024));
    let (_ours, theirs) = (
        ring.allocate(64, 1).unwrap(),
        other.allocate(64, 1).unwrap(),
    );
    ring.free(theirs);
}

#[test]
fn a_ring_of_no_size_and_one_of_every_size_are_errors() {
    for bytes in [0, usize::MAX, isize::MAX as usize] {
        let refused = HeapRing::create("test ring", bytes).unwrap_err();
        assert!(
            matches!(refused, SegmentError::Size { .. }),
            "{bytes}: {refused}"
        );
    }
    let mut ring = ring(1);
    assert_eq!(ring.total(), BLOCK_ALIGN);
    for bytes in [0, BLOCK_ALIGN + 1, usize::MAX] {
        let refused = ring.allocate(bytes, 1).unwrap_err();
        assert!(
            matches!(refused, RingError::Never { .. }),
            "{bytes}: {refused}"
        );
    }
}

#[test]
fn a_block_never_wraps_around_the_end() {
    let mut ring = ring(1024);
    let a = ring.allocate(640, 1).unwrap();
    let b = ring.allocate(256, 2).unwrap();
    ring.free(a);
    let c = ring.allocate(256, 3).unwrap();
    assert_eq!(
        (c.offset(), ring.free_bytes()),
        (0, 384),
        "the 128 bytes at the end are skipped"
    );
    ring.free(b);
    assert_eq!(
        ring.free_bytes(),
        640,
        "what was skipped comes back with the block behind it"
    );
    ring.free(c);
    assert_eq!(ring.free_bytes(), 1024);
}

#[test]
fn sizes_that_can_never_fit_are_told_apart() {
    let mut ring = ring(1024);
    for wanted in [0, 1025, usize::MAX] {
        assert!(matches!(
            ring.allocate(wanted, 0),
            Err(RingError::Never { total: 1024, .. })
        ));
    }
}

#[test]
fn a_ring_larger_than_the_machine_costs_nothing_until_used() {
    let mut ring = ring(1 << 44);
    let small = ring.allocate(4096, 1).unwrap();
    ring.segment().write_at(small.offset(), &[1; 4096]).unwrap();
    let refused = ring.allocate(1 << 43, 2).unwrap_err();
    assert!(
        matches!(
            &refused,
            RingError::Reserve(SegmentError::OutOfMemory { .. })
        ),
        "{refused}"
    );
    let next = ring.allocate(64, 3).unwrap();
    assert_eq!(next.offset(), 4096, "the refusal has changed nothing");
}

#[test]
fn trimming_returns_the_memory_of_a_drained_ring() {
    let mut ring = ring(8 << 20);
    let blocks = |ring: &HeapRing| nix::sys::stat::fstat(ring.segment()).unwrap().st_blocks;
    let block = ring.allocate(4 << 20, 1).unwrap();
    ring.trim().unwrap();
    assert!(blocks(&ring) > 0);
    ring.free(block);
    ring.trim().unwrap();
    assert_eq!(blocks(&ring), 0);
    let again = ring.allocate(64, 1).unwrap();
    ring.segment().write_at(again.offset(), &[1; 64]).unwrap();
}

#[test]
#[should_panic(expected = "freed on the ring that it was cut from")]
fn a_block_of_another_ring_is_refused() {
    let block = ring(1024).allocate(64, 1).unwrap();
    ring(1024).free(block);
}

#[derive(Clone, Debug)]
enum Step {
    Allocate(usize),
    /// Frees the nth live block.
    Free(usize),
}

fn steps() -> impl Strategy<Value = Vec<Step>> {
    let step = prop_oneof![
        3 => (1..700_usize).prop_map(Step::Allocate),
        2 => (0..16_usize).prop_map(Step::Free),
        1 => Just(Step::Free(0)),
    ];
    prop::collection::vec(step, 0..200)
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 64, failure_persistence: None, ..Default::default() })]

    /// Live blocks never overlap, a refusal is exact, and a drained ring is whole.
    #[test]
    fn the_books_agree_with_a_map_of_bytes(steps in steps()) {
        const UNITS: usize = 2048 / BLOCK_ALIGN;
        let mut ring = ring(2048);
        let mut taken = [false; UNITS];
        let mut live: Vec<Block> = Vec::new();
        for step in steps {
            match step {
                Step::Allocate(bytes) => {
                    let free_before = ring.free_bytes();
                    match ring.allocate(bytes, bytes as u64) {
                        Ok(block) => {
                            prop_assert!(block.offset() % BLOCK_ALIGN == 0);
                            for unit in units(&block) {
                                prop_assert!(!std::mem::replace(&mut taken[unit], true));
                            }
                            live.push(block);
                        }
                        Err(RingError::Full { wanted, free, largest, total, .. }) => {
                            prop_assert_eq!((wanted, free, total), (bytes, free_before, 2048));
                            prop_assert!(largest < bytes.next_multiple_of(BLOCK_ALIGN));
                            prop_assert_eq!(ring.free_bytes(), free_before);
                        }
                        Err(other) => prop_assert!(false, "{other}"),
                    }
                }
                Step::Free(nth) if nth < live.len() => {
                    let block = live.remove(nth);
                    units(&block).for_each(|unit| taken[unit] = false);
                    ring.free(block);
                }
                Step::Free(_) => {}
            }
            let free_units = taken.iter().filter(|taken| !**taken).count();
            prop_assert!(ring.free_bytes() <= free_units * BLOCK_ALIGN);
        }
        live.into_iter().for_each(|block| ring.free(block));
        prop_assert_eq!(ring.free_bytes(), 2048);
    }
}

fn units(block: &Block) -> std::ops::Range<usize> {
    block.offset() / BLOCK_ALIGN..(block.offset() + block.bytes()).div_ceil(BLOCK_ALIGN)
}
