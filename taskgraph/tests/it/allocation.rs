//! Memory: a steady stream of tasks allocates nothing.
//!
//! The allocator of this test program counts what each thread allocates. A stream is run until its tables have the size
//! that it needs; after that ten times as many tasks must go through without one allocation.

use std::alloc::{GlobalAlloc, Layout, System};
use std::cell::Cell;

use taskgraph::*;

thread_local! {
    static ALLOCATIONS: Cell<u64> = const { Cell::new(0) };
}

#[global_allocator]
static COUNTING: Counting = Counting;

/// The system allocator, counting the allocations of each thread.
struct Counting;

fn count() {
    // A thread that is ending has no counter any more, and nobody who would read it.
    let _ = ALLOCATIONS.try_with(|counter| counter.set(counter.get() + 1));
}

// SAFETY:
// - every call goes to `System` with the arguments it came with, and its result is returned as it is, so all that
//   `GlobalAlloc` promises holds because `System` keeps it;
// - counting touches a constant-initialized thread-local without a destructor: it neither allocates nor unwinds.
unsafe impl GlobalAlloc for Counting {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        count();
        // SAFETY: the caller promises that the layout has a size above zero.
        unsafe { System.alloc(layout) }
    }

    unsafe fn dealloc(&self, ptr: *mut u8, layout: Layout) {
        // SAFETY: the caller promises that `ptr` came from `alloc` above, thus from `System`, with this layout.
        unsafe { System.dealloc(ptr, layout) }
    }

    unsafe fn realloc(&self, ptr: *mut u8, layout: Layout, new_size: usize) -> *mut u8 {
        count();
        // SAFETY: as for `dealloc`, and the caller promises that `new_size` is above zero and fits.
        unsafe { System.realloc(ptr, layout, new_size) }
    }
}

fn allocations() -> u64 {
    ALLOCATIONS.with(Cell::get)
}

/// Rounds that let every table grow to its size.
const WARM_UP: u64 = 200;
/// Rounds that are counted.
const COUNTED: u64 = 2_000;

/// A scheduler with two next-level workers and two sub workers, in a run that stays open.
struct Stream {
    graph: Scheduler,
    run: RunId,
    workers: [WorkerId; 2],
}

impl Stream {
    fn new() -> Stream {
        let ring = |id: u64| RingSpec {
            buffer: BufferId::new(9, id, 0, BufferKind::Shared),
            bytes: 1 << 16,
        };
        let mut graph =
            Scheduler::with_heap(Limits::default(), [ring(0), ring(1), ring(2), ring(3)]);
        let mut add = |kind| graph.add_worker(kind, Depth::Two).unwrap();
        let workers = [add(WorkerKind::NextLevel), add(WorkerKind::NextLevel)];
        (0..2).for_each(|_| {
            add(WorkerKind::Sub);
        });
        let run = graph.begin_run();
        Stream {
            graph,
            run,
            workers,
        }
    }

    fn submit(&mut self, placement: Placement<'_>, accesses: &[Access]) -> TaskId {
        let spec = TaskSpec {
            accesses,
            ..TaskSpec::new(placement)
        };
        self.graph.submit(self.run, &spec).unwrap()
    }

    fn drain(&mut self) {
        while let Some(next) = self.graph.next_dispatch() {
            self.graph.accepted(next.dispatch).unwrap();
            self.graph.completed(next.dispatch, Outcome::Ok).unwrap();
            while self.graph.next_effect().is_some() {}
        }
        assert_eq!(self.graph.n_live_tasks(), 0, "the round is over");
    }
}

/// Runs a round again and again; none after the first ones may allocate.
#[track_caller]
fn check(mut round: impl FnMut(&mut Stream, u64)) {
    let mut stream = Stream::new();
    (0..WARM_UP).for_each(|i| round(&mut stream, i));
    let before = allocations();
    (WARM_UP..WARM_UP + COUNTED).for_each(|i| round(&mut stream, i));
    assert_eq!(allocations() - before, 0, "allocations in {COUNTED} rounds");
}

fn matrix(id: u64) -> Tensor {
    let buffer = BufferId::new(1, id, 0, BufferKind::Shared);
    Tensor::contiguous(buffer, DType::F32, &[16, 16], 1024).unwrap()
}

/// Without this, a counter that never counts would pass every other test here.
#[test]
fn an_allocation_is_counted() {
    let before = allocations();
    drop(std::hint::black_box(vec![1u8; 100]));
    assert_eq!(allocations() - before, 1);
}

#[test]
fn a_stream_of_dependent_tasks_allocates_nothing() {
    let access = |id, tag| Access::new(&matrix(id), tag);
    check(|stream, _| {
        let (a, b) = (
            Placement::On(stream.workers[0]),
            Placement::AnyOf(&[WorkerId(0), WorkerId(1)]),
        );
        stream.submit(a, &[access(0, Tag::Output)]);
        for _ in 0..20 {
            stream.submit(b, &[access(0, Tag::Input), access(1, Tag::InOut)]);
        }
        stream.submit(
            Placement::Sub,
            &[access(0, Tag::InOut), access(1, Tag::Input)],
        );
        stream.drain();
    });
}

/// Buffers that come once and never again must not leave anything behind either.
#[test]
fn a_stream_over_ever_new_buffers_allocates_nothing() {
    check(|stream, round| {
        let on = Placement::On(stream.workers[0]);
        for id in 10 * round..10 * round + 10 {
            stream.submit(on, &[Access::new(&matrix(id), Tag::Output)]);
        }
        stream.drain();
    });
}

#[test]
fn a_stream_over_tiles_of_one_buffer_allocates_nothing() {
    let columns = |i: u64| Access::new(&matrix(0).slice(1, i..i + 4).unwrap(), Tag::InOut);
    let rows = |i: u64| Access::new(&matrix(0).slice(0, i..i + 4).unwrap(), Tag::OutputExisting);
    check(|stream, _| {
        let on = Placement::On(stream.workers[0]);
        for i in 0..12 {
            stream.submit(on, &[columns(i)]);
            stream.submit(on, &[rows(i)]);
        }
        stream.drain();
    });
}

#[test]
fn a_stream_of_groups_allocates_nothing() {
    check(|stream, _| {
        let workers = stream.workers;
        stream.submit(Placement::Group(&workers), &[]);
        stream.submit(Placement::SubGroup(2), &[]);
        stream.drain();
    });
}

#[test]
fn a_stream_over_intermediate_memory_allocates_nothing() {
    check(|stream, _| {
        let on = Placement::On(stream.workers[0]);
        stream
            .graph
            .begin_scope(stream.run, Inference::Automatic)
            .unwrap();
        let tensor = stream.graph.alloc(stream.run, DType::U8, &[4096]).unwrap();
        stream.submit(on, &[Access::new(&tensor, Tag::Output)]);
        stream.submit(on, &[Access::new(&tensor, Tag::Input)]);
        stream.graph.end_scope(stream.run).unwrap();
        stream.drain();
    });
}
