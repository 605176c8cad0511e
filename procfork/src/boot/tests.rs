//! The record survives the way, and nothing else is taken for one.

use super::Boot;
use crate::lifeline::PageSource;
use crate::pid::Pid;

fn full() -> Boot {
    let pid = |raw| Pid::new(raw).unwrap();
    Boot {
        parent: pid(7),
        parent_page: Some((5, pid(8))),
        root_page: Some(PageSource {
            pid: pid(3),
            fd: 4,
            inode: u64::MAX,
            owner: pid(3),
        }),
        parent_is_root: false,
        tree: Some(pid(9)),
        leads: true,
        death_signal: 9,
        given: vec![10, 11],
        kept: vec![12],
        crashes: Some([13, 14]),
        name: "näme".to_owned(),
        function: "function".to_owned(),
        args: vec![0, 255, 7],
    }
}

fn bare() -> Boot {
    Boot {
        parent_page: None,
        root_page: None,
        parent_is_root: true,
        tree: None,
        leads: false,
        death_signal: 0,
        given: vec![],
        kept: vec![],
        crashes: None,
        args: vec![],
        ..full()
    }
}

#[test]
fn a_record_is_read_as_written() {
    for boot in [full(), bare()] {
        assert_eq!(Boot::decode(&boot.encode()).as_ref(), Some(&boot));
    }
}

#[test]
fn a_cut_record_is_refused_wherever_it_is_cut() {
    let bytes = full().encode();
    for end in 0..bytes.len() {
        assert_eq!(Boot::decode(&bytes[..end]), None, "cut at {end}");
    }
}

#[test]
fn lengths_beyond_the_record_are_refused_without_allocating_for_them() {
    let bytes = full().encode();
    for at in (0..bytes.len() - 8).step_by(8) {
        let mut damaged = bytes.clone();
        damaged[at..at + 8].copy_from_slice(&i64::MAX.to_le_bytes());
        // Either refused or read as other numbers: it never panics.
        let _ = Boot::decode(&damaged);
    }
}
