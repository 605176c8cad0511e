//! Whatever a peer writes: nothing panics, nothing outside is read, and poison stays.
//!
//! The same bodies as the fuzz targets, with random bytes (`MAILBOX_CASES` sets how many) and with every
//! input that once found a fault.

use proptest::prelude::*;

#[path = "../../fuzz/src/decoders.rs"]
#[expect(unreachable_pub, reason = "a library of its own in the fuzz workspace")]
mod bodies;

type Body = fn(&[u8]);

const BODIES: [(&str, Body); 5] = [
    ("peer", bodies::peer),
    ("reply", bodies::reply),
    ("header", bodies::header),
    ("packet", bodies::packet),
    ("feed", bodies::feed),
];

fn cases() -> u32 {
    std::env::var("MAILBOX_CASES")
        .ok()
        .and_then(|n| n.parse().ok())
        .unwrap_or(100)
}

proptest! {
    #![proptest_config(ProptestConfig { cases: cases(), failure_persistence: None, ..Default::default() })]

    #[test]
    fn any_bytes_are_survived(bytes in prop::collection::vec(any::<u8>(), 0..400)) {
        for (_, body) in BODIES {
            body(&bytes);
        }
    }

    #[test]
    fn an_answer_of_any_label_and_length_is_survived(
        label in 0..9_u8,
        len in prop_oneof![0..100_u32, 4000..4200_u32, any::<u32>()],
        text in prop::collection::vec(any::<u8>(), 0..96),
    ) {
        let stamp = u32::from(label) << 24 | len & 0xff_ffff;
        bodies::reply(&[&stamp.to_le_bytes()[..], &text].concat());
    }
}

#[test]
fn a_packet_of_any_length_is_taken_or_dropped_as_its_length_says() {
    (1..100).for_each(|len| bodies::packet(&vec![0xff; len]));
}

#[test]
fn inputs_that_once_found_a_fault_stay_harmless() {
    let dir = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("fuzz/regressions");
    let mut n_inputs = 0;
    for (name, body) in BODIES {
        let Ok(files) = std::fs::read_dir(dir.join(name)) else {
            continue;
        };
        for file in files {
            body(&std::fs::read(file.unwrap().path()).unwrap());
            n_inputs += 1;
        }
    }
    assert!(
        n_inputs > 0,
        "the regressions are not where this test looks"
    );
}
