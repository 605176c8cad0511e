//! How many bytes the program has on the heap.

use std::alloc::{GlobalAlloc, Layout, System};
use std::sync::atomic::{AtomicUsize, Ordering};

static ALLOCATED: AtomicUsize = AtomicUsize::new(0);

#[global_allocator]
static COUNTING: Counting = Counting;

/// Bytes that were allocated and not given back.
pub(crate) fn allocated() -> usize {
    ALLOCATED.load(Ordering::Relaxed)
}

/// The system allocator, counting the bytes that are out.
struct Counting;

// SAFETY:
// - every call goes to `System` with the arguments it came with, and its result is returned as it is, so all that
//   `GlobalAlloc` promises holds because `System` keeps it;
// - counting touches an atomic number only: it neither allocates nor unwinds.
unsafe impl GlobalAlloc for Counting {
    // SAFETY: the caller's promise about `layout` is that of `System.alloc`.
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        ALLOCATED.fetch_add(layout.size(), Ordering::Relaxed);
        // SAFETY: the caller promises that the layout has a size above zero.
        unsafe { System.alloc(layout) }
    }

    // SAFETY: the caller's promise about `ptr` and `layout` is that of `System.dealloc`.
    unsafe fn dealloc(&self, ptr: *mut u8, layout: Layout) {
        ALLOCATED.fetch_sub(layout.size(), Ordering::Relaxed);
        // SAFETY: the caller promises that `ptr` came from `alloc` above, thus from `System`, with this layout.
        unsafe { System.dealloc(ptr, layout) }
    }
}
