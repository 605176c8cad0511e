//! What is kept, what is counted, and when a join returns.

use std::io::{self, PipeWriter, Write as _};
use std::time::{Duration, Instant};

use super::{Bounds, HeadAndTail, Output, Pump, PumpThread};

fn soon() -> Instant {
    Instant::now() + Duration::from_secs(20)
}

const SMALL: Bounds = Bounds {
    head_bytes: 4,
    tail_bytes: 3,
};

/// However the bytes are cut into pieces, the same is kept.
#[track_caller]
fn check(text: &str, shown: &str, dropped: u64) {
    for piece in 1..=text.len().max(1) {
        let mut kept = HeadAndTail::new(SMALL);
        text.as_bytes()
            .chunks(piece)
            .for_each(|bytes| kept.push(bytes));
        let output = kept.output(true);
        assert_eq!(
            (output.to_string().as_str(), output.dropped),
            (shown, dropped)
        );
    }
}

#[test]
fn head_and_tail_are_kept_and_the_middle_is_counted() {
    check("", "", 0);
    check("abc", "abc", 0);
    check("abcdefg", "abcdefg", 0);
    check("abcdefgh", "abcd\n[... 1 bytes dropped ...]\nfgh", 1);
    check(
        "abcd0123456789xyz",
        "abcd\n[... 10 bytes dropped ...]\nxyz",
        10,
    );
}

fn pipe() -> (Pump, PipeWriter) {
    let (reader, writer) = io::pipe().unwrap();
    (Pump::new(reader.into(), SMALL).unwrap(), writer)
}

#[test]
fn a_pump_takes_what_there_is_and_never_waits() {
    let (mut pump, mut writer) = pipe();
    assert!(!pump.advance().unwrap());
    writer.write_all(b"ab").unwrap();
    assert!(!pump.advance().unwrap());
    assert_eq!(pump.so_far().to_string(), "ab");
    drop(writer);
    assert!(pump.advance().unwrap());
    assert!(pump.so_far().complete);
}

#[test]
fn more_than_a_pipe_holds_gets_through() {
    let (reader, mut writer) = io::pipe().unwrap();
    let pump = PumpThread::start(reader.into(), Bounds::default()).unwrap();
    let block = [b'x'; 1 << 16];
    (0..16).for_each(|_| writer.write_all(&block).unwrap());
    writer.write_all(b"the end").unwrap();
    drop(writer);
    let output = pump.join(soon()).unwrap();
    assert!(output.complete && output.tail.ends_with(b"the end"));
    let kept = (output.head.len() + output.tail.len()) as u64;
    assert_eq!(kept + output.dropped, (1 << 20) + 7);
}

#[test]
fn a_join_returns_at_its_deadline_although_somebody_holds_the_pipe() {
    let (reader, mut writer) = io::pipe().unwrap();
    writer.write_all(b"so far").unwrap();
    let pump = PumpThread::start(reader.into(), Bounds::default()).unwrap();
    let output = pump.join(Instant::now()).unwrap();
    assert_eq!(
        (output.to_string().as_str(), output.complete),
        ("so far", false)
    );
    let (pump, mut writer) = pipe();
    writer.write_all(b"so").unwrap();
    let expected = Output {
        head: b"so".to_vec(),
        ..Output::default()
    };
    assert_eq!(pump.join(Instant::now()).unwrap(), expected);
}

#[test]
fn a_join_returns_at_its_deadline_although_somebody_writes_without_end() {
    let endless = std::fs::File::open("/dev/zero").unwrap();
    let pump = Pump::new(endless.into(), SMALL).unwrap();
    let (answer, joined) = std::sync::mpsc::channel();
    std::thread::spawn(move || answer.send(pump.join(Instant::now())));
    let output = joined
        .recv_timeout(Duration::from_secs(20))
        .unwrap()
        .unwrap();
    assert!(!output.complete && output.dropped > 0);
}
