//! Memory without a name: nothing to adopt, nothing to sweep, nothing that an exit removes.

use std::os::fd::{AsFd, AsRawFd};

use mailbox::Segment;

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
