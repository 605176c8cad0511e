//! Descriptors and their headers travel whole or not at all.

use std::os::fd::AsFd;
use std::time::{Duration, Instant};

use mailbox::{FDS_MAX, FdChannel, FdChannelError, FdHeader, Segment};

fn soon() -> Option<Instant> {
    Some(Instant::now() + Duration::from_secs(10))
}

#[test]
fn a_segment_arrives_with_its_header() {
    let (ours, theirs) = FdChannel::pair().unwrap();
    let segment = Segment::create("sent", 4096).unwrap();
    segment.write_at(0, b"content").unwrap();
    let header = FdHeader {
        kind: 3,
        generation: 4,
        owner: 5,
        id: u64::MAX,
        value: 4096,
    };
    ours.send(header, &[segment.as_fd()], soon()).unwrap();
    drop(segment);
    let mut message = theirs.recv(soon()).unwrap();
    assert_eq!(message.header, header);
    let received = Segment::from_fd(message.fds.remove(0), 4096).unwrap();
    let mut copy = [0; 7];
    received.read_at(0, &mut copy).unwrap();
    assert_eq!(&copy, b"content");
}

#[test]
fn messages_keep_their_order_and_their_descriptors() {
    let (ours, theirs) = FdChannel::pair().unwrap();
    let fds = [ours.as_fd(); FDS_MAX];
    for id in 0..3 {
        ours.send(
            FdHeader {
                id,
                ..FdHeader::default()
            },
            &fds[..id as usize * 8],
            soon(),
        )
        .unwrap();
    }
    for id in 0..3 {
        let message = theirs.recv(soon()).unwrap();
        assert_eq!(
            (message.header.id, message.fds.len()),
            (id, id as usize * 8)
        );
    }
    assert!(theirs.try_recv().unwrap().is_none());
}

#[test]
fn too_many_descriptors_are_refused_before_anything_is_sent() {
    let (ours, theirs) = FdChannel::pair().unwrap();
    let fds = [ours.as_fd(); FDS_MAX + 1];
    let refused = ours.send(FdHeader::default(), &fds, soon()).unwrap_err();
    assert!(
        matches!(refused, FdChannelError::TooMany { found: 17, max: 16 }),
        "{refused}"
    );
    assert!(theirs.try_recv().unwrap().is_none());
}

#[test]
fn a_closed_end_and_a_deadline_are_told_apart() {
    let (ours, theirs) = FdChannel::pair().unwrap();
    let past = Some(Instant::now());
    assert!(matches!(
        theirs.recv(past),
        Err(FdChannelError::Deadline { .. })
    ));
    ours.send(FdHeader::default(), &[], soon()).unwrap();
    drop(ours);
    theirs.recv(soon()).unwrap();
    assert!(matches!(
        theirs.recv(soon()),
        Err(FdChannelError::Closed { .. })
    ));
    assert!(matches!(
        theirs.send(FdHeader::default(), &[], soon()),
        Err(FdChannelError::Closed { .. })
    ));
}

#[test]
fn a_packet_of_another_shape_is_dropped_whole() {
    let (ours, theirs) = FdChannel::pair().unwrap();
    for len in [1, 24, 31, 33, 4096] {
        nix::unistd::write(&ours, &vec![0xff; len]).unwrap();
        let refused = theirs.recv(soon()).unwrap_err();
        assert!(
            matches!(refused, FdChannelError::Malformed { .. }),
            "{len} bytes: {refused}"
        );
    }
    ours.send(
        FdHeader {
            id: 8,
            ..FdHeader::default()
        },
        &[],
        soon(),
    )
    .unwrap();
    assert_eq!(
        theirs.recv(soon()).unwrap().header.id,
        8,
        "the channel is usable afterwards"
    );
}
