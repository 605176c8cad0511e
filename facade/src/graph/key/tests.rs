//! Which calls have which key.

use hashbrown::HashMap;

use super::*;

/// A key that feeds less to a hasher than it is.
#[derive(Debug, Clone, PartialEq, Eq)]
struct Careless {
    width: u32,
    depth: u32,
}

impl Hash for Careless {
    fn hash<H: Hasher>(&self, to: &mut H) {
        self.width.hash(to);
    }
}

fn first() {}

fn second() {}

fn asked<'k, F: Copy + 'static>(key: &'k Careless, _: F) -> Asked<'k> {
    Asked::new::<_, F>(key, Inference::Automatic)
}

const WIDE: Careless = Careless { width: 4, depth: 1 };
const DEEP: Careless = Careless { width: 4, depth: 9 };

#[test]
fn keys_that_feed_the_same_to_a_hasher_are_told_apart_by_their_values() {
    let mut kept = HashMap::new();
    kept.insert(asked(&WIDE, first).to_key(), "wide");
    assert_eq!(kept.get(&asked(&WIDE, first)), Some(&"wide"));
    assert_eq!(kept.get(&asked(&DEEP, first)), None);
    assert_eq!(kept.get(&asked(&WIDE, second)), None, "another function");
    let manual = Asked::new::<_, fn()>(&WIDE, Inference::Manual);
    assert_eq!(kept.get(&manual), None, "another kind of scope");
    kept.insert(asked(&DEEP, first).to_key(), "deep");
    assert_eq!(kept.get(&asked(&WIDE, first)), Some(&"wide"));
    assert_eq!(kept.get(&asked(&DEEP, first)), Some(&"deep"));
}

#[test]
fn a_key_of_another_type_that_feeds_the_same_is_another_key() {
    let mut kept = HashMap::new();
    kept.insert(
        Asked::new::<_, fn()>(&4_u32, Inference::Automatic).to_key(),
        (),
    );
    assert!(kept.contains_key(&Asked::new::<_, fn()>(&4_u32, Inference::Automatic)));
    assert!(!kept.contains_key(&Asked::new::<_, fn()>(&WIDE, Inference::Automatic)));
    assert!(!kept.contains_key(&Asked::new::<_, fn()>(&4_i32, Inference::Automatic)));
}

#[test]
fn two_closures_of_one_function_are_two_functions() {
    let of = |key: &'static u32| {
        let (a, b) = (|| 1, || 2);
        fn asked<F: 'static>(key: &u32, _: F) -> Asked<'_> {
            Asked::new::<_, F>(key, Inference::Automatic)
        }
        (asked(key, a), asked(key, b))
    };
    let (a, b) = of(&7);
    assert_eq!(a.name, b.name, "the name does not tell them apart");
    assert!(!a.equivalent(&b.to_key()));
    let read = GraphKey::from_bytes(&b.to_key().to_bytes()).unwrap();
    assert!(
        !a.equivalent(&read) && b.equivalent(&read),
        "in a file neither"
    );
}

#[test]
fn a_key_from_a_file_belongs_to_whoever_feeds_the_same_and_damaged_ones_are_refused() {
    let key = asked(&WIDE, first).to_key();
    let bytes = key.to_bytes();
    let read = GraphKey::from_bytes(&bytes).unwrap();
    assert!(asked(&WIDE, first).equivalent(&read));
    assert!(!asked(&WIDE, second).equivalent(&read));
    assert_eq!(read, key);
    assert_eq!(read.to_bytes(), bytes);
    for length in 0..bytes.len() - 8 {
        assert!(
            GraphKey::from_bytes(&bytes[..length]).is_none(),
            "{length} bytes"
        );
    }
}
