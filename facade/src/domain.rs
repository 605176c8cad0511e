//! Domains: memory that several chips share, a window of each rank mapped at every other.
//!
//! ```text
//!                    rank 0 (chip 2)   rank 1 (chip 5)
//!  window of rank 0      home      <--     peer            one shared object, nameless;
//!  window of rank 1      peer      -->     home            each chip maps all windows
//! ```
//!
//! The members of a domain have dense ranks, in the order in which they were named. A window is split into named buffers,
//! the same in every rank; [`Domain::buffer`] gives the handles of one of them, indexed by rank. A handle can be used by
//! tasks on every member, and has one identity wherever it is used: so tasks on different chips that touch the same bytes
//! run in the order of their submission, and no barrier is needed between them.
//!
//! Released and freed are two facts. A released domain is refused by new submits and copies; its memory goes when the
//! last task that names it has ended. A domain that was allocated inside an orchestration is released when its run ends,
//! last first, however it ends, unless [`Domain::retain_after_run`] was called.

use std::fmt;
use std::ops::{Index, Range};
use std::sync::atomic::{AtomicBool, AtomicU8, Ordering};
use std::sync::{Arc, Weak};

use provenance::{Ask, DevicePtr, Operation, Revoked, Table, WorkerRef};
use taskgraph::{BufferId, BufferKind, DType, Tensor};

use crate::control::{DeviceName, WireWindow};
use crate::desk::name_of;
use crate::device_memory::DeviceBuffer;
use crate::element::Element;
use crate::engine::{Engine, JobOutcome, Laters, Owed};
use crate::error::{DomainError, Error, MemoryError, Name};
use crate::orchestrator::Orchestrator;
use crate::worker::{MEMORY, Worker};

mod allocate;
mod layout;

use self::layout::Layout;
pub use self::layout::{NamedBuffer, named};

/// Memory that several chips share. Cheap to clone; dropping it releases nothing.
#[derive(Clone)]
pub struct Domain {
    core: Arc<DomainCore>,
}

/// The buffers of one name of all ranks: [`DeviceBuffer`]s, indexed by rank.
#[derive(Debug, Clone)]
pub struct Symmetric<T: Element> {
    domain: Domain,
    ranks: Vec<DeviceBuffer<T>>,
}

/// A domain as the engine gives it back.
pub(crate) struct DomainCore {
    name: Name,
    layout: Layout,
    members: Vec<Member>,
    /// Where the shared object has the window of each rank, one after the other.
    stride: u64,
    engine: Weak<Engine>,
    retained: AtomicBool,
    state: AtomicU8,
    /// The requests by which it goes.
    owed: Arc<Owed>,
}

/// One rank.
struct Member {
    worker: WorkerRef,
    /// The memory of this rank, which is what tasks name.
    root: DevicePtr,
    /// This rank's windows on the memory of each rank.
    windows: Vec<DevicePtr>,
    leaked: AtomicBool,
}

/// The states of a domain; it only goes on.
const LIVE: u8 = 0;
const RELEASED: u8 = 1;
const FREED: u8 = 2;

impl fmt::Debug for Domain {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let workers: Vec<u32> = self.core.members.iter().map(|it| it.worker.id).collect();
        f.debug_struct("Domain")
            .field("name", &self.core.name)
            .field("workers", &workers)
            .field("is_released", &self.is_released())
            .finish()
    }
}

impl Domain {
    /// The name that it was allocated with.
    #[must_use]
    pub fn name(&self) -> &str {
        &self.core.name
    }

    /// Whether both are handles of one domain.
    pub(crate) fn is(&self, other: &Self) -> bool {
        Arc::ptr_eq(&self.core, &other.core)
    }

    /// The number of members.
    #[must_use]
    pub fn ranks(&self) -> usize {
        self.core.members.len()
    }

    /// The next-level index of the chip worker with this rank, if there is such a rank.
    #[must_use]
    pub fn worker(&self, rank: usize) -> Option<u32> {
        Some(self.core.members.get(rank)?.worker.id)
    }

    /// The rank of a chip worker, if it is a member.
    #[must_use]
    pub fn rank_of(&self, worker: u32) -> Option<usize> {
        let mut members = self.core.members.iter();
        members.position(|member| member.worker.id == worker)
    }

    /// The length of each window in bytes.
    #[must_use]
    pub fn window_bytes(&self) -> u64 {
        self.core.layout.window_bytes()
    }

    /// The handles of a named buffer, by rank.
    ///
    /// # Errors
    ///
    /// [`Error::Domain`] when there is no such buffer, it has other elements, or the domain was released.
    pub fn buffer<T: Element>(&self, name: &str) -> Result<Symmetric<T>, Error> {
        let core = &self.core;
        let found = core
            .layout
            .find(name)
            .ok_or_else(|| DomainError::NoBuffer {
                domain: Arc::clone(&core.name),
                buffer: name.to_owned(),
                known: core.layout.names(),
            })?;
        if found.dtype() != T::DTYPE {
            return Err(DomainError::Elements {
                domain: Arc::clone(&core.name),
                buffer: name.to_owned(),
                asked: T::DTYPE,
                found: found.dtype(),
            }
            .into());
        }
        self.symmetric(T::DTYPE, found.offset(), found.n_elements())
    }

    /// The whole window of each rank as bytes, named buffers included.
    ///
    /// # Errors
    ///
    /// [`Error::Domain`] when the domain was released.
    pub fn window(&self) -> Result<Symmetric<u8>, Error> {
        self.symmetric(DType::U8, 0, self.window_bytes())
    }

    fn symmetric<T: Element>(
        &self,
        dtype: DType,
        offset: u64,
        n_elements: u64,
    ) -> Result<Symmetric<T>, Error> {
        if self.is_released() {
            let domain = Arc::clone(&self.core.name);
            return Err(DomainError::Released { domain }.into());
        }
        let of_rank = |(rank, member): (usize, &Member)| {
            let (root, bytes) = (member.root, self.window_bytes());
            let id = u64::from(root.entry());
            let life = root.worker().incarnation;
            let buffer = BufferId::new(life, id, root.generation(), BufferKind::Device);
            let tensor = Tensor::strided(buffer, dtype, offset, &[n_elements], &[1], bytes);
            let tensor = tensor.map_err(MemoryError::View)?;
            Ok(DeviceBuffer::in_window(member.windows[rank], tensor))
        };
        let ranks = self.core.members.iter().enumerate().map(of_rank);
        Ok(Symmetric {
            domain: self.clone(),
            ranks: ranks.collect::<Result<_, Error>>()?,
        })
    }

    /// Releases the domain: new submits and copies that name it are refused from now on. Its memory goes when the last task
    /// that names it has ended. Where none does it is gone when this returns, but on a chip that is in another task: that
    /// gives it back after the task, which nobody waits for. A second call does nothing, and neither does one after the
    /// worker was closed, when the memory is gone.
    ///
    /// Cost: one request to each member.
    pub fn release(&self) {
        match self.core.engine.upgrade() {
            Some(engine) => {
                engine.release_domain(&self.core);
                engine.await_given_back(&self.core.owed);
            }
            // Gone with everything.
            None => self.core.state.store(FREED, Ordering::Release),
        }
    }

    /// Keeps a domain that was allocated inside an orchestration when its run ends. It lives then until it is released, or
    /// its worker is closed.
    pub fn retain_after_run(&self) {
        // Relaxed: read under the lock under which the run ends.
        self.core.retained.store(true, Ordering::Relaxed);
    }

    /// Whether it was released, so that new uses are refused.
    #[must_use]
    pub fn is_released(&self) -> bool {
        self.core.state.load(Ordering::Acquire) >= RELEASED
    }

    /// Whether its memory is gone on every member: unmapped after a release, or gone with the members when the worker was
    /// closed.
    #[must_use]
    pub fn is_freed(&self) -> bool {
        self.core.state.load(Ordering::Acquire) == FREED || self.core.lives_ended()
    }
}

impl<T: Element> Symmetric<T> {
    /// The domain that it is a part of.
    #[must_use]
    pub fn domain(&self) -> &Domain {
        &self.domain
    }

    /// The number of ranks.
    #[must_use]
    pub fn ranks(&self) -> usize {
        self.ranks.len()
    }

    /// The handle of each rank, in order.
    pub fn iter(&self) -> impl ExactSizeIterator<Item = DeviceBuffer<T>> + '_ {
        self.ranks.iter().copied()
    }

    /// The number of elements in each rank.
    #[must_use]
    pub fn len(&self) -> usize {
        self.ranks[0].len()
    }

    /// Whether there are no elements.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// The elements `range` of every rank.
    ///
    /// # Errors
    ///
    /// [`Error::Memory`] when the range leaves it.
    pub fn slice(&self, range: Range<usize>) -> Result<Self, Error> {
        let ranks = self.ranks.iter().map(|of| of.slice(range.clone()));
        Ok(Self {
            domain: self.domain.clone(),
            ranks: ranks.collect::<Result<_, Error>>()?,
        })
    }
}

/// # Panics
///
/// When there is no such rank; there are [`Symmetric::ranks`].
impl<T: Element> Index<usize> for Symmetric<T> {
    type Output = DeviceBuffer<T>;

    fn index(&self, rank: usize) -> &DeviceBuffer<T> {
        &self.ranks[rank]
    }
}

impl DomainCore {
    pub(crate) fn is_retained(&self) -> bool {
        self.retained.load(Ordering::Relaxed)
    }

    pub(crate) fn owed(&self) -> Arc<Owed> {
        Arc::clone(&self.owed)
    }

    /// Whether the worker that has it was closed.
    fn lives_ended(&self) -> bool {
        self.engine.upgrade().is_none_or(|engine| {
            let core = engine.core();
            let mut members = self.members.iter().map(|member| member.worker);
            members.all(|life| core.life(life.id as usize) != life)
        })
    }

    pub(crate) fn n_ranks(&self) -> usize {
        self.members.len()
    }

    /// The life of the worker that has this rank.
    pub(crate) fn member(&self, rank: usize) -> WorkerRef {
        self.members[rank].worker
    }

    pub(crate) fn rank_of(&self, life: WorkerRef) -> Option<usize> {
        self.members.iter().position(|it| it.worker == life)
    }

    /// Every window: who sees whose memory, and its handle.
    pub(crate) fn windows(&self) -> impl Iterator<Item = (usize, usize, DevicePtr)> + '_ {
        let of = |(viewer, member): (usize, &'_ Member)| {
            let windows = member.windows.clone().into_iter().enumerate();
            windows.map(move |(rank, ptr)| (viewer, rank, ptr))
        };
        self.members.iter().enumerate().flat_map(of)
    }

    /// Which of the windows this is.
    pub(crate) fn find(&self, ptr: DevicePtr) -> Option<(usize, usize)> {
        let found = self.windows().find(|(_, _, window)| *window == ptr);
        found.map(|(viewer, rank, _)| (viewer, rank))
    }

    /// The windows of one member, as its process names them.
    pub(crate) fn wire_windows(&self, viewer: usize) -> Vec<WireWindow> {
        let windows = self.members[viewer].windows.iter().enumerate();
        windows
            .map(|(rank, &ptr)| {
                let root = name_of(self.members[rank].root);
                self.layout
                    .wire_window(name_of(ptr), root, rank, viewer == rank, self.stride)
            })
            .collect()
    }

    /// From live to released; false when somebody has done it.
    pub(crate) fn begin_release(&self) -> bool {
        let live = self
            .state
            .compare_exchange(LIVE, RELEASED, Ordering::AcqRel, Ordering::Acquire);
        live.is_ok()
    }

    /// A member could not unmap its windows.
    pub(crate) fn note_leak(&self, rank: usize, outcome: &JobOutcome, later: &mut Laters) {
        let member = &self.members[rank];
        // Relaxed: read by `end_release`, under the same lock.
        member.leaked.store(true, Ordering::Relaxed);
        let (domain, worker, outcome) = (self.name.clone(), member.worker, outcome.clone());
        later.tell(move || tracing::error!(%domain, %worker, ?outcome, "windows are leaked"));
    }

    /// Strikes the memory of every rank out of the table, when no window on it is left there: its address may be recorded
    /// for other memory from now on. By rank; what was lost with its worker is not among it.
    pub(crate) fn revoke_roots(&self, table: &Table) -> Vec<(usize, Revoked)> {
        let ask = Ask::owner(Operation::Free);
        let roots = self.members.iter().enumerate();
        roots
            .filter_map(|(rank, member)| Some((rank, table.revoke(ask, member.root).ok()?)))
            .collect()
    }

    /// Every living member has unmapped: the memory itself is gone, but where one could not.
    pub(crate) fn end_release(&self, roots: Vec<(usize, Revoked)>) {
        for (rank, memory) in roots {
            // Relaxed: all of this is called under core. Dropped otherwise: a leak.
            if !self.members[rank].leaked.load(Ordering::Relaxed) {
                memory.freed();
            }
        }
        self.state.store(FREED, Ordering::Release);
    }
}

impl Orchestrator<'_> {
    /// Allocates a domain over chips: a window of `window_bytes` of each of them, mapped at every other and zeroed, with
    /// named buffers in it (see [`named`]). Released when the run ends, unless it is retained.
    ///
    /// Nobody sees the memory before all members have mapped it. What is copied into it before the first task that names it
    /// is submitted is seen by all tasks.
    ///
    /// # Errors
    ///
    /// [`Error::Domain`] for members or buffers that make no domain, [`Error::Memory`] when a chip does not exist, has not
    /// so much memory, or died, [`Error::Buffer`] when the machine has not. Nothing is held then.
    ///
    /// Cost: one request to each member, all at once, and zeroing the memory.
    pub fn allocate_domain(
        &mut self,
        name: &str,
        workers: &[u32],
        window_bytes: u64,
        buffers: &[NamedBuffer],
    ) -> Result<Domain, Error> {
        let domain = self
            .desk()
            .allocate_domain(name, workers, window_bytes, buffers)?;
        self.own(&domain.core);
        Ok(domain)
    }
}

impl Worker {
    /// As [`Orchestrator::allocate_domain`], outside of any run: it lives until it is released, or the worker is closed.
    ///
    /// # Errors
    ///
    /// As [`Orchestrator::allocate_domain`]; [`Error::State`] unless the worker is ready.
    pub fn allocate_domain(
        &self,
        name: &str,
        workers: &[u32],
        window_bytes: u64,
        buffers: &[NamedBuffer],
    ) -> Result<Domain, Error> {
        let _lease = self.lease(&MEMORY)?;
        self.desk()?
            .allocate_domain(name, workers, window_bytes, buffers)
    }
}
