//! Device memory when the device itself refuses: a failed free or unmap is a leak for ever, counted and told.

use facade::{Error, MemoryError, MemoryReport, SimFault, SubmitError, any, args, named};

use crate::support::{INCREMENT, builder};

/// Allocations, windows and leaks of a chip, and its free bytes.
#[track_caller]
fn usage(report: &MemoryReport, chip: u32) -> (u64, u64, u64, u64) {
    let usage = report.chip(chip).unwrap();
    (
        usage.allocations,
        usage.windows,
        usage.leaked,
        usage.free_bytes,
    )
}

pub(crate) fn a_free_that_fails_once_is_a_leak_for_ever() {
    let node = builder(1, 0)
        .device_memory(8192)
        .sim_fault(0, SimFault::Free { nth: 0 })
        .build()
        .unwrap();
    let increment = node.register_chip(&INCREMENT).unwrap();
    node.init().unwrap();
    let x = node.malloc::<f32>(0, 1024).unwrap();
    let failed = node.free(x);
    let Err(Error::Memory(MemoryError::Leaked { ptr, reason })) = failed else {
        panic!("{failed:?}")
    };
    assert_eq!(ptr, x.ptr());
    assert!(reason.contains("the device refused"), "{reason}");
    // It is neither usable nor freed again, and its bytes are nobody else's.
    let again = [
        node.free(x),
        node.free_after_runs(x),
        node.copy_to(x, &[0.0; 1024]),
    ];
    for refused in again {
        let Err(Error::Memory(MemoryError::Refused(refused))) = refused else {
            panic!("{refused:?}")
        };
        assert_eq!(refused.cause, provenance::Cause::Leaked);
    }
    let task = node.run(|orch| orch.submit_next_level(&increment, args().inout(&x), any()));
    assert!(
        matches!(task, Err(Error::Submit(SubmitError::Device { .. }))),
        "{task:?}"
    );
    assert_eq!(usage(&node.memory_report().unwrap(), 0), (0, 0, 1, 4096));
    assert!(node.malloc::<u8>(0, 4097).is_err());
    let y = node.malloc::<u8>(0, 4096).unwrap();
    node.free(y).unwrap();
    assert_eq!(usage(&node.memory_report().unwrap(), 0), (0, 0, 1, 4096));
    node.close().unwrap();
}

pub(crate) fn an_unmap_that_fails_once_leaks_one_window_and_the_rest_goes() {
    let node = builder(2, 0)
        .device_memory(1 << 20)
        .sim_fault(0, SimFault::Unmap { nth: 0 })
        .sim_fault(1, SimFault::Unmap { nth: 0 })
        .build()
        .unwrap();
    node.init().unwrap();
    let buffers = [named::<f32>("x", 8)];
    let free = usage(&node.memory_report().unwrap(), 0).3;
    let domain = node.allocate_domain("d", &[0, 1], 64, &buffers).unwrap();
    let x = domain.buffer::<f32>("x").unwrap();
    domain.release();
    domain.release();
    assert!(domain.is_freed());
    let report = node.memory_report().unwrap();
    for chip in [0, 1] {
        let (allocations, windows, leaked, _) = usage(&report, chip);
        assert_eq!(
            (allocations, windows, leaked),
            (0, 0, 1),
            "chip {chip}: {report}"
        );
    }
    // Last first: chip 0 could not unmap the window of rank 1, chip 1 its own, which its memory stays behind.
    assert_eq!(usage(&report, 0).3, free);
    assert!(usage(&report, 1).3 < free, "{report}");
    assert!(node.copy_to(x[0], &[0.0; 8]).is_err());
    // Once: the next domain goes whole.
    let next = node.allocate_domain("d", &[0, 1], 64, &buffers).unwrap();
    next.release();
    let after = node.memory_report().unwrap();
    assert_eq!(usage(&after, 0), usage(&report, 0));
    assert_eq!(usage(&after, 1), usage(&report, 1));
    node.close().unwrap();
}
