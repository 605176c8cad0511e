//! Records fit their feed, and whatever a worker writes is an event or a warning.

use mailbox::{CUT_MARK, RECORD_MAX};

use super::Record;

fn record(text: &str) -> Record<'_> {
    Record {
        worker: "node/sub0",
        level: 3,
        target: "my_crate::kernels",
        file: Some("src/kernels.rs"),
        line: Some(7),
        text,
    }
}

#[test]
fn a_record_survives_the_way() {
    let record = record("added a=3");
    let bytes = record.encode();
    assert_eq!(
        crate::control::decode::<Record<'_>>(&bytes).unwrap(),
        record
    );
}

#[test]
fn a_long_text_is_cut_with_a_mark_at_a_character() {
    for length in RECORD_MAX - 80..RECORD_MAX + 80 {
        let text = format!("{}{}", "x".repeat(length % 2), "é".repeat(length / 2));
        let bytes = record(&text).encode();
        assert!(bytes.len() <= RECORD_MAX, "{length} bytes of text");
        let decoded: Record<'_> = crate::control::decode(&bytes).unwrap();
        assert!(decoded.text == text || decoded.text.ends_with(CUT_MARK));
    }
}

#[test]
fn bytes_that_are_no_record_are_an_error() {
    assert!(crate::control::decode::<Record<'_>>(&[0xff; 40]).is_err());
    assert!(crate::control::decode::<Record<'_>>(&[]).is_err());
}
