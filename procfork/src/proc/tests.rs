//! Parsing of stat lines.

use super::{ProcessInfo, ProcessState};
use crate::pid::Pid;

#[test]
fn a_name_with_parentheses_and_spaces_is_read_whole() {
    let line = "42 (a ) S (b)) Z 7 40 40 0 -1 0 0 0 0 0 0 0 0 0 20 0 1 0 123456 0 0\n";
    let info = ProcessInfo::parse(line).unwrap();
    assert_eq!(info.name, "a ) S (b)");
    assert_eq!(info.state, ProcessState::Zombie);
    assert_eq!((info.parent, info.group), (Pid::new(7), Pid::new(40)));
    assert_eq!(info.start_time, 123_456);
}

#[test]
fn a_cut_line_is_refused() {
    let line = "42 (name) S 7 40 40 0 -1 0 0 0 0 0 0 0 0 0 20 0 1 0 123456 0 0";
    assert!(ProcessInfo::parse(line).is_some());
    for end in 0..line.find("123456").unwrap() {
        assert_eq!(ProcessInfo::parse(&line[..end]), None, "{}", &line[..end]);
    }
}
