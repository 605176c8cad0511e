//! A child has what it was given and nothing else of its parent.

use std::fs;
use std::io::{self, Read as _, Write as _};
use std::mem::MaybeUninit;
use std::os::fd::AsRawFd as _;
use std::process::{Command, Stdio};
use std::time::Duration;

use procfork::{
    ChildContext, ExitCause, ForkOptions, Group, ParentWatch, Signal, Stage, Stream, fork,
};

use crate::support::{Line, cause_of, child, soon, until};

/// A parent with an exit handler, a guard and unflushed text starts children that end in three
/// ways: handler, guard and text are the parent's alone.
pub(crate) fn exit_handlers_guards_and_buffers_stay_the_parents() {
    let folder = std::env::temp_dir().join(format!("procfork-clean-{}", std::process::id()));
    fs::create_dir(&folder).unwrap();
    let (mut printed, stdout) = io::pipe().unwrap();
    let options = ForkOptions::new("parent").stream(Stream::Stdout, stdout.into());
    let parent = {
        let folder = folder.clone();
        fork(options, move |_| parent_with_a_past(&folder)).unwrap()
    };
    assert_eq!(
        parent.wait(soon()).unwrap(),
        ExitCause::Exited(0),
        "{:?}",
        parent.last_words()
    );
    let mut text = String::new();
    printed.read_to_string(&mut text).unwrap();
    assert_eq!(
        text,
        "unflushed; from C; child one\n; by the parent; at exit"
    );
    assert!(!folder.exists(), "removed by the guard");
}

struct Guard<'a>(&'a std::path::Path);

impl Drop for Guard<'_> {
    fn drop(&mut self) {
        fs::remove_dir(self.0).unwrap();
    }
}

extern "C" fn at_exit() {
    let _ = io::stdout().write_all(b"; at exit");
    let _ = io::stdout().flush();
}

#[expect(
    clippy::print_stdout,
    reason = "the buffers of stdout are what is tested"
)]
fn parent_with_a_past(folder: &std::path::Path) -> u8 {
    // SAFETY: the handler writes to stdout only.
    unsafe { libc::atexit(at_exit) };
    let guard = Guard(folder);
    print!("unflushed");
    // SAFETY: a string with a zero byte at its end.
    unsafe { libc::printf(c"; from C".as_ptr()) };
    let by_result = child("by-result", |_| println!("; child one"));
    by_result.wait(soon()).unwrap();
    assert!(folder.exists());
    let by_error = child("by-error", |_| Err::<(), _>("E7"));
    by_error.wait(soon()).unwrap();
    let by_panic = child("by-panic", |_| -> () { panic!("of the child") });
    by_panic.wait(soon()).unwrap();
    assert!(folder.exists());
    drop(guard);
    print!("; by the parent");
    std::process::exit(0)
}

fn status_line(of: &str, key: &str) -> u64 {
    let status = fs::read_to_string(format!("/proc/{of}/status")).unwrap();
    let line = status
        .lines()
        .find_map(|line| line.strip_prefix(key))
        .unwrap();
    u64::from_str_radix(line.trim_start_matches(':').trim(), 16).unwrap()
}

/// Blocks SIGTERM, SIGUSR1 and SIGCHLD, ignores SIGINT and SIGTERM, catches SIGUSR2.
fn spoil_signals() {
    extern "C" fn caught(_: i32) {}
    let mut set = MaybeUninit::<libc::sigset_t>::uninit();
    // SAFETY: valid for writes.
    unsafe { libc::sigemptyset(set.as_mut_ptr()) };
    for number in [libc::SIGTERM, libc::SIGUSR1, libc::SIGCHLD] {
        // SAFETY: initialised above.
        unsafe { libc::sigaddset(set.as_mut_ptr(), number) };
    }
    // SAFETY: initialised above; the old mask is not asked for.
    unsafe { libc::pthread_sigmask(libc::SIG_BLOCK, set.as_ptr(), std::ptr::null_mut()) };
    for number in [libc::SIGINT, libc::SIGTERM] {
        // SAFETY: no function of ours.
        unsafe { libc::signal(number, libc::SIG_IGN) };
    }
    let handler: extern "C" fn(i32) = caught;
    // SAFETY: the handler does nothing.
    unsafe { libc::signal(libc::SIGUSR2, handler as libc::sighandler_t) };
}

fn bit(signal: Signal) -> u64 {
    1 << (signal.number() - 1)
}

pub(crate) fn signals_are_as_documented_in_the_child_and_as_before_in_the_parent() {
    spoil_signals();
    let before = status_line("self", "SigBlk");
    let child = child("child", |context| {
        assert_eq!(status_line("self", "SigBlk"), 0);
        assert_eq!(status_line("self", "SigIgn"), bit(Signal::PIPE));
        assert_eq!(status_line("self", "SigCgt"), 0);
        let _ = context.parent.wait_gone(None);
    });
    let ended = child.terminate(Duration::from_secs(10)).unwrap();
    assert_eq!(ended.stage, Stage::Asked, "{:?}", child.last_words());
    assert_eq!(ended.cause.signal(), Some(Signal::TERM));
    assert_eq!(status_line("self", "SigBlk"), before);
    assert_ne!(before, 0);
}

fn open_fds(pid: &str) -> Vec<i32> {
    let entries = fs::read_dir(format!("/proc/{pid}/fd")).unwrap();
    let names = entries.map(|entry| entry.unwrap().file_name().into_string().unwrap());
    let mut fds: Vec<i32> = names.map(|name| name.parse().unwrap()).collect();
    fds.sort_unstable();
    fds
}

pub(crate) fn only_given_descriptors_are_open_in_the_child() {
    let line = Line::new();
    let (_reader, given) = io::pipe().unwrap();
    let _other = fs::File::open("/dev/null").unwrap();
    let kept = line.fd().as_raw_fd();
    let number = given.as_raw_fd();
    let options = ForkOptions::new("child").keep(line.fd()).give(given.into());
    let child = fork(options, |context: ChildContext| {
        assert_eq!(context.fds.len(), 1);
        assert_eq!(context.fds[0].as_raw_fd(), number);
        line.say("up");
        let _ = context.parent.wait_gone(None);
    });
    let child = child.unwrap();
    line.hear();
    let mut expected = vec![0, 1, 2, kept, number];
    expected.sort_unstable();
    assert_eq!(open_fds(&child.pid().to_string()), expected);
}

pub(crate) fn the_end_of_a_pipe_is_seen_although_siblings_live() {
    let mut readers = Vec::new();
    let mut children = Vec::new();
    for index in 0..3 {
        let (reader, writer) = io::pipe().unwrap();
        let options = ForkOptions::new(format!("child-{index}")).give(writer.into());
        let child = fork(options, |context| {
            let _ = context.parent.wait_gone(None);
        });
        readers.push(reader);
        children.push(child.unwrap());
    }
    children[0].signal(Signal::KILL).unwrap();
    assert_eq!(readers[0].read(&mut [0]).unwrap(), 0, "end of file");
    assert!(
        children[1..]
            .iter()
            .all(|child| child.try_wait().unwrap().is_none())
    );
}

pub(crate) fn a_command_run_in_a_child_sees_the_three_streams_only() {
    let (_reader, given) = io::pipe().unwrap();
    let line = Line::new();
    // One that programs inherit, as descriptors of C libraries often are.
    // SAFETY: plain numbers.
    let set = unsafe { libc::fcntl(given.as_raw_fd(), libc::F_SETFD, 0) };
    assert_eq!(set, 0);
    let options = ForkOptions::new("child").keep(line.fd()).give(given.into());
    let cause = fork(options, |_| {
        let mut command = Command::new("sleep")
            .arg("3600")
            .stdin(Stdio::null())
            .spawn()
            .unwrap();
        // The kernel lets the parent of a new program go on shortly before it closes descriptors.
        until(|| open_fds(&command.id().to_string()) == [0, 1, 2]);
        command.kill().unwrap();
        command.wait().unwrap();
    });
    let child = cause.unwrap();
    assert_eq!(
        child.wait(soon()).unwrap(),
        ExitCause::Exited(0),
        "{:?}",
        child.last_words()
    );
}

pub(crate) fn a_given_descriptor_below_three_does_not_become_a_stream() {
    let cause = cause_of(|_| {
        // SAFETY: nobody owns descriptor 0 in this process.
        unsafe { libc::close(0) };
        let (mut reader, zero) = io::pipe().map(|(reader, writer)| (writer, reader)).unwrap();
        assert_eq!(zero.as_raw_fd(), 0);
        let null = fs::File::open("/dev/null").unwrap();
        let options = ForkOptions::new("inner").stream(Stream::Stdin, null.into());
        let inner = fork(options.give(zero.into()), |mut context| {
            let mut pipe = io::PipeReader::from(context.fds.remove(0));
            let mut text = String::new();
            pipe.read_to_string(&mut text).unwrap();
            assert_eq!(text, "through");
            assert_eq!(io::stdin().read(&mut [0]).unwrap(), 0, "the null device");
        });
        let inner = inner.unwrap();
        reader.write_all(b"through").unwrap();
        drop(reader);
        assert_eq!(
            inner.wait(soon()).unwrap(),
            ExitCause::Exited(0),
            "{:?}",
            inner.last_words()
        );
    });
    assert_eq!(cause, ExitCause::Exited(0));
}

pub(crate) fn the_group_is_the_one_asked_for() {
    let own = procfork::ProcessInfo::of(procfork::Pid::this())
        .unwrap()
        .group;
    let group = || {
        procfork::ProcessInfo::of(procfork::Pid::this())
            .unwrap()
            .group
            .unwrap()
    };
    let inherits = child("inherits", |_| assert_eq!(Some(group()), own));
    assert_eq!(inherits.wait(soon()).unwrap(), ExitCause::Exited(0));
    let leads = fork(ForkOptions::new("leads").group(Group::New), |context| {
        assert_eq!(group(), procfork::Pid::this());
        let _ = context.parent.wait_gone(None);
    });
    let leads = leads.unwrap();
    let leader = leads.pid();
    let joins = fork(ForkOptions::new("joins").group(Group::Join(leader)), |_| {
        assert_eq!(group(), leader);
    });
    let joins = joins.unwrap();
    assert_eq!(
        joins.wait(soon()).unwrap(),
        ExitCause::Exited(0),
        "{:?}",
        joins.last_words()
    );
    assert_eq!(leads.try_wait().unwrap(), None);
}

pub(crate) fn a_changed_id_clears_the_death_signal_and_rearming_restores_it() {
    // SAFETY: takes nothing.
    if unsafe { libc::geteuid() } != 0 {
        procfork::testing::skip("only root may change its ids");
    }
    /// Changes an id; whether it could is for the caller to know.
    type Change = fn(u32) -> i32;
    let changes: [Change; 4] = [
        // SAFETY: a plain number.
        |id| unsafe { libc::setegid(id) },
        // SAFETY: a plain number.
        |id| unsafe { libc::seteuid(id) },
        // SAFETY: a plain number.
        |id| unsafe { libc::setfsgid(id) },
        // SAFETY: a plain number.
        |id| unsafe { libc::setfsuid(id) },
    ];
    for change in changes {
        let cause = cause_of(move |context| {
            assert_eq!(context.parent.armed().unwrap(), Some(Signal::KILL));
            assert_eq!(context.parent.rearm().unwrap(), procfork::Rearmed::WasArmed);
            change(1);
            change(0);
            let armed = context.parent.armed().unwrap();
            assert_eq!(armed, None, "the kernel cleared it");
            assert_eq!(context.parent.rearm().unwrap(), procfork::Rearmed::Restored);
            assert_eq!(context.parent.armed().unwrap(), Some(Signal::KILL));
            let again = ParentWatch::current().unwrap();
            assert_eq!(again.rearm().unwrap(), procfork::Rearmed::WasArmed);
        });
        assert_eq!(cause, ExitCause::Exited(0));
    }
}
