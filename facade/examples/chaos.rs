//! Trees of random shape under load, killed at random places and instants; counts what is left of each.
//!
//! ```text
//! cargo xtask chaos --seconds 60 --seed 7
//! ```
//!
//! A round: a process of its own starts a tree, runs tasks and closes, in phases that it publishes in shared memory. At
//! a random instant one process of the tree, or its root, gets a signal. Then everything must go: the root ends by itself
//! with a typed error where it was not the victim, and no process, zombie, descriptor or shared memory is left.
//!
//! xtask: run with --seconds 3 --seed 1
#![expect(
    clippy::print_stdout,
    clippy::print_stderr,
    reason = "a program that talks to its user"
)]

use std::collections::BTreeMap;
use std::process::ExitCode;
use std::time::{Duration, Instant};

use clap::Parser;
use facade::{
    Args, ChipArgs, ChipCallable, ChipOrchestrator, Error, Kernel, KernelContext, KernelError,
    OrchestrationError, Orchestrator, StartMode, TaskResult, Worker, WorkerBuilder, any, args,
    core_args, on,
};
use mailbox::Segment;
use nix::sys::signal::Signal;
use nix::sys::wait::{WaitPidFlag, WaitStatus, waitpid};
use nix::unistd::Pid;
use procfork::{Child, ForkOptions};

/// Kills processes of random trees at random instants, and counts what is left.
#[derive(Debug, Parser)]
struct Options {
    /// How long to go on.
    #[arg(long, default_value_t = 10)]
    seconds: u64,
    /// Where every random choice comes from.
    #[arg(long, default_value_t = 1)]
    seed: u64,
}

/// How long anything may take before it counts as hanging.
const PATIENCE: Duration = Duration::from_secs(20);

/// The phases of a root, as it publishes them.
const PHASES: [&str; 5] = [
    "before the start",
    "starting",
    "running",
    "closing",
    "closed",
];

/// A small generator: the same seed gives the same rounds.
struct Random(u64);

impl Random {
    fn below(&mut self, n: u64) -> u64 {
        // SplitMix64.
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        (z ^ (z >> 31)) % n
    }
}

static INCREMENT: ChipCallable = ChipCallable::new(
    "increment",
    orchestrate,
    &[Kernel::vector("increment", increment)],
);

fn orchestrate(orch: &mut ChipOrchestrator<'_>, args: &ChipArgs) -> Result<(), OrchestrationError> {
    orch.submit("increment", core_args().inout(args.tensor(0)?))
        .map(drop)
}

fn increment(cx: &mut KernelContext<'_>) -> Result<(), KernelError> {
    cx.output::<f32>(0)?.iter_mut().for_each(|x| *x += 1.0);
    Ok(())
}

/// The most processes of a tree, the root included.
const PROCESSES_MAX: u64 = 64;

/// A tree of a random shape: one to three levels of workers above the leaves, of at most `room` processes.
///
/// Most trees are small, so that a minute holds many rounds; one in eight may use all of the room.
fn shape(random: &mut Random, levels: u64, room: u64, mode: StartMode) -> WorkerBuilder {
    let leaves = random.below(if room > 16 { 12 } else { 3 });
    let chips = 1 + random.below(2.min(room.saturating_sub(2)).max(1));
    let subs = (1 + leaves).min(room.saturating_sub(1 + chips)).max(1);
    let mut builder = Worker::node()
        .chips(chips as u32)
        .sub_workers(subs as u32)
        .start_mode(mode)
        .grace(Duration::from_millis(200))
        .start_timeout(PATIENCE / 2)
        .close_timeout(PATIENCE / 2);
    // A worker below is at least itself and a leaf of each kind.
    let mut left = room.saturating_sub(1 + chips + subs);
    let wanted = 1 + random.below(if room > 16 { 5 } else { 2 });
    for i in 0..wanted {
        let share = left / (wanted - i);
        if levels > 1 && share >= 3 {
            builder = builder.worker(shape(random, levels - 1, share, mode).name(format!("w{i}")));
            left -= share;
        }
    }
    builder
}

/// What a tree is: drawn by the parent, so that it can say what failed.
#[derive(Debug, Clone, Copy)]
struct Plan {
    seed: u64,
    levels: u64,
    room: u64,
    mode: StartMode,
}

impl Plan {
    fn draw(random: &mut Random) -> Self {
        let seed = random.below(u64::MAX);
        let levels = 1 + random.below(3);
        let mode = [StartMode::Fork, StartMode::Spawn][random.below(2) as usize];
        // The program is started again for each process of a spawned tree, which costs milliseconds.
        let room = match random.below(8) {
            0 => PROCESSES_MAX,
            _ => 4 + random.below(10),
        };
        Self {
            seed,
            levels,
            room,
            mode,
        }
    }
}

fn touch(args: &Args) -> TaskResult {
    args.output::<u32>(0)?.iter_mut().for_each(|x| *x += 1);
    Ok(())
}

/// Finds what it submits by name, as a spawned worker must.
fn below(orch: &mut Orchestrator<'_>, list: &Args) -> Result<(), Error> {
    let (touch, increment) = (orch.function("touch")?, orch.chip("increment")?);
    orch.submit_sub(&touch, args().inout(&list.tensor(0)?))?;
    orch.submit_next_level(&increment, args().inout(&list.tensor(1)?), any())
        .map(drop)
}

/// What the root does: start, run, close. Every operation ends well or with a typed error.
fn root(plan: Plan, phase: &Segment) -> Result<(), Error> {
    let publish = |value: u8| phase.write_at(0, &[value]).expect("a byte of its own");
    let mut random = Random(plan.seed);
    let node = shape(&mut random, plan.levels, plan.room, plan.mode).build()?;
    let has_workers = !node.config().workers.is_empty();
    let sub = node.register_fn("touch", touch)?;
    let chip = node.register_chip(&INCREMENT)?;
    let below = has_workers.then(|| node.register_orchestration("below", below));
    let below = below.transpose()?;
    publish(1);
    node.init()?;
    publish(2);
    let first_below = node.config().devices.len() as u32;
    let memory = node.malloc::<f32>(0, 4096);
    for _ in 0..4 + random.below(16) {
        let (x, y) = (node.buffer::<u32>(1000)?, node.buffer::<f32>(5000)?);
        // A failed run is what happens when a worker was killed; the tree goes on without it.
        let _typed: Result<(), Error> = node.run(|orch| {
            for _ in 0..8 {
                orch.submit_sub(&sub, args().inout(&x))?;
                orch.submit_next_level(&chip, args().inout(&y), any())?;
                if let Some(below) = &below {
                    orch.submit_next_level(below, args().inout(&x).inout(&y), on(first_below))?;
                }
            }
            Ok(())
        });
        if let Ok(memory) = &memory {
            let _typed: Result<(), Error> = node.copy_to(*memory, &[1.0; 4096]);
        }
    }
    publish(3);
    node.close()?;
    publish(4);
    Ok(())
}

/// What a round found.
struct Round {
    plan: Plan,
    processes: usize,
    phase: usize,
    gone: Duration,
    left: Vec<String>,
}

fn round(random: &mut Random) -> Round {
    let phase = Segment::create("phase", 1).expect("shared memory");
    let plan = Plan::draw(random);
    let options = ForkOptions::new("root");
    let child = procfork::fork(options, |_context| root(plan, &phase)).expect("one thread");
    await_phase(&child, &phase, random.below(PHASES.len() as u64) as u8);
    let scale = random.below(14);
    std::thread::sleep(Duration::from_micros(random.below(1 << scale)));
    let mut byte = [0];
    phase.read_at(0, &mut byte).expect("one byte");
    let victims = procfork::descendants(child.pid()).unwrap_or_default();
    let choice = random.below(2 * (1 + victims.len() as u64)) as usize;
    let victim = victims.get(choice).map_or(child.pid(), |victim| victim.pid);
    let killed = Instant::now();
    let how = random.below(4);
    match victims.get(choice) {
        Some(victim) => strike(how, |signal| {
            // Its number may have become another's meanwhile, unless it is still the process that was seen.
            if victim.is_current() {
                let _ = nix::sys::signal::kill(Pid::from_raw(victim.pid.raw()), signal);
            }
        }),
        None => strike(how, |signal| {
            let signal = procfork::Signal::new(signal as i32).expect("a signal");
            // It may have ended by itself meanwhile.
            let _ = child.signal(signal);
        }),
    }
    let mut left = Vec::new();
    if victim != child.pid() && child.wait(Instant::now() + PATIENCE).is_err() {
        let below = procfork::descendants(child.pid()).unwrap_or_default();
        left.push(format!("the root hangs, above {below:?}"));
    }
    let ended = child.wait(Instant::now() + PATIENCE);
    if let (Ok(cause), true) = (&ended, victim != child.pid())
        && !matches!(cause.code(), Some(0 | 1))
    {
        left.push(format!("the root {cause}: {:?}", child.last_words()));
    }
    let root_ended = Instant::now();
    left.extend(wait_for_nobody(&child, root_ended + PATIENCE));
    let since = if victim == child.pid() {
        killed
    } else {
        root_ended
    };
    Round {
        plan,
        processes: 1 + victims.len(),
        phase: usize::from(byte[0]).min(4),
        gone: since.elapsed(),
        left,
    }
}

/// Waits until the root has come so far, or has ended before.
fn await_phase(root: &Child, phase: &Segment, wanted: u8) {
    let deadline = Instant::now() + PATIENCE;
    let mut byte = [0];
    while byte[0] < wanted && matches!(root.try_wait(), Ok(None)) && Instant::now() < deadline {
        std::thread::yield_now();
        phase.read_at(0, &mut byte).expect("one byte");
    }
}

/// Sends one of the signals that the tree must survive.
fn strike(how: u64, send: impl Fn(Signal)) {
    let signals: &[Signal] = match how {
        0 => &[Signal::SIGKILL],
        1 => &[Signal::SIGTERM],
        2 => &[Signal::SIGSEGV],
        _ => &[Signal::SIGSTOP, Signal::SIGKILL],
    };
    signals.iter().copied().for_each(send);
}

/// Reaps orphans until no process of the tree is left; names those that stay.
fn wait_for_nobody(root: &Child, deadline: Instant) -> Vec<String> {
    loop {
        let all = procfork::descendants(procfork::Pid::this()).unwrap_or_default();
        let all: Vec<_> = all
            .into_iter()
            .filter(|process| process.pid != root.pid())
            .collect();
        if all.is_empty() {
            return Vec::new();
        }
        if Instant::now() > deadline {
            return all.iter().map(|process| format!("{process:?}")).collect();
        }
        for process in &all {
            let reaped = waitpid(Pid::from_raw(process.pid.raw()), Some(WaitPidFlag::WNOHANG));
            if matches!(reaped, Ok(WaitStatus::StillAlive)) {
                std::thread::yield_now();
            }
        }
    }
}

/// What this process holds: descriptors, and names in the shared memory directory.
fn holdings() -> (usize, usize) {
    let count = |path: &str| std::fs::read_dir(path).map_or(0, Iterator::count);
    (count("/proc/self/fd"), count("/dev/shm"))
}

fn main() -> ExitCode {
    let options = Options::parse();
    nix::sys::prctl::set_child_subreaper(true).expect("Linux");
    let mut random = Random(options.seed);
    let end = Instant::now() + Duration::from_secs(options.seconds);
    let (mut rounds, mut failed, mut worst) = (0_u32, 0_u32, Duration::ZERO);
    let (mut spawned, mut largest) = (0_u32, 0);
    let mut by_phase: BTreeMap<usize, u32> = BTreeMap::new();
    let before = holdings();
    while Instant::now() < end {
        let round = round(&mut random);
        rounds += 1;
        *by_phase.entry(round.phase).or_default() += 1;
        worst = worst.max(round.gone);
        spawned += u32::from(round.plan.mode == StartMode::Spawn);
        largest = largest.max(round.processes);
        let mut left = round.left;
        if holdings() != before {
            left.push(format!(
                "descriptors and shared memory {:?}, before {before:?}",
                holdings()
            ));
        }
        if !left.is_empty() {
            failed += 1;
            eprintln!(
                "round {rounds} of seed {}, {:?}: {}",
                options.seed,
                round.plan,
                left.join("; ")
            );
        }
    }
    println!(
        "{rounds} rounds, seed {}; {failed} left something behind",
        options.seed
    );
    println!(
        "{} trees by fork, {spawned} by spawn, up to {largest} processes when they were struck",
        rounds - spawned
    );
    for (phase, kills) in by_phase {
        println!("{kills:>6} kills {}", PHASES[phase]);
    }
    println!(
        "worst time until the tree was gone: {:.1} ms",
        worst.as_secs_f64() * 1e3
    );
    if failed == 0 && rounds > 0 {
        ExitCode::SUCCESS
    } else {
        ExitCode::FAILURE
    }
}
