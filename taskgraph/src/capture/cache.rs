//! The cache of definitions: bounded, least recently used goes first, and one recording per key.
//!
//! A pure state machine, as everything here: whoever shares it puts a lock around it, and waits with
//! whatever threads wait with where [`Lookup::Busy`] says that somebody else is recording.
//!
//! ```text
//!            lookup                    recorded
//! (absent) ─────────> Recording ────────────────────> Ready ──(least recently used)──> (absent)
//!     ^                   │  │        refused
//!     └───── abandoned ───┘  └──────────────────────> Uncacheable ──(the same)──────> (absent)
//! ```

use std::hash::Hash;
use std::sync::Arc;

use hashbrown::{Equivalent, HashMap, HashSet};

use super::boundary::MismatchKind;
use super::definition::Definition;
use super::refusal::NotRecordable;

/// How much a cache keeps.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct CacheLimits {
    /// Entries, those included that say that a key cannot be recorded.
    pub entries_max: usize,
    /// Bytes of all definitions.
    pub bytes_max: usize,
}

impl Default for CacheLimits {
    /// 256 entries, 64 MiB.
    fn default() -> CacheLimits {
        CacheLimits {
            entries_max: 256,
            bytes_max: 64 << 20,
        }
    }
}

/// What has happened since the cache was made. Exact.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct CacheCounters {
    /// Calls that were submitted as one task.
    pub hits: u64,
    /// Bodies that were recorded.
    pub recorded: u64,
    /// Calls that ran eagerly because their boundary did not fit.
    pub mismatches: u64,
    /// Calls that ran eagerly because their body cannot be recorded.
    pub uncacheable: u64,
    /// Recordings that were dropped to make room, or were too large to be kept at all.
    pub evicted: u64,
}

/// A definition in the cache, and what it keeps alive: everything that it names.
#[derive(Debug)]
pub struct Cached<T> {
    /// The definition.
    pub definition: Arc<Definition>,
    /// What belongs to it.
    pub keeps: T,
}

/// What the cache knows of a key.
#[derive(Debug)]
pub enum Lookup<T> {
    /// A definition. Say [`hit`](Cache::hit) or [`mismatch`](Cache::mismatch) when it was compared.
    Ready(Arc<Cached<T>>),
    /// Nothing: the caller records it, and says how that ended by [`recorded`](Cache::recorded),
    /// [`refused`](Cache::refused) or [`abandoned`](Cache::abandoned).
    Record,
    /// Somebody else is recording it: wait for that, then ask again.
    Busy,
    /// It cannot be recorded; the call was counted.
    Uncacheable(NotRecordable),
}

enum State<T> {
    Recording,
    Ready(Arc<Cached<T>>),
    Uncacheable(NotRecordable),
}

struct Entry<T> {
    state: State<T>,
    /// When it was last asked for, in calls of this cache.
    used: u64,
}

/// Definitions by key.
pub struct Cache<K, T> {
    entries: HashMap<K, Entry<T>>,
    limits: CacheLimits,
    counters: CacheCounters,
    bytes: usize,
    now: u64,
    reported: HashSet<MismatchKind>,
}

impl<K, T> std::fmt::Debug for Cache<K, T> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Cache")
            .field("entries", &self.entries.len())
            .field("bytes", &self.bytes)
            .field("counters", &self.counters)
            .finish_non_exhaustive()
    }
}

impl<K: Hash + Eq + Clone, T> Cache<K, T> {
    /// An empty cache.
    pub fn new(limits: CacheLimits) -> Cache<K, T> {
        Cache {
            entries: HashMap::new(),
            limits,
            counters: CacheCounters::default(),
            bytes: 0,
            now: 0,
            reported: HashSet::new(),
        }
    }

    /// What is known of a key. One hash look-up.
    pub fn lookup(&mut self, key: &K) -> Lookup<T> {
        self.lookup_as(key, || key.clone())
    }

    /// What is known of a key, by something that is hashed and compared like it; `make` makes the key where
    /// it is not known.
    pub fn lookup_as<Q>(&mut self, key: &Q, make: impl FnOnce() -> K) -> Lookup<T>
    where
        Q: Hash + Equivalent<K> + ?Sized,
    {
        self.now += 1;
        let Some(entry) = self.entries.get_mut(key) else {
            self.put(make(), State::Recording);
            return Lookup::Record;
        };
        entry.used = self.now;
        match &entry.state {
            State::Recording => Lookup::Busy,
            State::Ready(cached) => Lookup::Ready(Arc::clone(cached)),
            State::Uncacheable(reason) => {
                self.counters.uncacheable += 1;
                Lookup::Uncacheable(*reason)
            }
        }
    }

    /// A call fitted and was submitted.
    pub fn hit(&mut self) {
        self.counters.hits += 1;
    }

    /// A call did not fit and runs eagerly. Says whether this is the first of its kind, to be logged.
    pub fn mismatch(&mut self, kind: MismatchKind) -> bool {
        self.counters.mismatches += 1;
        self.reported.insert(kind)
    }

    /// The body of a key was recorded. Others may be dropped for it; itself, and no other, when it alone is
    /// too large.
    pub fn recorded(&mut self, key: &K, definition: Arc<Definition>, keeps: T) -> Arc<Cached<T>> {
        self.counters.recorded += 1;
        let cached = Arc::new(Cached { definition, keeps });
        self.insert(key.clone(), Arc::clone(&cached));
        cached
    }

    /// The body of a key cannot be recorded; the call is counted. Later ones are told so.
    pub fn refused(&mut self, key: &K, reason: NotRecordable) {
        self.counters.uncacheable += 1;
        self.put(key.clone(), State::Uncacheable(reason));
        self.make_room();
    }

    /// Recording ended without a result: the body failed or panicked. The next call starts anew.
    pub fn abandoned(&mut self, key: &K) {
        if matches!(
            self.entries.get(key),
            Some(Entry {
                state: State::Recording,
                ..
            })
        ) {
            self.entries.remove(key);
        }
    }

    /// Keeps what is known of a key under another one, which takes its place.
    pub fn rename<Q: Hash + Equivalent<K> + ?Sized>(&mut self, old: &Q, new: K) {
        if let Some(entry) = self.entries.remove(old) {
            self.entries.insert(new, entry);
        }
    }

    /// Drops the definition of a key that can be used no more. The next call starts anew.
    pub fn forget<Q: Hash + Equivalent<K> + ?Sized>(&mut self, key: &Q) {
        if let Some(dropped) = self.entries.remove(key) {
            self.bytes -= dropped.bytes();
        }
    }

    /// What has happened so far.
    pub fn counters(&self) -> CacheCounters {
        self.counters
    }

    /// Number of entries.
    pub fn len(&self) -> usize {
        self.entries.len()
    }

    /// Whether there is no entry.
    pub fn is_empty(&self) -> bool {
        self.entries.is_empty()
    }

    /// Bytes of all definitions.
    pub fn bytes(&self) -> usize {
        self.bytes
    }

    /// All definitions with their keys, least recently used first.
    pub fn definitions(&self) -> impl Iterator<Item = (&K, &Arc<Cached<T>>)> {
        let mut ready: Vec<_> = self.entries.iter().collect();
        ready.sort_by_key(|(_, entry)| entry.used);
        ready
            .into_iter()
            .filter_map(|(key, entry)| match &entry.state {
                State::Ready(cached) => Some((key, cached)),
                _ => None,
            })
    }

    /// Puts a definition in that was recorded before, by an earlier process for example. One that is there
    /// already stays.
    pub fn restore(&mut self, key: K, definition: Definition, keeps: T) {
        if !self.entries.contains_key(&key) {
            self.now += 1;
            let definition = Arc::new(definition);
            self.insert(key, Arc::new(Cached { definition, keeps }));
        }
    }

    fn insert(&mut self, key: K, cached: Arc<Cached<T>>) {
        if cached.definition.bytes() > self.limits.bytes_max {
            // Nothing would be left beside it, and it would not stay either.
            self.counters.evicted += 1;
            return self.forget(&key);
        }
        self.bytes += cached.definition.bytes();
        self.put(key, State::Ready(cached));
        self.make_room();
    }

    fn put(&mut self, key: K, state: State<T>) {
        let used = self.now;
        if let Some(old) = self.entries.insert(key, Entry { state, used }) {
            self.bytes -= old.bytes();
        }
    }

    /// Drops what was not asked for the longest, until the limits hold. What is being recorded stays.
    ///
    /// Looks through all entries, but only when something was recorded, which costs far more.
    fn make_room(&mut self) {
        while self.entries.len() > self.limits.entries_max || self.bytes > self.limits.bytes_max {
            let settled = self
                .entries
                .iter()
                .filter(|(_, entry)| !entry.is_recording());
            let Some(oldest) = settled.min_by_key(|(_, entry)| entry.used) else {
                return;
            };
            let key = oldest.0.clone();
            if let Some(dropped) = self.entries.remove(&key) {
                self.bytes -= dropped.bytes();
                self.counters.evicted += 1;
            }
        }
    }
}

impl<T> Entry<T> {
    fn is_recording(&self) -> bool {
        matches!(self.state, State::Recording)
    }

    fn bytes(&self) -> usize {
        match &self.state {
            State::Ready(cached) => cached.definition.bytes(),
            _ => 0,
        }
    }
}
