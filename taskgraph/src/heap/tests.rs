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
    let ring = &heap.rings[0];
    let at_place = ring.position(entry.block.id.generation);
    if at_place.is_some_and(|at| ring.blocks[at].scope.is_some()) {
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
                    Err((error, _)) => {
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

fn alloc(heap: &mut Heap, bytes: u64, depth: usize) -> BlockId {
    match heap.alloc(bytes, depth, None) {
        Ok(block) => block.id,
        Err((error, _)) => panic!("{error}"),
    }
}

fn refusal(heap: &mut Heap, bytes: u64, depth: usize) -> AllocError {
    let refused = heap.alloc(bytes, depth, None).err();
    refused.expect("there is no room").0
}

#[test]
fn a_block_between_others_waits_for_those_on_one_side() {
    let mut heap = heap();
    let blocks = [256, 256, 512].map(|bytes| alloc(&mut heap, bytes, 0));
    heap.leave_scope(Some(blocks[1]));
    assert!(heap.alloc(64, 0, None).is_err());
    heap.leave_scope(Some(blocks[2]));
    alloc(&mut heap, 768, 0);
    heap.leave_scope(Some(blocks[0]));
    alloc(&mut heap, 256, 0);
}

/// The ring of the deep scopes: an outer one keeps a block for as long as it is open.
#[test]
fn inner_scopes_use_the_rest_of_their_ring_again_and_again() {
    let mut heap = heap();
    let outer = alloc(&mut heap, 256, 3);
    let mut seen = Vec::new();
    for _ in 0..10 {
        let inner = alloc(&mut heap, 700, 4);
        assert!(
            !seen.contains(&inner),
            "a stale handle would be valid again"
        );
        seen.push(inner);
        heap.leave_scope(Some(inner));
    }
    heap.leave_scope(Some(outer));
    alloc(&mut heap, BYTES, 3);
}

#[test]
fn waiting_is_advised_exactly_where_the_ends_of_tasks_bring_enough() {
    let mut heap = heap();
    let outer = alloc(&mut heap, 256, 3);
    let inner = alloc(&mut heap, 700, 4);
    heap.hold(inner, TASK);
    heap.leave_scope(Some(inner));
    let full = refusal(&mut heap, 768, 4);
    assert!(
        matches!(full, AllocError::Full { blocker: TASK, .. }),
        "{full}"
    );
    let exhausted = refusal(&mut heap, 800, 4);
    assert!(
        matches!(
            exhausted,
            AllocError::Exhausted {
                scope: 3,
                task: None,
                ..
            }
        ),
        "{exhausted}"
    );
    heap.release(inner);
    alloc(&mut heap, 768, 4);
    heap.leave_scope(Some(outer));
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
        assert_eq!(
            refusal(&mut heap, bytes, 0),
            AllocError::TooLarge {
                requested: bytes,
                total: BYTES,
                depth: 0
            }
        );
    }
}
