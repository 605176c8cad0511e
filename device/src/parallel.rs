//! A parallel map over indices, for work that is worth a thread.

use std::sync::atomic::{AtomicUsize, Ordering};

/// Calls `work` for each index below `count`, on up to `n_threads` threads of which the calling one
/// is the first, and returns the results in order. The threads end before this returns.
///
/// A thread that the host refuses is done without: the others take its share.
pub(crate) fn map<T: Send>(
    n_threads: usize,
    count: usize,
    work: impl Fn(usize) -> T + Sync,
) -> Vec<T> {
    let next = AtomicUsize::new(0);
    let take_all = || {
        let mut done = Vec::new();
        loop {
            // Relaxed: each index is taken once; the results are handed over by the join.
            let idx = next.fetch_add(1, Ordering::Relaxed);
            if idx >= count {
                return done;
            }
            done.push((idx, work(idx)));
        }
    };
    let mut done = std::thread::scope(|scope| {
        let start = |_| {
            std::thread::Builder::new()
                .spawn_scoped(scope, take_all)
                .ok()
        };
        let helpers: Vec<_> = (1..n_threads.min(count)).filter_map(start).collect();
        let mut done = take_all();
        for helper in helpers {
            done.extend(
                helper
                    .join()
                    .unwrap_or_else(|panic| std::panic::resume_unwind(panic)),
            );
        }
        done
    });
    done.sort_unstable_by_key(|(idx, _)| *idx);
    done.into_iter().map(|(_, result)| result).collect()
}
