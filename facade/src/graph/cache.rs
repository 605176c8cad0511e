//! The recorded graphs of one worker, by key, and what belongs to each.
//!
//! One lock around the cache of `taskgraph`, held for a look-up at a time and never while a body is recorded.
//! Who asks for a key that another thread is recording waits for that one, and for no other.

use std::any::{TypeId, type_name};
use std::borrow::Cow;
use std::hash::{Hash, Hasher};
use std::num::NonZeroU32;
use std::panic::Location;
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Arc, Weak};

use parking_lot::{Condvar, Mutex, MutexGuard};
use smallvec::SmallVec;
use taskgraph::capture::{self, Cache, CacheLimits, Definition, Lookup, Mismatch, NotRecordable};
use taskgraph::{DType, Inference, Tensor};

use crate::buffer::BufferCore;
use crate::callable::Registry;
use crate::engine::Engine;
use crate::error::{BufferError, Name};

/// Pieces of intermediate memory that one recorded graph keeps for its replays. More replays than that are under
/// way at once only one after the other.
const SCRATCH_MAX: usize = 4;

/// Names a recording: which function, by a hash of its type, with which construction parameters, by all that they
/// feed to a hasher.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub(crate) struct GraphKey {
    pub(super) function: u64,
    pub(super) name: Cow<'static, str>,
    /// Whether it is called where no order is inferred, so that none is inside of it.
    pub(super) is_manual: bool,
    /// All that the key feeds to a hasher: equal keys feed equal bytes.
    pub(super) params: SmallVec<[u8; 48]>,
}

impl GraphKey {
    pub(crate) fn of<K: Hash, F: 'static>(key: &K, inference: Inference) -> Self {
        let mut function = Words(0);
        TypeId::of::<F>().hash(&mut function);
        let mut params = Bytes(SmallVec::new());
        key.hash(&mut params);
        Self {
            function: function.0,
            name: Cow::Borrowed(type_name::<F>()),
            is_manual: inference == Inference::Manual,
            params: params.0,
        }
    }
}

/// Keeps what is hashed.
struct Bytes(SmallVec<[u8; 48]>);

impl Hasher for Bytes {
    fn write(&mut self, bytes: &[u8]) {
        self.0.extend_from_slice(bytes);
    }

    fn finish(&self) -> u64 {
        0
    }
}

/// Mixes what is hashed; a type's identity is hashed well already.
struct Words(u64);

impl Hasher for Words {
    fn write(&mut self, bytes: &[u8]) {
        for &byte in bytes {
            self.0 = (self.0 ^ u64::from(byte)).wrapping_mul(0x0000_0100_0000_01b3);
        }
    }

    fn finish(&self) -> u64 {
        self.0
    }
}

/// A definition with what it keeps.
pub(crate) type Cached = Arc<capture::Cached<Keeps>>;

/// What belongs to a recorded graph.
#[derive(Debug)]
pub(crate) struct Keeps {
    /// What it is called in messages.
    pub(crate) name: Name,
    /// The names of its callables, as its nodes number them.
    pub(crate) callables: Vec<Name>,
    /// The registry in which all its callables were found last.
    registry: Mutex<Weak<Registry>>,
    scratch: Mutex<Scratch>,
}

/// Intermediate memory, used in turn.
#[derive(Debug, Default)]
struct Scratch {
    pieces: Vec<Arc<BufferCore>>,
    next: usize,
}

impl Keeps {
    pub(crate) fn new(name: &Name, callables: Vec<Name>, registry: &Arc<Registry>) -> Self {
        Self {
            name: Arc::clone(name),
            callables,
            registry: Mutex::new(Arc::downgrade(registry)),
            scratch: Mutex::default(),
        }
    }

    /// Whether every callable is still registered. One comparison while no callable comes or goes.
    fn is_current(&self, definition: &Definition, registry: &Arc<Registry>) -> bool {
        let mut seen = self.registry.lock();
        if seen.as_ptr() == Arc::as_ptr(registry) {
            return true;
        }
        let numbers = 0..self.callables.len() as u32;
        let all = numbers.map_while(|number| definition.digest(number));
        let is_current = all
            .into_iter()
            .all(|digest| registry.find(&device::Digest(*digest)).is_some());
        if is_current {
            *seen = Arc::downgrade(registry);
        }
        is_current
    }

    /// Intermediate memory for one replay: a piece that nobody uses, a new one while there are few, else the one
    /// whose turn it is, which orders this replay behind the one that has it.
    pub(crate) fn scratch(
        &self,
        definition: &Definition,
        engine: &Engine,
    ) -> Result<Option<(Arc<BufferCore>, Tensor)>, BufferError> {
        let Ok(bytes) = usize::try_from(definition.heap_bytes()) else {
            let (n_elements, element_bytes) = (usize::MAX, 1);
            return Err(BufferError::Size {
                n_elements,
                element_bytes,
            });
        };
        if bytes == 0 {
            return Ok(None);
        }
        let core = self.scratch.lock().piece(|| engine.create_buffer(bytes))?;
        let whole = Tensor::contiguous(core.id(), DType::U8, &[bytes as u64], core.bytes());
        Ok(Some((core, whole.map_err(BufferError::View)?)))
    }
}

impl Scratch {
    fn piece(
        &mut self,
        create: impl FnOnce() -> Result<Arc<BufferCore>, BufferError>,
    ) -> Result<Arc<BufferCore>, BufferError> {
        if let Some(free) = self.pieces.iter().find(|piece| piece.is_idle()) {
            return Ok(Arc::clone(free));
        }
        if self.pieces.len() < SCRATCH_MAX {
            self.pieces.push(create()?);
            return Ok(Arc::clone(&self.pieces[self.pieces.len() - 1]));
        }
        self.next = (self.next + 1) % SCRATCH_MAX;
        Ok(Arc::clone(&self.pieces[self.next]))
    }
}

/// The recorded graphs of one worker.
#[derive(Debug)]
pub(crate) struct GraphCache {
    cache: Mutex<Cache<GraphKey, Keeps>>,
    /// A recording has ended.
    ended: Condvar,
    n_recordings: AtomicU32,
}

/// What is to be done with a call.
pub(crate) enum Begin<'a> {
    Record(Ticket<'a>),
    Ready(Cached),
    Uncacheable,
}

impl GraphCache {
    pub(crate) fn new() -> Self {
        Self {
            cache: Mutex::new(Cache::new(CacheLimits::default())),
            ended: Condvar::new(),
            n_recordings: AtomicU32::new(0),
        }
    }

    pub(super) fn lock(&self) -> MutexGuard<'_, Cache<GraphKey, Keeps>> {
        self.cache.lock()
    }

    /// Looks a key up; waits where another thread is recording it.
    pub(crate) fn begin(&self, key: &GraphKey, registry: &Arc<Registry>) -> Begin<'_> {
        let mut cache = self.cache.lock();
        loop {
            match cache.lookup(key) {
                Lookup::Ready(found) if !found.keeps.is_current(&found.definition, registry) => {
                    cache.forget(key);
                }
                Lookup::Ready(found) => return Begin::Ready(found),
                Lookup::Record => return Begin::Record(self.ticket(key)),
                Lookup::Busy => self.ended.wait(&mut cache),
                Lookup::Uncacheable(_) => return Begin::Uncacheable,
            }
        }
    }

    fn ticket(&self, key: &GraphKey) -> Ticket<'_> {
        // Relaxed: only uniqueness matters, and that recordings under way at once differ.
        let number = self.n_recordings.fetch_add(1, Ordering::Relaxed) | 1 << 31;
        Ticket {
            graphs: self,
            number: NonZeroU32::new(number).unwrap_or(NonZeroU32::MIN),
            name: Name::from(&*key.name),
            key: key.clone(),
            is_open: true,
        }
    }

    pub(crate) fn hit(&self) {
        self.cache.lock().hit();
    }

    /// A call does not fit; said once per kind.
    pub(crate) fn mismatch(
        &self,
        name: &Name,
        difference: &Mismatch,
        place: &'static Location<'static>,
    ) {
        if self.cache.lock().mismatch(difference.kind) {
            tracing::warn!(graph = %name, at = %place, %difference, "a call does not fit the recorded graph, its tasks are submitted one by one; further ones of this kind are only counted");
        }
    }
}

/// The right to record a key, and the duty to say how that ended; dropping it says that it did not work out.
pub(crate) struct Ticket<'a> {
    graphs: &'a GraphCache,
    number: NonZeroU32,
    name: Name,
    key: GraphKey,
    is_open: bool,
}

impl Ticket<'_> {
    /// Tells this recording from all others.
    pub(crate) fn number(&self) -> NonZeroU32 {
        self.number
    }

    pub(crate) fn name(&self) -> &Name {
        &self.name
    }

    pub(crate) fn recorded(mut self, definition: Definition, keeps: Keeps) -> Cached {
        self.is_open = false;
        let mut cache = self.graphs.lock();
        let cached = cache.recorded(&self.key, Arc::new(definition), keeps);
        self.graphs.ended.notify_all();
        cached
    }

    pub(crate) fn refused(mut self, reason: NotRecordable) {
        self.is_open = false;
        self.graphs.lock().refused(&self.key, reason);
        self.graphs.ended.notify_all();
    }
}

impl Drop for Ticket<'_> {
    fn drop(&mut self) {
        if self.is_open {
            self.graphs.lock().abandoned(&self.key);
            self.graphs.ended.notify_all();
        }
    }
}
