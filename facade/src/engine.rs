//! The engine of one worker: moves tasks from the graph to its children and results back.
//!
//! # Who waits, drives
//!
//! There is no thread between a waiting user and a working child. Whoever waits takes the *lines* (the parent's ends of
//! all mailboxes) and drives: polls them, tells the graph what ended, sends what became ready, and sleeps on the one
//! doorbell of this worker when there is nothing to do. Others who wait meanwhile sleep until their own goal is reached
//! or the drive is free. A background driver takes the lines only while detached runs
//! (submitted, not `run`) are unfinished, or device memory is on its way back, and nobody waits.
//!
//! ```text
//!  lock        guards                                   held by
//!  lines       parent ends, descriptor channels         the driver, for as long as it drives, sleeping included
//!  core        graph, task records, runs, jobs          anybody, for a moment, never while sleeping
//! ```
//!
//! Order: lines before core. A thread that holds core may only *try* lines.
//!
//! # No wake-up is lost
//!
//! 1. *Work for the driver.* A submitter changes core, then sets `pending`, then rings the doorbell. The driver parks
//!    by the doorbell's protocol: it announces itself, looks at `pending` and at all lines once more, then sleeps.
//! 2. *The drive becomes free.* A waiter that finds the lines taken registers in `sleepers` and sleeps on `wake`, both
//!    under core, after trying the lines once more. A driver that leaves frees the lines first, then takes core and
//!    wakes a sleeper. If the try came before the lines were free, the driver's look at `sleepers` comes after.
//! 3. *A goal is reached.* The driver publishes the outcome under core and wakes all sleepers; each looks at its own.
//! 4. *Hand-over from the background.* A waiter counts itself in `wanted` and rings; the background driver looks at
//!    `wanted` each turn, and leaves by 2.
//!
//! # When a child dies
//!
//! The driver's sleep ends at the child's death word (module `death_word` of procfork). The driver then takes what the
//! child still published, learns the exact cause from its pidfd, and declares the worker lost to the graph, which fails
//! what was on it and whatever can run nowhere else. Other lines are unaffected.

mod ahead;
mod answers;
mod background;
mod copies;
mod core;
mod guards;
mod job;
mod kept;
mod later;
mod lines;
mod observer;
mod pressure;
mod probe;
mod reclaim;
mod replay;
mod rings;
mod run;

use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering};
use std::sync::{Arc, Weak};
use std::time::{Duration, Instant};

use lifecycle::OwnedLease;
use mailbox::{Activity, Doorbell, FeedWriter, Probe as _, Waiter};
use parking_lot::{Condvar, Mutex, RwLock};
use procfork::{Children, ParentWatch};
use taskgraph::{BufferId, RunId, Scheduler};
use tracing::Span;
use tracing::field::Empty;

use crate::buffer::{BufferCore, Home};
use crate::config::Limits;
use crate::error::{Error, Name, StartCause};
use crate::graph::GraphCache;
use crate::logs::Logs;

use self::background::Background;
pub(crate) use self::copies::{Busy, Copying, NotSubmitted};
use self::core::Waiting;
pub(crate) use self::core::{Core, DeviceHold, DeviceUse, Hold, NewTask};
use self::guards::{ClaimedLines, HeldCore, HeldLines, Wanted};
pub(crate) use self::job::{Job, JobOutcome};
pub(crate) use self::kept::KeptRun;
pub(crate) use self::later::Laters;
pub(crate) use self::lines::{Line, LineKind, Lines};
pub(crate) use self::probe::ParentProbe;
use self::probe::TreeProbe;
pub(crate) use self::reclaim::Owed;
pub(crate) use self::replay::GraphRecord;
use self::rings::Rings;
pub(crate) use self::run::RunCell;

/// Everything that moves the tasks of one worker.
pub(crate) struct Engine {
    path: Name,
    /// Different in each life of each worker: the owner in the identities of its buffers.
    pub(crate) incarnation: u64,
    doorbell: Doorbell,
    lines: Mutex<Lines>,
    core: Mutex<Core>,
    /// Sleepers of core: waiters without the drive.
    wake: Condvar,
    background: Background,
    /// Core was changed in a way that the driver must see.
    pending: AtomicBool,
    /// Waiters that want the drive from the background driver.
    wanted: AtomicU32,
    /// Threads that want the lines from whoever drives, to change them.
    claims: AtomicU32,
    /// The thread whose orchestration builds its graph just now; 0 for none. Graphs are built one after the other, since
    /// the order of their tasks follows from the order of their runs.
    building: AtomicU64,
    /// Unfinished runs that nobody may be waiting for, for the background driver to see without core.
    detached: Arc<AtomicU32>,
    /// Tasks that have ended so far, for who waits for one to see without core.
    ended: Arc<AtomicU64>,
    /// Requests by which device memory is given back, for the background driver to see without core.
    reclaiming: Arc<AtomicU32>,
    /// Bit `i`: the child on line `i` is in a task; for waiters to see without core.
    busy: Arc<AtomicU64>,
    /// Buffers that are gone here and must go below. A lock of its own, never held with another: a buffer can go at any
    /// time, under any lock.
    released: Mutex<Vec<BufferId>>,
    /// Whether there are some, for who does not want to take that lock.
    has_released: AtomicBool,
    /// The memory of intermediate tensors. A lock of its own, never held with another.
    rings: Mutex<Rings>,
    pub(crate) children: RwLock<Children>,
    /// The graphs that orchestrations of this worker recorded.
    graphs: GraphCache,
    /// The parent of this process, where it is itself a child.
    watch: Option<ParentWatch>,
    /// What workers log.
    pub(crate) logs: Logs,
    next_buffer: AtomicU64,
    me: Weak<Engine>,
}

impl Engine {
    /// The engine of a root, or of a worker with the parent that it watches and the feed that it logs to.
    pub(crate) fn new(
        path: &str,
        limits: &Limits,
        above: Option<(ParentWatch, Arc<FeedWriter>)>,
    ) -> Result<Arc<Self>, StartCause> {
        let doorbell = Doorbell::create().map_err(StartCause::system)?;
        let (watch, logs) = match above {
            Some((watch, writer)) => (Some(watch), Logs::below(writer)),
            None => (None, Logs::root(&doorbell).map_err(StartCause::system)?),
        };
        let children = RwLock::new(Children::new().map_err(StartCause::system)?);
        let (detached, ended) = (Arc::new(AtomicU32::new(0)), Arc::new(AtomicU64::new(0)));
        let incarnation = crate::incarnation::draw();
        let rings = Rings::new(incarnation, limits.heap_bytes);
        let most = taskgraph::Limits::default().tasks_max(limits.tasks_max);
        let graph = Scheduler::with_heap(most, rings.specs());
        let (counts, ends) = (Arc::clone(&detached), Arc::clone(&ended));
        let core = Core::new(Name::from(path), graph, counts, ends);
        Ok(Arc::new_cyclic(|me| Self {
            path: Name::from(path),
            incarnation,
            doorbell,
            lines: Mutex::default(),
            reclaiming: core.reclaiming(),
            busy: core.busy(),
            core: Mutex::new(core),
            detached,
            ended,
            wake: Condvar::new(),
            background: Background::default(),
            pending: AtomicBool::new(false),
            wanted: AtomicU32::new(0),
            claims: AtomicU32::new(0),
            building: AtomicU64::new(0),
            released: Mutex::default(),
            has_released: AtomicBool::new(false),
            rings: Mutex::new(rings),
            children,
            graphs: GraphCache::new(limits.heap_bytes),
            watch,
            logs,
            next_buffer: AtomicU64::new(1),
            me: Weak::clone(me),
        }))
    }

    pub(crate) fn path(&self) -> &Name {
        &self.path
    }

    /// Different for each worker, and each time that it is started.
    pub(crate) fn life(&self) -> u64 {
        self.incarnation
    }

    pub(crate) fn doorbell(&self) -> &Doorbell {
        &self.doorbell
    }

    pub(crate) fn core(&self) -> HeldCore<'_> {
        HeldCore::new(self.core.lock())
    }

    /// The lines, unless somebody drives just now.
    pub(crate) fn try_lines(&self) -> Option<HeldLines<'_>> {
        let lines = self.lines.try_lock()?;
        Some(HeldLines::new(lines, self))
    }

    /// Whether this process is the root of its tree.
    pub(crate) fn is_root(&self) -> bool {
        self.watch.is_none()
    }

    /// A buffer of a worker above, which tasks below may name.
    pub(crate) fn adopt_buffer(&self, id: BufferId, segment: mailbox::Segment) -> Arc<BufferCore> {
        let home: Weak<dyn Home> = Weak::<Engine>::clone(&self.me);
        BufferCore::new(id, segment, home)
    }

    /// Begins a run, shown by `span`. An attended one is waited for by the thread that submits it, which drives; a detached
    /// one is advanced by the background driver too, and keeps a lease.
    pub(crate) fn begin_run(
        &self,
        span: &Span,
        lease: Option<OwnedLease<Error>>,
    ) -> (RunId, Arc<RunCell>) {
        let waiting = match lease {
            Some(_) => Waiting::Detached,
            None => Waiting::Attended,
        };
        let cell = RunCell::new(span, lease);
        let run = self.core().begin_run(waiting, &cell);
        span.record("run", run.0);
        (run, cell)
    }

    /// The span of a run that begins.
    pub(crate) fn run_span(&self) -> Span {
        tracing::info_span!("run", worker = %self.path, run = Empty)
    }

    /// Changes core, then sends what became ready: by itself where nobody drives, else by waking the driver.
    ///
    /// Takes core once, since a submit is paid for once per task.
    pub(crate) fn change<R>(&self, change: impl FnOnce(&mut Core) -> R) -> R {
        let lines = self.lines.try_lock();
        if let Some(lines) = &lines {
            lines.prefetch_news();
        }
        let mut core = self.core();
        let result = change(&mut core);
        let Some(mut lines) = lines else {
            drop(core);
            // Release: partner of the acquire in `turn`; the change of core itself is ordered by its lock.
            self.pending.store(true, Ordering::Release);
            self.doorbell.ring();
            return result;
        };
        if lines.has_news() {
            lines.take_news(&mut core);
        }
        self.send_ready(&mut lines, &mut core);
        if lines.has_losses() {
            drop(core);
            self.bury_dead(&self.children.read(), &mut lines);
            core = self.core();
        }
        // Freed before core is: whoever finds the lines taken sleeps under core, and is seen here.
        drop(lines);
        self.hand_over(&core);
        drop(core);
        result
    }

    /// Waits until `done` says so, driving where nobody else does. False when the deadline passed first.
    ///
    /// `done` is asked under no lock and reads what was published under core.
    pub(crate) fn wait_until(&self, deadline: Option<Instant>, done: &dyn Fn() -> bool) -> bool {
        self.logs.ask();
        let reached = done() || self.drive_or_sleep(deadline, done);
        // What was logged before what `done` has seen was written before it.
        self.logs.replay();
        reached
    }

    fn drive_or_sleep(&self, deadline: Option<Instant>, done: &dyn Fn() -> bool) -> bool {
        let _wanted = Wanted::new(self);
        loop {
            if !self.is_claimed()
                && let Some(mut lines) = self.lines.try_lock()
            {
                let reached = self.drive(&mut lines, deadline, &|| done() || self.is_claimed());
                if done() || !reached {
                    return reached;
                }
                continue;
            }
            if let Some(reached) = self.sleep(deadline, done) {
                return reached;
            }
        }
    }

    /// Waits for the turn to build a graph, driving meanwhile. False where this thread is building one already: it would
    /// wait for itself. [`Engine::end_build`] gives the turn to the next.
    pub(crate) fn begin_build(&self) -> bool {
        let me = thread_number();
        // Relaxed: only this thread writes its own number.
        if self.building.load(Ordering::Relaxed) == me {
            return false;
        }
        let free = Ordering::Acquire; // Partner of the release in `end_build`.
        // Asked again after it was won, too.
        let won = || {
            let seen = self
                .building
                .compare_exchange(0, me, free, Ordering::Relaxed);
            seen.is_ok() || seen == Err(me)
        };
        self.wait_until(None, &won)
    }

    /// The graph is built. Called within [`Engine::change`], which wakes the driver where that is the next builder.
    pub(crate) fn end_build(&self, core: &Core) {
        self.building.store(0, Ordering::Release);
        if core.sleepers > 0 {
            self.wake.notify_all();
        }
    }

    /// Sleeps until there may be a reason to look again; `Some` when the wait is over.
    fn sleep(&self, deadline: Option<Instant>, done: &dyn Fn() -> bool) -> Option<bool> {
        let mut core = self.core();
        if done() {
            return Some(true);
        }
        if !self.is_claimed()
            && let Some(lines) = self.lines.try_lock()
        {
            drop(lines);
            return None;
        }
        core.sleepers += 1;
        let timed_out = core.sleep(&self.wake, deadline);
        core.sleepers -= 1;
        (timed_out && !done()).then_some(false)
    }

    /// Drives until `done`, or until the deadline (then false).
    fn drive(&self, lines: &mut Lines, deadline: Option<Instant>, done: &dyn Fn() -> bool) -> bool {
        // Nobody forks or ends children while somebody drives.
        let children = self.children.read();
        let mut waiter = std::mem::take(&mut lines.waiter);
        let mut turns = 0_u32;
        let reached = loop {
            self.turn(&children, lines);
            if done() {
                break true;
            }
            // A stream of news must hide neither that the time is up nor that somebody died.
            turns = turns.wrapping_add(1);
            if turns.is_multiple_of(64) && deadline.is_some_and(|end| Instant::now() >= end) {
                break false;
            }
            if turns.is_multiple_of(64) {
                self.look_for_deaths(&children, lines);
            }
            if !self.await_news(&children, lines, &mut waiter, deadline, done) && !lines.has_news()
            {
                break done();
            }
        };
        lines.waiter = waiter;
        reached
    }

    /// A load for each child while all live.
    fn look_for_deaths(&self, children: &Children, lines: &mut Lines) {
        if !TreeProbe::new(children, lines, self.watch.as_ref()).alive() {
            self.bury_dead(children, lines);
        }
    }

    /// Waits until a line has news, core was changed, `done` says so, or a child died (whose loss is then dealt with).
    /// False at the deadline.
    fn await_news(
        &self,
        children: &Children,
        lines: &mut Lines,
        waiter: &mut Waiter,
        deadline: Option<Instant>,
        done: &dyn Fn() -> bool,
    ) -> bool {
        let news = || {
            lines.has_news()
                || self.pending.load(Ordering::Acquire)
                || done()
                || self.logs.has_news()
        };
        if news() {
            return true;
        }
        let waited = {
            let probe = TreeProbe::new(children, lines, self.watch.as_ref());
            self.doorbell
                .wait(waiter, &probe, Activity::InFlight, deadline, news)
        };
        match waited {
            Ok(()) => true,
            Err(mailbox::WaitError::PeerDied) => {
                self.bury_dead(children, lines);
                true
            }
            Err(_) => false,
        }
    }

    /// One look at everything: takes what the children said, and sends what became ready.
    fn turn(&self, children: &Children, lines: &mut Lines) {
        self.logs.replay();
        // Acquire: partner of the release in `change`. Loaded first, since a swap costs even when nothing is pending.
        let pending =
            self.pending.load(Ordering::Relaxed) && self.pending.swap(false, Ordering::Acquire);
        if !pending && !lines.has_news() {
            return;
        }
        let mut core = self.core();
        lines.take_news(&mut core);
        self.send_ready(lines, &mut core);
        drop(core);
        if lines.has_losses() {
            self.bury_dead(children, lines);
        }
    }

    /// Sends what became ready, and wakes who may have been waiting for what happened.
    fn send_ready(&self, lines: &mut Lines, core: &mut Core) {
        // Acquire: partner of the release in `Home::released`. Most often there is none, and no lock to take.
        if self.has_released.load(Ordering::Acquire) {
            self.has_released.store(false, Ordering::Relaxed);
            let released = std::mem::take(&mut *self.released.lock());
            lines.forget_buffers(&released);
        }
        lines.send_ready(core);
        if core.take_progress() && core.sleepers > 0 {
            self.wake.notify_all();
        }
    }

    /// Sends what is to be unmapped, unless somebody drives, who does it then. Says whether idle children still owe an answer,
    /// after which more may have to be sent.
    fn send_unmaps(&self) -> Unmaps {
        // The caller may hold lines or core: it is the driver then, or nudges it when it lets go. Core first, since lines that
        // are held without it must be handed over.
        if let Some(mut core) = self.core.try_lock().map(HeldCore::new)
            && let Some(mut lines) = self.lines.try_lock()
        {
            lines.take_news(&mut core);
            self.send_ready(&mut lines, &mut core);
            let open = lines.has_idle_unmaps();
            drop(lines);
            self.hand_over(&core);
            drop(core);
            return if open { Unmaps::Open } else { Unmaps::Done };
        }
        self.doorbell.ring();
        Unmaps::Done
    }

    /// Finds children that have died and declares their workers lost.
    pub(crate) fn bury_dead(&self, children: &Children, lines: &mut Lines) {
        if let Some(watch) = &self.watch
            && !watch.is_alive_now()
        {
            watch.leave();
        }
        let condemned = lines.end_condemned(children);
        // The exact cause of a death may take a while to be known: who drives asks again, and serves the others meanwhile.
        let dead = lines.dead_of(children);
        let mut core = self.core();
        lines.take_news(&mut core);
        for (index, reason) in condemned {
            lines.lose_condemned(index, &reason, &mut core);
        }
        for dead in dead {
            lines.bury(dead, &mut core);
        }
        lines.fail_failed_sends(&mut core);
        self.send_ready(lines, &mut core);
        drop(core);
    }

    /// The children of these lines have been ended: what was on them fails, for whoever waits for it still.
    pub(crate) fn lose_ended(&self, ended: &[procfork::Ended], lines: &mut Lines) {
        let mut core = self.core();
        for ended in ended {
            lines.lose_ended(ended, &mut core);
        }
        self.send_ready(lines, &mut core);
        // Whatever is left to be sent finds nobody.
        lines.fail_failed_sends(&mut core);
        drop(core);
    }

    /// The lines are free: somebody else may drive.
    fn hand_over(&self, core: &Core) {
        if core.sleepers > 0 {
            self.wake.notify_one();
        } else if (core.has_detached_runs() || self.is_reclaiming())
            && self.wanted.load(Ordering::Acquire) == 0
        {
            core.background.iter().for_each(|nudge| nudge.give());
        }
    }

    /// Takes the lines from whoever drives, for a change of the lines themselves.
    pub(crate) fn claim_lines(&self) -> ClaimedLines<'_> {
        ClaimedLines::new(self)
    }

    fn is_claimed(&self) -> bool {
        self.claims.load(Ordering::Acquire) > 0
    }

    /// Queues control requests. Whoever drives sends them and takes their answers.
    pub(crate) fn post(&self, jobs: &[Arc<Job>]) {
        self.change(|core| core.jobs.extend(jobs.iter().map(Arc::clone)));
    }
}

impl std::fmt::Debug for Engine {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Engine")
            .field("path", &self.path)
            .finish_non_exhaustive()
    }
}

impl Home for Engine {
    fn released(&self, id: BufferId) {
        self.released.lock().push(id);
        self.has_released.store(true, Ordering::Release);
        self.pending.store(true, Ordering::Release);
        // Idle children answer soon, and then the next are sent: nobody may drive for a long time. Others go on meanwhile.
        let deadline = Instant::now() + UNMAP_PATIENCE;
        while self.send_unmaps() == Unmaps::Open && Instant::now() < deadline {
            std::thread::yield_now();
        }
    }

    fn prompt(&self) {
        self.change(|_core| ());
    }
}

/// Whether idle children owe an answer to an unmap.
#[derive(PartialEq, Eq)]
enum Unmaps {
    Open,
    Done,
}

/// How long the release of a buffer may wait for idle children, which answer as soon as they get a core.
const UNMAP_PATIENCE: Duration = Duration::from_millis(250);

/// A number that no other thread of this process has; never 0.
fn thread_number() -> u64 {
    static NEXT: AtomicU64 = AtomicU64::new(1);
    thread_local! {
        // Relaxed: only uniqueness matters.
        static NUMBER: u64 = NEXT.fetch_add(1, Ordering::Relaxed);
    }
    NUMBER.with(|number| *number)
}
