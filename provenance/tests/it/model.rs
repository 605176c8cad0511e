//! Random operations on a table and on a model that is too simple to be wrong: a list of all
//! memory there ever was, searched from end to end. Every answer must be the same.
//!
//! `PROVENANCE_STEPS` sets the number of steps (default 1 000 000, some seconds: this crate is optimised
//! in test builds too), `PROVENANCE_SEED` the seed, which a failure prints.

use std::collections::HashSet;
use std::io;

use provenance::{
    Ask, Cause, DevicePtr, FreeError, Hold, Operation, RecordCause, Revoked, Table, WorkerRef,
};

/// Few workers and addresses, so that reuse, overlap and confusion are frequent.
const WORKERS: usize = 3;
const PAGES: u64 = 16;
const PAGE: u64 = 64;
/// The model forgets the oldest dead memory beyond so much, to stay quick.
const KEPT: usize = 200;

#[test]
fn random_operations_agree_with_the_model() {
    let number = |name: &str, default| {
        std::env::var(name).map_or(default, |text| text.parse().expect("a number"))
    };
    let seed = number("PROVENANCE_SEED", 0x5eed_0001);
    let mut world = World::new(seed);
    for step in 0..number("PROVENANCE_STEPS", 1_000_000) {
        let context = format!("PROVENANCE_SEED={seed}, step {step}");
        world.step(&context);
        if step % 64 == 0 {
            world.totals(&context);
            world.forget();
        }
    }
    assert!(
        world.seen.iter().all(|&count| count > 0),
        "never happened: {:?}",
        world.seen
    );
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum State {
    Live,
    Retired,
    /// Retired, without uses, not collected: its address is free in the books.
    Due,
    Gone,
    Leaked,
}

#[derive(Debug)]
struct Mem {
    ptr: DevicePtr,
    bytes: u64,
    window: bool,
    state: State,
    uses: u32,
    /// What a window shows, as a number in the list.
    behind: Option<DevicePtr>,
}

struct World {
    table: Table,
    seed: u64,
    workers: [WorkerRef; WORKERS],
    ever: Vec<Mem>,
    holds: Vec<(Hold, Vec<DevicePtr>)>,
    lost: HashSet<WorkerRef>,
    leaked: u64,
    /// How often each of the ten kinds of step did something.
    seen: [u64; 10],
}

impl World {
    fn new(seed: u64) -> Self {
        let worker = |id| WorkerRef { id, incarnation: 1 };
        Self {
            table: Table::new(),
            seed,
            workers: [worker(0), worker(1), worker(2)],
            ever: Vec::new(),
            holds: Vec::new(),
            lost: HashSet::new(),
            leaked: 0,
            seen: [0; 10],
        }
    }

    fn random(&mut self, below: u64) -> u64 {
        self.seed ^= self.seed << 13;
        self.seed ^= self.seed >> 7;
        self.seed ^= self.seed << 17;
        self.seed % below
    }

    fn step(&mut self, context: &str) {
        let kind = match self.random(1000) {
            0..250 => 0,
            250..300 => 1,
            300..600 => 2,
            600..700 => 3,
            700..800 => 4,
            800..900 => 5,
            900..950 => 6,
            950..980 => 7,
            980..999 => 8,
            _ => 9,
        };
        let happened = match kind {
            0 => self.record(context),
            1 => self.record_window(context),
            2 => self.check(context),
            3 => self.hold(context),
            4 => self.unhold(),
            5 => self.release(context, 0),
            6 => self.release(context, 1),
            7 => self.retire(context),
            8 => self.collect(context),
            _ => self.lose(),
        };
        self.seen[kind] += u64::from(happened);
    }

    // The steps. Each does one thing to the table, the same to the model, and compares.

    fn record(&mut self, context: &str) -> bool {
        let worker = self.workers[self.random(WORKERS as u64) as usize];
        let (base, bytes) = (PAGE * (1 + self.random(PAGES)), PAGE * (1 + self.random(4)));
        let overlaps = |mem: &&Mem| {
            mem.ptr.worker() == worker
                && !mem.window
                && matches!(mem.state, State::Live | State::Retired)
                && mem.ptr.base() < base + bytes
                && base < mem.ptr.base() + mem.bytes
        };
        match (
            self.table.record(worker, base, bytes),
            self.ever.iter().find(overlaps),
        ) {
            (Ok(ptr), None) => self.enter(ptr, bytes, None, false),
            (Err(error), Some(_)) if matches!(error.cause, RecordCause::Overlap { .. }) => {}
            (real, model) => panic!("{context}: record: {real:?}, model {model:?}"),
        }
        true
    }

    fn record_window(&mut self, context: &str) -> bool {
        let worker = self.workers[self.random(WORKERS as u64) as usize];
        let address = 0x10_0000 + PAGE * self.random(PAGES);
        let Some((behind, bytes)) = self.some_range() else {
            return false;
        };
        let expected = self.expected(Ask::owner(Operation::Show), behind, bytes);
        match (
            self.table
                .record_window(worker, address, bytes, Some(behind)),
            expected,
        ) {
            (Ok(window), None) => {
                let root = self.root(behind);
                self.enter(window, bytes, Some(root), true);
            }
            (Err(error), None) if bytes == 0 => assert_eq!(error.cause, RecordCause::Empty),
            (Err(error), Some(cause)) => {
                let RecordCause::Backing(refused) = error.cause else {
                    panic!("{context}")
                };
                assert_eq!(refused.cause, cause, "{context}: window");
            }
            (real, model) => panic!("{context}: window: {real:?}, model {model:?}"),
        }
        true
    }

    fn check(&mut self, context: &str) -> bool {
        let Some((ptr, bytes)) = self.some_range() else {
            return false;
        };
        let ask = self.some_ask(Operation::CopyTo);
        let expected = self.expected(ask, ptr, bytes);
        let address = ptr.base() + ptr.offset();
        let checked = self.table.check(ask, ptr.span(bytes));
        let used = self
            .table
            .with_range(ask, ptr.span(bytes), |address| address);
        let wanted = expected.map_or(Ok(address), Err);
        assert_eq!(
            checked.map_err(|refused| refused.cause),
            wanted,
            "{context}: check"
        );
        assert_eq!(
            used.map_err(|refused| refused.cause),
            wanted,
            "{context}: with_range"
        );
        let root = self
            .table
            .root(ask, ptr.span(bytes))
            .map_err(|refused| refused.cause);
        assert_eq!(root, wanted.map(|_| self.root(ptr)), "{context}: root");
        self.see(context, ptr, bytes);
        true
    }

    /// What a worker sees of a range: the same bytes, through a window of its own.
    fn see(&mut self, context: &str, ptr: DevicePtr, bytes: u64) {
        let worker = self.random(WORKERS as u64) as u32;
        let ask = Ask::on(Operation::Argument, worker);
        let seen = self.table.seen_from(ask, ptr.span(bytes));
        let owner = ptr.worker().id;
        if worker == owner {
            assert_eq!(seen, Ok(ptr.span(bytes)), "{context}: seen by its owner");
            return;
        }
        let cause = self.expected(Ask::owner(Operation::Argument), ptr, bytes);
        let viewers = self
            .table
            .viewers(Ask::owner(Operation::Argument), ptr.span(bytes));
        let shown = cause.is_none() && self.sees(worker, self.root(ptr), bytes);
        match (seen, cause) {
            (Ok(span), None) => {
                assert!(shown, "{context}: {span} is no view of {ptr}");
                assert_eq!(span.ptr.worker().id, worker, "{context}: seen elsewhere");
                assert_eq!(
                    self.root(span.ptr),
                    self.root(ptr),
                    "{context}: other bytes"
                );
                assert_eq!(self.expected(ask, span.ptr, bytes), None, "{context}: seen");
            }
            (Err(refused), None) => {
                assert!(!shown, "{context}: {refused}");
                assert_eq!(
                    refused.cause,
                    Cause::OtherWorker { owner },
                    "{context}: see"
                );
            }
            (seen, cause) => {
                assert_eq!(
                    seen.map_err(|refused| refused.cause).err(),
                    cause,
                    "{context}: see"
                );
            }
        }
        let viewers = viewers.map_err(|refused| refused.cause);
        match cause {
            Some(cause) => assert_eq!(viewers, Err(cause), "{context}: viewers"),
            None => assert_eq!(
                viewers.is_ok_and(|viewers| viewers.contains(&worker)),
                shown,
                "{context}: viewers"
            ),
        }
    }

    /// Whether some live window of the worker shows all of these bytes.
    fn sees(&self, worker: u32, root: DevicePtr, bytes: u64) -> bool {
        root.worker().id == worker
            || self.ever.iter().any(|mem| {
                let shows = mem
                    .behind
                    .filter(|behind| behind.to_base() == root.to_base());
                let from = shows.and_then(|behind| root.offset().checked_sub(behind.offset()));
                mem.state == State::Live
                    && mem.ptr.worker().id == worker
                    && from.is_some_and(|from| from + bytes <= mem.bytes)
            })
    }

    fn hold(&mut self, context: &str) -> bool {
        let count = 1 + self.random(3);
        let Some(ranges) = (0..count)
            .map(|_| self.some_range())
            .collect::<Option<Vec<_>>>()
        else {
            return false;
        };
        let ask = self.some_ask(Operation::Argument);
        let first = ranges
            .iter()
            .find_map(|&(ptr, bytes)| self.expected(ask, ptr, bytes));
        let spans: Vec<_> = ranges.iter().map(|&(ptr, bytes)| ptr.span(bytes)).collect();
        match (self.table.hold(ask, &spans), first) {
            (Ok(hold), None) => {
                let held: Vec<_> = ranges.iter().map(|(ptr, _)| ptr.to_base()).collect();
                held.iter().for_each(|&ptr| self.mem(ptr).uses += 1);
                self.holds.push((hold, held));
            }
            (Err(refused), Some(cause)) => assert_eq!(refused.cause, cause, "{context}: hold"),
            (real, model) => panic!("{context}: hold: {real:?}, model {model:?}"),
        }
        true
    }

    fn unhold(&mut self) -> bool {
        if self.holds.is_empty() {
            return false;
        }
        let at = self.random(self.holds.len() as u64) as usize;
        let (hold, held) = self.holds.swap_remove(at);
        drop(hold);
        for ptr in held {
            let mem = self.mem(ptr);
            mem.uses -= 1;
            if mem.uses == 0 && mem.state == State::Retired {
                mem.state = State::Due;
            }
        }
        true
    }

    /// Frees an allocation (0) or releases a window (1); every eighth native part fails.
    fn release(&mut self, context: &str, role: u64) -> bool {
        let Some((ptr, _)) = self.some_range() else {
            return false;
        };
        let operation = if role == 0 {
            Operation::Free
        } else {
            Operation::Release
        };
        let ask = self.some_ask(operation);
        let expected = self.unreleasable(ask, ptr).or_else(|| self.in_use(ptr));
        let works = self.random(8) != 0;
        let outcome = if role == 0 {
            let native = |_| {
                if works {
                    Ok(())
                } else {
                    Err(io::Error::other("busy"))
                }
            };
            match self.table.free(ask, ptr, native) {
                Ok(()) | Err(FreeError::Leaked { .. }) => Ok(()),
                Err(FreeError::Refused(refused)) => Err(refused),
                Err(other) => panic!("{context}: {other}"),
            }
        } else {
            let settle = |revoked: Revoked| {
                if works {
                    revoked.freed()
                } else {
                    drop(revoked)
                }
            };
            self.table.revoke(ask, ptr).map(settle)
        };
        let outcome = outcome.map_err(|refused| refused.cause);
        assert_eq!(
            outcome,
            expected.map_or(Ok(()), Err),
            "{context}: {operation}"
        );
        if outcome.is_ok() {
            self.leaked += u64::from(!works);
            self.mem(ptr).state = if works { State::Gone } else { State::Leaked };
        }
        true
    }

    fn retire(&mut self, context: &str) -> bool {
        let Some((ptr, _)) = self.some_range() else {
            return false;
        };
        let role = if self.random(2) == 0 {
            Operation::Free
        } else {
            Operation::Release
        };
        let ask = self.some_ask(role);
        let expected = self.unreleasable(ask, ptr);
        match (self.table.retire(ask, ptr), expected) {
            (Ok(now), None) => {
                let idle = self.mem(ptr).uses == 0;
                assert_eq!(now.is_some(), idle, "{context}: retire");
                self.mem(ptr).state = if idle { State::Gone } else { State::Retired };
                now.into_iter().for_each(Revoked::freed);
            }
            (Err(refused), Some(cause)) => assert_eq!(refused.cause, cause, "{context}: retire"),
            (real, model) => panic!("{context}: retire: {real:?}, model {model:?}"),
        }
        true
    }

    fn collect(&mut self, context: &str) -> bool {
        let mut due: Vec<DevicePtr> = Vec::new();
        for revoked in self.table.due() {
            due.push(revoked.ptr());
            revoked.freed();
        }
        let is_due = |mem: &&mut Mem| mem.state == State::Due;
        let mut expected = Vec::new();
        for mem in self.ever.iter_mut().filter(is_due) {
            mem.state = State::Gone;
            expected.push(mem.ptr);
        }
        let order = |ptr: &DevicePtr| (ptr.entry(), ptr.generation());
        due.sort_by_key(order);
        expected.sort_by_key(order);
        assert_eq!(due, expected, "{context}: due");
        !expected.is_empty()
    }

    /// A worker ends, and starts again in another life.
    fn lose(&mut self) -> bool {
        let at = self.random(WORKERS as u64) as usize;
        let lost = self.workers[at];
        self.table.worker_lost(lost);
        let mut gone: Vec<DevicePtr> = Vec::new();
        for mem in self.ever.iter_mut().filter(|mem| mem.ptr.worker() == lost) {
            if mem.state != State::Leaked {
                mem.state = State::Gone;
            }
            gone.push(mem.ptr);
        }
        for mem in self.ever.iter_mut().filter(|mem| mem.window) {
            let shows = mem
                .behind
                .is_some_and(|behind| gone.contains(&behind.to_base()));
            if shows && matches!(mem.state, State::Live | State::Retired) {
                mem.state = State::Gone;
            }
        }
        self.lost.insert(lost);
        self.workers[at] = WorkerRef {
            incarnation: lost.incarnation + 1,
            ..lost
        };
        true
    }

    // The model's answers.

    fn expected(&self, ask: Ask, ptr: DevicePtr, bytes: u64) -> Option<Cause> {
        let mem = self.find(ptr);
        let owner = ptr.worker().id;
        if ask.worker.is_some_and(|asked| asked != owner) {
            return Some(Cause::OtherWorker { owner });
        }
        if self.lost.contains(&ptr.worker()) {
            return Some(Cause::WorkerLost {
                worker: ptr.worker(),
            });
        }
        let end = u128::from(ptr.offset()) + u128::from(bytes);
        match mem.state {
            State::Gone | State::Due => Some(Cause::Stale),
            State::Leaked => Some(Cause::Leaked),
            State::Retired => Some(Cause::Retired { uses: mem.uses }),
            State::Live if end > u128::from(mem.bytes) => {
                Some(Cause::OutOfRange { extent: mem.bytes })
            }
            State::Live => None,
        }
    }

    fn unreleasable(&self, ask: Ask, ptr: DevicePtr) -> Option<Cause> {
        let mem = self.find(ptr);
        let release = ask.operation == Operation::Release;
        let alive = |mem: &&Mem| matches!(mem.state, State::Live | State::Retired);
        let shows = |mem: &&Mem| {
            mem.behind
                .is_some_and(|root| root.to_base() == ptr.to_base())
        };
        let windows = self.ever.iter().filter(alive).filter(shows).count();
        self.expected(ask, ptr, 0).or(match () {
            () if mem.window && !release => Some(Cause::NotAllocation),
            () if !mem.window && release => Some(Cause::NotWindow),
            () if ptr.offset() != 0 => Some(Cause::NotBase),
            () if windows > 0 => Some(Cause::Windows { windows }),
            () => None,
        })
    }

    fn in_use(&self, ptr: DevicePtr) -> Option<Cause> {
        let uses = self.find(ptr).uses;
        (uses > 0).then_some(Cause::InUse { uses })
    }

    fn root(&self, ptr: DevicePtr) -> DevicePtr {
        let behind = self.find(ptr).behind;
        behind.map_or(ptr, |behind| behind.plus(ptr.offset()).expect("inside"))
    }

    fn totals(&self, context: &str) {
        let live: Vec<&Mem> = self
            .ever
            .iter()
            .filter(|mem| matches!(mem.state, State::Live | State::Retired))
            .collect();
        let of = |window: bool| live.iter().filter(move |mem| mem.window == window);
        let stats = self.table.stats();
        assert_eq!(stats.live, of(false).count() as u64, "{context}: live");
        assert_eq!(
            stats.bytes,
            of(false).map(|mem| mem.bytes).sum::<u64>(),
            "{context}: bytes"
        );
        assert_eq!(stats.windows, of(true).count() as u64, "{context}: windows");
        assert_eq!(stats.leaked, self.leaked, "{context}: leaked");
    }

    // Bookkeeping.

    fn enter(&mut self, ptr: DevicePtr, bytes: u64, behind: Option<DevicePtr>, window: bool) {
        assert!(
            self.ever.iter().all(|mem| mem.ptr != ptr),
            "{ptr} was handed out twice"
        );
        self.ever.push(Mem {
            ptr,
            bytes,
            window,
            state: State::Live,
            uses: 0,
            behind,
        });
    }

    fn forget(&mut self) {
        let dead = |mem: &Mem| mem.uses == 0 && matches!(mem.state, State::Gone | State::Leaked);
        let mut surplus = self.ever.len().saturating_sub(KEPT);
        self.ever.retain(|mem| {
            let forgotten = surplus > 0 && dead(mem);
            surplus -= usize::from(forgotten);
            !forgotten
        });
    }

    fn mem(&mut self, ptr: DevicePtr) -> &mut Mem {
        let base = ptr.to_base();
        self.ever
            .iter_mut()
            .find(|mem| mem.ptr == base)
            .expect("it was recorded")
    }

    fn find(&self, ptr: DevicePtr) -> &Mem {
        let base = ptr.to_base();
        self.ever
            .iter()
            .find(|mem| mem.ptr == base)
            .expect("it was recorded")
    }

    /// A range of memory of any age, mostly inside, sometimes far outside.
    fn some_range(&mut self) -> Option<(DevicePtr, u64)> {
        let alive = self.random(4) != 0;
        let wanted = |mem: &&Mem| !alive || matches!(mem.state, State::Live | State::Retired);
        let count = self.ever.iter().filter(wanted).count() as u64;
        let at = self.random(count.max(1)) as usize;
        let mem = self.ever.iter().filter(wanted).nth(at)?;
        let (ptr, extent) = (mem.ptr, mem.bytes);
        let offset = match self.random(16) {
            0 => 1,
            1 => extent / 2,
            2 => extent - 1,
            3 => extent,
            4 => extent + 1,
            5 => 1 << 40,
            _ => 0,
        };
        let rest = extent.saturating_sub(offset);
        let lengths = [rest, rest, rest, rest, 0, 1, rest + 1, u64::MAX];
        let bytes = lengths[self.random(lengths.len() as u64) as usize];
        Some((ptr.plus(offset).expect("far from the end"), bytes))
    }

    /// The owner, mostly; else some worker.
    fn some_ask(&mut self, operation: Operation) -> Ask {
        match self.random(8) {
            0 => Ask::on(operation, self.random(WORKERS as u64) as u32),
            _ => Ask::owner(operation),
        }
    }
}
