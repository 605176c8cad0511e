//! Where processes hang: names of all threads, read without their help, and without a trace left.

use std::hint::black_box;
use std::os::fd::AsRawFd as _;
use std::sync::atomic::{AtomicI32, AtomicU32, Ordering};
use std::thread;

use procfork::dump::{Answers, Dumper, Limits, ProcessDump, StackEnd, ThreadDump, Unreadable, Way};
use procfork::{
    Child, ChildStatus, ExitCause, ForkOptions, Pid, ProcessState, Signal, descendants, fork,
};

use crate::support::{Gate, Line, child, soon, until};

fn dumper() -> Dumper {
    Dumper::new(Limits::default())
}

#[track_caller]
fn dump(child: &Child) -> ProcessDump {
    dumper().process(child.pid(), None).unwrap()
}

/// A child that runs `f` and stands at the gate in it.
fn stuck(gate: &Gate, line: &Line, f: impl FnOnce()) -> Child {
    let options = ForkOptions::new("stuck").keep(gate.fd()).keep(line.fd());
    let child = fork(options, |_| f()).unwrap();
    line.hear();
    until(|| procfork::ProcessInfo::of(child.pid()).unwrap().state == ProcessState::Sleeping);
    child
}

#[inline(never)]
fn a_function_with_a_known_name(gate: &Gate, line: &Line) {
    line.say("here");
    gate.wait();
    black_box(());
}

#[inline(always)]
fn a_function_that_is_inlined(gate: &Gate, line: &Line) {
    a_function_with_a_known_name(gate, line);
    black_box(());
}

#[inline(never)]
fn the_caller_of_both(gate: &Gate, line: &Line) {
    a_function_that_is_inlined(gate, line);
    black_box(());
}

/// The names of a thread's calls, innermost first, without hashes and paths of modules.
fn names(thread: &ThreadDump) -> Vec<&str> {
    let calls = thread.frames.iter().flat_map(|frame| &frame.calls);
    calls.map(|call| call.function.as_str()).collect()
}

#[track_caller]
fn position(thread: &ThreadDump, name: &str) -> usize {
    let found = names(thread)
        .iter()
        .position(|function| function.contains(name));
    found.unwrap_or_else(|| panic!("no {name} in\n{thread}"))
}

pub(crate) fn names_lines_and_inlined_functions_are_shown() {
    let (gate, line) = (Gate::new(), Line::new());
    let child = stuck(&gate, &line, || the_caller_of_both(&gate, &line));
    let dump = dump(&child);
    assert_eq!((dump.way, dump.threads.len()), (Way::Outside, 1), "{dump}");
    let thread = &dump.threads[0];
    assert_eq!(thread.end, StackEnd::Complete, "{dump}");
    let inner = position(thread, "a_function_with_a_known_name");
    let inlined = position(thread, "a_function_that_is_inlined");
    let outer = position(thread, "the_caller_of_both");
    assert!(inner < inlined && inlined < outer, "{dump}");
    let calls: Vec<_> = thread
        .frames
        .iter()
        .flat_map(|frame| &frame.calls)
        .collect();
    assert!(
        calls[inlined].inlined && !calls[inner].inlined && !calls[outer].inlined,
        "{dump}"
    );
    let place = calls[inner].place.as_ref().unwrap();
    assert!(place.contains("dump.rs:"), "{place}");
    assert!(position(thread, "__libc_start_main") > outer);
    gate.open();
    assert_eq!(
        child.wait(soon()).unwrap(),
        ExitCause::Exited(0),
        "it ran on"
    );
}

pub(crate) fn every_thread_is_shown() {
    let (gate, line) = (Gate::new(), Line::new());
    let child = stuck(&gate, &line, || {
        thread::scope(|scope| {
            for name in ["left", "right"] {
                let work = || a_function_with_a_known_name(&gate, &line);
                thread::Builder::new()
                    .name(name.to_owned())
                    .spawn_scoped(scope, work)
                    .unwrap();
            }
        });
    });
    line.hear();
    let dump = dump(&child);
    let threads: Vec<&str> = dump
        .threads
        .iter()
        .map(|thread| thread.name.as_str())
        .collect();
    assert_eq!(threads, ["stuck", "left", "right"], "{dump}");
    for thread in &dump.threads[1..] {
        position(thread, "a_function_with_a_known_name");
    }
    (0..2).for_each(|_| gate.open());
    assert_eq!(child.wait(soon()).unwrap(), ExitCause::Exited(0));
}

/// The C library calls back: its frames, which have no debug information, do not stop the walk.
pub(crate) fn frames_of_c_code_are_walked_through() {
    static STATE: AtomicU32 = AtomicU32::new(0);
    extern "C" fn compare(_: *const libc::c_void, _: *const libc::c_void) -> i32 {
        if STATE.swap(1, Ordering::Relaxed) == 0 {
            // Descriptor 0 is the gate, descriptor 1 the line.
            let (mut byte, line) = (0_u8, b"here\n");
            // SAFETY: five bytes that live for the call.
            unsafe { libc::write(1, line.as_ptr().cast(), 5) };
            // SAFETY: one byte that lives for the call.
            unsafe { libc::read(0, (&raw mut byte).cast(), 1) };
        }
        0
    }
    let (gate, line) = (Gate::new(), Line::new());
    let options = ForkOptions::new("sorter")
        .stream(
            procfork::Stream::Stdin,
            gate.fd().try_clone_to_owned().unwrap(),
        )
        .stream(
            procfork::Stream::Stdout,
            line.fd().try_clone_to_owned().unwrap(),
        );
    let child = fork(options, |_| {
        let mut numbers = [2_i32, 1];
        // SAFETY: two elements of four bytes; the comparison reads none of them.
        unsafe { libc::qsort(numbers.as_mut_ptr().cast(), 2, 4, Some(compare)) };
        black_box(numbers);
    });
    let child = child.unwrap();
    line.hear();
    until(|| procfork::ProcessInfo::of(child.pid()).unwrap().state == ProcessState::Sleeping);
    let dump = dump(&child);
    let thread = &dump.threads[0];
    let inside = position(thread, "walked_through::compare");
    let outside = position(thread, "walked_through::{{closure}}");
    let sort = position(thread, "qsort");
    assert!(inside < sort && sort < outside, "{dump}");
    gate.open();
    assert_eq!(child.wait(soon()).unwrap(), ExitCause::Exited(0));
}

pub(crate) fn a_stopped_process_stays_stopped_and_goes_on_when_continued() {
    let (gate, line) = (Gate::new(), Line::new());
    let child = stuck(&gate, &line, || the_caller_of_both(&gate, &line));
    child.signal(Signal::STOP).unwrap();
    until(|| child.status().unwrap() == ChildStatus::Stopped(Signal::STOP));
    let mut dumper = dumper();
    for _ in 0..3 {
        let dump = dumper.process(child.pid(), None).unwrap();
        position(&dump.threads[0], "the_caller_of_both");
        until(|| child.status().unwrap() == ChildStatus::Stopped(Signal::STOP));
        // A process that is let go of runs to its stop again, which takes it a moment.
        let state = || procfork::ProcessInfo::of(child.pid()).unwrap().state;
        until(|| state() == ProcessState::Stopped);
    }
    child.signal(Signal::CONT).unwrap();
    gate.open();
    assert_eq!(child.wait(soon()).unwrap(), ExitCause::Exited(0));
}

/// Real-time signals are queued, none may be lost or doubled by a dump that meets them.
pub(crate) fn signals_that_arrive_meanwhile_are_delivered() {
    static COUNT: AtomicU32 = AtomicU32::new(0);
    extern "C" fn count(_: i32) {
        COUNT.fetch_add(1, Ordering::Relaxed);
    }
    const SENT: u32 = 200;
    let line = Line::new();
    let signal = Signal::new(libc::SIGRTMIN() + 8).unwrap();
    let options = ForkOptions::new("counter").keep(line.fd());
    let child = fork(options, |context| {
        let handler: extern "C" fn(i32) = count;
        // SAFETY: the handler counts.
        unsafe { libc::signal(signal.number(), handler as libc::sighandler_t) };
        line.say("up");
        while COUNT.load(Ordering::Relaxed) < SENT && context.parent.is_alive() {}
        // A signal that was delivered twice would come late.
        thread::yield_now();
        assert_eq!(COUNT.load(Ordering::Relaxed), SENT);
    });
    let child = child.unwrap();
    line.hear();
    let mut dumper = dumper();
    for nth in 0..SENT {
        child.signal(signal).unwrap();
        if nth % 8 == 0 {
            assert_eq!(dumper.process(child.pid(), None).unwrap().threads.len(), 1);
        }
    }
    assert_eq!(
        child.wait(soon()).unwrap(),
        ExitCause::Exited(0),
        "{:?}",
        child.last_words()
    );
}

pub(crate) fn a_tree_is_dumped_breadth_first() {
    let (gate, line) = (Gate::new(), Line::new());
    let child = stuck(&gate, &line, || {
        let inner = ForkOptions::new("inner").keep(gate.fd()).keep(line.fd());
        let inner = fork(inner, |_| a_function_with_a_known_name(&gate, &line)).unwrap();
        inner.wait(soon()).unwrap();
    });
    let inner = descendants(child.pid()).unwrap()[0].pid;
    until(|| procfork::ProcessInfo::of(inner).unwrap().state == ProcessState::Sleeping);
    let tree = dumper().tree(child.pid()).unwrap();
    let shown: Vec<&str> = tree.iter().map(|dump| dump.process.name.as_str()).collect();
    assert_eq!(shown, ["stuck", "inner"]);
    position(&tree[0].threads[0], "procfork::child::Child::wait");
    let text = tree[1].to_string();
    assert!(text.contains("a_function_with_a_known_name at "), "{text}");
    gate.open();
    assert_eq!(child.wait(soon()).unwrap(), ExitCause::Exited(0));
}

/// A parent in `vfork` hangs in the kernel where no signal reaches it, until its child is gone.
pub(crate) fn a_thread_that_cannot_be_stopped_costs_no_more_than_its_limit() {
    let line = Line::new();
    let child = fork(ForkOptions::new("vforked").keep(line.fd()), |_| {
        // SAFETY: the child of it only speaks and sleeps, and is killed in the end.
        #[expect(deprecated, reason = "its very fault is wanted: the parent hangs")]
        let pid = unsafe { libc::vfork() };
        if pid == 0 {
            line.say(Pid::this());
            crate::support::sleep_for_ever();
        }
    });
    let child = child.unwrap();
    let inner = line.hear_pid();
    let uninterruptible = || procfork::ProcessInfo::of(child.pid()).unwrap().state;
    until(|| uninterruptible() == ProcessState::Uninterruptible);
    let limits = Limits {
        per_thread: std::time::Duration::from_millis(20),
        ..Limits::default()
    };
    let dump = Dumper::new(limits).process(child.pid(), None).unwrap();
    assert_eq!(
        dump.threads[0].end,
        StackEnd::Unreadable(Unreadable::NoAnswer),
        "{dump}"
    );
    assert!(
        dump.to_string().contains("in uninterruptible sleep"),
        "{dump}"
    );
    // SAFETY: plain numbers; held by its parent, which hangs.
    unsafe { libc::kill(inner.raw(), libc::SIGKILL) };
    assert_eq!(
        child.wait(soon()).unwrap(),
        ExitCause::Exited(0),
        "it ran on"
    );
}

pub(crate) fn an_ended_process_says_so() {
    let child = child("short", |_| ());
    child.wait(soon()).unwrap();
    let dump = dump(&child);
    assert_eq!(dump.threads[0].end, StackEnd::Unreadable(Unreadable::Ended));
    let gone = child.pid();
    drop(child);
    assert!(dumper().process(gone, None).is_err(), "no such process");
}

/// Takes the right to trace other processes away from this one. False if it has no such right to
/// lose: then it may trace its children as any process may.
fn give_up_tracing() -> bool {
    const CAP_SYS_PTRACE: u32 = 19;
    const VERSION: u32 = 0x2008_0522;
    let mut header = [VERSION, 0];
    let mut sets = [[0_u32; 3]; 2];
    // SAFETY: a header and two sets, valid for the call.
    unsafe { libc::syscall(libc::SYS_capget, header.as_mut_ptr(), sets.as_mut_ptr()) };
    let had = sets[0][1] & (1 << CAP_SYS_PTRACE) != 0;
    sets[0]
        .iter_mut()
        .for_each(|set| *set &= !(1 << CAP_SYS_PTRACE));
    // SAFETY: as above.
    let done = unsafe { libc::syscall(libc::SYS_capset, header.as_mut_ptr(), sets.as_ptr()) };
    had && done == 0
}

#[inline(never)]
fn a_listener(gate: &Gate, line: &Line, answers: Option<Answers>) {
    if let Some(answers) = answers {
        answers.listen().unwrap();
    }
    a_function_with_a_known_name(gate, line);
    black_box(());
}

pub(crate) fn where_tracing_is_not_permitted_the_process_answers_by_its_handler() {
    let (gate, line) = (Gate::new(), Line::new());
    let (deaf_gate, deaf_line) = (Gate::new(), Line::new());
    let answers = Answers::new().unwrap();
    let given = answers.descriptor().unwrap();
    let options = ForkOptions::new("listener")
        .keep(gate.fd())
        .keep(line.fd())
        .give(given);
    let listener = fork(options, |mut context| {
        let answers = Answers::from_descriptor(context.fds.remove(0)).unwrap();
        a_listener(&gate, &line, Some(answers));
    });
    let listener = listener.unwrap();
    line.hear();
    let deaf = stuck(&deaf_gate, &deaf_line, || {
        a_listener(&deaf_gate, &deaf_line, None)
    });
    until(|| procfork::ProcessInfo::of(listener.pid()).unwrap().state == ProcessState::Sleeping);
    if !give_up_tracing() {
        procfork::testing::skip("only a process that may trace anything can lose that right");
    }
    let mut dumper = dumper();
    let dump = dumper.process(listener.pid(), Some(&answers)).unwrap();
    assert_eq!(dump.way, Way::Handler, "{dump}");
    let thread = &dump.threads[0];
    let inner = position(thread, "a_function_with_a_known_name");
    assert!(inner < position(thread, "a_listener"), "{dump}");
    let dump = dumper.process(deaf.pid(), Some(&answers)).unwrap();
    assert_eq!(dump.way, Way::Unreadable);
    let why = &dump.threads[0].end;
    assert!(
        matches!(why, StackEnd::Unreadable(Unreadable::NotPermitted(_))),
        "it would have been killed by the signal: {dump}"
    );
    gate.open();
    deaf_gate.open();
    assert_eq!(listener.wait(soon()).unwrap(), ExitCause::Exited(0));
    assert_eq!(deaf.wait(soon()).unwrap(), ExitCause::Exited(0));
}

/// Where the handler of the next test finds the file for its answer.
static ANSWER_FILE: AtomicI32 = AtomicI32::new(-1);

/// Says that it writes, and never gets any further, as a process does that is stopped there.
extern "C" fn begin_an_answer(_: i32) {
    static WRITING: u32 = 2;
    let file = ANSWER_FILE.load(Ordering::Relaxed);
    // SAFETY: four bytes that live for the call.
    unsafe { libc::pwrite(file, (&raw const WRITING).cast(), 4, 0) };
    loop {
        // SAFETY: waits for a signal.
        unsafe { libc::pause() };
    }
}

pub(crate) fn an_answer_that_is_begun_and_never_ended_is_given_up() {
    let (gate, line) = (Gate::new(), Line::new());
    let answers = Answers::new().unwrap();
    let options = ForkOptions::new("stuck").keep(gate.fd()).keep(line.fd());
    let stuck = fork(options.give(answers.descriptor().unwrap()), |context| {
        ANSWER_FILE.store(context.fds[0].as_raw_fd(), Ordering::Relaxed);
        let handler: extern "C" fn(i32) = begin_an_answer;
        let number = Answers::signal().number();
        // SAFETY: the handler makes two system calls that are allowed in one.
        unsafe { libc::signal(number, handler as libc::sighandler_t) };
        line.say("here");
        gate.wait();
    });
    let stuck = stuck.unwrap();
    line.hear();
    until(|| procfork::ProcessInfo::of(stuck.pid()).unwrap().state == ProcessState::Sleeping);
    if !give_up_tracing() {
        procfork::testing::skip("only a process that may trace anything can lose that right");
    }
    // The second one finds the file in use by the first.
    for _ in 0..2 {
        let dump = dumper().process(stuck.pid(), Some(&answers)).unwrap();
        let end = &dump.threads[0].end;
        assert!(
            matches!(end, StackEnd::Unreadable(Unreadable::NoAnswer)),
            "{dump}"
        );
    }
    stuck.signal(Signal::KILL).unwrap();
    stuck.wait(soon()).unwrap();
}
