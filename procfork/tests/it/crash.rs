//! Crashes: the stack is read before the process ends, and it ends exactly as it would have.

use std::hint::black_box;
use std::os::fd::AsFd as _;
use std::time::{Duration, Instant};

use procfork::dump::{Crash, CrashDesk, Dumper, Limits, ProcessDump, report_crashes};
use procfork::{Child, ChildContext, ExitCause, ForkOptions, Signal, fork, spawn};

use crate::support::{soon, until};

/// Starts a child that reports its crashes and runs `f`.
fn armed(desk: &CrashDesk, f: impl FnOnce()) -> Child {
    let [pipe, page] = desk.descriptors().unwrap();
    let options = ForkOptions::new("crasher").give(pipe).give(page);
    fork(options, |context: ChildContext| {
        report_crashes(context.fds.try_into().unwrap()).unwrap();
        f();
    })
    .unwrap()
}

fn next(desk: &mut CrashDesk) -> Crash {
    let mut crash = None;
    until(|| {
        crash = desk.try_next().unwrap();
        crash.is_some()
    });
    crash.unwrap()
}

fn dump(crash: &Crash) -> ProcessDump {
    Dumper::new(Limits::default()).crash(crash).unwrap()
}

#[track_caller]
fn has_frame(dump: &ProcessDump, function: &str) {
    let frames = dump.threads[0].frames.iter().flat_map(|frame| &frame.calls);
    let call = frames
        .into_iter()
        .find(|call| call.function.contains(function));
    let call = call.unwrap_or_else(|| panic!("no {function} in {dump}"));
    let place = call.place.as_deref().unwrap_or("");
    assert!(place.contains("tests/it/crash.rs:"), "{dump}");
}

#[inline(never)]
fn reads_nowhere() {
    let nowhere = black_box(16_usize) as *const u32;
    // SAFETY: none: the first page is never mapped, and that the read faults is what is tested.
    black_box(unsafe { nowhere.read_volatile() });
}

#[inline(never)]
fn aborts() {
    black_box(1);
    std::process::abort()
}

#[inline(never)]
fn recurses(depth: u64) -> u64 {
    let mut room = [depth; 64];
    black_box(&mut room);
    if black_box(true) {
        recurses(depth + 1) + room[3]
    } else {
        0
    }
}

pub(crate) fn a_crash_is_read_where_it_happened_and_ends_the_process_as_before() {
    let mut desk = CrashDesk::new().unwrap();
    let child = armed(&desk, reads_nowhere);
    let crash = next(&mut desk);
    assert_eq!((crash.pid, crash.tid), (child.pid(), child.pid()));
    let text = format!(
        "11 (SIGSEGV) at 0x10 in thread {0} of process {0}",
        child.pid()
    );
    assert_eq!(crash.to_string(), text);
    has_frame(&dump(&crash), "reads_nowhere");
    desk.let_go(&crash);
    let ended = child.wait(soon()).unwrap();
    assert!(is_end_by(ended, libc::SIGSEGV), "{ended}");
    assert_eq!(desk.try_next().unwrap(), None);
    let _ = desk.as_fd();
}

fn is_end_by(cause: ExitCause, number: i32) -> bool {
    let wanted = Signal::new(number).unwrap();
    matches!(cause, ExitCause::Signaled { signal, .. } if signal == wanted)
}

pub(crate) fn an_abort_and_a_signal_that_is_sent_are_crashes_without_an_address() {
    let mut desk = CrashDesk::new().unwrap();
    let child = armed(&desk, aborts);
    let crash = next(&mut desk);
    assert_eq!(crash.address, None);
    has_frame(&dump(&crash), "aborts");
    desk.let_go(&crash);
    let ended = child.wait(soon()).unwrap();
    assert!(is_end_by(ended, libc::SIGABRT), "{ended}");
}

/// The handler runs beside the stack that is full.
pub(crate) fn an_overflow_of_the_stack_is_read() {
    let mut desk = CrashDesk::new().unwrap();
    let child = armed(&desk, || {
        black_box(recurses(0));
    });
    let crash = next(&mut desk);
    has_frame(&dump(&crash), "recurses");
    desk.let_go(&crash);
    let ended = child.wait(soon()).unwrap();
    assert!(is_end_by(ended, libc::SIGSEGV), "{ended}");
}

pub(crate) fn what_is_forked_from_an_armed_process_reports_too() {
    let mut desk = CrashDesk::new().unwrap();
    let child = armed(&desk, || {
        let grandchild = fork(ForkOptions::new("grandchild"), |_| reads_nowhere()).unwrap();
        let ended = grandchild.wait(soon()).unwrap();
        assert!(is_end_by(ended, libc::SIGSEGV), "{ended}");
    });
    let crash = next(&mut desk);
    assert_ne!(crash.pid, child.pid());
    let dump = dump(&crash);
    assert_eq!(dump.process.name, "grandchild");
    has_frame(&dump, "reads_nowhere");
    desk.let_go(&crash);
    assert_eq!(child.wait(soon()).unwrap(), ExitCause::Exited(0));
}

procfork::register! {
    "crash: reads nowhere" => |_: ChildContext| reads_nowhere(),
    "crash: forks one that reads nowhere" => |_: ChildContext| {
        let child = fork(ForkOptions::new("below"), |_| reads_nowhere()).unwrap();
        let ended = child.wait(soon()).unwrap();
        assert!(is_end_by(ended, libc::SIGSEGV), "{ended}");
    },
}

/// What is spawned by an armed process, and what is forked from that.
pub(crate) fn what_is_spawned_from_an_armed_process_reports_too() {
    for (function, name) in [
        ("crash: reads nowhere", "spawned"),
        ("crash: forks one that reads nowhere", "below"),
    ] {
        let mut desk = CrashDesk::new().unwrap();
        let child = armed(&desk, || {
            let spawned = spawn(ForkOptions::new("spawned"), function, &[]).unwrap();
            spawned.wait(soon()).unwrap();
        });
        let crash = next(&mut desk);
        let dump = dump(&crash);
        assert_eq!(dump.process.name, name);
        has_frame(&dump, "reads_nowhere");
        desk.let_go(&crash);
        assert_eq!(child.wait(soon()).unwrap(), ExitCause::Exited(0));
    }
}

pub(crate) fn other_descriptors_are_no_desk() {
    let (reader, writer) = std::io::pipe().unwrap();
    let refused = report_crashes([reader.into(), writer.into()]).unwrap_err();
    assert_eq!(refused.kind(), std::io::ErrorKind::InvalidInput);
}

/// A reader that is gone keeps nobody for long; one that is killed keeps nobody at all.
pub(crate) fn a_process_that_waits_to_be_read_can_be_killed() {
    let mut desk = CrashDesk::new().unwrap();
    let child = armed(&desk, reads_nowhere);
    let crash = next(&mut desk);
    child.signal(Signal::KILL).unwrap();
    let ended = child.wait(Instant::now() + Duration::from_secs(5)).unwrap();
    assert!(is_end_by(ended, libc::SIGKILL), "{ended}");
    let unread = dump(&crash);
    assert!(
        unread.threads.iter().all(|thread| thread.frames.is_empty()),
        "{unread}"
    );
    desk.let_go(&crash);
}
