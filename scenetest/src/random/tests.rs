//! The stream never changes: golden files depend on it.

use super::*;

#[test]
fn the_stream_of_a_seed_is_fixed() {
    let mut random = Random::new(1_234_567);
    let first: Vec<u64> = (0..3).map(|_| random.bits()).collect();
    let expected = [
        6_457_827_717_110_365_317,
        3_203_168_211_198_807_973,
        9_817_491_932_198_370_423,
    ];
    assert_eq!(first, expected);
}

#[test]
fn numbers_are_in_their_range() {
    let mut random = Random::new(0);
    let units: Vec<f32> = (0..10_000).map(|_| random.unit()).collect();
    assert!(units.iter().all(|unit| (-1.0..1.0).contains(unit)));
    assert!(units.iter().any(|unit| *unit < -0.9) && units.iter().any(|unit| *unit > 0.9));
    assert!((0..1_000).all(|_| random.below(7) < 7));
    assert_eq!(random.below(0), 0);
}
