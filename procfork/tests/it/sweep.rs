//! Descendants that got out of the way are found, proved to be ours, and ended; others are not hit.

use std::process::{Command, Stdio};
use std::time::Duration;

use procfork::{
    Child, ChildContext, Children, Escalation, ForkOptions, Group, Pid, ProcessInfo, Proof, Reach,
    Stage, Stray, adopt_orphans, descendants, fork,
};

use crate::support::{Line, child, runs, sleep_for_ever, soon, until};

const LONG: Duration = Duration::from_secs(20);

fn leave_the_group() {
    // SAFETY: takes nothing.
    unsafe { libc::setsid() };
}

/// A fork that procfork knows nothing of: no death signal, no watch, no group.
fn wild_fork(f: impl FnOnce()) -> Pid {
    // SAFETY: the test's processes have one thread.
    let pid = unsafe { libc::fork() };
    if pid == 0 {
        f();
        sleep_for_ever();
    }
    Pid::new(pid).unwrap()
}

/// Forked twice, in a session of its own, its parent gone: it says its pid.
fn daemon(line: &Line) {
    let middle = wild_fork(|| {
        let middle = Pid::this();
        wild_fork(|| {
            leave_the_group();
            until(|| ProcessInfo::of(Pid::this()).unwrap().parent != Some(middle));
            line.say(Pid::this());
        });
        std::process::abort();
    });
    // SAFETY: no status is asked for; an own child.
    unsafe { libc::waitpid(middle.raw(), std::ptr::null_mut(), 0) };
}

#[track_caller]
fn check(leader: &Child, stray: Pid, proof: Proof) {
    let below: Vec<Pid> = leader.descendants().iter().map(|info| info.pid).collect();
    assert!(below.contains(&stray), "{stray} is not among {below:?}");
    let plan = Escalation::after(LONG).reach(Reach::Descendants);
    let ended = leader.terminate_with(plan, soon()).unwrap();
    assert_eq!(ended.stage, Stage::Asked);
    let found: Vec<&Stray> = ended
        .strays
        .iter()
        .filter(|s| s.process.pid == stray)
        .collect();
    assert_eq!(found.len(), 1, "{:?}", ended.strays);
    assert_eq!((found[0].proof, found[0].gone), (proof, true));
    assert!(!runs(stray));
    assert!(
        descendants(Pid::this()).unwrap().is_empty(),
        "adopted and reaped"
    );
}

fn leader(line: &Line, f: impl FnOnce(&ChildContext)) -> Child {
    adopt_orphans(true).unwrap();
    let options = ForkOptions::new("leader").group(Group::New).keep(line.fd());
    let leader = fork(options, |context| {
        f(&context);
        let _ = context.parent.wait_gone(None);
    });
    leader.unwrap()
}

pub(crate) fn a_forked_daemon_is_found_by_its_mark() {
    let line = Line::new();
    let leader = leader(&line, |_| daemon(&line));
    let stray = line.hear_pid();
    check(&leader, stray, Proof::Mark);
}

pub(crate) fn a_daemon_program_is_found_by_its_mark() {
    let line = Line::new();
    let leader = leader(&line, |_| {
        let script = "setsid sh -c 'echo $$ >&2; exec sleep 3600' >/dev/null & ";
        let mut shell = Command::new("sh");
        shell.args(["-c", script]).stdin(Stdio::null());
        shell
            .stderr(line.fd().try_clone_to_owned().unwrap())
            .status()
            .unwrap();
    });
    let stray = line.hear_pid();
    until(|| ProcessInfo::of(stray).is_ok_and(|process| process.name == "sleep"));
    check(&leader, stray, Proof::Mark);
}

pub(crate) fn one_that_left_the_group_is_found_below_its_parent() {
    let line = Line::new();
    let leader = leader(&line, |_| {
        wild_fork(|| {
            leave_the_group();
            line.say(Pid::this());
        });
    });
    let stray = line.hear_pid();
    check(&leader, stray, Proof::Parent);
}

/// Everything that a stray made meanwhile goes too.
pub(crate) fn what_descends_from_a_stray_is_found_with_it() {
    let line = Line::new();
    let leader = leader(&line, |_| {
        wild_fork(|| {
            leave_the_group();
            wild_fork(|| {
                leave_the_group();
                line.say(Pid::this());
            });
        });
    });
    let stray = line.hear_pid();
    check(&leader, stray, Proof::Parent);
}

/// A sibling, its forked daemon and a program of the test's own look alike and are left alone.
pub(crate) fn others_are_not_hit() {
    let line = Line::new();
    let sibling = leader(&line, |_| daemon(&line));
    let sibling_daemon = line.hear_pid();
    let mut program = Command::new("sleep")
        .arg("3600")
        .stdin(Stdio::null())
        .spawn()
        .unwrap();
    let leader = leader(&line, |_| daemon(&line));
    let stray = line.hear_pid();
    let plan = Escalation::after(LONG).reach(Reach::Descendants);
    let ended = leader.terminate_with(plan, soon()).unwrap();
    let swept: Vec<Pid> = ended.strays.iter().map(|stray| stray.process.pid).collect();
    assert_eq!(swept, [stray]);
    assert!(runs(sibling_daemon));
    assert_eq!(sibling.try_wait().unwrap(), None);
    assert!(program.try_wait().unwrap().is_none());
    program.kill().unwrap();
    program.wait().unwrap();
    check(&sibling, sibling_daemon, Proof::Mark);
}

pub(crate) fn a_reach_of_the_process_spares_its_group() {
    let line = Line::new();
    let leader = leader(&line, |_| {
        wild_fork(|| line.say(Pid::this()));
    });
    let member = line.hear_pid();
    let plan = Escalation::after(Duration::ZERO).reach(Reach::Process);
    let ended = leader.terminate_with(plan, soon()).unwrap();
    assert_eq!(ended.stage, Stage::Killed, "nobody was asked");
    assert!(runs(member));
    // SAFETY: plain numbers; the orphan is a child of this process by now, or of one above it.
    unsafe { libc::kill(member.raw(), libc::SIGKILL) };
    until(|| !runs(member));
}

pub(crate) fn strays_of_many_children_are_swept_in_one_attempt() {
    let line = Line::new();
    let mut children = Children::new().unwrap();
    for _ in 0..3 {
        children.push(leader(&line, |_| daemon(&line))).unwrap();
    }
    let strays: Vec<Pid> = (0..3).map(|_| line.hear_pid()).collect();
    let plan = Escalation::after(LONG).reach(Reach::Descendants);
    let closing = children.terminate_with(plan, soon());
    assert!(closing.survivors.is_empty());
    let mut swept: Vec<Pid> = closing
        .strays
        .iter()
        .map(|stray| stray.process.pid)
        .collect();
    swept.sort_unstable();
    let mut expected = strays;
    expected.sort_unstable();
    assert_eq!(swept, expected);
    assert!(descendants(Pid::this()).unwrap().is_empty());
}

pub(crate) fn a_stray_reads_as_a_sentence() {
    let line = Line::new();
    let leader = leader(&line, |_| daemon(&line));
    let stray = line.hear_pid();
    let plan = Escalation::after(LONG).reach(Reach::Descendants);
    let ended = leader.terminate_with(plan, soon()).unwrap();
    let text = ended.strays[0].to_string();
    assert_eq!(text, format!("leader ({stray}), found by its mark, killed"));
}

/// test > a, b; a > aa, ab; aa > aaa: children come before grandchildren, zombies included.
pub(crate) fn descendants_come_breadth_first() {
    let line = Line::new();
    let grow = |name: &str, f: &dyn Fn()| {
        let options = ForkOptions::new(name).keep(line.fd());
        let made = fork(options, |context| {
            f();
            line.say("up");
            let _ = context.parent.wait_gone(None);
        });
        made.unwrap()
    };
    let nothing = || ();
    let a = grow("a", &|| {
        let aa = grow("aa", &|| std::mem::forget(grow("aaa", &nothing)));
        std::mem::forget((aa, grow("ab", &nothing)));
    });
    let b = grow("b", &nothing);
    let zombie = child("zombie", |_| ());
    zombie.wait(soon()).unwrap();
    (0..5).for_each(|_| drop(line.hear()));
    let found = descendants(Pid::this()).unwrap();
    let names: Vec<&str> = found.iter().map(|process| process.name.as_str()).collect();
    assert_eq!(names, ["a", "b", "zombie", "aa", "ab", "aaa"]);
    assert_eq!(found[3].parent, Some(a.pid()));
    assert_eq!(descendants(b.pid()).unwrap(), []);
    drop((a, b));
    let gone = zombie.pid();
    drop(zombie);
    assert!(descendants(gone).is_err(), "no such process");
}

/// A process that this one did not make by procfork, with a number that has become free. `None` where a process may not
/// choose, or another was faster.
fn stranger(number: Pid, f: impl FnOnce()) -> Option<Pid> {
    let raw = number.raw();
    // As `clone3(2)` lists them; the rest is zero.
    let mut args = [0_u64; 11];
    args[4] = u64::from(libc::SIGCHLD.cast_unsigned());
    args[8] = (&raw const raw).expose_provenance() as u64;
    args[9] = 1;
    // SAFETY: without flags it is a fork, of a process with one thread; the arguments live for the call.
    let made = unsafe { libc::syscall(libc::SYS_clone3, args.as_ptr(), size_of_val(&args)) };
    if made == 0 {
        f();
        sleep_for_ever();
    }
    (made > 0).then_some(number)
}

fn stranger_or_skip(number: Pid, f: impl FnOnce()) -> Pid {
    stranger(number, f).unwrap_or_else(|| {
        procfork::testing::skip("only a privileged process can choose the number of another")
    })
}

/// Ends an own process and says by which signal it ended: an earlier one is the cause, however late it is noticed.
fn end(pid: Pid) -> i32 {
    let mut status = 0;
    // SAFETY: plain numbers; an own child, not reaped yet.
    unsafe { libc::kill(pid.raw(), libc::SIGTERM) };
    // SAFETY: valid for writes.
    unsafe { libc::waitpid(pid.raw(), &raw mut status, 0) };
    libc::WTERMSIG(status)
}

pub(crate) fn the_number_of_a_reaped_child_proves_nothing() {
    let line = Line::new();
    let gone = leader(&line, |_| ());
    let plan = Escalation::after(LONG).reach(Reach::Descendants);
    gone.terminate_with(plan, soon()).unwrap();
    let stranger = stranger_or_skip(gone.pid(), || {
        wild_fork(|| line.say(Pid::this()));
    });
    let below = line.hear_pid();
    let again = gone.terminate_with(plan, soon()).unwrap();
    assert_eq!(again.strays, []);
    assert_eq!(end(stranger), libc::SIGTERM);
    // Adopted by now.
    assert_eq!(end(below), libc::SIGTERM);
}

pub(crate) fn a_group_whose_proof_somebody_else_took_is_not_killed() {
    let line = Line::new();
    let leader = fork(ForkOptions::new("leader").group(Group::New), |_| ()).unwrap();
    let pid = leader.pid().raw();
    // SAFETY: no status is asked for; an own child.
    assert_eq!(unsafe { libc::waitpid(pid, std::ptr::null_mut(), 0) }, pid);
    let stranger = stranger_or_skip(leader.pid(), || {
        // SAFETY: plain numbers.
        unsafe { libc::setpgid(0, 0) };
        line.say("leads");
    });
    line.hear();
    leader.terminate(Duration::ZERO).unwrap();
    assert_eq!(end(stranger), libc::SIGTERM);
}
