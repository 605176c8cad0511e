//! Start and close that come across each other, and starts in which a child goes wrong in every way.

use std::fs;
use std::sync::Arc;
use std::time::{Duration, Instant};

use facade::{
    Config, ConfigError, Error, Health, StartCause, StartMode, StartPhase, State, Worker, args, on,
};

use crate::support::{
    COMPILED, Gate, INCREMENT, builder, directory, failure, is_alive, kernel_source, nothing, pids,
    until, wait_gone,
};

pub(crate) fn closers_get_one_verdict_and_nothing_is_ended_under_a_running_task() {
    let dir = directory();
    let gate = Gate::new(dir.path(), "gate");
    let inside = gate.clone();
    let node = builder(0, 2)
        .close_timeout(Duration::from_millis(200))
        .build()
        .unwrap();
    let here = dir.path().join("here");
    let arrived = here.clone();
    let wait = node
        .register_fn("wait", move |_| {
            fs::write(&arrived, "")?;
            inside.pass();
            Ok(())
        })
        .unwrap();
    node.init().unwrap();
    let tree = node.tree().unwrap();
    std::thread::scope(|scope| {
        let running = scope.spawn(|| node.run(|orch| orch.submit_sub(&wait, args()).map(drop)));
        until(|| here.exists());
        let closers = [(); 2].map(|()| scope.spawn(|| node.close().unwrap_err().to_string()));
        let verdicts = closers.map(|closer| closer.join().unwrap());
        assert_eq!(verdicts[0], verdicts[1]);
        assert!(verdicts[0].contains("run"), "{}", verdicts[0]);
        let again = node.close().unwrap_err();
        assert!(matches!(again, Error::Close(_)), "{again}");
        assert_eq!(
            (node.state(), node.health()),
            (State::Closed, Health::Closing)
        );
        assert!(
            pids(&tree).into_iter().all(is_alive),
            "ended under a running task"
        );
        assert!(matches!(node.run(|_| Ok(())), Err(Error::State(_))));
        gate.open();
        running.join().unwrap().unwrap();
    });
    node.close().unwrap();
    assert_eq!(node.health(), Health::Closed);
    wait_gone(&pids(&tree));
}

pub(crate) fn a_close_during_the_start_cancels_it_and_leaves_nothing() {
    let dir = directory();
    let settings = kernel_source(dir.path(), "for (;;) pause();");
    let node = builder(1, 1)
        .each_chip(settings)
        .start_mode(StartMode::Spawn)
        .build()
        .unwrap();
    node.register_chip(&COMPILED).unwrap();
    let (there, is_there) = std::sync::mpsc::channel();
    std::thread::scope(|scope| {
        let starting = scope.spawn(|| {
            node.init_with(|progress| {
                if progress.phase == StartPhase::DeviceOpen {
                    there.send(node.health()).unwrap();
                }
            })
        });
        assert_eq!(is_there.recv().unwrap(), Health::Starting);
        node.close().unwrap();
        let Err(Error::Start(error)) = starting.join().unwrap() else {
            panic!("the start was not cancelled")
        };
        assert!(matches!(error.cause, StartCause::Cancelled), "{error}");
    });
    assert_eq!(
        (node.state(), node.health()),
        (State::Closed, Health::Closed)
    );
    until(|| {
        procfork::descendants(procfork::Pid::this())
            .unwrap()
            .is_empty()
    });
}

pub(crate) fn a_close_from_inside_the_start_is_refused_and_the_start_goes_on() {
    let node = builder(0, 1).build().unwrap();
    let mut refused = None;
    node.init_with(|_| {
        refused.get_or_insert_with(|| node.close().unwrap_err());
    })
    .unwrap();
    assert!(matches!(refused, Some(Error::Close(_))), "{refused:?}");
    assert_eq!(node.state(), State::Ready);
    node.close().unwrap();
}

pub(crate) fn an_observer_that_panics_leaves_no_process_behind() {
    let node = builder(0, 2).build().unwrap();
    let started = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| {
        node.init_with(|progress| assert_ne!(progress.phase, StartPhase::Ready, "on purpose"))
    }));
    assert!(started.is_err());
    assert_eq!(node.health(), Health::Failed);
    until(|| {
        procfork::descendants(procfork::Pid::this())
            .unwrap()
            .is_empty()
    });
}

/// A child ends or hangs before it is ready: the start fails with its place, and the code after it runs once.
pub(crate) fn a_child_that_ends_before_it_is_ready_fails_the_start_and_runs_nothing_of_its_parent()
{
    let ends = [
        ("_exit(0);", "code 0"),
        ("_exit(7);", "code 7"),
        ("abort();", "SIGABRT"),
        ("*(volatile int *)8 = 1;", "SIGSEGV"),
    ];
    for mode in [StartMode::Fork, StartMode::Spawn] {
        for (on_load, wanted) in ends {
            let dir = directory();
            let marker = dir.path().join("after");
            let below = builder(2, 1)
                .name("below")
                .start_mode(mode)
                .chip(1, kernel_source(dir.path(), on_load))
                .chip(0, kernel_source(dir.path(), on_load));
            let node = builder(0, 2)
                .name("root")
                .worker(below)
                .start_mode(mode)
                .build()
                .unwrap();
            node.register_chip(&COMPILED).unwrap();
            let error = node.init().unwrap_err();
            let line = format!("{}\n", std::process::id());
            let mut before = fs::read_to_string(&marker).unwrap_or_default();
            before.push_str(&line);
            fs::write(&marker, before).unwrap();
            assert_eq!(fs::read_to_string(&marker).unwrap(), line);
            let text = error.to_string();
            assert!(
                text.contains("root/below/chip") && text.contains(wanted),
                "{text}"
            );
            assert_eq!(node.health(), Health::Failed);
            until(|| {
                procfork::descendants(procfork::Pid::this())
                    .unwrap()
                    .is_empty()
            });
        }
    }
}

/// Four chips that wait for each other while they come up: one after the other they would never be ready.
pub(crate) fn children_come_up_at_the_same_time() {
    let dir = directory();
    let meet = r#"char name[4096]; int here = 0;
        snprintf(name, sizeof name, HERE "/here-%d", (int)getpid()); close(open(name, O_CREAT | O_WRONLY, 0600));
        while (here < 4) { here = 0; DIR *all = opendir(HERE); struct dirent *one;
            while ((one = readdir(all))) here += !strncmp(one->d_name, "here-", 5);
            closedir(all); }"#;
    let node = builder(2, 0)
        .each_chip(kernel_source(dir.path(), meet))
        .worker(
            builder(2, 0)
                .name("below")
                .each_chip(kernel_source(dir.path(), meet)),
        )
        .build()
        .unwrap();
    node.register_chip(&COMPILED).unwrap();
    node.init().unwrap();
    node.close().unwrap();
}

/// A worker that dies in a control request: here while it loads a kernel for a callable that comes late.
pub(crate) fn a_worker_that_dies_in_a_control_request_is_told_exactly() {
    let (dir, sound) = (directory(), directory());
    let node = builder(2, 1)
        .each_chip(kernel_source(sound.path(), ""))
        .chip(0, kernel_source(dir.path(), "_exit(9);"))
        .name("root")
        .build()
        .unwrap();
    let f = node.register_fn("f", nothing).unwrap();
    node.init().unwrap();
    let error = node.register_chip(&COMPILED).unwrap_err();
    let died = error.worker_died().unwrap_or_else(|| panic!("{error}"));
    assert_eq!((&*died.worker, died.cause.code()), ("root/chip0", Some(9)));
    node.run(|orch| orch.submit_sub(&f, args())).unwrap();
    node.close().unwrap();
}

pub(crate) fn two_workers_of_one_path_are_refused() {
    let twice = |builder: facade::WorkerBuilder| match builder.build() {
        Err(Error::Config(ConfigError::NameTwice { child, .. })) => child,
        other => panic!("{other:?}"),
    };
    let child = |name: &str| Worker::node().sub_workers(1).name(name);
    assert_eq!(twice(builder(1, 0).worker(child("chip0"))), "chip0");
    assert_eq!(twice(builder(0, 1).worker(child("sub0"))), "sub0");
    let unnamed = Worker::node().sub_workers(1);
    assert_eq!(
        twice(builder(0, 0).worker(child("node1")).worker(unnamed)),
        "node1"
    );
    // An addition that is refused leaves the tree as it was, and a good one follows.
    let node = builder(1, 0).build().unwrap();
    let before: Config = node.config();
    assert!(node.add_worker(child("chip0")).is_err());
    assert_eq!(node.config(), before);
    node.add_worker(child("good")).unwrap();
}

/// The set of signals in a line of a process's `status` file.
fn signals(pid: u32, line: &str) -> u64 {
    let status = fs::read_to_string(format!("/proc/{pid}/status")).unwrap();
    let found = status.lines().find_map(|found| found.strip_prefix(line));
    let set = u64::from_str_radix(found.unwrap().trim_start_matches(':').trim(), 16).unwrap();
    // 32 and 33 are the C library's own.
    set & !(0b11 << 31)
}

/// A caller that blocks and ignores what ends processes: its workers listen all the same, and its own mask stays.
pub(crate) fn a_caller_deaf_to_signals_has_workers_that_are_not() {
    use nix::sys::signal::{SigHandler, SigSet, Signal, signal};
    let blocked = SigSet::from_iter([Signal::SIGTERM, Signal::SIGUSR1, Signal::SIGCHLD]);
    blocked.thread_block().unwrap();
    for ignored in [Signal::SIGINT, Signal::SIGTERM] {
        // SAFETY: to ignore a signal runs no code.
        #[expect(unsafe_code, reason = "the state that is tested")]
        unsafe { signal(ignored, SigHandler::SigIgn) }.unwrap();
    }
    for mode in [StartMode::Fork, StartMode::Spawn] {
        let node = builder(1, 1)
            .worker(builder(0, 1).name("below").start_mode(mode))
            .start_mode(mode)
            .build()
            .unwrap();
        node.init().unwrap();
        let all = pids(&node.tree().unwrap());
        let pipe = 1_u64 << (Signal::SIGPIPE as i32 - 1);
        for pid in &all {
            assert_eq!(
                (signals(*pid, "SigBlk"), signals(*pid, "SigIgn")),
                (0, pipe)
            );
        }
        // One that does not look at its mailbox any more is asked by a signal, and hears it.
        crate::support::kill(all[0], Signal::SIGTERM);
        until(|| matches!(node.health(), Health::Degraded { .. }));
        let Health::Degraded { dead } = node.health() else {
            panic!("{:?}", node.health())
        };
        assert_eq!(dead[0].cause.signal().map(i32::from), Some(15));
        node.close().unwrap();
        wait_gone(&all);
    }
    assert_eq!(SigSet::thread_get_mask().unwrap(), blocked);
}

/// What a process has open, by device and inode.
fn open_files(pid: u32) -> std::collections::BTreeSet<(u64, u64)> {
    use std::os::unix::fs::MetadataExt as _;
    let all = fs::read_dir(format!("/proc/{pid}/fd")).unwrap().flatten();
    let files = all.filter_map(|entry| fs::metadata(entry.path()).ok());
    files.map(|file| (file.dev(), file.ino())).collect()
}

/// A worker holds its own mailbox and channel, and what all share; nothing of a sibling's.
pub(crate) fn a_worker_holds_no_descriptor_of_a_sibling() {
    for mode in [StartMode::Fork, StartMode::Spawn] {
        let node = builder(0, 4).start_mode(mode).build().unwrap();
        node.init().unwrap();
        let all: Vec<_> = pids(&node.tree().unwrap())
            .into_iter()
            .map(open_files)
            .collect();
        let shared = all
            .iter()
            .skip(1)
            .fold(all[0].clone(), |seen, own| &seen & own);
        for (index, own) in all.iter().enumerate() {
            let private = own - &shared;
            assert!(!private.is_empty());
            let others = all.iter().enumerate().filter(|(other, _)| *other != index);
            for (_, other) in others {
                assert!(private.is_disjoint(other), "{mode:?}");
            }
        }
        node.close().unwrap();
    }
}

/// The mailboxes that a process has mapped, by inode.
fn mapped_mailboxes(pid: u32) -> std::collections::BTreeSet<u64> {
    let maps = fs::read_to_string(format!("/proc/{pid}/maps")).unwrap();
    let mailboxes = maps.lines().filter(|line| line.contains("memfd:mailbox"));
    let inodes = mailboxes.map(|line| line.split_whitespace().nth(4).unwrap().parse().unwrap());
    inodes.collect()
}

/// A worker has its own mailbox mapped and those of its children: nothing of a sibling's, and nothing of what is above.
pub(crate) fn a_worker_maps_no_mailbox_but_its_own_and_those_of_its_children() {
    for mode in [StartMode::Fork, StartMode::Spawn] {
        let below = builder(0, 2).name("below").start_mode(mode);
        let node = builder(0, 2)
            .worker(below)
            .start_mode(mode)
            .build()
            .unwrap();
        node.init().unwrap();
        let tree = node.tree().unwrap();
        let mut seen = std::collections::BTreeSet::new();
        for worker in tree.flatten().iter().skip(1) {
            let own = mapped_mailboxes(worker.pid);
            assert_eq!(
                own.len(),
                1 + worker.children.len(),
                "{mode:?} {}",
                worker.path
            );
            if worker.children.is_empty() {
                assert!(
                    own.iter().all(|inode| seen.insert(*inode)),
                    "{}",
                    worker.path
                );
            }
        }
        node.close().unwrap();
    }
}

/// Who reads what a program prints sees the end when the program was killed, although workers had the same stream.
pub(crate) fn the_reader_of_a_killed_program_sees_the_end() {
    use std::io::Read as _;
    procfork::adopt_orphans(true).unwrap();
    let (mut reader, writer) = std::io::pipe().unwrap();
    let options =
        procfork::ForkOptions::new("root").stream(procfork::Stream::Stdout, writer.into());
    let root = procfork::fork(options, |context| {
        let node = builder(1, 2).build().map_err(|error| error.to_string())?;
        node.init().map_err(|error| error.to_string())?;
        std::io::Write::write_all(&mut std::io::stdout(), b"ready\n").map_err(|e| e.to_string())?;
        let _ = context.parent.wait_gone(None);
        Ok::<(), String>(())
    })
    .unwrap();
    let mut line = [0; 6];
    reader.read_exact(&mut line).unwrap();
    root.signal(procfork::Signal::KILL).unwrap();
    let mut rest = String::new();
    reader.read_to_string(&mut rest).unwrap();
    assert_eq!(rest, "");
    root.wait(Instant::now() + Duration::from_secs(10)).unwrap();
    while nix::sys::wait::wait().is_ok() {}
}

/// A log that a test can read.
#[derive(Clone, Default)]
struct Log(Arc<std::sync::Mutex<Vec<u8>>>);

impl std::io::Write for Log {
    fn write(&mut self, bytes: &[u8]) -> std::io::Result<usize> {
        self.0.lock().unwrap().extend_from_slice(bytes);
        Ok(bytes.len())
    }

    fn flush(&mut self) -> std::io::Result<()> {
        Ok(())
    }
}

/// Calls `body` and returns what was logged meanwhile.
fn logged(body: impl FnOnce()) -> String {
    let log = Log::default();
    let writer = log.clone();
    let subscriber = tracing_subscriber::fmt()
        .with_writer(move || writer.clone())
        .with_ansi(false)
        .finish();
    tracing::subscriber::with_default(subscriber, body);
    let bytes = log.0.lock().unwrap().clone();
    String::from_utf8(bytes).unwrap()
}

/// A child that does not hear is ended; it does not use up the budget of those that do, which leave by themselves.
pub(crate) fn a_deaf_child_costs_its_siblings_nothing() {
    let log = logged(|| {
        let node = builder(0, 4)
            .name("root")
            .grace(Duration::from_millis(100))
            .build()
            .unwrap();
        node.init().unwrap();
        let tree = node.tree().unwrap();
        crate::support::kill(tree.children[0].pid, nix::sys::signal::Signal::SIGSTOP);
        node.close().unwrap();
        node.close().unwrap();
        assert!(pids(&tree).into_iter().all(|pid| !is_alive(pid)));
    });
    let ended: Vec<&str> = log
        .lines()
        .filter(|line| line.contains("had to be ended"))
        .collect();
    assert!(ended.len() == 1 && ended[0].contains("sub0"), "{log}");
}

/// ```text
/// chip 0   has the buffer | leaves
/// chip 1   stopped ................... | goes on, and leaves
/// test     closes                      | the close ends
///                           drops the buffer
/// ```
pub(crate) fn a_buffer_that_goes_during_a_close_does_not_hold_it_up() {
    let node = builder(2, 0)
        .grace(Duration::from_secs(20))
        .build()
        .unwrap();
    let increment = node.register_chip(&INCREMENT).unwrap();
    node.init().unwrap();
    let pids = pids(&node.tree().unwrap());
    let buffer = node.buffer_from(&[1.0_f32; 8]).unwrap();
    let list = || args().inout(&buffer);
    node.run(|orch| orch.submit_next_level(&increment, list(), on(0)))
        .unwrap();
    crate::support::kill(pids[1], nix::sys::signal::Signal::SIGSTOP);
    std::thread::scope(|scope| {
        let close = scope.spawn(|| node.close());
        until(|| !is_alive(pids[0]));
        drop(buffer);
        crate::support::kill(pids[1], nix::sys::signal::Signal::SIGCONT);
        close.join().unwrap().unwrap();
    });
}

pub(crate) fn a_worker_dropped_with_a_run_in_progress_ends_its_tree_and_the_run_and_says_so() {
    let dir = directory();
    let gate = Gate::new(dir.path(), "never");
    let log = logged(|| {
        let node = builder(0, 1).build().unwrap();
        let wait = node
            .register_fn("wait", move |_| {
                gate.pass();
                Ok(())
            })
            .unwrap();
        node.init().unwrap();
        let tree = node.tree().unwrap();
        let handle = node
            .submit(|orch| orch.submit_sub(&wait, args()).map(drop))
            .unwrap();
        drop(node);
        wait_gone(&pids(&tree));
        let error = failure(handle.wait());
        assert!(error.to_string().contains("SIGKILL"), "{error}");
    });
    assert!(log.contains("dropped unclosed"), "{log}");
}

pub(crate) fn a_tree_is_started_and_awaited_in_an_asynchronous_program() {
    let runtime = tokio::runtime::Builder::new_multi_thread()
        .worker_threads(2)
        .build()
        .unwrap();
    runtime.block_on(async {
        let node = builder(1, 1).build().unwrap();
        let f = node.register_fn("f", nothing).unwrap();
        node.init().unwrap();
        let tree = node.tree().unwrap();
        assert_eq!(tree.children[0].made, Some(StartMode::Spawn));
        for _ in 0..10 {
            node.submit(|orch| orch.submit_sub(&f, args()).map(drop))
                .unwrap()
                .await
                .unwrap();
        }
        node.close().unwrap();
        wait_gone(&pids(&tree));
    });
}
