//! What children cost, and how soon a death is known: from a small parent and from one of 1 GiB.

use std::error::Error;
use std::io::{self, Read as _, Write as _};
use std::os::fd::AsFd as _;
use std::time::{Duration, Instant};

use procfork::{Child, ChildContext, ForkOptions, ParentWatch, Signal, adopt_orphans, fork, spawn};

procfork::register! { "bench::nothing" => |_: ChildContext| () }

type Outcome<T> = Result<T, Box<dyn Error>>;

/// Runs of each measure.
const RUNS: usize = 15;

/// Memory of the parent, and how many runs: a fork of 1 GiB costs tens of milliseconds, on a busy
/// machine many more.
const SIZES: [(&str, usize, usize); 2] = [("small", 0, RUNS), ("1GiB", 1 << 30, 5)];

fn main() -> Outcome<()> {
    let wanted: Vec<String> = std::env::args()
        .skip(1)
        .filter(|arg| !arg.starts_with('-'))
        .collect();
    let wants = |name: &str| wanted.is_empty() || wanted.iter().any(|wish| wish == name);
    let mut figures = Vec::new();
    if wants("alive_check") {
        figures.push(alive_check()?);
    }
    for (label, bytes, runs) in SIZES {
        if wants("fork_ms") {
            figures.push(in_parent_of(bytes, || fork_ms(label, runs))?);
        }
        if wants("spawn_ms") {
            figures.push(in_parent_of(bytes, || spawn_ms(label, runs))?);
        }
        if wants("death_notice_us") {
            figures.push(death_notice_us(label, bytes, runs)?);
        }
    }
    writeln!(io::stdout(), "[{}]", figures.join(",\n "))?;
    Ok(())
}

/// One figure and its reference, from the same runs.
fn figure(
    name: &str,
    unit: &str,
    mut taken: Vec<f64>,
    other: &str,
    mut reference: Vec<f64>,
) -> String {
    taken.sort_by(f64::total_cmp);
    reference.sort_by(f64::total_cmp);
    let (value, min, runs) = (taken[taken.len() / 2], taken[0], taken.len());
    let beside = reference[reference.len() / 2];
    format!(
        r#"{{"name": "{name}", "value": {value:.4}, "unit": "{unit}", "min": {min:.4}, "runs": {runs}, "reference": {{"name": "{other}", "value": {beside:.4}}}}}"#
    )
}

/// Memory that is really there.
fn resident(bytes: usize) -> Vec<u8> {
    let mut memory = vec![0; bytes];
    memory.iter_mut().step_by(4096).for_each(|byte| *byte = 1);
    memory
}

/// Measures in a process of its own, which has that much memory.
fn in_parent_of(bytes: usize, measure: impl FnOnce() -> Outcome<String>) -> Outcome<String> {
    let (mut reader, writer) = io::pipe()?;
    let parent = fork(
        ForkOptions::new("parent").give(writer.into()),
        |mut context| {
            let memory = resident(bytes);
            let figure = measure().map_err(|error| error.to_string())?;
            drop(memory);
            let mut back = io::PipeWriter::from(context.fds.remove(0));
            back.write_all(figure.as_bytes())
                .map_err(|error| error.to_string())
        },
    )?;
    let mut figure = String::new();
    reader.read_to_string(&mut figure)?;
    let words = parent.last_words();
    if figure.is_empty() {
        Err(words.unwrap_or_default().into())
    } else {
        Ok(figure)
    }
}

fn millis(work: impl FnOnce() -> Outcome<()>) -> Outcome<f64> {
    let start = Instant::now();
    work()?;
    Ok(start.elapsed().as_secs_f64() * 1e3)
}

fn finish(child: Child) -> Outcome<()> {
    child.wait(Instant::now() + Duration::from_secs(10))?;
    Ok(())
}

/// A child that does nothing, from the call until it is reaped; beside `fork` and `waitpid`.
fn fork_ms(label: &str, runs: usize) -> Outcome<String> {
    let (mut ours, mut bare) = (Vec::new(), Vec::new());
    for _ in 0..runs {
        ours.push(millis(|| {
            finish(fork(ForkOptions::new("nothing"), |_| ())?)
        })?);
        bare.push(millis(|| {
            // SAFETY: this process has one thread; the child only leaves.
            let pid = unsafe { libc::fork() };
            if pid == 0 {
                // SAFETY: ends the process.
                unsafe { libc::_exit(0) };
            }
            // SAFETY: no status is asked for.
            unsafe { libc::waitpid(pid, std::ptr::null_mut(), 0) };
            Ok(())
        })?);
    }
    Ok(figure(
        &format!("fork_ms/resident={label}"),
        "ms",
        ours,
        "bare fork and wait",
        bare,
    ))
}

/// The same with the program started again; beside another small program through the standard library.
fn spawn_ms(label: &str, runs: usize) -> Outcome<String> {
    let (mut ours, mut bare) = (Vec::new(), Vec::new());
    for _ in 0..runs {
        ours.push(millis(|| {
            finish(spawn(ForkOptions::new("nothing"), "bench::nothing", &[])?)
        })?);
        bare.push(millis(|| {
            std::process::Command::new("/bin/true").status()?;
            Ok(())
        })?);
    }
    Ok(figure(
        &format!("spawn_ms/resident={label}"),
        "ms",
        ours,
        "/bin/true by Command",
        bare,
    ))
}

fn now_us() -> f64 {
    let mut now = libc::timespec {
        tv_sec: 0,
        tv_nsec: 0,
    };
    // SAFETY: valid for writes. This clock is the same in all processes.
    unsafe { libc::clock_gettime(libc::CLOCK_MONOTONIC, &raw mut now) };
    now.tv_sec as f64 * 1e6 + now.tv_nsec as f64 / 1e3
}

/// From SIGKILL of a process until its idle child knows; beside the pidfd of the process.
fn death_notice_us(label: &str, bytes: usize, runs: usize) -> Outcome<String> {
    adopt_orphans(true)?;
    let (mut words, mut pidfds) = (Vec::new(), Vec::new());
    for _ in 0..runs {
        let (word, pidfd) = one_death(bytes)?;
        words.push(word);
        pidfds.push(pidfd);
    }
    Ok(figure(
        &format!("death_notice_us/resident={label}"),
        "us",
        words,
        "pidfd readable",
        pidfds,
    ))
}

/// What a process says when it is ready to die.
const UP: [u8; 8] = [0; 8];

fn one_death(bytes: usize) -> Outcome<(f64, f64)> {
    let (mut reader, writer) = io::pipe()?;
    let victim = fork(ForkOptions::new("victim").keep(writer.as_fd()), |context| {
        let options = ForkOptions::new("leaf")
            .death_signal(None)
            .keep(writer.as_fd());
        let _leaf = fork(options, |context| {
            (&writer).write_all(&UP)?;
            let _ = context.parent.wait_gone(None);
            (&writer).write_all(&now_us().to_le_bytes())
        });
        let _memory = resident(bytes);
        (&writer).write_all(&UP)?;
        let _ = context.parent.wait_gone(None);
        io::Result::Ok(())
    })?;
    drop(writer);
    let mut time = UP;
    for _ in ["victim", "leaf"] {
        reader.read_exact(&mut time)?;
    }
    let killed_at = now_us();
    victim.signal(Signal::KILL)?;
    victim.wait(Instant::now() + Duration::from_secs(10))?;
    let pidfd_at = now_us();
    reader.read_exact(&mut time)?;
    let known_at = f64::from_le_bytes(time);
    // The leaf became a child of this process, to be reaped by it.
    for orphan in procfork::descendants(procfork::Pid::this())? {
        if orphan.pid != victim.pid() {
            // SAFETY: no status is asked for.
            unsafe { libc::waitpid(orphan.pid.raw(), std::ptr::null_mut(), 0) };
        }
    }
    Ok((known_at - killed_at, pidfd_at - killed_at))
}

/// The check for hot loops; beside an empty loop over the same counter.
fn alive_check() -> Outcome<String> {
    let (mut reader, writer) = io::pipe()?;
    let child = fork(
        ForkOptions::new("checker").give(writer.into()),
        |mut context| {
            let figure = check_loop(&context.parent);
            io::PipeWriter::from(context.fds.remove(0)).write_all(figure.as_bytes())
        },
    )?;
    let mut figure = String::new();
    reader.read_to_string(&mut figure)?;
    finish(child)?;
    Ok(figure)
}

fn check_loop(watch: &ParentWatch) -> String {
    const ROUNDS: u32 = 1 << 20;
    let time = |work: &mut dyn FnMut()| {
        let start = Instant::now();
        work();
        start.elapsed().as_secs_f64() * 1e9 / f64::from(ROUNDS)
    };
    let (mut ours, mut bare) = (Vec::new(), Vec::new());
    for _ in 0..RUNS {
        ours.push(time(&mut || {
            for _ in 0..ROUNDS {
                std::hint::black_box(watch.is_alive());
            }
        }));
        bare.push(time(&mut || {
            for round in 0..ROUNDS {
                std::hint::black_box(round);
            }
        }));
    }
    figure("alive_check", "ns", ours, "empty loop", bare)
}
