//! The content hash of a definition.
//!
//! It finds damage and spreads keys over a table; it proves nothing, and wherever it matters contents
//! are compared. Four lanes, each a bijection of its state for every word, so that a change of any one
//! word always changes the hash.

const SPREAD: u64 = 0x9e37_79b9_7f4a_7c15;

/// The hash of some words.
pub(super) fn of_words(words: &[u64]) -> u64 {
    let mut lanes = [1u64, 2, 3, 4].map(|lane| SPREAD.wrapping_mul(lane));
    let (blocks, rest) = words.as_chunks::<4>();
    for block in blocks {
        for (lane, &word) in lanes.iter_mut().zip(block) {
            *lane = step(*lane, word);
        }
    }
    for (lane, &word) in lanes.iter_mut().zip(rest) {
        *lane = step(*lane, word);
    }
    lanes.into_iter().fold(words.len() as u64, mix)
}

/// For a fixed word a bijection of the state, and the other way round; cheaper than [`mix`], which follows at the
/// end.
fn step(state: u64, word: u64) -> u64 {
    (state.rotate_left(29) ^ word).wrapping_mul(SPREAD)
}

/// For a fixed word a bijection of the state, and the other way round.
pub(super) fn mix(state: u64, word: u64) -> u64 {
    let mixed = (state ^ word).wrapping_mul(SPREAD);
    mixed ^ (mixed >> 29)
}
