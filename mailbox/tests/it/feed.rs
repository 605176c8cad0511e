//! A feed keeps records whole and in order, loses rather than waits, and survives what a writer writes.

use std::os::fd::AsFd;

use mailbox::{Doorbell, Feed, FeedWriter, Missed, RECORD_MAX, Told};

fn feed() -> Feed {
    Feed::create(&Doorbell::create().unwrap()).unwrap()
}

/// A writer as another process has it: over descriptors of its own.
fn twin(feed: &Feed) -> FeedWriter {
    let fds = feed.writer().fds();
    FeedWriter::from_fds(fds.map(|fd| fd.try_clone_to_owned().unwrap())).unwrap()
}

fn read(feed: &mut Feed) -> (Vec<Vec<u8>>, Missed) {
    let mut records = Vec::new();
    let missed = feed.read(|record| records.push(record.to_vec()));
    (records, missed)
}

#[test]
fn records_of_several_writers_come_in_the_order_of_their_writes() {
    let mut feed = feed();
    let (a, b) = (twin(&feed), twin(&feed));
    for (i, writer) in [&a, &b, &b, &a].iter().enumerate() {
        assert_eq!(writer.write(&[i as u8; 3]), Told::Sent);
    }
    assert_eq!(feed.writer().told(), 4);
    let (records, missed) = read(&mut feed);
    assert_eq!(records, [[0; 3], [1; 3], [2; 3], [3; 3]]);
    assert_eq!(missed, Missed::default());
}

#[test]
fn a_full_feed_loses_and_counts_instead_of_waiting() {
    let mut feed = feed();
    let writer = twin(&feed);
    let sent = (0..)
        .take_while(|_| writer.write(&[7; 1000]) == Told::Sent)
        .count();
    assert_eq!(writer.write(&[7; 1000]), Told::Lost);
    let (records, missed) = read(&mut feed);
    assert_eq!((records.len(), missed.lost), (sent, 2));
    // There is room again, and what was lost is told once.
    assert_eq!(writer.write(b"x"), Told::Sent);
    assert_eq!(read(&mut feed), (vec![b"x".to_vec()], Missed::default()));
}

#[test]
fn a_record_has_from_one_byte_to_the_maximum() {
    let mut feed = feed();
    let writer = twin(&feed);
    assert_eq!(writer.write(&[]), Told::Lost);
    assert_eq!(writer.write(&vec![1; RECORD_MAX + 1]), Told::Lost);
    assert_eq!(writer.write(&vec![1; RECORD_MAX]), Told::Sent);
    let (records, missed) = read(&mut feed);
    assert_eq!((records, missed.lost), (vec![vec![1; RECORD_MAX]], 2));
}

#[test]
fn more_than_one_read_of_the_kernel_is_put_together() {
    let mut feed = feed();
    let writer = twin(&feed);
    // 3002 bytes do not divide what one read takes, so that records are cut by it.
    let sent: Vec<Vec<u8>> = (0..40).map(|i| vec![i; 3000]).collect();
    sent.iter()
        .for_each(|record| assert_eq!(writer.write(record), Told::Sent));
    assert_eq!(read(&mut feed).0, sent);
}

#[test]
fn what_a_writer_wants_is_known_to_all_of_them() {
    let feed = feed();
    let writer = twin(&feed);
    assert_eq!(writer.wanted(), 0);
    feed.writer().ask_for(3);
    assert_eq!((writer.wanted(), feed.writer().wanted()), (3, 3));
}

#[test]
fn a_writer_outlives_its_reader() {
    let feed = feed();
    let writer = twin(&feed);
    drop(feed);
    assert_eq!(writer.write(b"nobody reads this"), Told::Lost);
}

#[test]
fn a_writer_that_breaks_the_framing_costs_what_is_in_the_pipe_and_no_more() {
    let mut feed = feed();
    let writer = twin(&feed);
    writer.write(b"before");
    let [_, pipe, _] = feed.writer().fds();
    nix::unistd::write(pipe.as_fd(), &[0xff; 100]).unwrap();
    writer.write(b"swept away");
    let (records, missed) = read(&mut feed);
    assert_eq!((records, missed.malformed), (vec![b"before".to_vec()], 1));
    writer.write(b"after");
    assert_eq!(read(&mut feed).0, [b"after"]);
}

#[test]
fn a_reading_ends_although_a_writer_never_does() {
    let mut feed = feed();
    let writer = twin(&feed);
    let mut next = 0_u32;
    let mut write = || {
        let mut record = [0; 1000];
        record[..4].copy_from_slice(&next.to_le_bytes());
        assert_eq!(writer.write(&record), Told::Sent);
        next += 1;
    };
    (0..200).for_each(|_| write());
    let mut expected = 0_u32;
    for _ in 0..3 {
        let told = feed.writer().told();
        // Whatever is read is replaced at once: the pipe never becomes empty.
        let missed = feed.read(|record| {
            assert_eq!(record[..4], expected.to_le_bytes());
            expected += 1;
            write();
        });
        assert_eq!(missed, Missed::default());
        assert!(u64::from(expected) >= told, "what was told before is there");
    }
}

#[test]
fn a_broken_framing_is_told_once_however_many_readings_it_takes() {
    let mut feed = feed();
    let writer = twin(&feed);
    let [_, pipe, _] = feed.writer().fds();
    let pipe = pipe.try_clone_to_owned().unwrap();
    let garbage = || nix::unistd::write(&pipe, &[0xff; 4096]).is_ok();
    while garbage() {}
    let mut malformed = 0;
    for _ in 0..3 {
        // As much again as the reading has taken: the pipe is never seen empty.
        malformed += read(&mut feed).1.malformed;
        while garbage() {}
    }
    // The last reading ends where the pipe is empty, and what comes then is a record again.
    malformed += read(&mut feed).1.malformed + read(&mut feed).1.malformed;
    assert_eq!(malformed, 1);
    writer.write(b"after");
    assert_eq!(
        read(&mut feed),
        (vec![b"after".to_vec()], Missed::default())
    );
}
