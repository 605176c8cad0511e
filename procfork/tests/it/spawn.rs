//! Children that are the same program started again: the same guarantees as after a fork.

use std::env;
use std::fs;
use std::io::{self, Read as _, Write as _};
use std::os::fd::{AsRawFd as _, OwnedFd};
use std::process::{Command, Stdio};

use procfork::{
    Child, ChildContext, ExitCause, ForkOptions, Group, Pid, Settings, Signal, StartError, Stream,
    adopt_orphans, exit_code, fork, spawn,
};

use crate::support::{child, running_below, runs, soon, until};

procfork::register! {
    "it::echo" => echo,
    "it::fail" => |_| Err::<(), _>("E7: no such device"),
    "it::panic" => |_: ChildContext| -> () { panic!("boom") },
    "it::state" => state,
    "it::command" => command,
    "it::chain" => chain,
    "it::print" => print,
    "it::place" => place,
}

/// A crate that forbids unsafe code can register all the same.
mod safe {
    #![forbid(unsafe_code)]

    procfork::register! {
        "it::safe" => |_| 11,
    }
}

#[track_caller]
fn start(options: ForkOptions<'_>, function: &str, args: &[u8]) -> Child {
    spawn(options, function, args).unwrap()
}

fn pipe_back() -> (io::PipeReader, OwnedFd) {
    let (reader, writer) = io::pipe().unwrap();
    (reader, writer.into())
}

/// What the child writes until it ends.
#[track_caller]
fn said(child: &Child, mut reader: io::PipeReader) -> String {
    let mut text = String::new();
    reader.read_to_string(&mut text).unwrap();
    assert_eq!(
        child.wait(soon()).unwrap(),
        ExitCause::Exited(0),
        "{:?}",
        child.last_words()
    );
    text
}

/// The CPUs and the nice value of the calling thread.
fn own_place() -> Settings {
    let asked = Settings::new().cpus([0]).nice(0);
    asked.effective().unwrap()
}

fn place(mut context: ChildContext) {
    say(&mut context, &own_place().to_string());
}

/// What a child has that is spawned by a thread of its own with these settings.
fn place_of_a_child_of(settings: Settings) -> String {
    let work = move || {
        settings.apply().unwrap();
        let (reader, writer) = pipe_back();
        let child = start(ForkOptions::new("placed").give(writer), "it::place", &[]);
        said(&child, reader)
    };
    std::thread::spawn(work).join().unwrap()
}

pub(crate) fn a_child_has_the_cpus_and_the_nice_value_of_the_thread_that_spawns_it() {
    let here = own_place().to_string();
    let cpus = here.trim_start_matches("cpus ").split(['-', ',']);
    let first: u32 = cpus.into_iter().next().unwrap().parse().unwrap();
    // The keeper of the first call would give its own place to all later ones.
    let narrow = place_of_a_child_of(Settings::new().cpus([first]).nice(19));
    assert_eq!(narrow, format!("cpus {first}, nice 19"));
    assert_eq!(place_of_a_child_of(Settings::new()), here);
    let narrow = place_of_a_child_of(Settings::new().cpus([first]));
    assert!(narrow.starts_with(&format!("cpus {first}, ")), "{narrow}");
    assert_eq!(place_of_a_child_of(Settings::new()), here);
}

fn say(context: &mut ChildContext, text: &str) {
    let mut back = io::PipeWriter::from(context.fds.remove(0));
    back.write_all(text.as_bytes()).unwrap();
}

fn echo(mut context: ChildContext) {
    let comm = fs::read_to_string("/proc/self/comm").unwrap();
    let args = String::from_utf8(context.args.clone()).unwrap();
    let text = format!("{} {} {args}", context.name, comm.trim_end());
    say(&mut context, &text);
}

pub(crate) fn a_function_finds_its_name_its_bytes_and_its_descriptors() {
    let (reader, writer) = pipe_back();
    let name = "a-rather-long-name";
    let child = start(
        ForkOptions::new(name).give(writer),
        "it::echo",
        b"some bytes",
    );
    assert_eq!(
        said(&child, reader),
        "a-rather-long-name a-rather-long-n some bytes"
    );
    assert_eq!(child.name(), name);
}

pub(crate) fn endings_are_those_of_a_forked_child() {
    let failed = start(ForkOptions::new("failed"), "it::fail", &[]);
    assert_eq!(failed.wait(soon()).unwrap(), ExitCause::Exited(1));
    assert_eq!(failed.last_words().unwrap(), "E7: no such device");
    let panicked = start(ForkOptions::new("panicked"), "it::panic", &[]);
    assert_eq!(
        panicked.wait(soon()).unwrap(),
        ExitCause::Exited(exit_code::PANICKED)
    );
    assert!(panicked.last_words().unwrap().ends_with("boom"));
}

pub(crate) fn a_crate_without_unsafe_code_can_register() {
    let child = start(ForkOptions::new("safe"), "it::safe", &[]);
    assert_eq!(child.wait(soon()).unwrap(), ExitCause::Exited(11));
}

pub(crate) fn an_unknown_name_is_refused_with_those_that_exist() {
    let error = spawn(ForkOptions::new("child"), "it::ehco", &[]).unwrap_err();
    assert!(matches!(error, StartError::UnknownFunction { .. }));
    assert!(
        error
            .to_string()
            .contains("it::command, it::echo, it::fail"),
        "{error}"
    );
}

/// Masks, dispositions, group, descriptors, environment: one line each.
fn state(mut context: ChildContext) {
    let status = fs::read_to_string("/proc/self/status").unwrap();
    let wanted = |line: &&str| {
        ["SigBlk", "SigIgn", "SigCgt"]
            .iter()
            .any(|key| line.starts_with(key))
    };
    let mut lines: Vec<String> = status.lines().filter(wanted).map(str::to_owned).collect();
    lines.push(format!("marker {:?}", env::var_os("PROCFORK_SPAWNED")));
    lines.push(format!("armed {:?}", context.parent.armed().unwrap()));
    let group = procfork::ProcessInfo::of(Pid::this()).unwrap().group;
    lines.push(format!("leads {}", group == Some(Pid::this())));
    lines.push(format!("fds {:?}", open_fds("self")));
    say(&mut context, &lines.join("\n"));
}

fn open_fds(pid: &str) -> Vec<i32> {
    let entries = fs::read_dir(format!("/proc/{pid}/fd")).unwrap();
    let links = entries.map(|entry| entry.unwrap().path());
    // One that is closed meanwhile is not open.
    let open = links.filter(|link| fs::read_link(link).is_ok_and(|to| !to.starts_with("/proc")));
    let names = open.map(|link| link.file_name().unwrap().to_str().unwrap().parse().unwrap());
    let mut fds: Vec<i32> = names.collect();
    fds.sort_unstable();
    fds
}

pub(crate) fn a_child_is_clean_and_has_what_it_was_given_under_the_same_numbers() {
    for number in [libc::SIGINT, libc::SIGTERM] {
        // SAFETY: no function of ours.
        unsafe { libc::signal(number, libc::SIG_IGN) };
    }
    let (reader, writer) = pipe_back();
    let (kept, given) = (reader.as_raw_fd(), writer.as_raw_fd());
    let options = ForkOptions::new("child").group(Group::New);
    let options = options.keep(std::os::fd::AsFd::as_fd(&reader)).give(writer);
    let child = start(options, "it::state", &[]);
    let said = said(&child, reader.try_clone().unwrap());
    let mut fds = vec![0, 1, 2, kept, given];
    fds.sort_unstable();
    let ignored = 1_u64 << (Signal::PIPE.number() - 1);
    let expected = format!(
        "SigBlk:\t{:016x}\nSigIgn:\t{ignored:016x}\nSigCgt:\t{:016x}\nmarker None\n\
         armed Some(Signal(9 (SIGKILL)))\nleads true\nfds {fds:?}",
        0, 0,
    );
    assert_eq!(said, expected);
}

fn command(mut context: ChildContext) {
    let mut command = Command::new("sleep")
        .arg("3600")
        .stdin(Stdio::null())
        .spawn()
        .unwrap();
    until(|| open_fds(&command.id().to_string()) == [0, 1, 2]);
    let env = fs::read(format!("/proc/{}/environ", command.id())).unwrap();
    command.kill().unwrap();
    command.wait().unwrap();
    assert!(!String::from_utf8_lossy(&env).contains("PROCFORK_SPAWNED"));
    say(&mut context, "clean");
}

pub(crate) fn a_command_run_in_a_child_sees_the_streams_only_and_no_marker() {
    let (reader, writer) = pipe_back();
    let child = start(ForkOptions::new("child").give(writer), "it::command", &[]);
    assert_eq!(said(&child, reader), "clean");
}

#[expect(clippy::print_stdout, reason = "the stream is what is tested")]
fn print(_: ChildContext) {
    print!("through stdout");
}

pub(crate) fn a_stream_can_be_replaced() {
    let (reader, writer) = pipe_back();
    let child = start(
        ForkOptions::new("child").stream(Stream::Stdout, writer),
        "it::print",
        &[],
    );
    assert_eq!(said(&child, reader), "through stdout");
}

pub(crate) fn a_group_can_be_joined_while_it_lives() {
    let leader = fork(ForkOptions::new("leader").group(Group::New), |context| {
        let _ = context.parent.wait_gone(None);
    });
    let leader = leader.unwrap();
    let (reader, writer) = pipe_back();
    let options = ForkOptions::new("child").group(Group::Join(leader.pid()));
    let child = start(options.give(writer), "it::state", &[]);
    let in_group = procfork::ProcessInfo::of(child.pid()).unwrap().group;
    assert_eq!(in_group, Some(leader.pid()));
    assert!(said(&child, reader).contains("leads false"));
    let gone = leader.pid();
    drop((leader, child));
    let error = spawn(
        ForkOptions::new("late").group(Group::Join(gone)),
        "it::print",
        &[],
    );
    assert!(matches!(error.unwrap_err(), StartError::GroupGone { group, .. } if group == gone));
}

/// Spawns itself to the depth that its argument says; says its pid and what it watches.
fn chain(mut context: ChildContext) {
    let words = context.parent.death_words().count();
    let back = io::PipeWriter::from(context.fds.remove(0));
    (&back)
        .write_all(format!("{} {words}\n", Pid::this()).as_bytes())
        .unwrap();
    let deeper = context.args[0].checked_sub(1);
    let _child = deeper.map(|deeper| {
        start(
            ForkOptions::new("deeper").give(back.into()),
            "it::chain",
            &[deeper],
        )
    });
    let _ = context.parent.wait_gone(None);
    context.parent.leave();
}

/// Reads what a chain of three says: pid and number of watched words, for each.
fn hear_chain(reader: io::PipeReader) -> Vec<(Pid, usize)> {
    let lines = io::BufRead::lines(io::BufReader::new(reader));
    let lines = lines.take(3).map(|line| {
        let line = line.unwrap();
        let (pid, words) = line.split_once(' ').unwrap();
        (
            Pid::new(pid.parse().unwrap()).unwrap(),
            words.parse().unwrap(),
        )
    });
    lines.collect()
}

#[track_caller]
fn check_chain_dies(kill: impl FnOnce(&Child, &[(Pid, usize)])) {
    adopt_orphans(true).unwrap();
    let (reader, writer) = pipe_back();
    let root = fork(ForkOptions::new("root").give(writer), |mut context| {
        let back = context.fds.remove(0);
        let options = ForkOptions::new("first").group(Group::New).give(back);
        let _first = start(options, "it::chain", &[2]);
        let _ = context.parent.wait_gone(None);
    });
    let root = root.unwrap();
    let chain = hear_chain(reader);
    let words: Vec<usize> = chain.iter().map(|(_, words)| *words).collect();
    assert_eq!(
        words,
        [1, 2, 2],
        "the parent's; below the root's children the root's too"
    );
    kill(&root, &chain);
    until(|| chain[1..].iter().all(|(pid, _)| !runs(*pid)));
}

pub(crate) fn a_chain_of_spawned_children_follows_a_killed_root() {
    check_chain_dies(|root, _| root.signal(Signal::KILL).unwrap());
    until(|| running_below().is_empty());
}

pub(crate) fn a_chain_of_spawned_children_follows_a_killed_middle() {
    check_chain_dies(|_, chain| {
        // SAFETY: plain numbers; the process is held by its running parent.
        unsafe { libc::kill(chain[0].0.raw(), libc::SIGKILL) };
    });
}

/// The variable in a program that is not a child of ours changes nothing but itself.
pub(crate) fn a_marker_that_leaked_is_ignored() {
    let exe = env::current_exe().unwrap();
    for marker in ["0", "99", "nonsense", ""] {
        let mut listing = Command::new(&exe);
        listing.args([
            "--list",
            "--exact",
            "spawn::a_marker_that_leaked_is_ignored",
        ]);
        let output = listing.env("PROCFORK_SPAWNED", marker).output().unwrap();
        let printed = String::from_utf8(output.stdout).unwrap();
        assert_eq!(
            printed, "spawn::a_marker_that_leaked_is_ignored: test\n",
            "{marker:?}"
        );
    }
}

pub(crate) fn a_forked_child_can_spawn_and_a_spawned_one_can_fork() {
    let outer = child("outer", |_| {
        let (reader, writer) = pipe_back();
        let inner = start(ForkOptions::new("inner").give(writer), "it::echo", b"deep");
        assert_eq!(said(&inner, reader), "inner inner deep");
        let forked = child("forked", |context| {
            assert!(context.parent.is_alive_now());
            5
        });
        forked.wait(soon()).unwrap().code().unwrap()
    });
    assert_eq!(
        outer.wait(soon()).unwrap(),
        ExitCause::Exited(5),
        "{:?}",
        outer.last_words()
    );
}
