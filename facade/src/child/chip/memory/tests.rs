//! A chip worker that trusts no parent: requests as only a confused or malicious parent sends them.

use std::sync::{Arc, Weak};

use device::{Arch, Platform};
use hashbrown::HashMap;
use mailbox::Segment;
use provenance::Table;
use taskgraph::{BufferId, BufferKind};

use super::*;
use crate::engine::Engine;
use crate::wire::WireBuffer;

const OWNER: WorkerRef = WorkerRef {
    id: 3,
    incarnation: 0xabc,
};

fn opened() -> Opened {
    let platform = Platform::Sim(Arch::A2a3);
    let chip = device::open(platform, 3, &device::OpenOptions::default()).unwrap();
    Opened {
        chip,
        slots: HashMap::new(),
        table: Table::new(),
        named: HashMap::new(),
        staging: Default::default(),
        budget: None,
        home_window_bytes: 0,
        traffic: Traffic::default(),
    }
}

fn name(entry: u32) -> DeviceName {
    DeviceName {
        incarnation: OWNER.incarnation,
        entry,
        generation: 1,
    }
}

fn buffer(bytes: usize) -> Arc<BufferCore> {
    let id = BufferId::new(1, 1, 0, BufferKind::Shared);
    let segment = Segment::create("test", bytes).unwrap();
    BufferCore::new(id, segment, Weak::<Engine>::new())
}

fn window(entry: u32, bytes: u64) -> WireWindow {
    WireWindow {
        name: name(entry),
        root: name(entry + 100),
        offset: 0,
        bytes,
        is_home: true,
    }
}

fn copy_to(name: DeviceName, offset: u64, bytes: u64) -> ControlRequest {
    let buffer = WireBuffer::new(BufferId::new(1, 1, 0, BufferKind::Shared), 4096);
    ControlRequest::CopyTo {
        name,
        offset,
        bytes,
        buffer,
    }
}

#[test]
fn no_forged_request_reaches_the_device() {
    let mut opened = opened();
    let shared = buffer(8192);
    let buffer = WireBuffer::new(shared.id(), shared.bytes());
    let mut ask = |request: ControlRequest, buffer: Option<&BufferCore>| {
        let answer = opened.memory(&request, buffer, OWNER);
        (answer, opened.usage().unwrap().device_calls)
    };
    let sound = [
        ControlRequest::Malloc {
            name: name(1),
            bytes: 4096,
        },
        ControlRequest::MapDomain {
            windows: vec![window(2, 4000)],
            buffer,
        },
        copy_to(name(1), 4095, 1),
        copy_to(name(102), 3999, 1),
    ];
    let mut calls = 0;
    for request in sound {
        let (answer, after) = ask(request, Some(&shared));
        answer.unwrap();
        calls = after;
    }
    assert_eq!(calls, 4, "each was one call");

    let other_life = DeviceName {
        incarnation: 0xdef,
        ..name(1)
    };
    let earlier = DeviceName {
        generation: 0,
        ..name(1)
    };
    let shadow = |entry, root| WireWindow {
        root,
        ..window(entry, 4000)
    };
    let map = |windows| ControlRequest::MapDomain { windows, buffer };
    let forged = [
        copy_to(other_life, 0, 1),
        copy_to(earlier, 0, 1),
        copy_to(name(7), 0, 1),
        copy_to(name(1), 4096, 1),
        copy_to(name(1), 0, 4097),
        copy_to(name(1), u64::MAX, 1),
        copy_to(name(1), 1, u64::MAX),
        copy_to(name(102), 4000, 1),
        ControlRequest::Free { name: name(7) },
        ControlRequest::Free { name: name(2) },
        ControlRequest::Free { name: name(102) },
        ControlRequest::UnmapDomain {
            windows: vec![window(1, 4096)],
        },
        ControlRequest::UnmapDomain {
            windows: vec![window(9, 4000)],
        },
        // Windows that would shadow other memory: an allocation, a window, what it shows, each other.
        map(vec![shadow(8, name(1))]),
        map(vec![shadow(8, name(2))]),
        map(vec![shadow(102, name(8))]),
        map(vec![window(8, 4000), shadow(9, name(8))]),
        map(vec![window(8, 4000), shadow(9, name(108))]),
        map(vec![shadow(8, name(8))]),
        // A window that takes the name of other memory with it.
        ControlRequest::UnmapDomain {
            windows: vec![shadow(2, name(1))],
        },
        ControlRequest::Unmap {
            buffers: vec![buffer],
        },
    ];
    let mut reasons = Vec::new();
    for request in forged {
        let (answer, after) = ask(request.clone(), Some(&shared));
        assert_eq!(after, calls, "{request:?} called the device");
        reasons.push(answer.unwrap_err().reason);
    }
    reasons.push(ask(copy_to(name(1), 0, 1), None).0.unwrap_err().reason);
    insta::assert_snapshot!(reasons.join("\n"));

    // What is not refused still works.
    ask(ControlRequest::Free { name: name(1) }, None).0.unwrap();
    let (again, after) = ask(ControlRequest::Free { name: name(1) }, None);
    assert_eq!((again.is_err(), after), (true, calls + 1));
}

#[test]
fn an_allocation_that_cannot_be_named_is_given_back() {
    let mut opened = opened();
    let malloc = |name| ControlRequest::Malloc { name, bytes: 64 };
    let other_life = DeviceName {
        incarnation: 0xdef,
        ..name(1)
    };
    opened.memory(&malloc(name(1)), None, OWNER).unwrap();
    for unnameable in [other_life, name(1)] {
        assert!(opened.memory(&malloc(unnameable), None, OWNER).is_err());
        assert_eq!(opened.chip.memory().unwrap().allocations, 1);
    }
    let shared = buffer(16384);
    let windows = vec![window(5, 4000), window(5, 4000)];
    let buffer = WireBuffer::new(shared.id(), shared.bytes());
    let twice = ControlRequest::MapDomain { windows, buffer };
    assert!(opened.memory(&twice, Some(&shared), OWNER).is_err());
    assert_eq!(opened.table.stats().windows, 0);
    assert_eq!(opened.chip.memory().unwrap().used_bytes, 512);
}

#[test]
fn what_is_leaked_stays_counted_in_a_budget() {
    let mut opened = opened();
    opened.budget = Some(8192);
    let malloc = |entry| ControlRequest::Malloc {
        name: name(entry),
        bytes: 4096,
    };
    opened.memory(&malloc(1), None, OWNER).unwrap();
    // As after a native free that failed.
    let ptr = opened.named[&name(1)];
    drop(
        opened
            .table
            .revoke(Ask::owner(Operation::Free), ptr)
            .unwrap(),
    );
    let usage = opened.usage().unwrap();
    assert_eq!(
        (usage.leaked, usage.used_bytes, usage.free_bytes),
        (1, 4096, 4096)
    );
    opened.memory(&malloc(2), None, OWNER).unwrap();
    let refused = opened.memory(&malloc(3), None, OWNER).unwrap();
    assert!(
        matches!(refused, ControlReply::OutOfMemory { wanted: 4096, .. }),
        "{refused:?}"
    );
}
