//! The table of buffers stays as large as what was in use at once, whatever passes through.

use super::{Buffers, SPARE};
use crate::buffer::{BufferId, BufferKind};

fn id(number: u64) -> BufferId {
    BufferId::new(1, number, 0, BufferKind::Shared)
}

/// Buffers pass through, `at_once` of them at a time, without a record each.
fn pass(buffers: &mut Buffers, numbers: std::ops::Range<u64>, at_once: usize) {
    for start in numbers.step_by(at_once) {
        let entered: Vec<_> = (start..start + at_once as u64)
            .map(|number| buffers.enter(&id(number)))
            .collect();
        entered.into_iter().for_each(|buffer| buffers.leave(buffer));
    }
}

#[test]
fn buffers_that_come_once_do_not_make_the_table_grow() {
    for at_once in [1, 100, 3000] {
        let mut buffers = Buffers::default();
        pass(&mut buffers, 0..50_000, at_once);
        let n_buckets = buffers.by_id.num_buckets();
        assert!(
            n_buckets <= 16 * (at_once + SPARE),
            "{n_buckets} for {at_once}"
        );
        pass(&mut buffers, 50_000..200_000, at_once);
        assert_eq!(buffers.by_id.num_buckets(), n_buckets);
        assert!(buffers.all.len() <= n_buckets);
    }
}

#[test]
fn a_buffer_that_is_kept_is_found_again() {
    let mut buffers = Buffers::default();
    let first = buffers.enter(&id(7));
    buffers.leave(first);
    assert_eq!(buffers.enter(&id(7)), first);
}
