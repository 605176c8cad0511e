//! Several threads on one table.

use std::sync::mpsc;
use std::thread;

use provenance::{Cause, Hold, Revoked, Table};

use crate::fixture::{CHIP0, ask, cause, free, free_ask, record};

#[test]
fn the_table_and_what_it_gives_out_can_be_shared() {
    fn shared<T: Send + Sync + 'static>() {}
    shared::<Table>();
    shared::<Hold>();
    shared::<Revoked>();
}

/// ```text
/// user   with_range: |--- native call --------------|
/// other                 free: refused    reader: ok   free: done
/// ```
#[test]
fn a_free_by_another_thread_waits_for_the_guarded_call() {
    let table = Table::new();
    let ptr = record(&table, CHIP0, 0x1000, 64);
    let (inside, is_inside) = mpsc::channel();
    let (leave, may_leave) = mpsc::channel::<()>();
    thread::scope(|scope| {
        let table = &table;
        let user = scope.spawn(move || {
            table.with_range(ask(), ptr.span(64), |_| {
                inside.send(()).expect("the test waits");
                may_leave.recv().expect("the test says when");
            })
        });
        is_inside.recv().expect("it comes");
        assert_eq!(
            cause(table.revoke(free_ask(), ptr)),
            Cause::InUse { uses: 1 }
        );
        assert!(
            table.with_range(ask(), ptr.span(1), |_| ()).is_ok(),
            "readers do not wait"
        );
        leave.send(()).expect("it waits");
        assert!(user.join().expect("no panic").is_ok());
    });
    free(&table, ptr);
}

/// Two threads allocate and free at a handful of addresses while two read handles of any age.
/// A reader sees its own address or a refusal, and never anything during the native free.
#[test]
fn readers_never_see_memory_that_is_being_freed() {
    use std::sync::atomic::{AtomicU64, Ordering};
    const ROUNDS: u64 = 20_000;
    let table = Table::new();
    let freeing = [AtomicU64::new(0), AtomicU64::new(0)];
    let (send, latest) = mpsc::channel();
    thread::scope(|scope| {
        for writer in 0..2_u64 {
            let (table, freeing, send) = (&table, &freeing, send.clone());
            scope.spawn(move || {
                let mut round = 0;
                while round < ROUNDS {
                    let ptr = record(table, CHIP0, 0x1000 * (1 + writer), 64);
                    send.send((writer, ptr)).expect("the reader listens");
                    let flag = &freeing[writer as usize];
                    while table
                        .free(free_ask(), ptr, |_| {
                            flag.store(u64::from(ptr.generation()), Ordering::SeqCst);
                            flag.store(0, Ordering::SeqCst);
                            Ok::<(), std::io::Error>(())
                        })
                        .is_err()
                    {
                        std::hint::spin_loop();
                    }
                    round += 1;
                }
            });
        }
        drop(send);
        let mut used = 0_u64;
        for (writer, ptr) in latest {
            let result = table.with_range(ask(), ptr.span(64), |address| {
                assert_eq!(address, 0x1000 * (1 + writer));
                let freed = freeing[writer as usize].load(Ordering::SeqCst);
                assert_ne!(
                    freed,
                    u64::from(ptr.generation()),
                    "in use while it is freed"
                );
                used += 1;
            });
            assert!(result.is_ok() || cause(result) == Cause::Stale);
        }
    });
    assert_eq!((table.stats().live, table.stats().leaked), (0, 0));
}
