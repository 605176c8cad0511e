//! ST-2: messages of many writers, whole or counted.

use std::collections::HashMap;
use std::io::Read as _;
use std::thread;

use super::*;

fn drain(mut pipe: io::PipeReader) -> (Vec<Vec<u8>>, u64) {
    let mut receiver = Receiver::default();
    let mut messages = Vec::new();
    // An odd size, so that frames are cut anywhere.
    let mut bytes = [0; 1021];
    loop {
        match pipe.read(&mut bytes).expect("readable") {
            0 => return (messages, receiver.torn()),
            count => messages.extend(receiver.push(&bytes[..count])),
        }
    }
}

#[test]
fn eighty_thousand_short_messages_and_some_long_ones_arrive_whole() {
    let (reader, writer) = io::pipe().expect("a pipe");
    let sender = Sender::new(writer.into());
    let message = |writer: usize, number: usize| {
        let long = if number.is_multiple_of(1_000) {
            20_000
        } else {
            0
        };
        let mut text = format!("{writer} {number} ").into_bytes();
        text.resize(text.len() + long, b'x');
        text
    };
    let (messages, torn) = thread::scope(|scope| {
        let reading = scope.spawn(|| drain(reader));
        thread::scope(|scope| {
            for writer in 0..8 {
                let sender = &sender;
                scope.spawn(move || {
                    (0..10_000).for_each(|n| sender.send(&message(writer, n)).expect("read"));
                });
            }
        });
        drop(sender);
        reading.join().expect("no panic")
    });
    assert_eq!(torn, 0);
    let mut seen: HashMap<Vec<u8>, u32> = HashMap::new();
    messages
        .into_iter()
        .for_each(|message| *seen.entry(message).or_default() += 1);
    let all = (0..8).flat_map(|writer| (0..10_000).map(move |number| (writer, number)));
    assert!(
        all.clone()
            .all(|(writer, number)| seen.get(&message(writer, number)) == Some(&1))
    );
    assert_eq!(seen.len(), all.count());
}

#[test]
fn foreign_bytes_are_skipped_and_counted() {
    let mut bytes = b"not a frame".to_vec();
    bytes.extend(frame(1, 0, 0, 1, b"first"));
    bytes.extend(b"SCN1 but no frame, for its length and its checksum are wrong..........");
    bytes.extend(frame(1, 1, 0, 1, b"second"));
    let mut receiver = Receiver::default();
    assert_eq!(
        receiver.push(&bytes),
        [b"first".to_vec(), b"second".to_vec()]
    );
    assert_eq!(receiver.torn(), 2);
}

#[test]
fn a_message_without_its_end_is_counted() {
    let mut receiver = Receiver::default();
    assert!(receiver.push(&frame(1, 0, 0, 2, b"half")).is_empty());
    let cut = frame(1, 1, 0, 1, b"cut short");
    assert!(receiver.push(&cut[..cut.len() - 1]).is_empty());
    assert_eq!(receiver.torn(), 2);
}

#[test]
fn a_damaged_frame_is_no_message() {
    let whole = frame(1, 0, 0, 1, b"payload");
    for at in 0..whole.len() {
        let mut damaged = whole.clone();
        damaged[at] ^= 0x40;
        let mut receiver = Receiver::default();
        assert_eq!(receiver.push(&damaged), Vec::<Vec<u8>>::new(), "byte {at}");
        assert_eq!(receiver.torn(), 1, "byte {at}");
    }
}

#[test]
fn frames_of_different_sizes_for_one_message_do_not_panic() {
    let mut receiver = Receiver::default();
    receiver.push(&frame(1, 0, 4, 5, b"a"));
    receiver.push(&frame(1, 0, 0, 2, b"b"));
    receiver.push(&frame(1, 0, 1, 9, b"c"));
    assert_eq!(receiver.torn(), 1);
}

#[test]
fn an_interrupted_write_is_begun_again() {
    /// Interrupted so often, then a pipe.
    struct Interrupted(u32, Vec<u8>);
    impl io::Write for Interrupted {
        fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
            if let Some(left) = self.0.checked_sub(1) {
                self.0 = left;
                return Err(io::ErrorKind::Interrupted.into());
            }
            self.1.write(bytes)
        }

        fn flush(&mut self) -> io::Result<()> {
            Ok(())
        }
    }
    let mut pipe = Interrupted(3, Vec::new());
    write_whole(&mut pipe, b"a frame").expect("it goes on");
    assert_eq!((pipe.0, &pipe.1[..]), (0, &b"a frame"[..]));
}
