//! A child does not outlive its parent, whatever it was doing.
//!
//! The test process adopts orphans. It forks a root, the root forks what is to die, and the test
//! kills the root (or a process in the middle) with SIGKILL.

use std::sync::atomic::{AtomicI32, AtomicU32, Ordering};
use std::time::Instant;

use procfork::{
    Armed, Child, ChildContext, ExitCause, ForkOptions, Group, ParentWatch, Parked, Pid, Signal,
    adopt_orphans, fork,
};

use crate::support::{Gate, Line, child, running_below, runs, sleep_for_ever, sleeps, soon, until};

/// What a leaf does while its ancestors die.
type Leaf = fn(&ChildContext);

fn idle(context: &ChildContext) {
    let _ = context.parent.wait_gone(None);
    context.parent.leave();
}

fn parked_on_a_mailbox(context: &ChildContext) {
    let word = AtomicU32::new(5);
    while context.parent.park(&word, 5, None) != Parked::ParentGone {}
    context.parent.leave();
}

fn busy(context: &ChildContext) {
    while context.parent.is_alive() {
        std::hint::spin_loop();
    }
    context.parent.leave();
}

fn asleep(_: &ChildContext) {
    sleep_for_ever();
}

/// A leaf below the calling process that says its pid when it is up.
fn leaf(line: &Line, options: ForkOptions<'_>, work: Leaf) -> Child {
    let child = fork(options.keep(line.fd()), |context| {
        line.say(Pid::this());
        work(&context);
    });
    child.unwrap()
}

fn root(line: &Line, f: impl FnOnce(ChildContext)) -> Child {
    adopt_orphans(true).unwrap();
    fork(ForkOptions::new("root").keep(line.fd()), f).unwrap()
}

/// root > middle > leaf, each of which says its pid.
fn chain(line: &Line, work: Leaf) -> Child {
    root(line, |context| {
        let middle = fork(ForkOptions::new("middle").keep(line.fd()), |context| {
            line.say(Pid::this());
            let _leaf = leaf(line, ForkOptions::new("leaf"), work);
            idle(&context);
        });
        let _middle = middle.unwrap();
        idle(&context);
    })
}

#[track_caller]
fn check_chain(work: Leaf) {
    let line = Line::new();
    let root = chain(&line, work);
    let (middle, leaf) = (line.hear_pid(), line.hear_pid());
    assert!(runs(middle) && runs(leaf));
    root.signal(Signal::KILL).unwrap();
    until(|| running_below().is_empty());
    assert_eq!(root.wait(soon()).unwrap().signal(), Some(Signal::KILL));
}

pub(crate) fn an_idle_leaf_follows_a_killed_root() {
    check_chain(idle);
}

pub(crate) fn a_leaf_parked_on_its_mailbox_follows_a_killed_root() {
    check_chain(parked_on_a_mailbox);
}

pub(crate) fn a_busy_leaf_follows_a_killed_root() {
    check_chain(busy);
}

pub(crate) fn a_leaf_asleep_in_foreign_code_follows_a_killed_root() {
    check_chain(asleep);
}

/// How often the kernel has taken a process off its core because it had nothing to do.
fn sleeps_begun(pid: Pid) -> String {
    let status = std::fs::read_to_string(format!("/proc/{pid}/status")).unwrap();
    let line = status
        .lines()
        .find(|line| line.starts_with("voluntary_ctxt_switches"));
    line.unwrap().to_owned()
}

pub(crate) fn an_idle_leaf_does_not_wake_up_to_look() {
    let line = Line::new();
    let leaf = leaf(&line, ForkOptions::new("leaf"), parked_on_a_mailbox);
    line.hear_pid();
    until(|| sleeps(leaf.pid()));
    let before = sleeps_begun(leaf.pid());
    // Some time passes, in which children come and go.
    for _ in 0..50 {
        child("other", |_| ()).wait(soon()).unwrap();
    }
    assert_eq!(sleeps_begun(leaf.pid()), before);
}

pub(crate) fn below_a_killed_middle_all_die_and_above_it_all_live() {
    let line = Line::new();
    let root = root(&line, |_| {
        let middle = fork(ForkOptions::new("middle").keep(line.fd()), |context| {
            let _leaf = leaf(&line, ForkOptions::new("leaf"), asleep);
            idle(&context);
        });
        let middle = middle.unwrap();
        let sibling = child("sibling", |context| idle(&context));
        let cause = middle.wait(soon()).unwrap();
        assert_eq!(cause.to_string(), "killed by signal 9 (SIGKILL)");
        assert_eq!(sibling.try_wait().unwrap(), None);
    });
    let leaf = line.hear_pid();
    let middle = procfork::ProcessInfo::of(leaf).unwrap().parent.unwrap();
    // SAFETY: plain numbers; the middle process is held by its running parent.
    unsafe { libc::kill(middle.raw(), libc::SIGKILL) };
    until(|| !runs(leaf));
    assert_eq!(
        root.wait(soon()).unwrap(),
        ExitCause::Exited(0),
        "{:?}",
        root.last_words()
    );
}

/// The kernel wakes one waiter of a death word. Without death signal and without time limit on the
/// sleep, the others can learn of it from that one only.
pub(crate) fn one_wake_of_the_kernel_reaches_all_idle_children() {
    let line = Line::new();
    let root = root(&line, |context| {
        let quiet = |name: &str| ForkOptions::new(name).death_signal(None);
        let _children = ["a", "b", "c", "d"].map(|name| leaf(&line, quiet(name), idle));
        idle(&context);
    });
    let children: Vec<Pid> = (0..4).map(|_| line.hear_pid()).collect();
    until(|| children.iter().all(|pid| sleeps(*pid)));
    root.signal(Signal::KILL).unwrap();
    until(|| running_below().is_empty());
}

/// Whoever notices the death of the root kills the tree's group: a member in foreign code, without
/// a death signal and without a look at its watch, goes too.
pub(crate) fn the_first_to_notice_kills_the_whole_group_of_the_tree() {
    let line = Line::new();
    let root = root(&line, |context| {
        let deaf = ForkOptions::new("deaf")
            .group(Group::New)
            .death_signal(None);
        let deaf = leaf(&line, deaf, asleep);
        let alert = ForkOptions::new("alert").group(Group::Join(deaf.pid()));
        let _alert = leaf(&line, alert.death_signal(None), idle);
        idle(&context);
    });
    let members = [line.hear_pid(), line.hear_pid()];
    root.signal(Signal::KILL).unwrap();
    until(|| members.iter().all(|pid| !runs(*pid)));
}

/// Without a group of the tree nobody but the watcher itself may be hit: the group is the test's
/// own.
pub(crate) fn a_child_in_its_parents_group_leaves_alone() {
    let line = Line::new();
    let bystander = child("bystander", |context| idle(&context));
    let root = root(&line, |context| {
        let _leaf = leaf(&line, ForkOptions::new("leaf").death_signal(None), idle);
        idle(&context);
    });
    let leaf = line.hear_pid();
    root.signal(Signal::KILL).unwrap();
    until(|| !runs(leaf));
    assert_eq!(bystander.try_wait().unwrap(), None);
}

/// ```text
/// root:  fork ------------------------- killed, reaped
/// child:   in the C library's own hook ................ gate opens, arms its signal, looks, leaves
/// ```
pub(crate) fn a_parent_that_died_before_the_signal_was_armed_is_noticed() {
    static HOOK: [AtomicI32; 2] = [AtomicI32::new(-1), AtomicI32::new(-1)];
    extern "C" fn in_child() {
        let mut byte = 0_u8;
        let [up, gate] = [0, 1].map(|at| HOOK[at].load(Ordering::Relaxed));
        // SAFETY: one byte that lives for the call.
        unsafe { libc::write(up, (&raw const byte).cast(), 1) };
        // SAFETY: one byte that lives for the call.
        unsafe { libc::read(gate, (&raw mut byte).cast(), 1) };
    }
    let (up, gate, line) = (Gate::new(), Gate::new(), Line::new());
    adopt_orphans(true).unwrap();
    let options = ForkOptions::new("root")
        .keep(up.writer())
        .keep(gate.fd())
        .keep(line.fd());
    let root = fork(options, |context| {
        use std::os::fd::AsRawFd as _;
        HOOK[0].store(up.writer().as_raw_fd(), Ordering::Relaxed);
        HOOK[1].store(gate.fd().as_raw_fd(), Ordering::Relaxed);
        // SAFETY: the hook reads and writes pipes only.
        unsafe { libc::pthread_atfork(None, None, Some(in_child)) };
        let _late = fork(ForkOptions::new("late").keep(line.fd()), |_| {
            line.say("ran")
        });
        idle(&context);
    });
    let root = root.unwrap();
    up.wait();
    let late = running_below()
        .into_iter()
        .find(|pid| *pid != root.pid())
        .unwrap();
    root.signal(Signal::KILL).unwrap();
    root.wait(soon()).unwrap();
    assert!(runs(late), "nobody has told it yet");
    gate.open();
    until(|| !runs(late));
    assert_eq!(line.rest(), "", "its function never ran");
}

pub(crate) fn a_changed_group_id_does_not_make_a_child_immortal() {
    // SAFETY: takes nothing.
    if unsafe { libc::geteuid() } != 0 {
        procfork::testing::skip("only root may change its group id");
    }
    check_chain(|context| {
        for id in [1, 0] {
            // SAFETY: plain numbers.
            assert_eq!(unsafe { libc::setegid(id) }, 0);
        }
        assert_eq!(context.parent.armed().unwrap(), None);
        idle(context);
    });
}

pub(crate) fn a_watch_tells_a_timeout_from_a_change_and_from_death() {
    let child = child("child", |context| {
        let word = AtomicU32::new(1);
        let watch = &context.parent;
        assert_eq!(watch.park(&word, 1, Some(Instant::now())), Parked::TimedOut);
        assert_eq!(watch.park(&word, 0, None), Parked::Look, "another value");
        assert_eq!(watch.wait_gone(Some(Instant::now())), Parked::TimedOut);
        assert!((0..5000).all(|_| watch.is_alive()));
        assert_eq!(ParentWatch::current().unwrap().parent(), watch.parent());
    });
    assert_eq!(
        child.wait(soon()).unwrap(),
        ExitCause::Exited(0),
        "{:?}",
        child.last_words()
    );
}

pub(crate) fn the_death_word_of_a_child_tells_its_parent() {
    let line = Line::new();
    let child = leaf(&line, ForkOptions::new("child"), idle);
    line.hear_pid();
    let word = child.death_word();
    assert!(!word.owner_died());
    assert!(matches!(word.arm(), Armed::Wait(_)));
    child.signal(Signal::KILL).unwrap();
    child.wait(soon()).unwrap();
    assert!(word.owner_died());
    assert_eq!(word.arm(), Armed::Died);
}

/// The program's own robust mutexes go on working beside the death word.
pub(crate) fn robust_mutexes_of_the_program_are_not_disturbed() {
    let line = Line::new();
    // Makes this process own a death word first.
    let first = leaf(&line, ForkOptions::new("first"), idle);
    line.hear_pid();
    let shared = crate::robust::SharedMutex::new();
    shared.lock();
    shared.unlock();
    let owner = fork(ForkOptions::new("owner"), |_| {
        shared.lock();
        let inner = child("inner", |_| ());
        inner.wait(soon()).unwrap();
        // Ends with the mutex held.
    });
    assert_eq!(owner.unwrap().wait(soon()).unwrap(), ExitCause::Exited(0));
    assert!(shared.lock_finds_owner_dead());
    assert_eq!(first.try_wait().unwrap(), None);
    assert!(!first.death_word().owner_died());
}

/// Sleeps on a death word with the bare system call, as long as it has the armed value. True if it was woken or the value
/// had changed; false at the deadline.
fn sleep_on(word: procfork::DeathWord<'_>) -> bool {
    let Armed::Wait(value) = word.arm() else {
        return true;
    };
    let limit = libc::timespec {
        tv_sec: 5,
        tv_nsec: 0,
    };
    let address = word.address().as_ptr();
    // SAFETY: the word and the limit live over the call; a futex wait changes no memory.
    let result =
        unsafe { libc::syscall(libc::SYS_futex, address, libc::FUTEX_WAIT, value, &limit) };
    result == 0 || std::io::Error::last_os_error().raw_os_error() == Some(libc::EAGAIN)
}

/// The kernel wakes one waiter of a word. Were there one word for all, a child that is woken and dies before it has passed
/// the news on, as most do, would leave the parent asleep.
pub(crate) fn a_child_that_keeps_the_news_of_a_death_does_not_keep_it_from_the_parent() {
    let (line, gate, test) = (Line::new(), Gate::new(), Pid::this());
    let options = ForkOptions::new("middle").keep(line.fd()).keep(gate.fd());
    let middle = fork(options, |_| {
        let keeper = child("keeper", |context| {
            // No passing on: it is woken and leaves.
            let word = context.parent.death_words().next().expect("its parent's");
            sleep_on(word);
        });
        // First the child sleeps, then the parent: the kernel wakes in this order.
        until(|| sleeps(keeper.pid()));
        line.say("ready");
        gate.wait();
        until(|| sleeps(test));
        // SAFETY: a signal to this process, which takes it.
        unsafe { libc::raise(libc::SIGKILL) };
    })
    .unwrap();
    assert_eq!(line.hear(), "ready");
    gate.open();
    assert!(sleep_on(middle.death_word()), "nobody woke the parent");
    let cause = middle.wait(soon()).unwrap();
    assert_eq!(cause.signal(), Some(Signal::KILL));
}
