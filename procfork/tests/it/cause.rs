//! How a child ended is exact, permanent, and told apart from being stopped.

use std::time::{Duration, Instant};

use procfork::{Child, ChildError, ChildStatus, ExitCause, Signal};

use crate::support::{Line, cause_of, child, runs, soon, until};

#[track_caller]
fn check(child: &Child, cause: ExitCause, text: &str) {
    assert_eq!(child.wait(soon()).unwrap(), cause);
    assert_eq!(child.try_wait().unwrap(), Some(cause), "a second query");
    assert_eq!(child.status().unwrap(), ChildStatus::Ended(cause));
    let refused = child.signal(Signal::TERM).unwrap_err();
    assert!(
        matches!(refused, ChildError::Ended { cause: c, .. } if c == cause),
        "{refused}"
    );
    let ended = child.terminate(Duration::ZERO).unwrap();
    assert_eq!(ended.cause, cause, "after it is reaped");
    assert_eq!(child.wait(soon()).unwrap(), cause, "after it is reaped");
    assert_eq!(cause.to_string(), text);
}

fn killed_by(signal: Signal) -> ExitCause {
    ExitCause::Signaled {
        signal,
        core_dumped: false,
    }
}

pub(crate) fn an_exit_keeps_its_code() {
    for code in [0, 3, 127] {
        let child = child("child", move |_| code);
        check(
            &child,
            ExitCause::Exited(code),
            &format!("exited with code {code}"),
        );
    }
}

pub(crate) fn a_death_by_signal_keeps_the_signal() {
    let kill = child("child", |_| raise(libc::SIGKILL));
    check(
        &kill,
        killed_by(Signal::KILL),
        "killed by signal 9 (SIGKILL)",
    );
    let segv = child("child", |_| {
        forbid_core();
        raise(libc::SIGSEGV);
    });
    check(
        &segv,
        killed_by(Signal::SEGV),
        "killed by signal 11 (SIGSEGV)",
    );
    let real_time = child("child", |_| raise(libc::SIGRTMIN() + 3));
    let signal = Signal::new(libc::SIGRTMIN() + 3).unwrap();
    check(
        &real_time,
        killed_by(signal),
        &format!("killed by signal {}", signal.number()),
    );
}

fn raise(signal: i32) {
    // SAFETY: a plain number.
    unsafe { libc::raise(signal) };
}

fn forbid_core() {
    let none = libc::rlimit {
        rlim_cur: 0,
        rlim_max: 0,
    };
    // SAFETY: none lives for the call.
    unsafe { libc::setrlimit(libc::RLIMIT_CORE, &raw const none) };
}

pub(crate) fn a_stopped_child_is_stopped_and_not_ended() {
    let child = child("child", |context| {
        let _ = context.parent.wait_gone(None);
    });
    assert_eq!(child.status().unwrap(), ChildStatus::Running);
    child.signal(Signal::STOP).unwrap();
    until(|| child.status().unwrap() != ChildStatus::Running);
    for _ in 0..2 {
        assert_eq!(
            child.status().unwrap(),
            ChildStatus::Stopped(Signal::STOP),
            "looking is free"
        );
    }
    assert_eq!(child.try_wait().unwrap(), None);
    child.signal(Signal::CONT).unwrap();
    until(|| child.status().unwrap() == ChildStatus::Running);
    child.signal(Signal::STOP).unwrap();
    child.signal(Signal::KILL).unwrap();
    check(
        &child,
        killed_by(Signal::KILL),
        "killed by signal 9 (SIGKILL)",
    );
}

pub(crate) fn a_wait_says_at_its_deadline_what_the_child_was_doing() {
    let child = child("sleeper", |context| {
        let _ = context.parent.wait_gone(None);
    });
    let error = child.wait(Instant::now()).unwrap_err();
    let expected = format!(
        "see the end of child sleeper ({}) within its deadline: it is running",
        child.pid()
    );
    assert_eq!(error.to_string(), expected);
}

pub(crate) fn signals_to_the_waiting_parent_do_not_end_the_wait() {
    extern "C" fn caught(_: i32) {}
    let handler: extern "C" fn(i32) = caught;
    // SAFETY: the handler does nothing.
    unsafe { libc::signal(libc::SIGUSR1, handler as libc::sighandler_t) };
    let cause = cause_of(|context| {
        for _ in 0..200 {
            // SAFETY: plain numbers; the parent is alive, it waits for this child.
            unsafe { libc::kill(context.parent.parent().raw(), libc::SIGUSR1) };
            std::thread::yield_now();
        }
        6
    });
    assert_eq!(cause, ExitCause::Exited(6));
}

pub(crate) fn a_cause_that_somebody_else_took_is_lost_and_not_made_up() {
    let child = child("child", |_| 5);
    let pid = child.pid().raw();
    // SAFETY: no status is asked for.
    assert_eq!(unsafe { libc::waitpid(pid, std::ptr::null_mut(), 0) }, pid);
    check(
        &child,
        ExitCause::Lost,
        "ended, and its exit status was taken by somebody else",
    );
}

pub(crate) fn an_ended_child_keeps_its_number_until_it_is_dropped() {
    let child = child("child", |_| ());
    child.wait(soon()).unwrap();
    let pid = child.pid();
    let zombie = procfork::ProcessInfo::of(pid).unwrap();
    assert_eq!(zombie.state, procfork::ProcessState::Zombie);
    drop(child);
    assert!(procfork::ProcessInfo::of(pid).is_err(), "reaped");
}

pub(crate) fn dropping_a_running_child_kills_and_reaps_it() {
    let line = Line::new();
    let child = procfork::fork(
        procfork::ForkOptions::new("child").keep(line.fd()),
        |context| {
            line.say("up");
            let _ = context.parent.wait_gone(None);
        },
    );
    line.hear();
    let pid = child.as_ref().unwrap().pid();
    assert!(runs(pid));
    drop(child);
    assert!(procfork::ProcessInfo::of(pid).is_err(), "no zombie either");
}
