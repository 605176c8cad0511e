//! What a tree costs to start, and how soon it is gone after its root was killed: from a root that has nothing but this
//! program, one of 50 MB, and one of 1 GiB.
//!
//! Each figure is taken in a process of its own, which is the root: forks want one thread, and memory of a certain size.
#![expect(
    clippy::print_stdout,
    reason = "a program that prints its measurements"
)]

use std::io::{self, Read as _, Write as _};
use std::os::fd::{AsFd as _, AsRawFd as _, OwnedFd};
use std::process::Command;
use std::time::{Duration, Instant};

use facade::{StartMode, Worker};
use mailbox::Segment;
use nix::poll::{PollFd, PollFlags, PollTimeout, poll};
use nix::sys::wait::wait;
use procfork::{ForkOptions, Signal, adopt_orphans};
use serde_json::{Value, json};

/// Label, memory of the root besides the program itself, runs. A program that does anything has some 50 MB;
/// a fork of 1 GiB costs tens of milliseconds for each child.
const SIZES: [(&str, usize, usize); 3] = [
    ("bare", 0, 9),
    ("50MB", 50_000_000, 9),
    ("1GiB", 1 << 30, 3),
];
const CHILDREN: [u32; 3] = [1, 16, 64];

fn main() {
    let flags: Vec<String> = std::env::args().skip(1).collect();
    if let [flag, file, place] = &flags[..]
        && flag == "--set-word"
    {
        return set_word(file, place);
    }
    let names: Vec<&String> = flags.iter().filter(|flag| !flag.starts_with('-')).collect();
    let wanted = |name: &str| names.is_empty() || names.iter().any(|wish| *wish == name);
    let mut measures = Vec::new();
    for (size, bytes, runs) in SIZES {
        if wanted("tree_start_ms") {
            for children in CHILDREN {
                for (mode, label) in [(StartMode::Fork, "fork"), (StartMode::Spawn, "spawn")] {
                    let name = format!("tree_start_ms/{label}/children={children}/root={size}");
                    let figure = move || tree_start(&name, mode, children, runs);
                    measures.push(in_root_of(bytes, figure));
                }
                let name = format!("tree_start_ms/auto/children={children}/root={size}");
                let figure = move || tree_start(&name, StartMode::Auto, children, runs);
                measures.push(in_root_of(bytes, figure));
            }
        }
        if wanted("orphan_gone_ms") {
            measures.push(orphan_gone(size, bytes, runs));
        }
    }
    if flags.iter().any(|flag| flag == "--json") {
        println!("{}", Value::Array(measures));
    } else {
        measures.iter().for_each(|measure| println!("{measure}"));
    }
}

fn measure(name: &str, mut runs: Vec<f64>, reference: Option<(&str, Vec<f64>)>) -> Value {
    runs.sort_by(f64::total_cmp);
    let mut measure = json!({
        "name": name, "value": runs[runs.len() / 2], "unit": "ms", "min": runs[0], "runs": runs.len(),
    });
    if let Some((name, mut runs)) = reference {
        runs.sort_by(f64::total_cmp);
        measure["reference"] = json!({ "name": name, "value": runs[runs.len() / 2] });
    }
    measure
}

/// Takes a figure in a process of its own that has so much memory.
fn in_root_of(bytes: usize, figure: impl FnOnce() -> Value) -> Value {
    let (mut reader, writer) = io::pipe().expect("a pipe");
    let options = ForkOptions::new("root").give(writer.into());
    let root = procfork::fork(options, |mut context| {
        let memory = resident(bytes);
        let figure = figure().to_string();
        drop(memory);
        io::PipeWriter::from(context.fds.remove(0)).write_all(figure.as_bytes())
    })
    .expect("one thread");
    let mut text = String::new();
    reader.read_to_string(&mut text).expect("text");
    let ended = root.wait(Instant::now() + Duration::from_secs(60));
    assert!(!text.is_empty(), "{ended:?}: {:?}", root.last_words());
    serde_json::from_str(&text).expect("written above")
}

/// Memory that is really there.
fn resident(bytes: usize) -> Vec<u8> {
    let mut memory = vec![0; bytes];
    memory.iter_mut().step_by(4096).for_each(|byte| *byte = 1);
    memory
}

/// A tree of so many sub workers, beside a bare loop that makes as many processes in the same way.
fn tree_start(name: &str, mode: StartMode, children: u32, runs: usize) -> Value {
    let (mut trees, mut forks, mut spawns) = (vec![], vec![], vec![]);
    for _ in 0..runs {
        trees.push(start_once(mode, children));
        if mode != StartMode::Spawn {
            forks.push(bare(children, fork_one));
        }
        if mode != StartMode::Fork {
            spawns.push(bare(children, spawn_one));
        }
    }
    let middle = |runs: &[f64]| {
        let mut sorted = runs.to_vec();
        sorted.sort_by(f64::total_cmp);
        sorted
            .get(sorted.len() / 2)
            .copied()
            .unwrap_or(f64::INFINITY)
    };
    // The default mode is held against the better of both.
    let by_fork = middle(&forks) <= middle(&spawns);
    let reference = if by_fork {
        ("fork_loop", forks)
    } else {
        ("posix_spawn_loop", spawns)
    };
    measure(name, trees, Some(reference))
}

fn start_once(mode: StartMode, children: u32) -> f64 {
    let node = Worker::node().sub_workers(children).start_mode(mode);
    let node = node.build().expect("a sound specification");
    node.register_fn("nothing", |_| Ok(()))
        .expect("a free name");
    let start = Instant::now();
    node.init().expect("the tree starts");
    let elapsed = start.elapsed().as_secs_f64() * 1e3;
    node.close().expect("everything has ended");
    elapsed
}

/// Makes so many processes with `one`, each of which sets a word of its own, and waits for all words. What `one` returns reaps.
fn bare<R: FnOnce()>(children: u32, one: impl Fn(&Segment, usize) -> R) -> f64 {
    let start = Instant::now();
    let words = Segment::create("words", children as usize * 64).expect("shared memory");
    let places = || (0..children as usize).map(|i| i * 64);
    let reapers: Vec<R> = places().map(|place| one(&words, place)).collect();
    for place in places() {
        let mut word = [0];
        while word[0] == 0 {
            words.read_at(place, &mut word).expect("a place of its own");
            std::thread::yield_now();
        }
    }
    let elapsed = start.elapsed().as_secs_f64() * 1e3;
    reapers.into_iter().for_each(|reap| reap());
    elapsed
}

#[expect(unsafe_code, reason = "the bare fork that trees are held against")]
fn fork_one(words: &Segment, place: usize) -> impl FnOnce() + use<> {
    // SAFETY: this process has one thread, and the child only stores a byte and leaves.
    match unsafe { nix::unistd::fork() }.expect("one thread") {
        nix::unistd::ForkResult::Parent { child } => move || {
            let _ = nix::sys::wait::waitpid(child, None);
        },
        nix::unistd::ForkResult::Child => {
            let _ = words.write_at(place, &[1]);
            // SAFETY: ends the process without the parent's exit handlers.
            unsafe { nix::libc::_exit(0) }
        }
    }
}

/// Starts this program again (the standard library uses `posix_spawn`).
fn spawn_one(words: &Segment, place: usize) -> impl FnOnce() + use<> {
    let file = format!(
        "/proc/{}/fd/{}",
        std::process::id(),
        words.as_fd().as_raw_fd()
    );
    let program = std::env::current_exe().expect("this program");
    let mut child = Command::new(program)
        .args(["--set-word", &file, &place.to_string()])
        .spawn()
        .expect("this program starts");
    move || {
        let _ = child.wait();
    }
}

/// The program started by [`spawn_one`].
fn set_word(file: &str, place: &str) {
    use std::os::unix::fs::FileExt as _;
    let file = std::fs::OpenOptions::new()
        .write(true)
        .open(file)
        .expect("the words");
    let place = place.parse().expect("a number");
    file.write_at(&[1], place).expect("a place of its own");
}

/// From the kill of the root of 64 processes in four generations until the last of those below it has ended. The root itself
/// ends later, since the kernel frees its memory first; a killed process does nothing meanwhile.
fn orphan_gone(size: &str, bytes: usize, runs: usize) -> Value {
    adopt_orphans(true).expect("Linux");
    let (gone, roots): (Vec<f64>, Vec<f64>) = (0..runs).map(|_| orphan_gone_once(bytes)).unzip();
    adopt_orphans(false).expect("Linux");
    let reference = Some(("root_gone", roots));
    measure(&format!("orphan_gone_ms/root={size}"), gone, reference)
}

/// Milliseconds until all below the root, and the root itself, had ended.
fn orphan_gone_once(bytes: usize) -> (f64, f64) {
    let (mut reader, writer) = io::pipe().expect("a pipe");
    let options = ForkOptions::new("root").give(writer.into());
    let root = procfork::fork(options, |mut context| {
        let memory = resident(bytes);
        let node = generations().build().expect("a sound specification");
        node.init().expect("the tree starts");
        assert_eq!(node.tree().expect("ready").count(), 64);
        let mut back = io::PipeWriter::from(context.fds.remove(0));
        back.write_all(&[1]).expect("the bench reads");
        let _ = context.parent.wait_gone(None);
        drop(memory);
    })
    .expect("one thread");
    let mut ready = [0];
    reader.read_exact(&mut ready).expect("the tree is ready");
    let below = procfork::descendants(root.pid()).expect("/proc");
    assert_eq!(below.len(), 63);
    let below: Vec<OwnedFd> = below.iter().map(|process| pidfd(process.pid)).collect();
    let start = Instant::now();
    root.signal(Signal::KILL).expect("it lives");
    for fd in &below {
        let mut fds = [PollFd::new(fd.as_fd(), PollFlags::POLLIN)];
        poll(&mut fds, PollTimeout::from(60_000_u16)).expect("a descriptor of a process");
        assert!(
            fds[0].any() == Some(true),
            "a process is still there after a minute"
        );
    }
    let orphans = start.elapsed().as_secs_f64() * 1e3;
    let _ = root.wait(Instant::now() + Duration::from_secs(60));
    let all = start.elapsed().as_secs_f64() * 1e3;
    // The orphans are children of this process now.
    while wait().is_ok() {}
    (orphans, all)
}

#[expect(unsafe_code, reason = "no library wraps the call yet")]
fn pidfd(pid: procfork::Pid) -> OwnedFd {
    use std::os::fd::FromRawFd as _;
    // SAFETY: plain numbers.
    let raw = unsafe { nix::libc::syscall(nix::libc::SYS_pidfd_open, pid.raw(), 0) };
    let raw = i32::try_from(raw).ok().filter(|raw| *raw >= 0);
    let raw = raw.expect("the process lives");
    // SAFETY: the call above made this descriptor, and nobody else knows it.
    unsafe { OwnedFd::from_raw_fd(raw) }
}

/// 1 + 3 + 12 + 48 workers.
fn generations() -> facade::WorkerBuilder {
    let node = || Worker::node().sub_workers(4);
    let network = |name: &str| {
        let four = (0..4).map(|i| node().name(format!("node{i}")));
        four.fold(Worker::node().name(name), facade::WorkerBuilder::worker)
    };
    let three = ["a", "b", "c"].map(network);
    three
        .into_iter()
        .fold(Worker::node(), facade::WorkerBuilder::worker)
}
