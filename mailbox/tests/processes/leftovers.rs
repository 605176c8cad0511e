//! Memory without a name: nothing to adopt, nothing to sweep, nothing that an exit removes; and limits of a process.

use std::os::fd::{AsFd, AsRawFd};

use mailbox::{Segment, SegmentError};
use nix::sys::resource::{Resource, setrlimit};

use crate::kid::{Kid, kill_self};

pub(crate) fn nameless() {
    let segment = Segment::create("buffer", 1 << 16).unwrap();
    segment.write_at(100, b"still here").unwrap();
    let link =
        std::fs::read_link(format!("/proc/self/fd/{}", segment.as_fd().as_raw_fd())).unwrap();
    assert_eq!(link.to_str(), Some("/memfd:buffer (deleted)"));
    let clean = Kid::fork(|| {
        segment.write_at(0, b"clean").unwrap();
        0
    });
    let crashed = Kid::fork(|| {
        segment.write_at(8, b"crash").unwrap();
        kill_self()
    });
    for (mut consumer, status) in [(clean, 0), (crashed, libc::SIGKILL)] {
        assert_eq!(consumer.reap(), status, "process {}", consumer.pid());
    }
    let mut copy = [0; 110];
    segment.read_at(0, &mut copy).unwrap();
    assert_eq!(
        (&copy[..5], &copy[8..13], &copy[100..]),
        (&b"clean"[..], &b"crash"[..], &b"still here"[..])
    );
}

/// A limit of this process is an error, never the signal by which the kernel enforces it.
pub(crate) fn limited() {
    setrlimit(Resource::RLIMIT_FSIZE, 1 << 20, 1 << 20).unwrap();
    Segment::create("as large as may be", 1 << 20).unwrap();
    let refused = Segment::create("too large", (1 << 20) + 1).unwrap_err();
    assert!(
        matches!(
            refused,
            SegmentError::FileLimit {
                limit: 0x10_0000,
                ..
            }
        ),
        "{refused}"
    );
    setrlimit(Resource::RLIMIT_NOFILE, 3, 3).unwrap();
    let refused = Segment::create("one too many", 4096).unwrap_err();
    assert!(
        matches!(
            refused,
            SegmentError::Os {
                call: "memfd_create",
                ..
            }
        ),
        "{refused}"
    );
}
