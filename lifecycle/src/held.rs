//! Who holds what: one record per thread, written without a lock, read by a close that must wait.
//!
//! Two questions need it.
//! A close asks *its own* record whether this thread is inside the lifecycle that it is about to close; waiting
//! would then be waiting for itself.
//! A close that ran out of budget asks *all* records which operations are still admitted.
//!
//! A record is a chain of slots, each one word: which lifecycle, which [`Kind`], which operation.
//! Only the record's thread fills an empty slot, so it needs no read-modify-write; whoever ends
//! the operation clears it, on any thread.
//! A slot is filled after admission and cleared before release, so a name that is read here was admitted when it was read.
//! Nothing here decides whether anybody is admitted: that is the word's alone.

use std::{
    cell::Cell,
    fmt,
    marker::PhantomData,
    sync::{MutexGuard, PoisonError},
};

use crate::{
    operation::{self, Operation},
    sync::{
        Ordering, thread_local,
        unmodelled::{AtomicU64, Mutex, OnceLock},
    },
};

#[cfg(all(test, not(loom)))]
mod tests;

/// How a slot binds its operation to the record's thread.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Kind {
    /// A lease of this thread.
    Lease,
    /// A lease that was taken on this thread and may have gone anywhere.
    Owned,
    /// Not a lease, but this thread is inside: a start, a close, or work under an owned lease.
    Inside,
}

/// One admitted operation that a close still waits for.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Holder {
    /// The operation's name.
    pub operation: &'static str,
    /// The thread that took the lease; an owned lease may be elsewhere by now.
    pub thread: String,
}

/// A filled slot; dropping it clears the slot.
#[derive(Debug)]
pub(crate) struct Mark(&'static AtomicU64);

impl Mark {
    /// Notes on this thread's record that it is inside the operation of this mark.
    pub(crate) fn enter(&self) -> Mark {
        let entry = Entry(self.0.load(Ordering::Acquire)); // Pairs with the release in `fill`.
        fill(Entry::pack(entry.key(), Kind::Inside, entry.operation()))
    }
}

/// Keeps a guard on the thread that made it.
pub(crate) type OnThisThread = PhantomData<*const ()>;

/// The content of a slot: `key << 18 | kind << 16 | operation`; zero is empty, since keys begin at one.
#[derive(Clone, Copy)]
struct Entry(u64);

#[derive(Default)]
struct Record {
    slots: Block,
    thread: Mutex<String>,
}

#[derive(Default)]
struct Block {
    slots: [AtomicU64; SLOTS],
    more: OnceLock<Box<Block>>,
}

/// Slots of one block: nested leases beyond these cost one allocation per thread and block.
const SLOTS: usize = 6;

const KEY_SHIFT: u32 = 18;
const KIND_SHIFT: u32 = 16;

/// All records ever made; they are never freed, only used again.
static RECORDS: Mutex<Vec<&'static Record>> = Mutex::new(Vec::new());

/// Records whose thread has ended; some of its leases may be alive still.
static SPARE: Mutex<Vec<&'static Record>> = Mutex::new(Vec::new());

static NEXT_KEY: AtomicU64 = AtomicU64::new(1);

// Two variables, so that the one on the fast path has no destructor and needs no state check.
#[cfg(not(loom))]
thread_local! {
    static MINE: Cell<Option<&'static Record>> = const { Cell::new(None) };
    static RETURN: Cell<Option<ReturnOnExit>> = const { Cell::new(None) };
}
#[cfg(loom)]
thread_local! {
    static MINE: Cell<Option<&'static Record>> = Cell::new(None);
    static RETURN: Cell<Option<ReturnOnExit>> = Cell::new(None);
}

/// A number that tells this lifecycle from every other one of the process.
pub(crate) fn new_key() -> u64 {
    NEXT_KEY.fetch_add(1, Ordering::Relaxed)
}

/// Notes on this thread's record that it entered `operation` of the lifecycle `key`.
#[inline]
pub(crate) fn mark(key: u64, kind: Kind, operation: &Operation) -> Mark {
    fill(Entry::pack(key, kind, operation.id()))
}

#[inline]
fn fill(entry: Entry) -> Mark {
    let slot = my_record().slots.vacant();
    // Release: pairs with the acquire in `entries`, whose caller then finds the operation's name registered.
    slot.store(entry.0, Ordering::Release);
    Mark(slot)
}

/// The operation that this thread is inside of, if it is inside the lifecycle `key`.
pub(crate) fn inside(key: u64) -> Option<&'static str> {
    let record = MINE.with(Cell::get)?;
    let mut entries = record.slots.entries();
    let found = entries.find(|entry| entry.key() == key && entry.kind() != Kind::Owned)?;
    Some(operation::name_of(found.operation()))
}

/// All admitted operations of the lifecycle `key`, as far as they are named at this instant.
pub(crate) fn holders(key: u64) -> Vec<Holder> {
    let records = unpoisoned(&RECORDS).clone();
    let held = |record: &'static Record| {
        let of_key = move |entry: &Entry| entry.key() == key && entry.kind() != Kind::Inside;
        record
            .slots
            .entries()
            .filter(of_key)
            .map(move |entry| record.holder(entry))
    };
    records.into_iter().flat_map(held).collect()
}

#[inline]
fn my_record() -> &'static Record {
    match MINE.with(Cell::get) {
        Some(record) => record,
        None => enroll(),
    }
}

/// Gives this thread a record: a spare one, or a new one that lives as long as the process.
#[cold]
fn enroll() -> &'static Record {
    let record = spare_record().unwrap_or_else(|| {
        let record: &'static Record = Box::leak(Box::default());
        unpoisoned(&RECORDS).push(record);
        record
    });
    *unpoisoned(&record.thread) = this_thread();
    MINE.with(|mine| mine.set(Some(record)));
    // A thread whose storage is being destroyed keeps its record for good: nothing would return it.
    let _ = RETURN.try_with(|on_exit| on_exit.set(Some(ReturnOnExit(record))));
    record
}

/// A record that nobody uses any more.
///
/// Its thread has ended, and so has all that it noted: an owned lease keeps the name of its thread,
/// and a lease that its thread has forgotten (`mem::forget`) does not make the next thread an insider.
fn spare_record() -> Option<&'static Record> {
    let mut spare = unpoisoned(&SPARE);
    let index = spare
        .iter()
        .rposition(|record| record.slots.entries().next().is_none())?;
    Some(spare.swap_remove(index))
}

/// The current thread's name, or its number where it has none.
pub(crate) fn this_thread() -> String {
    let thread = std::thread::current();
    thread
        .name()
        .map_or_else(|| format!("{:?}", thread.id()), str::to_owned)
}

fn unpoisoned<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Hands a record on when its thread ends.
struct ReturnOnExit(&'static Record);

impl Drop for ReturnOnExit {
    fn drop(&mut self) {
        let _ = MINE.try_with(|mine| mine.set(None));
        // A lease that its thread has forgotten (`mem::forget`) is admitted for ever, and its
        // record must not tell the next thread that it is inside.
        if self
            .0
            .slots
            .entries()
            .all(|entry| entry.kind() == Kind::Owned)
        {
            unpoisoned(&SPARE).push(self.0);
        }
    }
}

impl Drop for Mark {
    #[inline]
    fn drop(&mut self) {
        // Release: the owner of the record may fill the slot again after it has seen this.
        self.0.store(0, Ordering::Release);
    }
}

impl Record {
    fn holder(&self, entry: Entry) -> Holder {
        let operation = operation::name_of(entry.operation());
        Holder {
            operation,
            thread: unpoisoned(&self.thread).clone(),
        }
    }
}

impl Block {
    /// An empty slot; only the thread of the record may ask.
    #[inline]
    fn vacant(&'static self) -> &'static AtomicU64 {
        // Acquire: pairs with the release that cleared the slot, perhaps on another thread.
        match self
            .slots
            .iter()
            .find(|slot| slot.load(Ordering::Acquire) == 0)
        {
            Some(slot) => slot,
            None => self.vacant_further(),
        }
    }

    #[cold]
    fn vacant_further(&'static self) -> &'static AtomicU64 {
        self.more.get_or_init(Box::default).vacant()
    }

    fn entries(&'static self) -> impl Iterator<Item = Entry> {
        let blocks =
            std::iter::successors(Some(self), |block| block.more.get().map(|more| &**more));
        // Acquire: pairs with the release in `fill`.
        let words = blocks.flat_map(|block| block.slots.iter().map(|s| s.load(Ordering::Acquire)));
        words.filter(|word| *word != 0).map(Entry)
    }
}

impl Entry {
    #[inline]
    fn pack(key: u64, kind: Kind, operation: u16) -> Self {
        Self(key << KEY_SHIFT | (kind as u64) << KIND_SHIFT | u64::from(operation))
    }

    fn key(self) -> u64 {
        self.0 >> KEY_SHIFT
    }

    fn kind(self) -> Kind {
        match (self.0 >> KIND_SHIFT) & 0b11 {
            0 => Kind::Lease,
            1 => Kind::Owned,
            _ => Kind::Inside,
        }
    }

    fn operation(self) -> u16 {
        (self.0 & 0xffff) as u16
    }
}

impl fmt::Display for Holder {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "`{}` (taken on thread {})", self.operation, self.thread)
    }
}
