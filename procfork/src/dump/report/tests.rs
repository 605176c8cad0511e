//! The text that a person reads.

use super::{Call, Frame, ProcessDump, StackEnd, ThreadDump, Unreadable, Way};
use crate::pid::Pid;
use crate::proc::{ProcessInfo, ProcessState};

fn call(function: &str, place: Option<&str>, inlined: bool) -> Call {
    Call {
        function: function.to_owned(),
        place: place.map(str::to_owned),
        inlined,
    }
}

fn thread(tid: i32, frames: Vec<Frame>, end: StackEnd) -> ThreadDump {
    ThreadDump {
        tid: Pid::new(tid).unwrap(),
        name: "worker".to_owned(),
        state: ProcessState::Sleeping,
        waits_in: (tid == 7).then(|| "futex_wait_queue".to_owned()),
        frames,
        end,
    }
}

#[test]
fn a_dump_reads_from_the_innermost_call_outwards() {
    let frame = |address, module: Option<&str>, calls| Frame {
        address,
        module: module.map(str::to_owned),
        calls,
    };
    let frames = vec![
        frame(
            0x7f2a_d8c8_f2d9,
            Some("libc.so.6"),
            vec![call("syscall+0x19", None, false)],
        ),
        frame(
            0x55e0_c1a2_b0c4,
            Some("program"),
            vec![
                call("wait", Some("a.rs:88:9"), true),
                call("run", Some("a.rs:41:5"), false),
            ],
        ),
        frame(0x10, None, vec![]),
    ];
    let process = "7 (worker) S 1 7 7 0 -1 0 0 0 0 0 0 0 0 0 20 0 1 0 5 0 0";
    let dump = ProcessDump {
        process: ProcessInfo::parse(process).unwrap(),
        way: Way::Outside,
        threads: vec![
            thread(7, frames, StackEnd::Complete),
            thread(8, vec![], StackEnd::Unreadable(Unreadable::NoAnswer)),
            thread(9, vec![], StackEnd::Cut("frame limit".to_owned())),
        ],
        not_read: 2,
        notes: vec!["/opt/x: no such file".to_owned()],
    };
    let expected = "\
process 7 worker: sleeping, read from outside
  thread 7 worker: sleeping in futex_wait_queue
      0 0x7f2ad8c8f2d9 syscall+0x19 in libc.so.6
      1 0x55e0c1a2b0c4 wait at a.rs:88:9 (inlined)
        0x55e0c1a2b0c4 run at a.rs:41:5
      2 0x000000000010 ? in unknown module
  thread 8 worker: sleeping
    [it did not stop in time]
  thread 9 worker: sleeping
    [cut: frame limit]
  2 more threads were not read
  note: /opt/x: no such file";
    assert_eq!(dump.to_string(), expected);
}
