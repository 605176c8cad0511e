//! Segments: their size is fixed and real, their pages exist, their borders hold.

use std::os::fd::{AsFd, OwnedFd};

use mailbox::{Access, Pages, Reserve, Segment, SegmentError, SegmentOptions};

fn dup(segment: &Segment) -> OwnedFd {
    segment.as_fd().try_clone_to_owned().unwrap()
}

#[test]
fn bytes_written_here_are_read_through_another_mapping() {
    let segment = Segment::create("test", 10_000).unwrap();
    let twin = Segment::from_fd(dup(&segment), 10_000).unwrap();
    let bytes: Vec<u8> = (0..100).collect();
    for offset in (0..17).chain([4090, 9_900]) {
        for len in [0, 1, 7, 8, 9, 31, 100] {
            segment.write_at(offset, &bytes[..len]).unwrap();
            let mut copy = vec![0; len];
            twin.read_at(offset, &mut copy).unwrap();
            assert_eq!(copy, bytes[..len], "{len} bytes at {offset}");
        }
    }
}

#[test]
fn nothing_outside_the_segment_can_be_reached() {
    let segment = Segment::create("test", 100).unwrap();
    for (offset, len) in [(100, 1), (0, 101), (99, 2), (usize::MAX, 2)] {
        let refused = segment.read_at(offset, &mut vec![0; len]).unwrap_err();
        assert!(
            matches!(refused, SegmentError::OutOfBounds { bytes: 100, .. }),
            "{refused}"
        );
        assert!(segment.write_at(offset, &vec![0; len]).is_err());
    }
    segment.read_at(100, &mut []).unwrap();
}

#[test]
fn a_segment_of_another_size_than_announced_is_refused() {
    let segment = Segment::create("test", 4096).unwrap();
    for announced in [0, 4095, 4097, 1 << 40] {
        let refused = Segment::from_fd(dup(&segment), announced).unwrap_err();
        assert!(
            matches!(refused, SegmentError::WrongSize { found: 4096, .. }),
            "{refused}"
        );
    }
}

#[test]
fn a_descriptor_that_could_still_be_truncated_is_refused() {
    let file = tempfile_without_seals();
    let refused = Segment::from_fd(file, 4096).unwrap_err();
    assert!(
        matches!(refused, SegmentError::NotSealed { .. }),
        "{refused}"
    );
}

#[test]
fn whatever_is_no_segment_is_refused_and_says_why() {
    let (pipe, _tail) = nix::unistd::pipe().unwrap();
    let refused = Segment::from_fd(pipe, 4096).unwrap_err();
    assert!(
        matches!(refused, SegmentError::WrongSize { found: 0, .. }),
        "{refused}"
    );
    // A file of a disk: of the size that was announced, and of a kind that cannot be sealed.
    let file = std::fs::File::open(std::env::current_exe().unwrap()).unwrap();
    let bytes = usize::try_from(file.metadata().unwrap().len()).unwrap();
    let refused = Segment::from_fd(file.into(), bytes).unwrap_err();
    assert!(
        matches!(refused, SegmentError::NotSealed { .. }),
        "{refused}"
    );
    let directory = std::fs::File::open(std::env::temp_dir()).unwrap();
    let bytes = usize::try_from(directory.metadata().unwrap().len()).unwrap();
    assert!(Segment::from_fd(directory.into(), bytes.max(1)).is_err());
}

#[test]
fn a_range_of_no_bytes_is_reserved_and_released_for_nothing() {
    let segment = Segment::create("test", 4096).unwrap();
    for offset in [0, 1, 4096] {
        segment.reserve(offset, 0).unwrap();
        segment.release(offset, 0).unwrap();
    }
    assert!(segment.release(4097, 0).is_err());
}

#[test]
fn released_pages_read_as_zeros_in_every_mapping_and_hold_bytes_again() {
    let segment = Segment::create("test", 3 * 4096).unwrap();
    let twin = Segment::from_fd(dup(&segment), 3 * 4096).unwrap();
    segment.write_at(0, &[7; 3 * 4096]).unwrap();
    segment.release(4096 - 1, 4096 + 2).unwrap();
    let mut copy = [0; 3 * 4096];
    twin.read_at(0, &mut copy).unwrap();
    let zeros = copy.iter().filter(|&&byte| byte == 0).count();
    assert_eq!((zeros, copy[4094], copy[8193]), (4096 + 2, 7, 7));
    segment.reserve(0, 3 * 4096).unwrap();
    twin.write_at(5000, b"again").unwrap();
    segment.read_at(5000, &mut copy[..5]).unwrap();
    assert_eq!(&copy[..5], b"again");
}

#[test]
fn a_mapping_outlives_its_descriptors_and_its_creator() {
    let segment = Segment::create("test", 4096).unwrap();
    segment.write_at(9, b"kept").unwrap();
    let twin = Segment::from_fd(dup(&segment), 4096).unwrap();
    drop(segment);
    let mut copy = [0; 4];
    twin.read_at(9, &mut copy).unwrap();
    assert_eq!(&copy, b"kept");
}

fn tempfile_without_seals() -> OwnedFd {
    use nix::sys::memfd::{MFdFlags, memfd_create};
    let fd = memfd_create(
        c"plain",
        MFdFlags::MFD_CLOEXEC | MFdFlags::MFD_ALLOW_SEALING,
    )
    .unwrap();
    nix::unistd::ftruncate(&fd, 4096).unwrap();
    fd
}

#[test]
fn a_segment_cannot_be_truncated_by_anybody() {
    let segment = Segment::create("test", 8192).unwrap();
    let fd = dup(&segment);
    assert_eq!(
        nix::unistd::ftruncate(&fd, 4096),
        Err(nix::errno::Errno::EPERM)
    );
    assert_eq!(
        nix::unistd::ftruncate(&fd, 16384),
        Err(nix::errno::Errno::EPERM)
    );
}

#[test]
fn a_read_only_descriptor_cannot_be_mapped_for_writing() {
    let segment = Segment::create("test", 4096).unwrap();
    segment.write_at(5, b"seen").unwrap();
    let fd = segment.readonly_fd().unwrap();
    let refused = Segment::from_fd(fd.try_clone().unwrap(), 4096).unwrap_err();
    assert!(
        matches!(refused, SegmentError::ReadOnlyFd { bytes: 4096 }),
        "{refused}"
    );
    let reader = Segment::map_readonly(fd, 4096).unwrap();
    assert_eq!(reader.access(), Access::ReadOnly);
    let mut copy = [0; 4];
    reader.read_at(5, &mut copy).unwrap();
    assert_eq!(&copy, b"seen");
    assert!(matches!(
        reader.write_at(0, b"x"),
        Err(SegmentError::ReadOnly)
    ));
}

#[test]
fn a_segment_that_the_machine_cannot_back_is_an_error_at_once() {
    let refused = Segment::create("too large", 1 << 44).unwrap_err();
    assert!(
        matches!(refused, SegmentError::OutOfMemory { .. }),
        "{refused}"
    );
    let zero = Segment::create("empty", 0).unwrap_err();
    assert!(
        matches!(zero, SegmentError::Size { bytes: 0, .. }),
        "{zero}"
    );
}

#[test]
fn a_sparse_segment_reserves_what_is_asked_for() {
    let options = SegmentOptions {
        reserve: Reserve::First(4096),
        pages: Pages::HugeHint,
    };
    let segment = Segment::create_with("sparse", 1 << 30, options).unwrap();
    let blocks = |segment: &Segment| nix::sys::stat::fstat(segment).unwrap().st_blocks * 512;
    assert_eq!(blocks(&segment), 4096);
    segment.reserve(1 << 20, 8192).unwrap();
    segment.write_at(1 << 20, &[1; 8192]).unwrap();
    assert!(blocks(&segment) >= 4096 + 8192);
    assert!(segment.reserve(1 << 30, 1).is_err());
}
