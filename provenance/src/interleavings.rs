//! Every interleaving of the races that matter, by loom: `cargo xtask loom provenance --weaken`.
//!
//! At most three preemptions per execution, which keeps each model to seconds. The racing user is
//! the spawned thread: loom begins with the main one, and reduces fewer schedules away that way.

use std::io;

use loom::cell::UnsafeCell;
use loom::sync::Arc;
use loom::thread;

use crate::{Ask, Cause, DevicePtr, FreeError, Operation, Revoked, Table, WorkerRef};

const CHIP: WorkerRef = WorkerRef {
    id: 0,
    incarnation: 0xa,
};
const ASK: Ask = Ask {
    operation: Operation::CopyTo,
    worker: None,
};
const FREE: Ask = Ask {
    operation: Operation::Free,
    worker: None,
};

fn check(body: impl Fn() + Send + Sync + 'static) {
    let mut model = loom::model::Builder::new();
    model.preemption_bound = Some(3);
    model.check(body);
}

fn record(table: &Table, worker: WorkerRef, address: u64, bytes: u64) -> DevicePtr {
    table.record(worker, address, bytes).expect("recorded")
}

/// Free against dispatch: the native call never runs on memory whose free has begun.
#[test]
fn a_guarded_call_and_a_free_exclude_each_other() {
    check(|| {
        let table = Table::new();
        let ptr = record(&table, CHIP, 0x1000, 64);
        // Loom fails the model if a use and the free of it are not ordered.
        let memory = Arc::new(UnsafeCell::new(()));
        let user = thread::spawn({
            let (table, memory) = (table.clone(), memory.clone());
            move || {
                let used = table.with_range(ASK, ptr.span(64), |_| memory.with(|_| ()));
                used.is_ok() || used.is_err_and(|refused| refused.cause == Cause::Stale)
            }
        });
        let native = |_| {
            memory.with_mut(|_| ());
            Ok::<(), io::Error>(())
        };
        let outcome = table.free(FREE, ptr, native);
        assert!(user.join().expect("no panic"));
        if let Err(FreeError::Refused(refused)) = outcome {
            assert_eq!(refused.cause, Cause::InUse { uses: 1 });
            table.free(FREE, ptr, native).expect("no longer in use");
        }
        assert_eq!(table.stats().live, 0);
    });
}

/// Release against submit: a task holds its argument, or the release has it, never both; and the
/// memory comes back exactly once.
#[test]
fn a_retired_allocation_is_due_exactly_once() {
    check(|| {
        let table = Table::new();
        let ptr = record(&table, CHIP, 0x1000, 64);
        let memory = Arc::new(UnsafeCell::new(()));
        let task = thread::spawn({
            let (table, memory) = (table.clone(), memory.clone());
            move || {
                let hold = table.hold(ASK, &[ptr.span(64)]);
                if hold.is_ok() {
                    memory.with(|_| ());
                }
            }
        });
        let native = |revoked: Revoked| {
            memory.with_mut(|_| ());
            revoked.freed();
        };
        let now = table.retire(FREE, ptr).expect("it is the base");
        let early = now.into_iter().chain(table.due()).map(native).count();
        task.join().expect("no panic");
        let late = table.due().into_iter().map(native).count();
        assert_eq!(early + late, 1);
        assert_eq!((table.stats().live, table.stats().leaked), (0, 0));
    });
}

/// Release of a window against its use, as a domain goes: the window is retired, and the memory behind it is struck out
/// and freed when the last use of the window has ended, whoever ends it; never under a use.
#[test]
fn memory_behind_a_window_goes_after_the_last_use_of_the_window() {
    check(|| {
        let table = Table::new();
        let root = record(&table, CHIP, 0x1000, 64);
        let peer = WorkerRef { id: 1, ..CHIP };
        let window = table
            .record_window(peer, 0x9000, 64, Some(root))
            .expect("recorded");
        let memory = Arc::new(UnsafeCell::new(()));
        let task = thread::spawn({
            let (table, memory) = (table.clone(), memory.clone());
            move || {
                let hold = table.hold(ASK, &[window.span(64)]);
                if hold.is_ok() {
                    memory.with(|_| ());
                }
            }
        });
        let free = || {
            let native = |_| {
                memory.with_mut(|_| ());
                Ok::<(), io::Error>(())
            };
            table.free(FREE, root, native)
        };
        let release = Ask {
            operation: Operation::Release,
            worker: None,
        };
        let now = table.retire(release, window).expect("it is the base");
        // The window is refused from here on, and shows nothing any more as soon as nobody uses it.
        assert!(table.check(ASK, window.span(1)).is_err());
        let early = now
            .into_iter()
            .chain(table.due())
            .map(Revoked::freed)
            .count();
        let done = free().is_ok();
        task.join().expect("no panic");
        let late = table.due().into_iter().map(Revoked::freed).count();
        assert_eq!(early + late, 1);
        if !done {
            free().expect("no window shows it");
        }
        assert_eq!((table.stats().live, table.stats().windows), (0, 0));
    });
}

/// The last use of memory of a lost worker gives its entry back once, not twice.
#[test]
fn a_lost_entry_is_reused_once() {
    check(|| {
        let table = Table::new();
        let ptr = record(&table, CHIP, 0x1000, 64);
        let task = thread::spawn({
            let table = table.clone();
            move || drop(table.hold(ASK, &[ptr.span(64)]))
        });
        table.worker_lost(CHIP);
        task.join().expect("no panic");
        let next = WorkerRef {
            incarnation: 0xf,
            ..CHIP
        };
        let first = record(&table, next, 0x1000, 64);
        let second = record(&table, next, 0x2000, 64);
        assert_ne!(first.entry(), second.entry());
        assert!(table.check(ASK, ptr.span(1)).is_err());
    });
}

/// What the door refuses for good, no later check allows: the word and the dense array of what is
/// live are one to whoever looks at both.
#[test]
fn a_check_agrees_with_the_door() {
    check(|| {
        let table = Table::new();
        let ptr = record(&table, CHIP, 0x1000, 8);
        let reader = thread::spawn({
            let table = table.clone();
            move || {
                if table.with_range(ASK, ptr.span(8), |_| ()).is_err() {
                    let cause = table.check(ASK, ptr.span(8)).expect_err("refused before");
                    assert_eq!(cause.cause, Cause::Stale);
                }
            }
        });
        if let Ok(revoked) = table.revoke(FREE, ptr) {
            assert!(table.check(ASK, ptr.span(8)).is_err());
            revoked.freed();
        }
        reader.join().expect("no panic");
    });
}

/// A reader without a pin never mixes two lives of an entry: the old handle is good for its own
/// eight bytes or for nothing, although the same address comes back longer.
#[test]
fn a_check_never_sees_half_of_the_next_allocation() {
    check(|| {
        let table = Table::new();
        let ptr = record(&table, CHIP, 0x1000, 8);
        // As it comes over a wire: compared word by word.
        let ptr = DevicePtr::from_bytes(&ptr.to_bytes());
        let reader = thread::spawn({
            let table = table.clone();
            move || {
                table
                    .check(ASK, ptr.span(9))
                    .expect_err("too long, or too old")
                    .cause
            }
        });
        table
            .free(FREE, ptr, |_| Ok::<(), io::Error>(()))
            .expect("a check is no use");
        let renewed = record(&table, CHIP, 0x1000, 64);
        let cause = reader.join().expect("no panic");
        assert!(
            matches!(cause, Cause::OutOfRange { extent: 8 } | Cause::Stale),
            "{cause}"
        );
        assert_eq!(
            (renewed.entry(), renewed.generation()),
            (ptr.entry(), ptr.generation() + 1)
        );
    });
}
