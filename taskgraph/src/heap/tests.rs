//! One ring through random allocations and releases, and the order of reclaim.

use proptest::prelude::*;

use super::*;
use crate::buffer::BufferKind;

const BYTES: u64 = 1024;
const TASK: TaskId = TaskId {
    slot: 0,
    generation: 0,
};

fn heap() -> Heap {
    let spec = |id| RingSpec {
        buffer: BufferId::new(9, id, 0, BufferKind::Shared),
        bytes: BYTES,
    };
    Heap::new([spec(0), spec(1), spec(2), spec(3)])
}

#[derive(Clone, Debug)]
enum Op {
    /// Bytes, and how many tasks use the block.
    Alloc(u64, u32),
    /// Ends one use of one block, wrapped round.
    End(usize),
}

fn op() -> impl Strategy<Value = Op> {
    prop_oneof![
        (0..600u64, 0..3u32).prop_map(|(bytes, users)| Op::Alloc(bytes, users)),
        any::<usize>().prop_map(Op::End),
    ]
}

/// Blocks that are in use, with their bytes and how often they are held.
struct Live {
    block: Allocation,
    end: u64,
    n_held: u32,
}

/// Ends the scope of the block first, then its tasks.
fn end_one(heap: &mut Heap, live: &mut Vec<Live>, at: usize) {
    let entry = &mut live[at];
    if heap.rings[0]
        .get(entry.block.id)
        .is_some_and(|block| block.scope.is_some())
    {
        heap.leave_scope(Some(entry.block.id));
    } else {
        heap.release(entry.block.id);
    }
    entry.n_held -= 1;
    if entry.n_held == 0 {
        live.remove(at);
    }
}

proptest! {
    #[test]
    fn blocks_in_use_never_overlap_and_a_drained_ring_is_whole_again(
        ops in prop::collection::vec(op(), 0..200),
    ) {
        let (mut heap, mut live) = (heap(), Vec::<Live>::new());
        for op in ops {
            match op {
                Op::Alloc(bytes, users) => match heap.alloc(bytes, 0, None) {
                    Ok(block) => {
                        let end = block.offset + bytes;
                        prop_assert!(end <= BYTES && block.offset % BLOCK_ALIGN == 0);
                        let meets = |other: &Live| {
                            block.offset < other.end.max(other.block.offset + 1) && other.block.offset < end.max(block.offset + 1)
                        };
                        prop_assert!(!live.iter().any(meets));
                        (0..users).for_each(|_| heap.hold(block.id, TASK));
                        live.push(Live { block, end, n_held: 1 + users });
                    }
                    Err(error) => {
                        prop_assert!(!live.is_empty(), "an empty ring refused: {error}");
                    }
                },
                Op::End(at) if !live.is_empty() => {
                    let at = at % live.len();
                    end_one(&mut heap, &mut live, at);
                }
                Op::End(_) => {}
            }
        }
        while !live.is_empty() {
            end_one(&mut heap, &mut live, 0);
        }
        prop_assert!(heap.alloc(BYTES, 0, None).is_ok());
    }
}

#[test]
fn a_newer_block_waits_for_the_older_one() {
    let mut heap = heap();
    let first = heap.alloc(512, 0, None).map(|block| block.id).ok();
    let second = heap.alloc(512, 0, None).map(|block| block.id).ok();
    heap.leave_scope(second);
    assert!(heap.alloc(64, 0, None).is_err());
    heap.leave_scope(first);
    assert!(heap.alloc(1024, 0, None).is_ok());
}

#[test]
fn every_depth_has_its_ring_and_the_deep_ones_share_the_last() {
    let mut heap = heap();
    let rings: Vec<_> = (0..6)
        .filter_map(|depth| heap.alloc(64, depth, None).ok())
        .map(|b| b.id.ring)
        .collect();
    assert_eq!(rings, [0, 1, 2, 3, 3, 3]);
}

#[test]
fn a_block_is_a_buffer_of_its_own() {
    let mut heap = heap();
    let first = heap
        .alloc(64, 0, None)
        .map(|block| (block.id, block.buffer))
        .ok();
    let (id, buffer) = first.expect("there is room");
    assert_eq!(heap.block(&buffer), Ok(Some(id)));
    heap.leave_scope(Some(id));
    assert_eq!(heap.block(&buffer), Err(buffer));
    let second = heap
        .alloc(64, 0, None)
        .map(|block| (block.offset, block.buffer))
        .ok();
    assert!(second.is_some_and(|(offset, again)| offset == 0 && again != buffer));
    let foreign = BufferId::new(8, 0, 1, BufferKind::Shared);
    assert_eq!(heap.block(&foreign), Ok(None));
}

#[test]
fn giant_requests_are_refused_and_never_wrap_round() {
    let mut heap = heap();
    for bytes in [BYTES + 1, u64::MAX, u64::MAX - 62] {
        let refused = heap.alloc(bytes, 0, None).map(|block| block.offset);
        assert_eq!(
            refused,
            Err(AllocError::TooLarge {
                requested: bytes,
                total: BYTES,
                depth: 0
            })
        );
    }
}
