//! Address ranges of windows: where they begin, and what is refused.

use std::fs::File;
use std::os::fd::AsFd;

use super::*;

fn shared(pages: u64) -> File {
    let file = tempfile::tempfile().unwrap();
    file.set_len(pages * WINDOW_ALIGNMENT).unwrap();
    file
}

fn window(memory: &File, offset: u64, bytes: u64) -> Window<'_> {
    Window {
        memory: memory.as_fd(),
        offset,
        bytes,
        side: WindowSide::Home,
    }
}

#[test]
fn windows_of_one_order_begin_at_equal_addresses_on_every_chip() {
    let file = shared(8);
    for reuse in [AddressReuse::Late, AddressReuse::AtOnce] {
        let (mut a, mut b) = (Windows::new(reuse), Windows::new(reuse));
        for bytes in [1, 4000, 4096] {
            let base = a.map(&window(&file, 0, bytes)).unwrap();
            assert_eq!(base, b.map(&window(&file, 4096, bytes)).unwrap());
        }
    }
}

#[test]
fn an_unmapped_range_is_reused_at_once_or_not_at_all() {
    let file = shared(8);
    for (reuse, same) in [(AddressReuse::Late, false), (AddressReuse::AtOnce, true)] {
        let mut windows = Windows::new(reuse);
        let first = windows.map(&window(&file, 0, 4000)).unwrap();
        let second = windows.map(&window(&file, 0, 4000)).unwrap();
        assert_eq!(second, first + 4096);
        assert!(windows.unmap(first) && !windows.unmap(first));
        let third = windows.map(&window(&file, 0, 4000)).unwrap();
        assert_eq!(third == first, same, "{reuse:?}");
        assert_eq!(windows.home_bytes(), 2 * 4096);
    }
}

#[test]
fn what_does_not_lie_in_the_shared_object_is_refused() {
    let file = shared(2);
    let mut windows = Windows::new(AddressReuse::Late);
    let mut problem = |offset, bytes| windows.map(&window(&file, offset, bytes)).unwrap_err();
    assert!(matches!(
        problem(1, 1),
        WindowProblem::Unaligned { offset: 1 }
    ));
    assert!(matches!(problem(0, 0), WindowProblem::Size));
    assert!(matches!(problem(0, u64::MAX), WindowProblem::Size));
    assert!(matches!(problem(u64::MAX - 4095, 1), WindowProblem::Size));
    assert!(matches!(
        problem(4096, 4096),
        WindowProblem::Short {
            wanted: 12288,
            found: 8192
        }
    ));
    assert_eq!(windows.len(), 0);
}
