//! Trees of random shape under load, killed at random places and instants; counts what is left of each.
//!
//! ```text
//! cargo xtask chaos --seconds 60 --seed 7
//! ```
//!
//! A round: a process of its own starts a tree, works it from two threads (runs, device memory, domains, buffers that come
//! and go), starts again what died, and closes, in phases that it publishes in shared memory. At a random instant one
//! process of the tree, or its root, gets a signal. Then everything must go:
//!
//! - a root that was not the victim goes on, with typed errors, and closes *well*. After that it has the descriptors and the
//!   mappings that it had before, and no child, not even a zombie: it is the only one that could see them, since the
//!   kernel cleans up behind a process that ends;
//! - a root that was the victim dies of the signal that it got;
//! - in either case no process of the tree is left, anywhere on the machine, and no name in the directory of shared memory.
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
    Args, ChipArgs, ChipCallable, ChipHandle, ChipOrchestrator, Error, FunctionHandle, Health,
    Kernel, KernelContext, KernelError, OrchestrationError, OrchestrationHandle, Orchestrator,
    StartMode, TaskResult, Worker, WorkerBuilder, any, args, core_args, named, on,
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

/// How many rounds a minute of an idle machine holds at least.
const ROUNDS_PER_MINUTE: u32 = 500;

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

/// What the root publishes: its phase, and the longest time that an operation took.
struct Published(Segment);

impl Published {
    const WORST_AT: usize = 8;

    fn new() -> Self {
        Self(Segment::create("chaos-phase", 16).expect("shared memory"))
    }

    fn enter(&self, phase: u8) {
        self.0.write_at(0, &[phase]).expect("a byte of its own");
    }

    fn phase(&self) -> u8 {
        let mut byte = [0];
        self.0.read_at(0, &mut byte).expect("one byte");
        byte[0]
    }

    fn worst(&self) -> Duration {
        let mut bytes = [0; 8];
        self.0.read_at(Self::WORST_AT, &mut bytes).expect("inside");
        Duration::from_nanos(u64::from_ne_bytes(bytes))
    }

    /// Runs an operation and keeps its time, if none took longer.
    fn timed<R>(&self, operation: impl FnOnce() -> R) -> R {
        let begun = Instant::now();
        let result = operation();
        let worst = self.worst().max(begun.elapsed()).as_nanos() as u64;
        let written = self.0.write_at(Self::WORST_AT, &worst.to_ne_bytes());
        written.expect("inside");
        result
    }
}

/// What a process holds, by what the kernel shows of it.
#[derive(Debug, PartialEq, Eq)]
struct Holdings {
    descriptors: Vec<String>,
    memory: Vec<String>,
    children: Vec<String>,
}

impl Holdings {
    fn of_this_process() -> Self {
        let fds = std::fs::read_dir("/proc/self/fd").expect("proc is mounted");
        let links = fds.filter_map(|fd| std::fs::read_link(fd.ok()?.path()).ok());
        let shown = links.map(|link| link.display().to_string());
        // The directory that is read just now.
        let open = shown.filter(|link| !link.starts_with("/proc/") && !lasts(link));
        let maps = std::fs::read_to_string("/proc/self/maps").expect("proc is mounted");
        let shared = maps.lines().filter(|line| line.contains("/memfd:"));
        let names = shared.filter(|line| !lasts(line));
        let names = names.filter_map(|line| line.split_whitespace().nth(5));
        let below = procfork::descendants(procfork::Pid::this()).unwrap_or_default();
        let mut all = Self {
            descriptors: open.map(kind_of).collect(),
            memory: names.map(str::to_owned).collect(),
            children: below.iter().map(|child| format!("{child:?}")).collect(),
        };
        all.descriptors.sort_unstable();
        all.memory.sort_unstable();
        all
    }

    /// What is there now and was not before.
    fn compare(before: &Self) -> Result<(), String> {
        let now = Self::of_this_process();
        if now == *before {
            return Ok(());
        }
        Err(format!(
            "a root that closed holds {now:?}, before {before:?}"
        ))
    }
}

/// By what a process that spawned is watched: for as long as it lives.
fn lasts(link: &str) -> bool {
    link.contains("procfork-life")
}

/// `pipe:[1234]` without the number.
fn kind_of(link: String) -> String {
    link.split(":[").next().unwrap_or_default().to_owned()
}

/// What the root is and does. Every operation ends well or with a typed error; a failing close, and what is left after it,
/// is what it says at its end.
fn root(plan: Plan, published: &Published) -> Result<(), String> {
    let before = Holdings::of_this_process();
    work(plan, published).map_err(|error| format!("{error}"))?;
    published.enter(4);
    Holdings::compare(&before)
}

/// The handles of what is registered.
struct Handles {
    touch: FunctionHandle,
    increment: ChipHandle,
    below: Option<OrchestrationHandle>,
    /// The number of the first worker that is no chip.
    first_below: u32,
}

/// Start, work, close.
fn work(plan: Plan, published: &Published) -> Result<(), Error> {
    let mut random = Random(plan.seed);
    let node = shape(&mut random, plan.levels, plan.room, plan.mode).build()?;
    let below = |_: &_| node.register_orchestration("below", below);
    let below = node.config().workers.first().map(below).transpose()?;
    let handles = Handles {
        touch: node.register_fn("touch", touch)?,
        increment: node.register_chip(&INCREMENT)?,
        below,
        first_below: node.config().devices.len() as u32,
    };
    published.enter(1);
    // A start that was struck fails with a typed error, and leaves nothing.
    if published.timed(|| node.init()).is_err() {
        return Ok(());
    }
    published.enter(2);
    for turn in 0..2 + random.below(6) {
        std::thread::scope(|scope| {
            scope.spawn(|| (0..2).for_each(|_| one_run(&node, &handles, published)));
            one_run(&node, &handles, published);
            device_memory(&node, &handles, published, turn);
        });
        revive(&node, published);
    }
    published.enter(3);
    published.timed(|| node.close())
}

/// A run over all kinds of workers. It fails when a worker was killed; the tree goes on without that one.
fn one_run(node: &Worker, handles: &Handles, published: &Published) {
    let _typed: Result<(), Error> = published.timed(|| {
        let (x, y) = (node.buffer::<u32>(1000)?, node.buffer::<f32>(5000)?);
        node.run(|orch| {
            for _ in 0..4 {
                orch.submit_sub(&handles.touch, args().inout(&x))?;
                orch.submit_next_level(&handles.increment, args().inout(&y), any())?;
                if let Some(below) = &handles.below {
                    let place = on(handles.first_below);
                    orch.submit_next_level(below, args().inout(&x).inout(&y), place)?;
                }
            }
            Ok(())
        })
    });
}

/// Memory of a chip, and a window of every chip. Some is given back, some is owed when the tree closes.
fn device_memory(node: &Worker, handles: &Handles, published: &Published, turn: u64) {
    let _typed: Result<(), Error> = published.timed(|| {
        let memory = node.malloc::<f32>(0, 4096)?;
        node.copy_to(memory, &[1.0; 4096])?;
        let chips: Vec<u32> = (0..handles.first_below).collect();
        node.run(|orch| {
            let window = orch.allocate_domain("window", &chips, 4096, &[named::<f32>("x", 64)])?;
            for part in window.buffer::<f32>("x")?.iter() {
                orch.submit_next_level(&handles.increment, args().inout(&part), any())?;
            }
            orch.submit_next_level(&handles.increment, args().inout(&memory), any())
                .map(drop)
        })?;
        if turn.is_multiple_of(2) {
            node.free(memory)?;
        }
        Ok(())
    });
}

/// Starts again what died; refused where its parent died as well.
fn revive(node: &Worker, published: &Published) {
    if let Health::Degraded { dead } = published.timed(|| node.health()) {
        for died in dead {
            let _typed: Result<(), Error> = published.timed(|| node.respawn(&died.worker));
        }
    }
}

/// What a round found.
struct Round {
    plan: Plan,
    processes: usize,
    phase: usize,
    gone: Duration,
    /// The longest operation of a root that was not the victim.
    operation: Duration,
    left: Vec<String>,
}

fn round(random: &mut Random) -> Round {
    let published = Published::new();
    let plan = Plan::draw(random);
    let options = ForkOptions::new("root");
    let child = procfork::fork(options, |_context| root(plan, &published)).expect("one thread");
    await_phase(&child, &published, random.below(PHASES.len() as u64) as u8);
    let scale = random.below(14);
    std::thread::sleep(Duration::from_micros(random.below(1 << scale)));
    let phase = published.phase();
    let victims = procfork::descendants(child.pid()).unwrap_or_default();
    let choice = random.below(2 * (1 + victims.len() as u64)) as usize;
    let victim = victims.get(choice);
    let killed = Instant::now();
    match victim {
        Some(victim) => strike(random.below(4), |signal| {
            // Its number may have become another's meanwhile, unless it is still the process that was seen.
            if victim.is_current() {
                let _ = nix::sys::signal::kill(Pid::from_raw(victim.pid.raw()), signal);
            }
        }),
        None => strike(random.below(4), |signal| {
            let signal = procfork::Signal::new(signal as i32).expect("a signal");
            // It may have ended by itself meanwhile.
            let _ = child.signal(signal);
        }),
    }
    let mut left: Vec<String> = judge(&child, victim.is_none()).into_iter().collect();
    let since = if victim.is_none() {
        killed
    } else {
        Instant::now()
    };
    left.extend(wait_for_nobody(&child, Instant::now() + PATIENCE));
    Round {
        plan,
        processes: 1 + victims.len(),
        phase: usize::from(phase).min(4),
        gone: since.elapsed(),
        operation: victim.map_or(Duration::ZERO, |_| published.worst()),
        left,
    }
}

/// How the root ended, if not as it should: well, or of a signal where it was the victim.
fn judge(root: &Child, is_victim: bool) -> Option<String> {
    let Ok(cause) = root.wait(Instant::now() + PATIENCE) else {
        let below = procfork::descendants(root.pid()).unwrap_or_default();
        return Some(format!("the root hangs, above {below:?}"));
    };
    let struck = is_victim && cause.signal().is_some();
    (cause.code() != Some(0) && !struck).then(|| {
        format!(
            "the root {cause}: {}",
            root.last_words().unwrap_or_default()
        )
    })
}

/// Waits until the root has come so far, or has ended before.
fn await_phase(root: &Child, published: &Published, wanted: u8) {
    let deadline = Instant::now() + PATIENCE;
    while published.phase() < wanted
        && matches!(root.try_wait(), Ok(None))
        && Instant::now() < deadline
    {
        std::thread::yield_now();
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

/// Reaps orphans until no process of the tree is left; names those that stay. Whoever has lost its parent comes to this
/// process, which adopts orphans.
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

/// What outlives every process: names in the directory of shared memory. And what this process holds, besides.
fn holdings() -> (Holdings, usize) {
    let names = std::fs::read_dir("/dev/shm").map_or(0, Iterator::count);
    (Holdings::of_this_process(), names)
}

/// All rounds together.
#[derive(Default)]
struct Total {
    rounds: u32,
    failed: u32,
    spawned: u32,
    largest: usize,
    gone: Duration,
    operation: Duration,
    by_phase: BTreeMap<usize, u32>,
}

impl Total {
    fn add(&mut self, round: &Round) {
        self.rounds += 1;
        self.failed += u32::from(!round.left.is_empty());
        self.spawned += u32::from(round.plan.mode == StartMode::Spawn);
        self.largest = self.largest.max(round.processes);
        self.gone = self.gone.max(round.gone);
        self.operation = self.operation.max(round.operation);
        *self.by_phase.entry(round.phase).or_default() += 1;
    }

    fn print(&self, options: &Options) {
        let (rounds, failed, seed) = (self.rounds, self.failed, options.seed);
        println!("{rounds} rounds, seed {seed}; {failed} left something behind");
        let wanted = ROUNDS_PER_MINUTE * (options.seconds / 60) as u32;
        if rounds < wanted {
            println!("fewer than the {wanted} rounds that an idle machine makes in this time");
        }
        println!(
            "{} trees by fork, {} by spawn, up to {} processes when they were struck",
            rounds - self.spawned,
            self.spawned,
            self.largest
        );
        for (phase, kills) in &self.by_phase {
            println!("{kills:>6} kills {}", PHASES[*phase]);
        }
        let millis = |time: Duration| time.as_secs_f64() * 1e3;
        println!(
            "worst time until the tree was gone: {:.1} ms",
            millis(self.gone)
        );
        println!(
            "worst time of an operation of a root that was not the victim: {:.1} ms",
            millis(self.operation)
        );
    }
}

fn main() -> ExitCode {
    let options = Options::parse();
    nix::sys::prctl::set_child_subreaper(true).expect("Linux");
    let mut random = Random(options.seed);
    let end = Instant::now() + Duration::from_secs(options.seconds);
    let mut total = Total::default();
    let before = holdings();
    while Instant::now() < end {
        let mut round = round(&mut random);
        let after = holdings();
        if after != before {
            round.left.push(format!("{after:?}, before {before:?}"));
        }
        total.add(&round);
        if !round.left.is_empty() {
            eprintln!(
                "round {} of seed {}, {:?}, struck {}: {}",
                total.rounds,
                options.seed,
                round.plan,
                PHASES[round.phase],
                round.left.join("; ")
            );
        }
    }
    total.print(&options);
    if total.failed == 0 && total.rounds > 0 {
        ExitCode::SUCCESS
    } else {
        ExitCode::FAILURE
    }
}
