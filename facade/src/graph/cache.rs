//! The recorded graphs of one worker, by key, and what belongs to each.
//!
//! One lock around the cache of `taskgraph`, held for a look-up at a time and never while a body is recorded.
//! Who asks for a key that another thread is recording waits for that one, and for no other.

use std::num::NonZeroU32;
use std::panic::Location;
use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering};
use std::sync::{Arc, Weak};

use parking_lot::{Condvar, Mutex, MutexGuard};
use taskgraph::capture::{
    self, Cache, CacheLimits, Definition, Lookup, MismatchKind, NotRecordable, Recorder,
};
use taskgraph::{DType, Tensor};

use super::key::{Asked, GraphKey};
use super::scratch::Scratch;
use crate::buffer::BufferCore;
use crate::callable::Registry;
use crate::engine::Engine;
use crate::error::{BufferError, Name};

/// Memory of a recorder that is kept for the next recording.
const RECORDER_BYTES_MAX: usize = 4 << 20;

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
    /// Whether its key is one from a file that no call has asked for yet.
    is_unclaimed: AtomicBool,
}

impl Keeps {
    pub(crate) fn new(name: &Name, callables: Vec<Name>, registry: &Arc<Registry>) -> Self {
        Self {
            name: Arc::clone(name),
            callables,
            registry: Mutex::new(Arc::downgrade(registry)),
            is_unclaimed: AtomicBool::new(false),
        }
    }

    /// Of a definition from a file.
    pub(super) fn unclaimed(self) -> Self {
        let is_unclaimed = AtomicBool::new(true);
        Self {
            is_unclaimed,
            ..self
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
}

/// The recorded graphs of one worker.
#[derive(Debug)]
pub(crate) struct GraphCache {
    cache: Mutex<Cache<GraphKey, Keeps>>,
    /// A recording has ended.
    ended: Condvar,
    n_recordings: AtomicU32,
    scratch: Mutex<Scratch>,
    /// Calls that ran eagerly because there was no memory for a replay.
    n_without_memory: AtomicU64,
    /// What recorded last, with its memory.
    recorder: Mutex<Option<Box<Recorder>>>,
}

/// What is to be done with a call.
pub(crate) enum Begin<'a> {
    Record(Ticket<'a>),
    Ready(Cached),
    Uncacheable,
}

/// Intermediate memory of one replay.
pub(crate) enum Heap {
    /// The graph needs none.
    NotNeeded,
    Piece(Arc<BufferCore>, Tensor),
    /// There is none, and no room for any.
    NoRoom,
}

impl GraphCache {
    /// With so many bytes for all replays that are under way.
    pub(crate) fn new(scratch_bytes_max: u64) -> Self {
        Self {
            cache: Mutex::new(Cache::new(CacheLimits::default())),
            ended: Condvar::new(),
            n_recordings: AtomicU32::new(0),
            scratch: Mutex::new(Scratch::new(scratch_bytes_max)),
            n_without_memory: AtomicU64::new(0),
            recorder: Mutex::default(),
        }
    }

    pub(super) fn lock(&self) -> MutexGuard<'_, Cache<GraphKey, Keeps>> {
        self.cache.lock()
    }

    /// Looks a key up; waits where another thread is recording it.
    pub(crate) fn begin(&self, asked: &Asked<'_>, registry: &Arc<Registry>) -> Begin<'_> {
        let mut cache = self.cache.lock();
        loop {
            match cache.lookup_as(asked, || asked.to_key()) {
                Lookup::Ready(found) if !found.keeps.is_current(&found.definition, registry) => {
                    cache.forget(asked);
                }
                Lookup::Ready(found) => {
                    // Relaxed: read and written under the lock of the cache only.
                    if found.keeps.is_unclaimed.swap(false, Ordering::Relaxed) {
                        cache.rename(asked, asked.to_key());
                    }
                    return Begin::Ready(found);
                }
                Lookup::Record => return Begin::Record(self.ticket(asked.to_key())),
                Lookup::Busy => self.ended.wait(&mut cache),
                Lookup::Uncacheable(_) => return Begin::Uncacheable,
            }
        }
    }

    /// Memory for one replay.
    pub(crate) fn heap(
        &self,
        definition: &Arc<Definition>,
        engine: &Engine,
    ) -> Result<Heap, BufferError> {
        let wanted = definition.heap_bytes();
        if wanted == 0 {
            return Ok(Heap::NotNeeded);
        }
        let graph = Arc::as_ptr(definition).addr() as u64;
        let Ok(bytes) = usize::try_from(wanted) else {
            return Ok(Heap::NoRoom);
        };
        let piece = self
            .scratch
            .lock()
            .piece(graph, wanted, || engine.create_buffer(bytes))?;
        let Some(core) = piece else {
            return Ok(Heap::NoRoom);
        };
        let memory = Tensor::contiguous(core.id(), DType::U8, &[wanted], core.bytes());
        Ok(Heap::Piece(core, memory.map_err(BufferError::View)?))
    }

    /// Bytes of the memory of replays.
    pub(super) fn scratch_bytes(&self) -> u64 {
        self.scratch.lock().bytes()
    }

    pub(super) fn n_without_memory(&self) -> u64 {
        // Relaxed: a counter.
        self.n_without_memory.load(Ordering::Relaxed)
    }

    /// What recorded last, if nobody else is using it.
    pub(super) fn take_recorder(&self) -> Option<Box<Recorder>> {
        self.recorder.lock().take()
    }

    /// Keeps the memory of a recording for the next one.
    pub(super) fn keep_recorder(&self, recorder: Box<Recorder>) {
        if recorder.kept_bytes() <= RECORDER_BYTES_MAX {
            *self.recorder.lock() = Some(recorder);
        }
    }

    fn ticket(&self, key: GraphKey) -> Ticket<'_> {
        // Relaxed: only uniqueness matters, and that recordings under way at once differ.
        let number = self.n_recordings.fetch_add(1, Ordering::Relaxed) | 1 << 31;
        Ticket {
            graphs: self,
            number: NonZeroU32::new(number).unwrap_or(NonZeroU32::MIN),
            name: Name::from(key.name()),
            key,
            is_open: true,
        }
    }

    /// Why there is no memory for a replay.
    pub(crate) fn no_room(&self, definition: &Definition) -> Misfit {
        let max = self.scratch.lock().bytes_max();
        let wanted = definition.heap_bytes();
        Misfit::Memory { wanted, max }
    }

    pub(crate) fn hit(&self) {
        self.cache.lock().hit();
    }

    /// A call does not fit; said once per kind.
    pub(crate) fn misfit(&self, name: &Name, misfit: &Misfit, place: &'static Location<'static>) {
        let is_new = match misfit {
            Misfit::Call(difference) => self.cache.lock().mismatch(difference.kind),
            Misfit::Target(_) => self.cache.lock().mismatch(MismatchKind::Target),
            // Relaxed: a counter.
            Misfit::Memory { .. } => self.n_without_memory.fetch_add(1, Ordering::Relaxed) == 0,
        };
        if is_new {
            tracing::warn!(graph = %name, at = %place, %misfit, "a call does not fit the recorded graph, its tasks are submitted one by one; further ones of this kind are only counted");
        }
    }
}

/// Why a call of a recorded graph runs eagerly.
#[derive(Debug, thiserror::Error)]
pub(crate) enum Misfit {
    #[error(transparent)]
    Call(capture::Mismatch),
    #[error("the workers that there are differ from the recorded call: {0}")]
    Target(taskgraph::SubmitError),
    #[error(
        "the replay needs {wanted} bytes of intermediate memory, and replays have {max} together; give the worker more by \
         `WorkerBuilder::heap`"
    )]
    Memory { wanted: u64, max: u64 },
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
