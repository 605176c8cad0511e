//! Lines of `/proc/PID/maps`.

use super::Mapped;

#[track_caller]
fn check(line: &str, expected: Option<(usize, &str, u64)>) {
    let found = Mapped::parse(line);
    let found = found
        .as_ref()
        .map(|(start, m)| (*start, m.device.as_str(), m.inode));
    assert_eq!(found, expected);
}

#[test]
fn a_shared_mapping_is_known_by_device_and_inode() {
    check(
        "7f00aa000000-7f00aa001000 rw-s 00000000 00:01 1034                       /dev/zero (deleted)",
        Some((0x7f00_aa00_0000, "00:01", 1034)),
    );
}

#[test]
fn a_private_mapping_names_nothing() {
    check("7f00aa000000-7f00aa001000 rw-p 00000000 00:00 0 ", None);
    check("nonsense", None);
}
